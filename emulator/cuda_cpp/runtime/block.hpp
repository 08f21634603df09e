// The state of one block that runs as fibers on one OS thread. A fiber is, at any time, in exactly one of
// the sets of its warp: ready, at the block's barrier, at a warp operation, or gone. The record lives in
// the thread's scratch memory and is made anew for every block, so a block that was left in the middle
// (a fault jumps out of it) leaves nothing behind that matters.
#pragma once

#include <cstdint>

#include "../../abi/module_abi.hpp"
#include "../../abi/thread_memory.hpp"
#include "../include/aiocuda_cuda_cpp/warp_operation.hpp"

namespace aiocuda::emulator::runtime {

struct Index3 {
  unsigned x, y, z;
};

struct Warp {
  std::uint32_t live;
  std::uint32_t ready;
  std::uint32_t at_barrier;
  std::uint32_t exchanging;
  std::uint32_t in_group;  // at the barrier of a group of the block's threads
};

struct Fiber {
  void* stack;
  Warp* warp;
  std::uint32_t bit;  // of its lane
  Index3 thread_index;
  int operation;  // what the lane waits for while it is in Warp::exchanging
  unsigned mask;
  unsigned argument;     // or the group at whose barrier it waits: its first thread, max_fibers + a barrier's name, or
                         // cluster_group
  int line;              // where it last waited
  unsigned passed_over;  // how often other lanes went on first from a step
  bool is_in_cluster_barrier;      // it has arrived and not waited
  std::uint64_t cluster_arrivals;  // at the barrier of the cluster
  std::uint64_t value;
  std::uint64_t result;
};

inline constexpr unsigned warp_size = 32;
inline constexpr unsigned max_warps = abi::max_fibers / warp_size;
inline constexpr std::size_t max_dynamic_shared_bytes = 256 * 1024;

inline constexpr unsigned barrier_names = 16;                               // of PTX
inline constexpr unsigned cluster_group = abi::max_fibers + barrier_names;  // who waits for the cluster

struct Block {
  unsigned named_arrived[barrier_names];
  Warp warps[max_warps];
  std::uint32_t ready_warps;  // bit w: warps[w].ready != 0
  unsigned warp_count;
  unsigned live;
  unsigned arrived;              // at the barrier
  unsigned yields;               // since threads last met
  unsigned missing_in_cluster;   // threads that have not arrived in this round of the cluster's barrier
  unsigned waiting_for_cluster;  // threads
  std::uint64_t cluster_rounds;  // that this block has passed
  int votes_count, votes_and, votes_or;
  int result_count, result_and, result_or;
  unsigned current;
  void* caller_stack;
  void (*kernel)(void* const* arguments);
  void* const* arguments;
  Fiber fibers[abi::max_fibers];
  // Apart from the fibers, which barriers go through: the fewer cache lines, the better.
  unsigned short group_arrived[abi::max_fibers];  // by a group's first thread: how many have come to its barrier
  void* offered[abi::max_fibers];                 // what a thread shows to others of its warp or group
};

static_assert(max_dynamic_shared_bytes + sizeof(Block) <= abi::thread_scratch_bytes);

// Runs every thread of the current block to its end, `threads` of them, on `scratch`.
void run_block(char* scratch, Index3 extent, unsigned threads, void (*kernel)(void* const*), void* const* arguments);

// Waits at the barrier of a group of the block's threads; lets those go on that do.
void wait_in_group(Block& b, unsigned group, int line);
void release_group(Block& b, unsigned group);

// The block that runs as fibers on this thread; null where none does.
Block* current_block();

// cluster.cpp. A thread has returned from the kernel.
void leave_cluster_barrier(Block& b, const Fiber& fiber);
// Lets the threads go on that wait for the cluster, if all its blocks have arrived.
void look_at_cluster(Block& b);
// The same, and waits for the other blocks. False where that would not help.
bool wait_for_cluster(Block& b);
// Before a range of blocks.
void begin_cluster(const abi::Launch& launch);
// Shows the other blocks of the cluster where this one's shared memory lies (shared.cpp).
void show_own_shared();
// The block's place in its cluster, x fastest.
unsigned rank_in_cluster();
unsigned blocks_of_cluster();

// No block runs as fibers on this thread any more: one that a fault left may have been the last.
void forget_block();

// The driver's services; null until the driver has set them.
extern const abi::Services* services;

[[noreturn]] void fail(int cuda_error, const char* message);

}  // namespace aiocuda::emulator::runtime
