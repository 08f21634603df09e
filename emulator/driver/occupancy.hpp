// How many blocks of a kernel fit on an emulated multiprocessor: as many as its threads, its shared
// memory and its limit of blocks allow. One model for the occupancy functions and cooperative launches.
#pragma once
#include "module.hpp"

namespace aiocuda::emulator {

// 0 when not even one fits.
int active_blocks_per_multiprocessor(const KernelDescription& kernel, int threads_per_block,
                                     std::size_t dynamic_shared_bytes);

// How many blocks a cluster of the function can have.
int largest_cluster(const Function& function);

}  // namespace aiocuda::emulator
