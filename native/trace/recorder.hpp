// What a trace records: the work that was submitted, with what it came after, and who asked for it. Knows neither
// Python nor CUDA.
//
// Always true: records have numbers in the order in which they are added. Work depends on work of lower numbers alone.
// A record stays until it is taken, which is done where a trace has no end (`take_work`, `take_asks`). Nothing here
// calls the driver, or waits. Guarded by the GIL.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
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

using Number = std::uint64_t;  // no service runs so long that it comes to the end of them
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
  bool is_timed = false;    // its times are yet to be read
  bool is_of_file = false;  // a copy that reads or writes a file
  Number name = 0, place = none, ask = none;
  Number brought_by = none;  // of a copy: the copy that wrote what it reads
  std::uint32_t needs_begin = 0, needs_count = 0;
  std::uint64_t size_bytes = 0, held_bytes = 0;  // that it moves or makes; that arrays of its device hold then
  Nanoseconds built = 0, decided = 0, called = 0, returned = 0, started = 0, ended = 0;

  // Does nothing more come to it?
  bool is_settled() const { return !is_timed && (state != WorkState::submitted || returned); }
};

enum class AskKind : std::uint8_t { await, sync, submit, future };
enum class Outcome : std::uint8_t { open, done, failed, cancelled, timed_out };

// An await, or another way of having an operation executed.
struct Ask {
  AskKind kind = AskKind::await;
  Outcome outcome = Outcome::open;
  Number name = 0, place = none, who = 0;
  std::uint32_t work_left = 0;    // of its work, what was not taken
  std::vector<Number> results{};  // the last work of its result
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

  Number work_count() const { return first_ + static_cast<Number>(works_.size()); }
  const std::map<Number, Ask>& asks() const { return asks_; }
  const std::deque<Step>& steps() const { return steps_; }
  std::span<const Number> needs(const Work& work) const {
    return std::span(links_).subspan(work.needs_begin, work.needs_count);
  }
  const std::vector<std::string>& names() const { return names_; }
  std::size_t size_bytes() const {
    std::size_t ends = 0;
    for (const auto& stream : ends_) ends += stream.capacity() * sizeof(End);
    return works_.size() * sizeof(Work) + asks_.size() * (sizeof(Ask) + node_bytes) + steps_.size() * sizeof(Step) +
           links_.capacity() * sizeof(Number) + ends;
  }

  Number name(std::string_view text) {
    if (const auto found = numbers_.find(text); found != numbers_.end()) return found->second;
    const auto number = static_cast<Number>(names_.size());
    names_.emplace_back(text);
    numbers_.emplace(std::string(text), number);
    return number;
  }

  // An object was built now. Of those that are built and never executed, the last at an address is remembered.
  void note_built(const void* object) { built_[object] = now_ns(); }

