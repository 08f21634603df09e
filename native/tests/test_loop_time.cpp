// How awaits share the time of their loop: who goes on, how many in a turn, and in what order.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "completion/loop_time.hpp"

using namespace aiocuda::completion;
using namespace std::chrono_literals;

namespace {

Token token(std::uintptr_t number) { return reinterpret_cast<Token>(number); }

// A loop with tasks, each of which awaits once. Time is what the test says.
struct Loop {
  LoopTime time;
  std::vector<std::uintptr_t> entered{};
  std::vector<LoopTime::Place> places{{}};  // of the tasks, from 1

  explicit Loop(LoopTime::Time budget) : time(budget) {}

  std::uintptr_t line_up(std::int64_t priority = 0) {
    places.push_back(time.line_up(priority));
    const std::uintptr_t task = places.size() - 1;
    CHECK_FALSE(time.enter(places[task], token(task)));
    return task;
  }
  // A turn: those that are called come, and each takes so long. Returns how long awaits held it.
  LoopTime::Time turn(LoopTime::Time each) {
    LoopTime::Time held{0};
    for (const Token called : time.begin_turn()) {
      const auto task = reinterpret_cast<std::uintptr_t>(called);
      if (!time.enter(places[task], called)) continue;
      time.spend(each);
      held += each;
      entered.push_back(task);
    }
    return held;
  }
};

}  // namespace

TEST_CASE("awaits are admitted until the time of a turn is spent, and again in the next turn") {
  LoopTime time(100us);
  int admitted = 0;
  while (time.admits()) {
    ++admitted;
    time.spend(8us);
  }
  CHECK(admitted == 10);
  CHECK_FALSE(time.admits());
  CHECK(time.begin_turn().empty());
  CHECK(time.admits());
}

TEST_CASE("an await that costs nothing costs something") {
  LoopTime time(100us);
  int admitted = 0;
  while (time.admits()) ++admitted;
  CHECK(admitted == 50);
}

TEST_CASE("who comes while others are in line goes behind them") {
  Loop loop(100us);
  loop.line_up();
  CHECK_FALSE(loop.time.admits());
  const auto called = loop.time.begin_turn();
  REQUIRE(called.size() == 1);
  CHECK_FALSE(loop.time.admits());  // the one that was called has not come
  CHECK(loop.time.enter(loop.places[1], called[0]));
  CHECK(loop.time.admits());
}

TEST_CASE("ten thousand are each called once, in order, and no turn is held for longer than it may be") {
  constexpr std::size_t count = 10'000;
  Loop loop(1ms);
  for (std::size_t i = 0; i < count; ++i) loop.line_up();
  std::size_t turns = 0;
  for (; loop.entered.size() < count; ++turns) CHECK(loop.turn(8us) <= 1ms);
  CHECK(std::is_sorted(loop.entered.begin(), loop.entered.end()));
  CHECK(loop.time.calls() < count + count / 10);
  CHECK(turns < count / 30);
}

