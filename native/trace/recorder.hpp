// What a trace records: the work that was submitted, with what it came after, and who asked for it. Knows neither
// Python nor CUDA.
//
// Always true: records are only added, and each has its place as its number. Work depends on work of lower numbers
// alone. Nothing here calls the driver, or waits. Guarded by the GIL.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../dataflow/tick.hpp"

namespace aiocuda::trace {
using dataflow::StreamIndex;
using dataflow::Tick;

using Number = std::uint32_t;
inline constexpr Number none = static_cast<Number>(-1);
using Nanoseconds = std::int64_t;

inline Nanoseconds now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

enum class WorkKind : std::uint8_t { launch, allocate, fill, copy, call, graph, function };
enum class WorkState : std::uint8_t {
  submitted,  // as far as is known
  withdrawn,  // the walk stopped before it, and comes back
  refused,    // the driver did not take it, or its function raised
  measured    // the device has passed it, and its times are known
};

// A piece of work. Times are the host's, 0 where there is none; those of the device are on the host's clock.
struct Work {
  Tick tick{};  // of no stream: a count of 0
  std::int32_t device = -1;
  WorkKind kind = WorkKind::launch;
  WorkState state = WorkState::submitted;
  Number name = 0, place = none, ask = none;
  Number brought_by = none;  // of a copy: the copy that wrote what it reads
  std::uint32_t needs_begin = 0, needs_count = 0;
  std::uint64_t size_bytes = 0, held_bytes = 0;  // that it moves or makes; that arrays of its device hold then
  Nanoseconds built = 0, decided = 0, called = 0, returned = 0, started = 0, ended = 0;
};

enum class AskKind : std::uint8_t { await, sync, submit, future };
enum class Outcome : std::uint8_t { open, done, failed, cancelled, timed_out };

// An await, or another way of having an operation executed.
struct Ask {
  AskKind kind = AskKind::await;
  Outcome outcome = Outcome::open;
  Number name = 0, place = none, who = 0;
  std::uint32_t results_begin = 0, results_count = 0;  // the last work of its result
  Nanoseconds begun = 0, ended = 0;
};

// A time in which somebody's thread was with aiocuda.
struct Step {
  Number ask;
  Nanoseconds begun, ended;
};

class Recorder {
 public:
  Recorder() = default;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  const std::deque<Work>& works() const { return works_; }
  const std::deque<Ask>& asks() const { return asks_; }
  const std::deque<Step>& steps() const { return steps_; }
  std::span<const Number> needs(const Work& work) const {
    return std::span(links_).subspan(work.needs_begin, work.needs_count);
  }
  std::span<const Number> results(const Ask& ask) const {
    return std::span(links_).subspan(ask.results_begin, ask.results_count);
  }
  const std::vector<std::string>& names() const { return names_; }
  std::size_t size_bytes() const {
    std::size_t ends = 0;
    for (const auto& stream : ends_) ends += stream.capacity() * sizeof(End);
    return works_.size() * sizeof(Work) + asks_.size() * sizeof(Ask) + steps_.size() * sizeof(Step) +
           links_.capacity() * sizeof(Number) + ends;
  }

  Number name(std::string_view text) {
    if (const auto found = numbers_.find(std::string(text)); found != numbers_.end()) return found->second;
    const auto number = static_cast<Number>(names_.size());
    names_.emplace_back(text);
    numbers_.emplace(std::string(text), number);
    return number;
  }

  // An object was built now. Of those that are built and never executed, the last at an address is remembered.
  void note_built(const void* object) { built_[object] = now_ns(); }

  // `after`: what it comes after; ticks that are not of this trace are left out. `built`: the object of `note_built`.
  Number begin_work(Work work, std::span<const Tick> after, const void* built) {
    const auto number = static_cast<Number>(works_.size());
    work.decided = work.called = now_ns();
    if (const auto found = built_.find(built); found != built_.end()) {
      work.built = found->second;
      built_.erase(found);
    }
    work.ask = current();
    work.needs_begin = add_links(after);
    work.needs_count = static_cast<std::uint32_t>(links_.size()) - work.needs_begin;
    works_.push_back(work);
    return number;
  }
  // Nothing was done yet: it is to begin again.
  void withdraw(Number number, const void* built) {
    works_[number].state = WorkState::withdrawn;
    if (works_[number].built) built_[built] = works_[number].built;
  }
  // The submission that it is, on its stream's later than all before.
  void end_work(Number number, Tick tick) {
    works_[number].tick = tick;
    if (ends_.size() <= tick.stream) ends_.resize(tick.stream + 1);
    ends_[tick.stream].push_back({tick.count, number});
  }
  Work& work(Number number) { return works_[number]; }
  const Work& work(Number number) const { return works_[number]; }

  // The work that a tick is; of several, the last.
  Number find(Tick tick) const {
    if (tick.count == 0 || tick.stream >= ends_.size()) return none;
    const auto& ends = ends_[tick.stream];
    auto after = std::upper_bound(ends.begin(), ends.end(), tick.count,
                                  [](std::uint64_t count, const End& end) { return count < end.count; });
    return after != ends.begin() && std::prev(after)->count == tick.count ? std::prev(after)->work : none;
  }

  // Whoever asks is known by a key until the end: an object's address. From here on, work is for it.
  Number begin_ask(const void* key, Ask ask) {
    const auto number = static_cast<Number>(asks_.size());
    ask.begun = now_ns();
    asks_.push_back(ask);
    keys_[key] = number;
    return number;
  }
  Number find_ask(const void* key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? none : found->second;
  }
  void end_ask(const void* key, Outcome outcome, std::span<const Tick> ready) {
    const auto found = keys_.find(key);
    if (found == keys_.end()) return;
    Ask& ask = asks_[found->second];
    keys_.erase(found);
    ask.outcome = outcome;
    ask.ended = now_ns();
    ask.results_begin = add_links(ready);
    ask.results_count = static_cast<std::uint32_t>(links_.size()) - ask.results_begin;
  }

  // From here on what the thread does is for somebody. Gives back for whom it was before.
  Number enter(Number ask) {
    const Number before = current();
    asking = {this, ask};
    return before;
  }
  void leave(Number before, Nanoseconds begun) {
    if (current() != none) steps_.push_back({current(), begun, now_ns()});
    asking = {this, before};
  }
  Number current() const { return asking.recorder == this ? asking.ask : none; }

 private:
  struct End {
    std::uint64_t count;
    Number work;
  };

  // For whom a thread is at work, of the recorder that it was last told by.
  struct Asking {
    const Recorder* recorder;
    Number ask;
  };
  static inline thread_local Asking asking{nullptr, none};

  // Gives back where they begin: in ascending order, each once.
  std::uint32_t add_links(std::span<const Tick> ticks) {
    const auto begin = static_cast<std::ptrdiff_t>(links_.size());
    for (const Tick tick : ticks)
      if (const Number work = find(tick); work != none) links_.push_back(work);
    std::sort(links_.begin() + begin, links_.end());
    links_.erase(std::unique(links_.begin() + begin, links_.end()), links_.end());
    return static_cast<std::uint32_t>(begin);
  }

  std::deque<Work> works_;
  std::deque<Ask> asks_;
  std::deque<Step> steps_;
  std::vector<Number> links_;           // needs and results
  std::vector<std::vector<End>> ends_;  // by stream, in order
  std::vector<std::string> names_{""};
  std::unordered_map<std::string, Number> numbers_;
  std::unordered_map<const void*, Nanoseconds> built_;
  std::unordered_map<const void*, Number> keys_;
};

}  // namespace aiocuda::trace
