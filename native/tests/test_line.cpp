// Lines of those who wait for room, also from many threads at once (run under ThreadSanitizer).
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "completion/line.hpp"

using namespace aiocuda::completion;

namespace {

constexpr Thread me = 1, another = 2;

Token token(std::uintptr_t number) { return reinterpret_cast<Token>(number); }

// A stream that holds what the test says.
struct Stream {
  std::uint64_t submitted = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> passed = std::make_shared<std::atomic<std::uint64_t>>(0);
  Level level() const { return {submitted, passed}; }
};

struct House {
  Pending pending;
  Lines lines{pending};
  Stream stream;
  std::uint64_t most;

  explicit House(std::uint64_t bound) : most(bound) { stream.submitted = bound; }

  std::shared_ptr<Turn> stand(Waiter waiter, std::uint32_t index = 0) {
    auto turn = std::make_shared<Turn>();
    lines.stand(turn, index, stream.level(), most, waiter);
    return turn;
  }
  std::vector<std::shared_ptr<Turn>> stand(std::size_t count) {
    std::vector<std::shared_ptr<Turn>> turns;
    for (std::size_t i = 0; i < count; ++i) turns.push_back(stand({me, false, token(i + 1)}));
    return turns;
  }
  bool may_pass(const Turn* turn = nullptr, std::uint32_t index = 0) {
    return lines.may_pass(index, stream.level(), most, turn);
  }
  // Comes, submits, and is done.
  void act(Turn& turn) {
    CHECK(may_pass(&turn));
    ++stream.submitted;
    lines.end(turn, stream.level());
  }
};

std::vector<bool> called(const std::vector<std::shared_ptr<Turn>>& turns) {
  std::vector<bool> found;
  for (const auto& turn : turns) found.push_back(turn->called()->has_ended());
  return found;
}

}  // namespace

TEST_CASE("without a line everybody passes") {
  House house(4);
  CHECK(house.lines.is_empty());
  CHECK(house.may_pass());
  CHECK_FALSE(house.lines.next_watch(0, house.stream.level()));
}

TEST_CASE("as many are called as there is room for, in the order in which they came") {
  House house(4);
  const auto turns = house.stand(5);
  house.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, false, false, false, false});  // it sees for itself
  *house.stream.passed = 3;
  house.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, true, true, false, false});
  CHECK(house.lines.waits() == 5);
}

TEST_CASE("who comes later does not pass before those who wait") {
  House house(4);
  auto turns = house.stand(3);
  *house.stream.passed = 2;
  CHECK_FALSE(house.may_pass());
  house.lines.has_room(0);
  CHECK_FALSE(house.may_pass());
  CHECK_FALSE(house.may_pass(turns[2].get()));
  house.act(*turns[1]);  // those that are called come in any order
  house.act(*turns[0]);
  *house.stream.passed = 4;
  house.lines.has_room(0);
  CHECK(house.may_pass());  // the one that was called and one more have room
  ++house.stream.submitted;
  CHECK_FALSE(house.may_pass());
  house.act(*turns[2]);
  CHECK(house.lines.is_empty());
}

TEST_CASE("room is watched for when half will have passed, once") {
  House house(4);
  house.stream.submitted = 10;
  *house.stream.passed = 6;
  const auto turns = house.stand(4);
  CHECK(house.lines.next_watch(0, house.stream.level()) == 8);
  const auto watch = std::make_shared<Completion>(1);
  house.lines.set_watch(0, watch);
  CHECK_FALSE(house.lines.next_watch(0, house.stream.level()));
  *house.stream.passed = 8;
  house.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, true, false, false});
  watch->part_done(0);
  house.act(*turns[0]);
  CHECK(house.lines.next_watch(0, house.stream.level()) == 10);  // half of 12, when the other one has come
  house.lines.set_watch(0, std::make_shared<Completion>(0));     // one that failed is none
  CHECK(house.lines.next_watch(0, house.stream.level()) == 10);
}

TEST_CASE("who is called and finds no room goes back to his place") {
  House house(2);
  auto turns = house.stand(3);
  house.lines.has_room(0);
  const auto first = turns[0]->called();
  CHECK(first->has_ended());
  house.lines.stand(turns[0], 0, house.stream.level(), house.most, {me, false, token(9)});
  CHECK(turns[0]->called() != first);
  CHECK(called(turns) == std::vector{false, false, false});
  house.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, false, false});
}

TEST_CASE("a place is kept in another stream's line") {
  House house(2);
  const auto turn = house.stand({me, false, token(1)});
  const auto there = house.stand({me, false, token(2)}, 1);
  house.lines.has_room(0);
  *house.stream.passed = 1;
  CHECK(house.may_pass(turn.get(), 1));  // it came first
  house.lines.stand(turn, 1, house.stream.level(), house.most, {me, false, token(3)});
  house.lines.has_room(1);
  CHECK(turn->called()->has_ended());
  CHECK_FALSE(there->called()->has_ended());
}

