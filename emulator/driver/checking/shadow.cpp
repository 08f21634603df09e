// See shadow.hpp.
#include "checking/shadow.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

namespace aiocuda::emulator::checking {

std::uint64_t Releases::release(std::uint32_t block, std::uint32_t count, std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = last_.load(std::memory_order_relaxed) + 1;
  last_.store(number, std::memory_order_relaxed);
  by_address_[address] = number;
  auto& of_block = by_block_[block];
  if (of_block.size() <= count) of_block.resize(count + 1, number);
  return number;
}

std::uint64_t Releases::acquire(std::uintptr_t address) {
  if (last_.load(std::memory_order_relaxed) == 0) return 0;
  const std::lock_guard lock(mutex_);
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? 0 : found->second;
}

std::uint64_t Releases::number_of(std::uint32_t block, std::uint32_t count) {
  const std::lock_guard lock(mutex_);
  const auto found = by_block_.find(block);
  if (found == by_block_.end() || count >= found->second.size()) return std::numeric_limits<std::uint64_t>::max();
  return found->second[count];
}

void BlockOrder::begin(std::uint32_t block, std::uint32_t threads) {
  block_ = block;
  threads_ = threads;
  barriers_ = 0;
  releases_ = 0;
  cluster_rounds_ = 0;
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    meetings_[thread] = {};
    meetings_[thread][thread % lanes_of_warp] = 1;
    known_[thread] = 0;
    read_[thread] = 0;
    fenced_[thread] = false;
  }
}

void BlockOrder::learn(std::uint32_t thread, Releases& releases) {
  if (const std::uintptr_t read = std::exchange(read_[thread], 0))
    known_[thread] = std::max(known_[thread], releases.acquire(read));
}

void BlockOrder::meet_block(Releases& releases) {
  for (std::uint32_t thread = 0; thread < threads_; ++thread) learn(thread, releases);
  barriers_ = std::min(barriers_ + 1, most_barriers);
  const std::uint64_t known = *std::max_element(known_.begin(), known_.begin() + threads_);
  const bool fenced = std::find(fenced_.begin(), fenced_.begin() + threads_, true) != fenced_.begin() + threads_;
  for (std::uint32_t thread = 0; thread < threads_; ++thread) {
    meetings_[thread] = {};
    meetings_[thread][thread % lanes_of_warp] = 1;
    known_[thread] = known;
    fenced_[thread] = fenced;
  }
}

namespace {
// Releases go by addresses. Each round of a cluster's barrier has one of its own, which no memory has.
std::uintptr_t address_of(std::uint64_t cluster, std::uint64_t round) {
  return std::uintptr_t{1} << 63 | static_cast<std::uintptr_t>(cluster << 24) | (round & 0xffffff);
}
}  // namespace

void BlockOrder::arrive_in_cluster(std::uint64_t cluster, Releases& releases) {
  releases.release(block_, releases_, address_of(cluster, cluster_rounds_));
  releases_ = std::min(releases_ + 1, most_releases);
}

void BlockOrder::meet_cluster(std::uint64_t cluster, Releases& releases) {
  meet_block(releases);
  const std::uint64_t known = releases.acquire(address_of(cluster, cluster_rounds_++));
  for (std::uint32_t thread = 0; thread < threads_; ++thread) known_[thread] = std::max(known_[thread], known);
}

void BlockOrder::meet_lanes(std::uint32_t warp, std::uint32_t lanes, Releases& releases) {
  std::array<std::uint16_t, lanes_of_warp> joined{};
  std::uint64_t known = 0;
  bool fenced = false;
  const auto each = [&](auto f) {
    for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<std::uint32_t>(__builtin_ctz(rest));
      f(warp * lanes_of_warp + lane, lane);
    }
  };
  each([&](std::uint32_t thread, std::uint32_t) {
    learn(thread, releases);
    for (std::size_t lane = 0; lane < lanes_of_warp; ++lane)
      joined[lane] = std::max(joined[lane], meetings_[thread][lane]);
    known = std::max(known, known_[thread]);
    fenced = fenced || fenced_[thread];
  });
  each([&](std::uint32_t thread, std::uint32_t lane) {
    meetings_[thread] = joined;
    meetings_[thread][lane] = static_cast<std::uint16_t>(std::min<std::uint32_t>(joined[lane] + 1u, most_meetings));
    known_[thread] = known;
    fenced_[thread] = fenced;
  });
}

