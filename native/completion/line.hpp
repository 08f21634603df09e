// Lines of operations that wait for room in full streams, and for memory of devices: one for each stream, and one for
// each device. Knows neither CUDA nor Python: its callers tell it how much is held.
//
// Always true: those of a higher priority go first, and of one priority who came first. One call in `calls_to_longest`
// goes to the one that has waited longest, whatever its priority. An operation keeps its place until its turn is over.
// Turns are called in that order, about as many as there is room for. A turn that is called and not taken is handed on.
// Any thread may call these functions, and nobody is told of anything with the lock held.
#pragma once
#include <array>
#include <limits>
#include <map>
#include <optional>

#include "completion.hpp"
#include "next_called.hpp"

namespace aiocuda::completion {

using Thread = unsigned long;

// A stream's line has the stream's number. The line for memory of a device has the number of one of its streams, with
// this bit: that stream says whether the device is well.
using LineId = std::uint32_t;
inline constexpr LineId memory_bit = LineId{1} << 31;
constexpr std::uint32_t stream_of(LineId line) { return line & ~memory_bit; }

// How much a stream holds, in submissions, or a device, in bytes. Other threads learn how far a stream is, and write it
// to `passed`.
struct Level {
  std::uint64_t submitted = 0;
  std::shared_ptr<const std::atomic<std::uint64_t>> passed{};

  std::uint64_t held() const { return submitted - std::min(submitted, passed->load(std::memory_order_acquire)); }
};

// A task or thread that waits for a turn.
struct Waiter {
  Thread thread = 0;          // that will have to come
  bool blocks = false;        // it does nothing else meanwhile
  Token token = nullptr;      // what is told; none: the thread waits for the completion itself
  std::int64_t priority = 0;  // an operation has the highest of those who wait for it
};

// An operation's place in a line. The lines' lock guards it. Only its callers change the completion, under a lock of
// their own.
class Turn {
 public:
  // Ends when it is called, or with the error of its stream.
  const std::shared_ptr<Completion>& called() const { return called_; }
  LineId line() const { return line_; }

 private:
  friend class Lines;
  enum class State : std::uint8_t {
    away,
    waiting,
    called,
    overdue  // it was called and did not respond: it is skipped, and may still come
  };
  // Its priority, where less goes first; its number among all that came; then the order of those that were put before
  // it. No two places are equal.
  using Place = std::array<std::uint64_t, 4>;

  bool is_admitted() const { return state_ == State::called || state_ == State::overdue; }
  bool is_of(Thread thread) const {
    return std::all_of(waiters_.begin(), waiters_.end(), [&](const Waiter& each) { return each.thread == thread; });
  }

  State state_ = State::away;
  Place place_{};
  LineId line_ = 0;
  std::uint64_t most_ = 0;
  std::uint64_t weight_ = 1;  // what it will add
  std::uint64_t number_ = 0;  // among what is pending; 0: it stands nowhere
  std::shared_ptr<Completion> called_;
  std::vector<Waiter> waiters_;
};

class Lines {
 public:
  explicit Lines(Pending& pending) : pending_(pending) {}

  bool is_empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  // How often somebody took a place, or came back to it.
  std::uint64_t waits() const { return waits_.load(std::memory_order_relaxed); }

  // May an operation, with this turn or none, add so much to the line? Not before earlier ones.
  bool may_pass(LineId id, const Level& level, std::uint64_t most, const Turn* turn, std::uint64_t weight = 1) {
    std::lock_guard lock(mutex_);
    const auto found = lines_.find(id);
    if (found == lines_.end()) return true;
    Line& line = found->second;
    line.level = level;
    const bool is_placed = turn && turn->number_;
    if (is_placed && turn->line_ == id && turn->is_admitted()) return true;  // whoever came, or waits, since
    if (!line.waiting.empty() && !(is_placed && turn->place_ <= line.waiting.begin()->first)) return false;
    return level.held() + line.reserved + weight <= most;
  }