  // `after`: what it comes after; ticks that are not of this trace are left out. `built`: the object of `note_built`.
  Number begin_work(Work work, std::span<const Tick> after, const void* built) {
    const Number number = work_count();
    work.decided = work.called = now_ns();
    if (const auto found = built_.find(built); found != built_.end()) {
      work.built = found->second;
      built_.erase(found);
    }
    if (Ask* const ask = asking.recorder == this ? find_record(asking.ask) : nullptr) {
      work.ask = asking.ask;
      ++ask->work_left;
    }
    const std::span<const Number> needs = works_of(after);
    work.needs_begin = static_cast<std::uint32_t>(links_.size());
    work.needs_count = static_cast<std::uint32_t>(needs.size());
    links_.insert(links_.end(), needs.begin(), needs.end());
    works_.push_back(work);
    return number;
  }
  // Nothing was done yet: it is to begin again.
  void withdraw(Number number, const void* built) {
    Work& withdrawn = work(number);
    withdrawn.state = WorkState::withdrawn;
    if (withdrawn.built) built_[built] = withdrawn.built;
  }
  // The submission that it is, on its stream's later than all before.
  void end_work(Number number, Tick tick) {
    work(number).tick = tick;
    if (ends_.size() <= tick.stream) ends_.resize(tick.stream + 1);
    ends_[tick.stream].push_back({tick.count, number});
  }
  // Of work that was taken, a record that nobody reads.
  Work& work(Number number) {
    if (number >= first_) [[likely]]
      return works_[number - first_];
    const auto late = late_.find(number);
    return late == late_.end() ? taken_ = {} : late->second;
  }
  const Work& work(Number number) const {
    if (number >= first_) return works_[number - first_];
    const auto late = late_.find(number);
    return late == late_.end() ? taken_ : late->second;
  }

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
    const Number number = next_ask_++;
    ask.begun = now_ns();
    asks_.emplace(number, std::move(ask));
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
    Ask& ask = asks_.at(found->second);
    keys_.erase(found);
    ask.outcome = outcome;
    ask.ended = now_ns();
    const std::span<const Number> results = works_of(ready);
    ask.results.assign(results.begin(), results.end());
  }

  // Takes the records of work to which nothing more comes, up to the first one to which something may come within
  // `patience`; or those of all work. `take(number, work)`.
  template <class F>
  void take_work(Nanoseconds patience, bool all, F&& take) {
    const Nanoseconds late = now_ns() - patience;
    auto is_ready = [all](const Work& work) { return all || work.is_settled(); };
    auto hand_out = [&](Number number, const Work& work) {
      take(number, work);
      if (work.ask != none) --asks_.at(work.ask).work_left;
    };
    for (auto each = late_.begin(); each != late_.end();) {
      if (!is_ready(each->second)) {
        ++each;
        continue;
      }
      hand_out(each->first, each->second);
      each = late_.erase(each);
    }
    while (!works_.empty() && (is_ready(works_.front()) || works_.front().decided < late)) {
      const Number number = first_++;
      Work work = works_.front();
      works_.pop_front();
      if (is_ready(work)) {
        hand_out(number, work);
      } else {
        work.needs_count = 0;
        late_.emplace(number, work);
      }
    }
    forget_taken();
  }
  // Takes the records of those whose asking has ended, and all of whose work was taken. `take(number, ask)`.
  template <class F>
  void take_asks(F&& take) {
    for (auto each = asks_.begin(); each != asks_.end();) {
      if (each->second.outcome == Outcome::open || each->second.work_left) {
        ++each;
        continue;
      }
      take(each->first, each->second);
      each = asks_.erase(each);
    }
    latest_ = {};
    steps_.clear();
    if (names_.size() > most_names) forget_names();
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
  // None, if the asking has ended meanwhile.
  Number current() { return asking.recorder == this && find_record(asking.ask) ? asking.ask : none; }

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

  // The record of who asked, or null. Mostly it is the same as the last time.
  Ask* find_record(Number number) {
    if (number == latest_.number) return latest_.ask;
    const auto found = asks_.find(number);
    latest_ = {number, found == asks_.end() ? nullptr : &found->second};
    return latest_.ask;
  }

  // The work that ticks are: in ascending order, each once; until it is asked again.
  std::span<const Number> works_of(std::span<const Tick> ticks) {
    found_.clear();
    for (const Tick tick : ticks)
      if (const Number work = find(tick); work != none) found_.push_back(work);
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    return found_;
  }

  // Forgets what only taken work needs.
  void forget_taken() {
    const std::uint32_t begin = works_.empty() ? static_cast<std::uint32_t>(links_.size()) : works_.front().needs_begin;
    links_.erase(links_.begin(), links_.begin() + begin);
    for (Work& work : works_) work.needs_begin -= begin;
    for (auto& stream : ends_) {
      const auto left = std::find_if(stream.begin(), stream.end(), [&](const End& end) { return end.work >= first_; });
      stream.erase(stream.begin(), left);
    }
    if (built_.size() > most_built) built_.clear();  // of operations that nobody executed
  }

  // Those that only records have named that were taken.
  void forget_names() {
    const std::vector<std::string> before = std::exchange(names_, {""});
    numbers_.clear();
    auto renew = [&](Number& number) { number = number ? name(before[number]) : 0; };
    for (Work& work : works_) renew(work.name);
    for (auto& [number, work] : late_) renew(work.name);
    for (auto& [number, ask] : asks_) {
      renew(ask.name);
      renew(ask.who);
    }
  }

  struct HashOfText {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Latest {
    Number number = none;
    Ask* ask = nullptr;
  };

  static constexpr std::size_t most_built = 1 << 16, most_names = 1 << 12;
  static constexpr std::size_t node_bytes = 40;  // that a map takes for each entry

  Number first_ = 0, next_ask_ = 0;
  std::deque<Work> works_;       // from `first_` on
  std::map<Number, Work> late_;  // earlier ones that were not settled in time
  Work taken_{};
  std::map<Number, Ask> asks_;
  std::deque<Step> steps_;
  std::vector<Number> links_;           // needs
  std::vector<std::vector<End>> ends_;  // by stream, in order
  std::vector<std::string> names_{""};
  std::unordered_map<std::string, Number, HashOfText, std::equal_to<>> numbers_;
  std::vector<Number> found_;  // by the last call of `works_of`
  Latest latest_;
  std::unordered_map<const void*, Nanoseconds> built_;
  std::unordered_map<const void*, Number> keys_;
};

}  // namespace aiocuda::trace
