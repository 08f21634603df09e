// Fibers of a block: who runs next, the barrier, and the exchanges within a warp.
#include "block.hpp"

#include <cstdio>
#include <cstring>

#include "checks.hpp"
#include "switch.hpp"

namespace aiocuda::emulator::runtime {
namespace {

constexpr int cuda_error_launch_failed = 719;

__thread Block* block;

}  // namespace
}  // namespace aiocuda::emulator::runtime

// The names kernels see. Defined by the runtime, set before each switch to a fiber.
extern "C" {
[[gnu::visibility("hidden")]] __thread aiocuda::emulator::runtime::Index3 threadIdx;
[[gnu::visibility("hidden")]] __thread aiocuda::emulator::runtime::Index3 blockIdx;
}

namespace aiocuda::emulator::runtime {
namespace {

std::uint32_t bit(unsigned lane) { return std::uint32_t{1} << lane; }
unsigned lowest(std::uint32_t mask) { return static_cast<unsigned>(__builtin_ctz(mask)); }

// Lanes after `lane`, none after the last.
std::uint32_t after(unsigned lane) { return lane == warp_size - 1 ? 0 : ~std::uint32_t{0} << (lane + 1); }

void make_ready(Block& b, unsigned warp, std::uint32_t lanes) {
  b.warps[warp].ready |= lanes;
  if (lanes != 0) b.ready_warps |= bit(warp);
}

void make_wait(Block& b, unsigned warp, std::uint32_t lane) {
  Warp& w = b.warps[warp];
  w.ready &= ~lane;
  if (w.ready == 0) b.ready_warps &= ~bit(warp);
}

std::uint64_t reduce(const Block& b, unsigned warp, std::uint32_t members, int operation) {
  const Fiber* lanes = &b.fibers[warp * warp_size];
  std::uint64_t result = lanes[lowest(members)].value;
  for (std::uint32_t rest = members & (members - 1); rest != 0; rest &= rest - 1) {
    const std::uint64_t value = lanes[lowest(rest)].value;
    const auto before = static_cast<std::int64_t>(result);
    const auto next = static_cast<std::int64_t>(value);
    switch (operation) {
      case aiocuda_warp_add:
        result += value;
        break;
      case aiocuda_warp_min_signed:
        result = next < before ? value : result;
        break;
      case aiocuda_warp_max_signed:
        result = next > before ? value : result;
        break;
      case aiocuda_warp_min_unsigned:
        result = value < result ? value : result;
        break;
      case aiocuda_warp_max_unsigned:
        result = value > result ? value : result;
        break;
      case aiocuda_warp_and:
        result &= value;
        break;
      case aiocuda_warp_or:
        result |= value;
        break;
      default:
        result ^= value;
        break;
    }
  }
  return result;
}

// Gives every member its result of the exchange that they all have come to, and lets them go on.
void complete_exchange(Block& b, unsigned warp, std::uint32_t members) {
  Fiber* lanes = &b.fibers[warp * warp_size];
  const int operation = lanes[lowest(members)].operation;
  std::uint64_t common = 0;
  if (operation == aiocuda_warp_ballot) {
    for (std::uint32_t rest = members; rest != 0; rest &= rest - 1) {
      if (lanes[lowest(rest)].value != 0) common |= bit(lowest(rest));
    }
  } else if (operation == aiocuda_warp_match_all) {
    common = members;
    for (std::uint32_t rest = members; rest != 0; rest &= rest - 1) {
      if (lanes[lowest(rest)].value != lanes[lowest(members)].value) common = 0;
    }
  } else if (operation >= aiocuda_warp_add && operation <= aiocuda_warp_xor) {
    common = reduce(b, warp, members, operation);
  } else if (operation == aiocuda_warp_converge || operation == aiocuda_warp_step) {
    common = members;
  }
  for (std::uint32_t rest = members; rest != 0; rest &= rest - 1) {
    Fiber& lane = lanes[lowest(rest)];
    if (operation == aiocuda_warp_shuffle) {
      check_shuffle(b, warp, lowest(rest), members);
      // What a lane reads from one outside the mask, or from one that has left, is undefined in CUDA. An H200 gives 0.
      const bool takes_part = (members & bit(lane.argument & 31)) != 0;
      lane.result = takes_part ? lanes[lane.argument & 31].value : 0;
    } else if (operation == aiocuda_warp_match_any) {
      std::uint32_t equal = 0;
      for (std::uint32_t others = members; others != 0; others &= others - 1) {
        if (lanes[lowest(others)].value == lane.value) equal |= bit(lowest(others));
      }
      lane.result = equal;
    } else {
      lane.result = common;
    }
  }
  if (operation == aiocuda_warp_sync || operation == aiocuda_warp_step) tell_met(abi::meeting_of_lanes, warp, members);
  b.warps[warp].exchanging &= ~members;
  b.yields = 0;
  make_ready(b, warp, members);
}

// The lanes that complete the exchange which `lane` waits in, or 0 while one is still to come. Lanes that
// have left the kernel are not waited for, as on a GPU.
std::uint32_t complete_members(const Block& b, unsigned warp, unsigned lane) {
  const Warp& w = b.warps[warp];
  const Fiber* lanes = &b.fibers[warp * warp_size];
  if (lanes[lane].operation == aiocuda_warp_converge || lanes[lane].operation == aiocuda_warp_step) return 0;
  const std::uint32_t members = lanes[lane].mask & w.live;
  if ((members & ~w.exchanging) != 0) return 0;
  for (std::uint32_t rest = members; rest != 0; rest &= rest - 1) {
    const Fiber& other = lanes[lowest(rest)];
    if (other.operation != lanes[lane].operation || other.mask != lanes[lane].mask) return 0;
  }
  return members;
}

void release_barrier(Block& b) {
  tell_met(abi::meeting_of_block, 0, 0);
  for (unsigned w = 0; w < b.warp_count; ++w) {
    make_ready(b, w, b.warps[w].at_barrier);
    b.warps[w].at_barrier = 0;
  }
  b.result_count = b.votes_count;
  b.result_and = b.votes_and;
  b.result_or = b.votes_or;
  b.votes_count = 0;
  b.votes_and = 1;
  b.votes_or = 0;
  b.arrived = 0;
  b.yields = 0;
}

// A lane may wait at a step for others in a loop; for those that wait for the lane, it goes on in the end.
constexpr unsigned longest_wait_at_step = 1000;

// The lanes of a warp that wait at one place for whoever comes there too: of steps, the place that comes first
// in the program, so that lanes which took a branch catch up; else the first lane's line.
std::uint32_t converging(Block& b, unsigned warp) {
  Fiber* lanes = &b.fibers[warp * warp_size];
  std::uint32_t members = 0;
  int operation = 0;
  int line = 0;
  for (std::uint32_t rest = b.warps[warp].exchanging; rest != 0; rest &= rest - 1) {
    Fiber& lane = lanes[lowest(rest)];
    if (lane.operation != aiocuda_warp_converge && lane.operation != aiocuda_warp_step) continue;
    const bool is_overdue = lane.passed_over > longest_wait_at_step;
    const bool comes_first =
        lane.operation == aiocuda_warp_step && (operation != aiocuda_warp_step || lane.line < line);
    if (members == 0 || comes_first || is_overdue) {
      members = 0;
      operation = lane.operation;
      line = lane.line;
    }
    if (lane.operation == operation && lane.line == line) members |= bit(lowest(rest));
    ++lane.passed_over;
    if (is_overdue) break;
  }
  return members;
}

// If only lanes that poll can go on in the block, lets the lanes go on that wait at one place.
bool converge(Block& b) {
  bool any = false;
  for (unsigned w = 0; w < b.warp_count; ++w) {
    if (const std::uint32_t members = converging(b, w); members != 0) {
      complete_exchange(b, w, members);
      any = true;
    }
  }
  return any;
}

[[noreturn]] void fail_dead_locked(const Block& b) {
  unsigned at_barrier = 0;
  unsigned exchanging = 0;
  int barrier_line = 0;
  int exchange_line = 0;
  for (unsigned i = 0; i < b.warp_count * warp_size; ++i) {
    const Warp& w = b.warps[i / warp_size];
    if ((w.at_barrier & bit(i % warp_size)) != 0) {
      ++at_barrier;
      barrier_line = b.fibers[i].line;
    }
    if ((w.in_group & bit(i % warp_size)) != 0) {
      ++at_barrier;
      barrier_line = b.fibers[i].line;
    }
    if ((w.exchanging & bit(i % warp_size)) != 0) {
      ++exchanging;
      exchange_line = b.fibers[i].line;
    }
  }
  char barrier_text[96] = "";
  char exchange_text[96] = "";
  if (at_barrier != 0) {
    std::snprintf(barrier_text, sizeof barrier_text, "; %u at __syncthreads (line %d)", at_barrier, barrier_line);
  }
  if (exchanging != 0) {
    std::snprintf(exchange_text, sizeof exchange_text, "; %u at a warp operation (line %d)", exchanging, exchange_line);
  }
  char message[400];
  std::snprintf(message, sizeof message,
                "block (%u,%u,%u) can never go on: %u threads wait%s%s. Every thread of the block, or of the "
                "mask, that has not returned must come to the same barrier.",
                blockIdx.x, blockIdx.y, blockIdx.z, b.live, barrier_text, exchange_text);
  fail(cuda_error_launch_failed, message);
}

// The next fiber that can run after the current one, in index order and around.
unsigned next_ready(Block& b) {
  const unsigned warp = b.current / warp_size;
  if (const std::uint32_t lanes = b.warps[warp].ready & after(b.current % warp_size); lanes != 0) {
    return warp * warp_size + lowest(lanes);
  }
  while (b.ready_warps == 0) {
    if (!converge(b) && !wait_for_cluster(b)) fail_dead_locked(b);
  }
  const std::uint32_t later = b.ready_warps & after(warp);
  const unsigned next = lowest(later != 0 ? later : b.ready_warps);
  return next * warp_size + lowest(b.warps[next].ready);
}

void switch_to(Block& b, unsigned next, void** from) {
  b.current = next;
  threadIdx = b.fibers[next].thread_index;
  switch_stack(from, b.fibers[next].stack);
}

// The current fiber cannot go on: run others until it can.
void wait(Block& b) {
  Fiber& self = b.fibers[b.current];
  const unsigned next = next_ready(b);
  if (&b.fibers[next] != &self) switch_to(b, next, &self.stack);
}

[[noreturn]] void fiber_main() {
  Block& b = *block;
  b.kernel(b.arguments);
  const unsigned warp = b.current / warp_size;
  const std::uint32_t self = bit(b.current % warp_size);
  make_wait(b, warp, self);
  b.warps[warp].live &= ~self;
  --b.live;
  leave_cluster_barrier(b, b.fibers[b.current]);
  if (b.live != 0 && b.arrived == b.live) {
    check_barrier(b);
    release_barrier(b);
  }
  for (std::uint32_t rest = b.warps[warp].exchanging; rest != 0; rest &= rest - 1) {
    const std::uint32_t members = complete_members(b, warp, lowest(rest));
    if (members == 0) continue;
    complete_exchange(b, warp, members);
    rest = b.warps[warp].exchanging | 1;  // the loop takes one off; start again with what is left
    if (b.warps[warp].exchanging == 0) break;
  }
  void* abandoned = nullptr;
  if (b.live == 0) {
    switch_stack(&abandoned, b.caller_stack);
  } else {
    switch_to(b, next_ready(b), &abandoned);
  }
  __builtin_unreachable();
}

// Stacks lie a power of two apart; without this the same frames of all of them would fight for the
// same cache lines.
constexpr std::size_t stagger_bytes = 5 * 64;
constexpr unsigned stagger_period = 61;

}  // namespace

void release_group(Block& b, unsigned group) {
  b.yields = 0;
  for (unsigned i = 0; i < b.warp_count * warp_size; ++i) {
    Warp& warp = b.warps[i / warp_size];
    if ((warp.in_group & bit(i % warp_size)) == 0 || b.fibers[i].argument != group) continue;
    warp.in_group &= ~bit(i % warp_size);
    make_ready(b, i / warp_size, bit(i % warp_size));
  }
}

void wait_in_group(Block& b, unsigned group, int line) {
  Fiber& self = b.fibers[b.current];
  self.line = line;
  self.argument = group;
  self.warp->in_group |= self.bit;
  make_wait(b, b.current / warp_size, self.bit);
  wait(b);
}

Block* current_block() { return block; }
void forget_block() { block = nullptr; }

void run_block(char* scratch, Index3 extent, unsigned threads, void (*kernel)(void* const*), void* const* arguments) {
  Block& b = *reinterpret_cast<Block*>(scratch + max_dynamic_shared_bytes);
  block = &b;
  b.warp_count = (threads + warp_size - 1) / warp_size;
  b.ready_warps = 0;
  b.live = threads;
  b.arrived = 0;
  b.yields = 0;
  b.missing_in_cluster = threads;
  b.waiting_for_cluster = 0;
  b.cluster_rounds = 0;
  b.votes_count = b.votes_or = 0;
  b.votes_and = 1;
  for (unsigned& arrived : b.named_arrived) arrived = 0;
  std::memset(b.group_arrived, 0, threads * sizeof b.group_arrived[0]);
  b.kernel = kernel;
  b.arguments = arguments;
  char* stacks = scratch + abi::ThreadMemory::first_stack_offset;
  Index3 index{0, 0, 0};
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = b.fibers[i];
    char* top = stacks + i * abi::fiber_stride_bytes + abi::fiber_stack_bytes - (i % stagger_period) * stagger_bytes;
    fiber.stack = new_stack(top, [] { fiber_main(); });
    fiber.warp = &b.warps[i / warp_size];
    fiber.bit = bit(i % warp_size);
    fiber.thread_index = index;
    fiber.is_in_cluster_barrier = false;
    fiber.cluster_arrivals = 0;
    if (++index.x == extent.x) {
      index.x = 0;
      if (++index.y == extent.y) {
        index.y = 0;
        ++index.z;
      }
    }
  }
  for (unsigned w = 0; w < b.warp_count; ++w) {
    const unsigned lanes = threads - w * warp_size;
    b.warps[w] = Warp{lanes >= warp_size ? ~std::uint32_t{0} : bit(lanes) - 1, 0, 0, 0, 0};
    make_ready(b, w, b.warps[w].live);
  }
  switch_to(b, 0, &b.caller_stack);
}

}  // namespace aiocuda::emulator::runtime