  // Takes a place the first time, and goes back to it later. Then call `next_watch`.
  void stand(const std::shared_ptr<Turn>& turn, LineId id, const Level& level, std::uint64_t most, Waiter waiter,
             std::uint64_t weight = 1) {
    waits_.fetch_add(1, std::memory_order_relaxed);
    Told told;
    {
      std::lock_guard lock(mutex_);
      const LineId before = turn->line_;
      const bool goes_on = turn->state_ == Turn::State::waiting && before == id && !turn->called_->has_ended();
      take_out(*turn);
      Line& line = lines_[id];
      line.level = level;
      if (!goes_on) {
        if (turn->number_) told.push_back(turn->number_);
        turn->called_ = std::make_shared<Completion>(1);
        turn->waiters_.clear();
        if (!turn->number_)
          turn->place_ = {rank_of(waiter.priority), ++last_, std::numeric_limits<std::uint64_t>::max(), 0};
        turn->number_ = pending_.add({turn->called_, stream_of(id), {}, {}});
      }
      turn->place_[0] = std::min(turn->place_[0], rank_of(waiter.priority));
      if (waiter.blocks) turn->place_ = std::min(turn->place_, before_own(line, waiter.thread));
      turn->line_ = id;
      turn->most_ = most;
      turn->weight_ = weight;
      turn->waiters_.push_back(waiter);
      turn->state_ = Turn::State::waiting;
      line.waiting.emplace(turn->place_, turn);
      ++count_;
      forget_if_empty(before);
    }
    tell(told);
  }

  // A waiter leaves. When all have left, the place is given up. True: the waiter's token was not told, and will not be.
  bool leave(Turn& turn, Thread thread, Token token) {
    Told told;
    bool is_untold = false;
    {
      std::lock_guard lock(mutex_);
      const auto found = std::find_if(turn.waiters_.begin(), turn.waiters_.end(), [&](const Waiter& each) {
        return each.token == token && (token || each.thread == thread);
      });
      if (found == turn.waiters_.end()) return false;
      turn.waiters_.erase(found);
      is_untold = token && turn.called_->withdraw(token);
      if (turn.waiters_.empty()) give_up(turn, told);
    }
    tell(told);
    return is_untold;
  }

  // Nobody wants the turn, or what it is for has been done by others.
  void give_up(Turn& turn) {
    Told told;
    {
      std::lock_guard lock(mutex_);
      give_up(turn, told);
    }
    tell(told);
  }

  // The turn was taken. Then call `next_watch`.
  void end(Turn& turn, const Level& level) {
    Told told;
    {
      std::lock_guard lock(mutex_);
      if (!turn.number_) return;
      if (const auto found = lines_.find(turn.line_); found != lines_.end()) found->second.level = level;
      clear(turn, 0, told);
    }
    tell(told);
  }

  // The count that a stream must reach for the next to be called. None: nobody waits, or somebody watches for it
  // already.
  std::optional<std::uint64_t> next_watch(LineId id, const Level& level) {
    Told told;
    std::optional<std::uint64_t> until;
    {
      std::lock_guard lock(mutex_);
      const auto found = lines_.find(id);
      if (found == lines_.end()) return std::nullopt;
      Line& line = found->second;
      line.level = level;
      call(line, 0, told);
      if (!line.waiting.empty() && !line.is_watched()) {
        // When half has passed of what it will hold by then.
        const std::uint64_t half = next(line)->second->most_ / 2, held = level.submitted + line.reserved;
        until = std::min(level.submitted, held - std::min(held, half));
      }
    }
    tell(told);
    return until;
  }
  // Sets the completion that ends when that has passed. It must call `has_room` first.
  void set_watch(LineId id, std::shared_ptr<Completion> watch) {
    std::lock_guard lock(mutex_);
    if (const auto found = lines_.find(id); found != lines_.end()) found->second.watch = std::move(watch);
  }
  // Notes how full it is now, and calls those for whom there is room.
  void note(LineId id, const Level& level) {
    Told told;
    {
      std::lock_guard lock(mutex_);
      const auto found = lines_.find(id);
      if (found == lines_.end()) return;
      found->second.level = level;
      call(found->second, 0, told);
    }
    tell(told);
  }

  // Calls the first in any case: if nobody could learn how full it is, the first looks itself.
  void has_room(LineId id) {
    Told told;
    {
      std::lock_guard lock(mutex_);
      const auto found = lines_.find(id);
      if (found == lines_.end()) return;
      found->second.watch = nullptr;
      call(found->second, 1, told);
      forget_if_empty(id);
    }
    tell(told);
  }

  // To be called now and then. If nobody came since the last time, those that were called are skipped: their loop may
  // be blocked or closed.
  void look(LineId id) {
    Told told;
    {
      std::lock_guard lock(mutex_);
      const auto found = lines_.find(id);
      if (found == lines_.end()) return;
      Line& line = found->second;
      if (std::exchange(line.has_moved, false)) return;
      for (auto each = line.called.begin(); each != line.called.end();) each = make_overdue(line, each);
      call(line, line.is_watched() ? 0 : 1, told);
      forget_if_empty(id);
    }
    tell(told);
  }