TEST_CASE("who leaves while he waits is not called") {
  House house(4);
  const auto turns = house.stand(3);
  Orphans orphans;
  const auto port = std::make_shared<Port>(orphans);
  CHECK(turns[0]->called()->tell(port, token(1)));
  CHECK(house.lines.leave(*turns[0], me, token(1)));  // the token is the caller's again
  CHECK_FALSE(house.lines.leave(*turns[0], me, token(1)));
  house.lines.has_room(0);
  CHECK(turns[1]->called()->has_ended());
  CHECK(port->take().empty());
}

TEST_CASE("who leaves when he was called hands the call on") {
  House house(4);
  const auto turns = house.stand(3);
  house.lines.has_room(0);
  CHECK_FALSE(house.lines.leave(*turns[0], me, token(1)));
  CHECK(called(turns) == std::vector{true, true, false});
  house.lines.give_up(*turns[1]);
  CHECK(called(turns) == std::vector{true, true, true});
  CHECK(house.pending.size() == 0);
}

TEST_CASE("a place is given up when all have left who wait for it") {
  House house(4);
  const auto turn = house.stand({me, false, token(1)});
  house.lines.stand(turn, 0, house.stream.level(), house.most, {another, true, nullptr});
  house.lines.leave(*turn, me, token(1));
  CHECK_FALSE(house.lines.is_empty());
  CHECK_FALSE(house.lines.leave(*turn, another, nullptr));
  CHECK(house.lines.is_empty());
}

TEST_CASE("all are told who wait for an operation that somebody else has submitted") {
  House house(4);
  const auto turns = house.stand(2);
  const auto told = turns[0]->called();
  house.lines.end(*turns[0], house.stream.level());
  CHECK(told->has_ended());
  CHECK_FALSE(turns[1]->called()->has_ended());
}

TEST_CASE("those that were called and do not come are not waited for") {
  House house(2);
  auto turns = house.stand(4);
  *house.stream.passed = 2;
  house.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, true, false, false});
  house.lines.look(0);  // they may be on their way
  CHECK(called(turns) == std::vector{true, true, false, false});
  house.lines.look(0);
  CHECK(called(turns) == std::vector{true, true, true, true});
  house.act(*turns[2]);
  house.act(*turns[0]);  // it may still come
  CHECK(house.stream.level().held() == 2);
  CHECK(house.lines.next_watch(0, house.stream.level()) == std::nullopt);
}

TEST_CASE("while somebody comes the others are waited for") {
  House house(2);
  auto turns = house.stand(3);
  *house.stream.passed = 2;
  house.lines.has_room(0);
  house.lines.look(0);
  house.act(*turns[0]);
  house.lines.look(0);
  CHECK(called(turns) == std::vector{true, true, false});
}

TEST_CASE("who was called and never comes does not keep a stream that nobody watches") {
  House house(1);
  const auto turns = house.stand(2);
  house.lines.has_room(0);
  house.lines.look(0);
  house.lines.look(0);  // the stream is as full as it was, as far as is known
  CHECK(called(turns) == std::vector{true, true});
}

TEST_CASE("a thread that blocks goes before the tasks of its own loop, and behind others'") {
  House house(4);
  const auto others = house.stand({another, false, token(1)});
  const auto own = house.stand({me, false, token(2)});
  const auto blocked = house.stand({me, true, nullptr});
  const auto stranger = house.stand({3, true, nullptr});
  const std::vector all{others, blocked, own, stranger};
  for (std::size_t i = 0; i < all.size(); ++i) {
    house.lines.has_room(0);
    for (std::size_t k = 0; k < all.size(); ++k) CHECK(all[k]->called()->has_ended() == (k <= i));
  }
}

TEST_CASE("what was promised to the tasks of a thread that blocks is not kept for them") {
  House house(2);
  auto turns = house.stand(3);
  *house.stream.passed = 2;
  house.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, true, false});
  const auto blocked = house.stand({me, true, nullptr});
  CHECK_FALSE(house.lines.next_watch(0, house.stream.level()));
  CHECK(blocked->called()->has_ended());
}

TEST_CASE("a stream's error ends the wait of all in its line") {
  House house(4);
  const auto turns = house.stand(2);
  const auto elsewhere = house.stand({me, false, token(3)}, 1);
  house.pending.fail_stream(0, 700);
  for (const auto& turn : turns) CHECK(turn->called()->error() == 700);
  CHECK_FALSE(elsewhere->called()->has_ended());
  house.lines.give_up(*turns[0]);
  house.lines.stand(turns[1], 0, house.stream.level(), house.most, {me, false, token(4)});  // to be told again
  CHECK_FALSE(turns[1]->called()->has_ended());
}