using namespace aiocuda::emulator::runtime;

extern "C" {

[[gnu::visibility("hidden")]] void aiocuda_barrier(int line) {
  Block& b = *block;
  if (++b.arrived == b.live) {
#ifdef AIOCUDA_CHECKED
    b.fibers[b.current].line = line;
    b.fibers[b.current].warp->at_barrier |= b.fibers[b.current].bit;
    check_barrier(b);
#endif
    release_barrier(b);
    return;
  }
  const unsigned index = b.current;
  Fiber& self = b.fibers[index];
  Warp& warp = *self.warp;
  self.line = line;
  warp.at_barrier |= self.bit;
  warp.ready &= ~self.bit;
  // Mostly the next lane of the warp goes on: no need to look further.
  if (const std::uint32_t later = warp.ready & ~(self.bit | (self.bit - 1)); later != 0) {
    switch_to(b, (index & ~(warp_size - 1)) + lowest(later), &self.stack);
    return;
  }
  if (warp.ready == 0) b.ready_warps &= ~bit(index / warp_size);
  wait(b);
}

// Threads [first, first + threads) of the block meet: a tile of several warps.
[[gnu::visibility("hidden")]] void aiocuda_group_barrier(unsigned first, unsigned threads, int line) {
  Block& b = *block;
  if (++b.group_arrived[first] == threads) {
    b.group_arrived[first] = 0;
    release_group(b, first);
  } else {
    wait_in_group(b, first, line);
  }
}

// A barrier that inline PTX names: passed when as many threads have come as were told. Those that only arrive go on.
[[gnu::visibility("hidden")]] void aiocuda_named_barrier(unsigned name, unsigned threads, int waits, int line) {
  Block& b = *block;
  if (name >= barrier_names) fail(cuda_error_launch_failed, "a block has the barriers 0 to 15");
  if (++b.named_arrived[name] >= threads) {
    b.named_arrived[name] = 0;
    release_group(b, aiocuda::emulator::abi::max_fibers + name);
  } else if (waits != 0) {
    wait_in_group(b, aiocuda::emulator::abi::max_fibers + name, line);
  }
}

// What a lane shows to the others of its warp.
[[gnu::visibility("hidden")]] void aiocuda_offer(void* own) { block->offered[block->current] = own; }
[[gnu::visibility("hidden")]] void* aiocuda_offered(unsigned lane) {
  return block->offered[block->current / warp_size * warp_size + lane];
}

// Shows `own` to the threads of the group and answers what thread `wanted` of the block shows. All come, and come to a
// barrier of the group before what they show ends.
[[gnu::visibility("hidden")]] void* aiocuda_exchange_in_group(unsigned first, unsigned threads, void* own,
                                                              unsigned wanted) {
  Block& b = *block;
  if (own != nullptr) {
    b.offered[b.current] = own;
    aiocuda_group_barrier(first, threads, 0);
  }
  return b.offered[wanted];
}

// The last thread of the block to come waits for the other blocks, before it lets those of its own go on.
[[gnu::visibility("hidden")]] void aiocuda_grid_barrier(int line) {
  if (block == nullptr || services == nullptr || services->meet_grid == nullptr) {
    fail(cuda_error_launch_failed, "grid-wide synchronisation is not possible here");
  }
  if (block->arrived + 1 == block->live) services->meet_grid();
  aiocuda_barrier(line);
}

[[gnu::visibility("hidden")]] int aiocuda_barrier_vote(int kind, int predicate, int line) {
  Block& b = *block;
  b.votes_count += predicate != 0;
  b.votes_and &= predicate != 0;
  b.votes_or |= predicate != 0;
  aiocuda_barrier(line);
  // The next barrier cannot complete before this thread has come to it, so the result still stands.
  return kind == aiocuda_vote_count ? b.result_count : kind == aiocuda_vote_and ? b.result_and : b.result_or;
}

[[gnu::visibility("hidden")]] unsigned long long aiocuda_warp(int operation, unsigned mask, unsigned long long value,
                                                              unsigned argument, int line) {
  Block& b = *block;
  const unsigned warp = b.current / warp_size;
  const unsigned lane = b.current % warp_size;
  Fiber& self = b.fibers[b.current];
  check_mask(b, warp, lane, mask, line);
  if ((mask & bit(lane)) == 0) {
    char message[200];
    std::snprintf(message, sizeof message,
                  "line %d: lane %u calls a warp operation with mask 0x%08x, which does not name the lane itself", line,
                  lane, mask);
    fail(cuda_error_launch_failed, message);
  }
  self.operation = operation;
  self.mask = mask;
  self.value = value;
  self.argument = argument;
  self.line = line;
  self.passed_over = 0;
  b.warps[warp].exchanging |= bit(lane);
  if (const std::uint32_t members = complete_members(b, warp, lane); members != 0) {
    complete_exchange(b, warp, members);
    return self.result;
  }
  make_wait(b, warp, bit(lane));
  wait(b);
  return self.result;
}

[[gnu::visibility("hidden")]] unsigned aiocuda_lane() { return block->current % warp_size; }
[[gnu::visibility("hidden")]] unsigned aiocuda_warp_index() { return block->current / warp_size; }

// Lets the other threads of the block go on; a thread that waits for another by reading memory calls it. When
// all others have had their turns and nothing came of it, those that wait for company go on without more.
[[gnu::visibility("hidden")]] void aiocuda_yield() {
  if (block == nullptr) return;
  Block& b = *block;
  if (b.waiting_for_cluster != 0) look_at_cluster(b);
  if (++b.yields > 4 * b.live) {
    b.yields = 0;
    converge(b);
    if (services != nullptr && services->poll != nullptr) services->poll();
  }
  if (b.live > 1) wait(b);
}

[[gnu::visibility("hidden")]] void aiocuda_step(int place) {
  if (block != nullptr && block->live > 1) aiocuda_warp(aiocuda_warp_step, ~0u, 0, 0, place);
}
}
