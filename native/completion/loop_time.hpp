// How awaits share the time of an event loop. An await that completes without suspending gives no other task a turn.
// After a while, the next awaits therefore wait in a line for a later turn. Knows neither CUDA nor Python.
//
// Always true: those of the highest priority go first. Of one priority, the awaits that came in one turn of the loop
// are a group. Groups go on one await each, in turn, and within a group who came first goes first. So ten thousand
// awaits that came together hold up one that comes later by one await. One call in `calls_to_longest` goes to one that
// has waited longest, whatever its priority. In each turn at least one of the line may go on, and no more begin once
// the time of the turn is spent. One thread comes here at a time.
#pragma once
#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "next_called.hpp"
#include "port.hpp"

namespace aiocuda::completion {

// In place of 0 or an error: it is the waiter's turn in its loop's line.
inline constexpr std::int32_t own_turn = -2;

class LoopTime {
 public:
  using Time = std::chrono::nanoseconds;
  // In the line; the lowest goes first. Two are never equal.
  struct Place {
    std::int64_t below = 0;    // the negated priority
    std::uint64_t round = 0;   // of the groups of that priority
    std::uint64_t number = 0;  // among all that came; 0: it is no place

    auto operator<=>(const Place&) const = default;
  };

  // A task that was told to come comes within so many turns of its loop: one call tells it, and another makes its step.
  static constexpr std::uint64_t turns_to_come = 2;
  // The least that each await costs its loop: the frames of Python around it.
  static constexpr Time least{2'000};
  // And one that waited in line: its task takes two more steps, and the loop a wake for each.
  static constexpr Time least_in_line{20'000};

  explicit LoopTime(Time of_a_turn) : budget_(of_a_turn) {}
  LoopTime(const LoopTime&) = delete;
  LoopTime& operator=(const LoopTime&) = delete;

  // An await begins. False: it lines up first.
  bool admits() {
    spent_ += least;
    return spent_ <= budget_ && waiting_.empty() && called_.empty();
  }

  // An await held the loop for so long.
  void spend(Time time) {
    spent_ += time;
    usual_ += (time + least - usual_) / 8;
  }

  Place line_up(std::int64_t priority = 0) {
    if (waiting_.empty() && called_.empty()) levels_.clear();
    Level& level = levels_[priority];
    if (std::exchange(level.turn, turn_) != turn_) level.last = level.called;
    return {-priority, ++level.last, ++last_};
  }

  // True: it is its turn. False: the token comes out of `begin_turn` when it is worth asking again.
  bool enter(Place place, Token token) {
    // The first one that comes goes on in any case: callbacks may have spent the time.
    if (called_.erase(place) && (spent_ <= budget_ || !has_entered_)) {
      has_entered_ = true;
      spent_ += least_in_line;
      return true;
    }
    waiting_.emplace(place, token);
    return false;
  }

  // The await gives its place up. Returns the token that will not come out; null: there is none.
  Token leave(Place place) {
    called_.erase(place);
    const auto found = waiting_.extract(place);
    return found.empty() ? nullptr : found.mapped();
  }

  // The loop has come round. Returns those whose turn it is: as many as will have the time, by what awaits usually
  // took.
  std::vector<Token> begin_turn() {
    ++turn_;
    spent_ = Time{0};
    is_asked_for_ = has_entered_ = false;
    // The others do not wait for an await that was called and has not come. It was dropped, or is late.
    std::erase_if(called_, [&](const auto& each) { return turn_ - each.second > turns_to_come; });
    const auto room = static_cast<std::size_t>(std::max<Time::rep>(1, budget_ / (usual_ - least + least_in_line)));
    std::vector<Token> tokens;
    while (!waiting_.empty() && called_.size() < room) {
      const auto next = waiting_.extract(next_place());
      Level& level = levels_[-next.key().below];
      level.called = std::max(level.called, next.key().round);
      called_.emplace(next.key(), turn_);
      tokens.push_back(next.mapped());
      ++calls_;
    }
    return tokens;
  }

  // Must somebody make the loop come round? Yes, if an await is in line for that, or a good part of the time is spent.
  // True once for each turn.
  bool asks_for_turn() {
    if (is_asked_for_ || (waiting_.empty() && spent_ < budget_ / 4)) return false;
    return is_asked_for_ = true;
  }
  bool has_asked() const { return is_asked_for_; }

  // How often somebody in the line was told to come.
  std::uint64_t calls() const { return calls_; }

  // All tokens; nobody is told.
  std::vector<Token> close() {
    std::vector<Token> tokens;
    for (const auto& [place, token] : std::exchange(waiting_, {})) tokens.push_back(token);
    return tokens;
  }

 private:
  // Those of one priority.
  struct Level {
    std::uint64_t called = 0;  // the round that has come
    std::uint64_t turn = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t last = 0;  // the round of the last that came, in that turn
  };

  Place next_place() const {
    constexpr auto end = std::numeric_limits<std::uint64_t>::max();
    return next_called(
               waiting_, calls_, [](const Place& place) { return place.number; },
               [](const Place& place) { return Place{place.below, end, end}; })
        ->first;
  }

  const Time budget_;
  Time spent_{0};       // in this turn
  Time usual_ = least;  // for one await
  std::uint64_t turn_ = 0, calls_ = 0;
  std::uint64_t last_ = 0;
  bool is_asked_for_ = false, has_entered_ = false;
  std::map<std::int64_t, Level> levels_;  // by priority; of nobody once the line is empty
  std::map<Place, Token> waiting_;
  std::map<Place, std::uint64_t> called_;  // in which turn; they come soon
};

}  // namespace aiocuda::completion