TEST_CASE("turns come and go while another thread makes room, and none is lost") {
  constexpr std::size_t turns_of_each = 300;
  House house(8);
  std::mutex guard;  // what the GIL is
  std::atomic<std::size_t> done{0};
  std::atomic<bool> is_over{false};
  std::thread device([&] {
    while (!is_over) {
      {
        std::lock_guard lock(guard);
        *house.stream.passed = house.stream.submitted;
      }
      house.lines.has_room(0);
      house.lines.look(0);
    }
  });
  std::vector<std::thread> hosts;
  for (Thread id = 1; id <= 3; ++id)
    hosts.emplace_back([&, id] {
      for (std::size_t i = 0; i < turns_of_each; ++i) {
        const auto turn = std::make_shared<Turn>();
        std::shared_ptr<Completion> told;
        const auto stand = [&] {
          std::lock_guard lock(guard);
          house.lines.stand(turn, 0, house.stream.level(), house.most, {id, true, nullptr});
          told = turn->called();
        };
        stand();
        if (i % 5 == 0) {
          std::lock_guard lock(guard);
          house.lines.leave(*turn, id, nullptr);
          ++done;
          continue;
        }
        for (;;) {
          while (!told->wait_for(std::chrono::milliseconds(1000))) {
          }
          std::unique_lock lock(guard);
          const bool may = house.stream.level().held() < house.most && house.may_pass(turn.get());
          if (may) {
            ++house.stream.submitted;
            house.lines.end(*turn, house.stream.level());
            break;
          }
          lock.unlock();
          stand();
        }
        ++done;
      }
    });
  for (auto& host : hosts) host.join();
  is_over = true;
  device.join();
  CHECK(done == 3 * turns_of_each);
  CHECK(house.lines.is_empty());
  CHECK(house.pending.size() == 0);
}

namespace {

// A device whose arrays hold what the test says, under a limit of 100 bytes.
struct MemoryHouse {
  Pending pending;
  Lines lines{pending};
  std::uint64_t used = 100;
  static constexpr LineId line = 3 | memory_bit;
  static constexpr std::uint64_t most = 100;

  Level level() const { return {used, std::make_shared<std::atomic<std::uint64_t>>(0)}; }
  std::shared_ptr<Turn> stand(std::uint64_t size, std::uintptr_t number) {
    auto turn = std::make_shared<Turn>();
    lines.stand(turn, line, level(), most, {me, false, token(number)}, size);
    return turn;
  }
  bool may_pass(std::uint64_t size, const Turn* turn = nullptr) {
    return lines.may_pass(line, level(), most, turn, size);
  }
  void take(Turn& turn, std::uint64_t size) {
    CHECK(may_pass(size, &turn));
    used += size;
    lines.end(turn, level());
  }
  void free(std::uint64_t size) {
    used -= size;
    lines.note(line, level());
  }
};

}  // namespace

TEST_CASE("as many are called as what was freed is enough for, in turn") {
  MemoryHouse house;
  const std::vector turns{house.stand(30, 1), house.stand(50, 2), house.stand(10, 3)};
  house.free(29);
  CHECK(called(turns) == std::vector{false, false, false});
  house.free(1);
  CHECK(called(turns) == std::vector{true, false, false});
  house.free(30);  // enough for the small one, which came later
  CHECK(called(turns) == std::vector{true, false, false});
  house.free(30);
  CHECK(called(turns) == std::vector{true, true, true});
  CHECK(house.used == 10);
}

TEST_CASE("what was promised to those who were called nobody else takes") {
  MemoryHouse house;
  const auto first = house.stand(60, 1);
  house.free(80);
  CHECK(first->called()->has_ended());
  CHECK_FALSE(house.may_pass(21));
  CHECK(house.may_pass(20));
  house.take(*first, 60);
  const auto second = house.stand(70, 2);
  house.free(50);
  CHECK(second->called()->has_ended());
  CHECK(house.lines.leave(*second, me, token(2)) == false);  // it was told
  house.lines.give_up(*second);
  CHECK(house.may_pass(70));
  CHECK(house.lines.is_empty());
}

TEST_CASE("who came and asks for more keeps his place, and is pending on his device's stream") {
  MemoryHouse house;
  const auto first = house.stand(10, 1), second = house.stand(10, 2);
  CHECK(house.pending.streams() == std::vector<std::uint32_t>{3});
  house.free(10);
  CHECK(called({first, second}) == std::vector{true, false});
  house.lines.stand(first, MemoryHouse::line, house.level(), MemoryHouse::most, {me, false, token(3)}, 40);
  CHECK_FALSE(first->called()->has_ended());
  house.free(20);
  CHECK(called({first, second}) == std::vector{false, false});
  house.free(20);
  CHECK(called({first, second}) == std::vector{true, true});
  CHECK(house.pending.size() == 0);
}
