// The blocks of a cooperative launch: all run at once, each on a thread of its own, and can wait for one another.
#pragma once
#include <cstdint>

#include <optional>

#include "block_pool.hpp"
#include "cluster.hpp"
#include "fault.hpp"

namespace aiocuda::emulator {

// Runs all blocks, each by itself. Returns when none is running any more, with the first fault; the others then end
// where they next wait. They may be in clusters.
Fault run_together(Pieces& blocks, std::uint64_t count, const std::optional<ClusterShape>& clusters);

// Does the calling thread run a block of a cooperative launch? The function behind Services::is_in_grid.
bool is_in_grid();

// Returns when every block of the launch has come here as often as the calling one. Fails the kernel if that cannot be:
// another block has ended or failed, or the launch is not cooperative. The function behind Services::meet_grid.
void meet_grid();

}  // namespace aiocuda::emulator