TEST_CASE("awaits that take longer than they used to are sent back, and stay in front") {
  Loop loop(1ms);
  for (int i = 0; i < 1'000; ++i) loop.line_up();
  loop.turn(2us);
  const std::size_t before = loop.entered.size();
  CHECK(loop.turn(400us) == 1200us);  // the third began within the time
  CHECK(loop.entered.size() == before + 3);
  while (loop.entered.size() < 1'000) CHECK(loop.turn(400us) <= 1200us);
  CHECK(std::is_sorted(loop.entered.begin(), loop.entered.end()));
}

TEST_CASE("one goes on in each turn, however long awaits take, and whatever callbacks took") {
  Loop loop(0us);
  for (int i = 0; i < 5; ++i) loop.line_up();
  for (std::size_t turn = 1; turn <= 5; ++turn) {
    CHECK(loop.turn(10ms) == 10ms);
    CHECK(loop.entered.size() == turn);
  }
  loop.line_up();
  const auto called = loop.time.begin_turn();
  loop.time.spend(50ms);
  CHECK(loop.time.enter(loop.places[6], called[0]));
}

TEST_CASE("who leaves holds up nobody, waiting or called") {
  Loop loop(0us);
  for (int i = 0; i < 3; ++i) loop.line_up();
  CHECK(loop.time.leave(loop.places[2]) == token(2));
  CHECK(loop.time.leave(loop.places[2]) == nullptr);
  CHECK(loop.time.begin_turn() == std::vector{token(1)});
  CHECK(loop.time.leave(loop.places[1]) == nullptr);  // it has come out
  CHECK(loop.time.begin_turn() == std::vector{token(3)});
}

TEST_CASE("who was called and does not come is waited for some turns only, and keeps its place") {
  Loop loop(0us);
  for (int i = 0; i < 2; ++i) loop.line_up();
  CHECK(loop.time.begin_turn() == std::vector{token(1)});
  for (std::uint64_t i = 1; i < LoopTime::turns_to_come + 1; ++i) CHECK(loop.time.begin_turn().empty());
  CHECK(loop.time.begin_turn() == std::vector{token(2)});
  CHECK(loop.time.enter(loop.places[2], token(2)));
  loop.line_up();
  CHECK_FALSE(loop.time.enter(loop.places[1], token(1)));  // late
  CHECK(loop.time.begin_turn() == std::vector{token(1)});
}

TEST_CASE("the loop is asked to come round once in each turn, and only where it matters") {
  Loop loop(100us);
  CHECK_FALSE(loop.time.asks_for_turn());
  loop.time.spend(20us);
  CHECK_FALSE(loop.time.asks_for_turn());
  loop.time.spend(20us);
  CHECK(loop.time.asks_for_turn());
  CHECK(loop.time.has_asked());
  CHECK_FALSE(loop.time.asks_for_turn());
  loop.time.begin_turn();
  CHECK_FALSE(loop.time.has_asked());
  loop.line_up();
  CHECK(loop.time.asks_for_turn());
}

TEST_CASE("tokens of a loop that ends are handed back") {
  Loop loop(0us);
  for (int i = 0; i < 3; ++i) loop.line_up();
  loop.time.begin_turn();
  CHECK(loop.time.close() == std::vector{token(2), token(3)});
  CHECK(loop.time.close().empty());
}

TEST_CASE("an await that comes later is held up by one of those that came together before it") {
  constexpr std::size_t count = 10'000;
  Loop loop(0us);  // one in each turn
  for (std::size_t i = 0; i < count; ++i) loop.line_up();
  for (int i = 0; i < 5; ++i) loop.turn(1us);
  const std::uintptr_t late = loop.line_up();
  loop.turn(1us);
  loop.turn(1us);
  CHECK(loop.entered.size() == 7);
  CHECK(std::find(loop.entered.begin(), loop.entered.end(), late) != loop.entered.end());
}

TEST_CASE("those that come in every other turn take half of the turns, and no more") {
  Loop loop(0us);
  for (int i = 0; i < 10; ++i) loop.line_up();
  for (int turn = 0; turn < 20; ++turn) {
    loop.turn(1us);
    if (turn % 2 == 0) loop.line_up();
  }
  for (std::uintptr_t task = 1; task <= 10; ++task)
    CHECK(std::find(loop.entered.begin(), loop.entered.end(), task) != loop.entered.end());
}

TEST_CASE("a higher priority goes first, and one call in eight goes to who has waited longest") {
  Loop loop(0us);
  for (int i = 0; i < 3; ++i) loop.line_up();
  for (int i = 0; i < 20; ++i) loop.line_up(5);
  for (int i = 0; i < 20; ++i) loop.line_up(-5);
  for (int turn = 0; turn < 16; ++turn) loop.turn(1us);
  // Tasks 1 to 3 have priority 0, and came first; from 4 on they are the urgent ones.
  CHECK(loop.entered == std::vector<std::uintptr_t>{4, 5, 6, 7, 8, 9, 10, 1, 11, 12, 13, 14, 15, 16, 17, 2});
}

TEST_CASE("a line that was empty goes on, first come first served") {
  Loop loop(0us);
  loop.line_up(7);
  loop.turn(1us);
  const std::uintptr_t first = loop.line_up(), second = loop.line_up();
  loop.turn(1us);
  loop.turn(1us);
  CHECK(loop.entered == std::vector<std::uintptr_t>{1, first, second});
}
