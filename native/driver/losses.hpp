// Work that the driver refused after it was given, with all later work that depends on it; and contexts that are
// broken. Knows no Python: any thread may add to it and ask.
//
// Always true: work that touches bytes which lost work was to write is lost, too, until the losses are forgotten. Who
// forgets them has had everything given performed, and no walk goes on that was decided without knowing of them.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "command.hpp"

namespace aiocuda::driver {

class Losses {
 public:
  // A call that was refused.
  struct Cause {
    CUresult result;
    const char* function;
    WorkOf of;
  };
  struct Known {
    std::vector<Cause> causes;
    std::map<dataflow::Tick, std::size_t> lost;  // submissions, and the cause of each

    // The index of the cause for which a submission is lost.
    std::optional<std::size_t> find(dataflow::Tick tick) const {
      const auto found = lost.find(tick);
      return found == lost.end() ? std::nullopt : std::optional(found->second);
    }
  };

  // Has some work been lost, and nobody been told?
  bool is_any() const { return is_any_.load(std::memory_order_acquire); }

  void add(const Cause& cause, std::span<const MemoryRange> touched) {
    const std::lock_guard lock(mutex_);
    known_.causes.push_back(cause);
    note(cause.of.tick, touched, known_.causes.size() - 1);
    is_any_.store(true, std::memory_order_release);
  }
  // True: work that touches these bytes depends on what is lost, and is lost now.
  bool spread(const WorkOf& of, std::span<const MemoryRange> touched) {
    if (!is_any()) return false;
    const std::lock_guard lock(mutex_);
    const std::optional<std::size_t> cause = cause_for(of.tick, touched);
    if (cause) note(of.tick, touched, *cause);
    return cause.has_value();
  }
  // The cause for which such work would be lost.
  std::optional<Cause> find(dataflow::Tick tick, std::span<const MemoryRange> touched) const {
    if (!is_any()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const std::optional<std::size_t> cause = cause_for(tick, touched);
    return cause ? std::optional(known_.causes[*cause]) : std::nullopt;
  }
  // The cause for which a submission is lost.
  std::optional<Cause> find(dataflow::Tick tick) const { return find(tick, {}); }
  Known known() const {
    const std::lock_guard lock(mutex_);
    return known_;
  }
  // The bytes may be another array's from here on.
  void note_freed(std::uint64_t address, std::uint64_t size_bytes) {
    if (!is_any()) return;
    const std::lock_guard lock(mutex_);
    const MemoryRange freed{address, address + size_bytes, true};
    std::erase_if(ranges_, [&](const auto& each) { return freed.meets({each.first.first, each.first.second, true}); });
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    ranges_.clear();
    is_any_.store(false, std::memory_order_release);
    known_ = {};
  }

  // A context on which an order could not be given: nothing goes on there.
  void note_broken(CUcontext context, CUresult answer) {
    const std::lock_guard lock(mutex_);
    broken_.emplace(context, breaks_context(answer) ? answer : CUDA_ERROR_UNKNOWN);
    is_any_broken_.store(true, std::memory_order_release);
  }
  CUresult broken(CUcontext context) const {
    if (!is_any_broken_.load(std::memory_order_acquire)) return CUDA_SUCCESS;
    const std::lock_guard lock(mutex_);
    const auto found = broken_.find(context);
    return found == broken_.end() ? CUDA_SUCCESS : found->second;
  }

 private:
  // A part of a submission may be lost, or a wait that it needs.
  std::optional<std::size_t> cause_for(dataflow::Tick tick, std::span<const MemoryRange> touched) const {
    if (const auto cause = known_.find(tick)) return cause;
    for (const auto& [lost, cause] : ranges_)
      for (const MemoryRange& range : touched)
        if (range.meets({lost.first, lost.second, true})) return cause;
    return std::nullopt;
  }
  void note(dataflow::Tick tick, std::span<const MemoryRange> touched, std::size_t cause) {
    known_.lost.try_emplace(tick, cause);
    for (const MemoryRange& range : touched)
      if (range.writes) ranges_.try_emplace({range.begin, range.end}, cause);
  }

  mutable std::mutex mutex_;
  std::atomic<bool> is_any_{false}, is_any_broken_{false};
  Known known_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> ranges_;  // that lost work was to write: its cause
  std::map<CUcontext, CUresult> broken_;
};

}  // namespace aiocuda::driver