 private:
  using Told = std::vector<std::uint64_t>;
  using Turns = std::map<Turn::Place, std::shared_ptr<Turn>>;

  struct Line {
    Turns waiting, called;
    std::uint64_t reserved = 0;  // what those that were called will add
    Level level{};
    std::shared_ptr<Completion> watch{};
    std::uint64_t calls = 0;
    bool has_moved = false;  // since somebody looked

    bool is_watched() const { return watch && !watch->has_ended(); }
  };

  void tell(const Told& told) {
    for (const std::uint64_t number : told) pending_.done(number);
  }

  static std::uint64_t rank_of(std::int64_t priority) {
    return (std::uint64_t{1} << 63) - static_cast<std::uint64_t>(priority);
  }
  // The one that is called next. Somebody waits.
  static Turns::iterator next(Line& line) {
    constexpr auto end = std::numeric_limits<std::uint64_t>::max();
    return next_called(
        line.waiting, line.calls, [](const Turn::Place& place) { return place[1]; },
        [](const Turn::Place& place) { return Turn::Place{place[0], end, end, end}; });
  }

  // Calls those in front, `least` of them, and all for whom there is room.
  static void call(Line& line, std::size_t least, Told& told) {
    for (std::size_t count = 0; !line.waiting.empty(); ++count) {
      const auto first = next(line);
      Turn& turn = *first->second;
      if (count >= least && line.level.held() + line.reserved + turn.weight_ > turn.most_) return;
      turn.state_ = Turn::State::called;
      told.push_back(turn.number_);
      line.reserved += turn.weight_;
      line.called.insert(line.waiting.extract(first));
      line.has_moved = true;
      ++line.calls;
    }
  }

  void give_up(Turn& turn, Told& told) {
    // The call goes to the next one, which looks whether there is room.
    if (turn.number_) clear(turn, turn.state_ == Turn::State::called ? 1 : 0, told);
  }

  // Out of its line; the others move up.
  void clear(Turn& turn, std::size_t least, Told& told) {
    told.push_back(turn.number_);
    take_out(turn);
    turn.number_ = 0;
    turn.waiters_.clear();
    if (const auto found = lines_.find(turn.line_); found != lines_.end()) call(found->second, least, told);
    forget_if_empty(turn.line_);
  }

  void take_out(Turn& turn) {
    const auto state = std::exchange(turn.state_, Turn::State::away);
    const auto found = lines_.find(turn.line_);
    if (found == lines_.end()) return;
    Line& line = found->second;
    if (state == Turn::State::waiting) count_ -= line.waiting.erase(turn.place_);
    if (state == Turn::State::called && line.called.erase(turn.place_)) {
      --count_;
      line.reserved -= turn.weight_;
    }
    if (state == Turn::State::called || state == Turn::State::overdue) line.has_moved = true;
  }

  Turns::iterator make_overdue(Line& line, Turns::iterator called) {
    called->second->state_ = Turn::State::overdue;
    --count_;
    line.reserved -= called->second->weight_;
    return line.called.erase(called);
  }

  // While a thread blocks, the tasks of its own loop cannot come. So it goes before them, and they are skipped.
  Turn::Place before_own(Line& line, Thread thread) {
    Turn::Place place;
    place.fill(std::numeric_limits<std::uint64_t>::max());
    for (auto each = line.called.begin(); each != line.called.end();) {
      const bool is_own = each->second->is_of(thread);
      if (is_own) place = std::min(place, each->first);
      each = is_own ? make_overdue(line, each) : std::next(each);
    }
    const auto own = std::find_if(line.waiting.begin(), line.waiting.end(),
                                  [&](const auto& each) { return each.second->is_of(thread); });
    if (own != line.waiting.end()) place = std::min(place, own->first);
    return {place[0], place[1], place[2] - 1, ++last_};
  }

  void forget_if_empty(LineId id) {
    const auto found = lines_.find(id);
    if (found == lines_.end()) return;
    const Line& line = found->second;
    if (line.waiting.empty() && line.called.empty() && !line.is_watched()) lines_.erase(found);
  }

  Pending& pending_;
  std::mutex mutex_;
  std::atomic<std::size_t> count_{0};  // of turns in lines
  std::atomic<std::uint64_t> waits_{0};
  std::uint64_t last_ = 0;
  std::unordered_map<LineId, Line> lines_;
};

}  // namespace aiocuda::completion