void BlockOrder::note(std::uint32_t thread, AccessKind kind, std::uintptr_t address, Releases& releases) {
  learn(thread, releases);
  if (kind == abi::access_read) return;
  if (kind == abi::access_write) {
    fenced_[thread] = false;
    return;
  }
  known_[thread] = std::max(known_[thread], releases.acquire(address));
  read_[thread] = address;
  if (kind != abi::access_atomic_write || !fenced_[thread]) return;
  releases.release(block_, releases_, address);
  releases_ = std::min(releases_ + 1, most_releases);
}

Cell BlockOrder::cell(std::uint32_t thread, AccessKind kind, std::uint32_t bytes, std::uint32_t code) const noexcept {
  Cell made;
  made.block = block_;
  made.code = code;
  made.thread = thread & (most_threads - 1);
  made.bytes = bytes & 15;
  made.kind = static_cast<std::uint32_t>(kind) & 3;
  made.barriers = barriers_ & most_barriers;
  made.meetings = meetings_[thread][thread % lanes_of_warp];
  made.releases = releases_ & most_releases;
  return made;
}

bool BlockOrder::is_ordered(const Cell& earlier, std::uint32_t thread, Releases& releases) const {
  if (earlier.block == block_) {
    if (earlier.thread == thread || earlier.barriers < barriers_ || earlier.barriers == most_barriers) return true;
    const bool is_of_warp = earlier.thread / lanes_of_warp == thread / lanes_of_warp;
    if (is_of_warp && meetings_[thread][earlier.thread % lanes_of_warp] >= earlier.meetings) return true;
  }
  if (known_[thread] == 0) return false;
  return earlier.releases == most_releases ||
         releases.number_of(earlier.block, static_cast<std::uint32_t>(earlier.releases)) <= known_[thread];
}

bool touch(Granule& granule, const Cell& cell, const BlockOrder& order, Releases& releases, Cell& other) {
  const AccessKind kind = cell.access_kind();
  bool races = false;
  for (const Cell& each : granule.cells) {
    if ((each.bytes & cell.bytes) == 0 || !conflict(kind, each.access_kind())) continue;
    if (order.is_ordered(each, static_cast<std::uint32_t>(cell.thread), releases)) continue;
    other = each;
    races = true;
    break;
  }
  auto& [write, atomic, read, other_read] = granule.cells;
  switch (kind) {
    case abi::access_write:
      write = cell;
      break;
    case abi::access_atomic_read: {
      // A write that others may still race with says more.
      const bool keeps = atomic.bytes != 0 && atomic.access_kind() == abi::access_atomic_write &&
                         !order.is_ordered(atomic, static_cast<std::uint32_t>(cell.thread), releases);
      if (!keeps) atomic = cell;
      break;
    }
    case abi::access_atomic_write:
      atomic = cell;
      break;
    case abi::access_read: {
      const auto stands_for = [&](const Cell& each) {
        return each.bytes == 0 || (each.block == cell.block && each.thread == cell.thread) ||
               order.is_ordered(each, static_cast<std::uint32_t>(cell.thread), releases);
      };
      (stands_for(read) ? read : other_read) = cell;
      break;
    }
  }
  return races;
}

GlobalShadow::Page* GlobalShadow::page(std::uintptr_t page) {
  const std::lock_guard lock(mutex_);
  const auto found = pages_.find(page);
  if (found != pages_.end()) return found->second.get();
  if (pages_.size() >= most_pages) {
    if (!std::exchange(has_said_so_, true)) {
      std::fprintf(stderr,
                   "emulated CUDA driver: check of races: a launch touches more than %zu MiB; races in the rest of its "
                   "memory are not looked for\n",
                   most_pages * page_bytes >> 20);
    }
    return nullptr;
  }
  return pages_.emplace(page, std::make_unique<Page>()).first->second.get();
}

void GlobalShadow::clear() {
  const std::lock_guard lock(mutex_);
  for (const auto& [page, content] : pages_) content->granules.fill({});
}

}  // namespace aiocuda::emulator::checking
