// The threads that share the blocks of kernels (and the pieces of big copies). The thread that calls
// run() always takes part itself, so it needs nobody's help to get to the end.
#pragma once
#include <cstdint>

#include "fault.hpp"

namespace aiocuda::emulator {

// A range [0, count) of independent pieces.
class Pieces {
 public:
  virtual ~Pieces() = default;
  // Of pieces that run together: all of them wait for each other, and go on when this returns.
  virtual void all_met() {}
  // Does [first, last); called by several threads at once, each inside run_guarded.
  virtual void run(std::uint64_t first, std::uint64_t last) = 0;
};

// Runs all pieces, spread over the pool's threads and the calling one, in ascending order of start unless
// that is shuffled.
// Returns when none is running any more. The first fault ends it: pieces not begun are skipped.
Fault run_pieces(Pieces& pieces, std::uint64_t count, int priority);

}  // namespace aiocuda::emulator
