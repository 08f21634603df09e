// How awaits share the time of an event loop. An await that completes without suspending gives no other task a turn.
// After a while, the next awaits therefore wait in a line for a later turn. Knows neither CUDA nor Python.
//
// Always true: who came first goes first; in each turn of the loop at least one of the line may go on, and no more
// begin once the time of the turn is spent. One thread comes here at a time.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "port.hpp"

namespace aiocuda::completion {

// In place of 0 or an error: it is the waiter's turn in its loop's line.
inline constexpr std::int32_t own_turn = -2;

class LoopTime {
 public:
  using Time = std::chrono::nanoseconds;
  using Place = std::uint64_t;  // in the line; the lowest goes first

  // A task that was told to come comes within so many turns of its loop: one call tells it, and another makes its step.
  static constexpr std::uint64_t turns_to_come = 2;
  // The least that each await costs its loop: the frames of Python around it.
  static constexpr Time least{2'000};

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

  Place line_up() { return ++last_; }

  // True: it is its turn. False: the token comes out of `begin_turn` when it is worth asking again.
  bool enter(Place place, Token token) {
    // The first one that comes goes on in any case: callbacks may have spent the time.
    if (called_.erase(place) && (spent_ <= budget_ || !has_entered_)) {
      has_entered_ = true;
      spent_ += least;
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
    const auto room = static_cast<std::size_t>(std::max<Time::rep>(1, budget_ / std::max(usual_, least)));
    std::vector<Token> tokens;
    while (!waiting_.empty() && called_.size() < room) {
      const auto first = waiting_.extract(waiting_.begin());
      called_.emplace(first.key(), turn_);
      tokens.push_back(first.mapped());
    }
    calls_ += tokens.size();
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
  const Time budget_;
  Time spent_{0};       // in this turn
  Time usual_ = least;  // for one await
  std::uint64_t turn_ = 0, calls_ = 0;
  Place last_ = 0;
  bool is_asked_for_ = false, has_entered_ = false;
  std::map<Place, Token> waiting_;
  std::map<Place, std::uint64_t> called_;  // in which turn; they come soon
};

}  // namespace aiocuda::completion
