// Lines of those who wait for room, also from many threads at once (run under ThreadSanitizer).
#include <doctest/doctest.h>

#include <algorithm>
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

struct Services {
  Pending pending;
  Lines lines{pending};
  Stream stream;
  std::uint64_t most;

  explicit Services(std::uint64_t bound) : most(bound) { stream.submitted = bound; }

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
  Services services(4);
  CHECK(services.lines.is_empty());
  CHECK(services.may_pass());
  CHECK_FALSE(services.lines.next_watch(0, services.stream.level()));
}

TEST_CASE("as many are called as there is room for, in the order in which they came") {
  Services services(4);
  const auto turns = services.stand(5);
  services.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, false, false, false, false});  // it sees for itself
  *services.stream.passed = 3;
  services.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, true, true, false, false});
  CHECK(services.lines.waits() == 5);
}

TEST_CASE("who comes later does not pass before those who wait") {
  Services services(4);
  auto turns = services.stand(3);
  *services.stream.passed = 2;
  CHECK_FALSE(services.may_pass());
  services.lines.has_room(0);
  CHECK_FALSE(services.may_pass());
  CHECK_FALSE(services.may_pass(turns[2].get()));
  services.act(*turns[1]);  // those that are called come in any order
  services.act(*turns[0]);
  *services.stream.passed = 4;
  services.lines.has_room(0);
  CHECK(services.may_pass());  // the one that was called and one more have room
  ++services.stream.submitted;
  CHECK_FALSE(services.may_pass());
  services.act(*turns[2]);
  CHECK(services.lines.is_empty());
}

TEST_CASE("room is watched for when half will have passed, once") {
  Services services(4);
  services.stream.submitted = 10;
  *services.stream.passed = 6;
  const auto turns = services.stand(4);
  CHECK(services.lines.next_watch(0, services.stream.level()) == 8);
  const auto watch = std::make_shared<Completion>(1);
  services.lines.set_watch(0, watch);
  CHECK_FALSE(services.lines.next_watch(0, services.stream.level()));
  *services.stream.passed = 8;
  services.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, true, false, false});
  watch->part_done(0);
  services.act(*turns[0]);
  CHECK(services.lines.next_watch(0, services.stream.level()) == 10);  // half of 12, when the other one has come
  services.lines.set_watch(0, std::make_shared<Completion>(0));        // one that failed is none
  CHECK(services.lines.next_watch(0, services.stream.level()) == 10);
}

TEST_CASE("who is called and finds no room goes back to his place") {
  Services services(2);
  auto turns = services.stand(3);
  services.lines.has_room(0);
  const auto first = turns[0]->called();
  CHECK(first->has_ended());
  services.lines.stand(turns[0], 0, services.stream.level(), services.most, {me, false, token(9)});
  CHECK(turns[0]->called() != first);
  CHECK(called(turns) == std::vector{false, false, false});
  services.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, false, false});
}

TEST_CASE("a place is kept in another stream's line") {
  Services services(2);
  const auto turn = services.stand({me, false, token(1)});
  const auto there = services.stand({me, false, token(2)}, 1);
  services.lines.has_room(0);
  *services.stream.passed = 1;
  CHECK(services.may_pass(turn.get(), 1));  // it came first
  services.lines.stand(turn, 1, services.stream.level(), services.most, {me, false, token(3)});
  services.lines.has_room(1);
  CHECK(turn->called()->has_ended());
  CHECK_FALSE(there->called()->has_ended());
}

TEST_CASE("who leaves while he waits is not called") {
  Services services(4);
  const auto turns = services.stand(3);
  Orphans orphans;
  const auto port = std::make_shared<Port>(orphans);
  CHECK(turns[0]->called()->tell(port, token(1)));
  CHECK(services.lines.leave(*turns[0], me, token(1)));  // the token is the caller's again
  CHECK_FALSE(services.lines.leave(*turns[0], me, token(1)));
  services.lines.has_room(0);
  CHECK(turns[1]->called()->has_ended());
  CHECK(port->take().empty());
}

TEST_CASE("who leaves when he was called hands the call on") {
  Services services(4);
  const auto turns = services.stand(3);
  services.lines.has_room(0);
  CHECK_FALSE(services.lines.leave(*turns[0], me, token(1)));
  CHECK(called(turns) == std::vector{true, true, false});
  services.lines.give_up(*turns[1]);
  CHECK(called(turns) == std::vector{true, true, true});
  CHECK(services.pending.size() == 0);
}

TEST_CASE("a place is given up when all have left who wait for it") {
  Services services(4);
  const auto turn = services.stand({me, false, token(1)});
  services.lines.stand(turn, 0, services.stream.level(), services.most, {another, true, nullptr});
  services.lines.leave(*turn, me, token(1));
  CHECK_FALSE(services.lines.is_empty());
  CHECK_FALSE(services.lines.leave(*turn, another, nullptr));
  CHECK(services.lines.is_empty());
}

TEST_CASE("all are told who wait for an operation that somebody else has submitted") {
  Services services(4);
  const auto turns = services.stand(2);
  const auto told = turns[0]->called();
  services.lines.end(*turns[0], services.stream.level());
  CHECK(told->has_ended());
  CHECK_FALSE(turns[1]->called()->has_ended());
}

TEST_CASE("those that were called and do not come are not waited for") {
  Services services(2);
  auto turns = services.stand(4);
  *services.stream.passed = 2;
  services.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, true, false, false});
  services.lines.look(0);  // they may be on their way
  CHECK(called(turns) == std::vector{true, true, false, false});
  services.lines.look(0);
  CHECK(called(turns) == std::vector{true, true, true, true});
  services.act(*turns[2]);
  services.act(*turns[0]);  // it may still come
  CHECK(services.stream.level().held() == 2);
  CHECK(services.lines.next_watch(0, services.stream.level()) == std::nullopt);
}

TEST_CASE("while somebody comes the others are waited for") {
  Services services(2);
  auto turns = services.stand(3);
  *services.stream.passed = 2;
  services.lines.has_room(0);
  services.lines.look(0);
  services.act(*turns[0]);
  services.lines.look(0);
  CHECK(called(turns) == std::vector{true, true, false});
}

TEST_CASE("who was called and never comes does not keep a stream that nobody watches") {
  Services services(1);
  const auto turns = services.stand(2);
  services.lines.has_room(0);
  services.lines.look(0);
  services.lines.look(0);  // the stream is as full as it was, as far as is known
  CHECK(called(turns) == std::vector{true, true});
}

TEST_CASE("a thread that blocks goes before the tasks of its own loop, and behind others'") {
  Services services(4);
  const auto others = services.stand({another, false, token(1)});
  const auto own = services.stand({me, false, token(2)});
  const auto blocked = services.stand({me, true, nullptr});
  const auto stranger = services.stand({3, true, nullptr});
  const std::vector all{others, blocked, own, stranger};
  for (std::size_t i = 0; i < all.size(); ++i) {
    services.lines.has_room(0);
    for (std::size_t k = 0; k < all.size(); ++k) CHECK(all[k]->called()->has_ended() == (k <= i));
  }
}

TEST_CASE("what was promised to the tasks of a thread that blocks is not kept for them") {
  Services services(2);
  auto turns = services.stand(3);
  *services.stream.passed = 2;
  services.lines.has_room(0);
  CHECK(called(turns) == std::vector{true, true, false});
  const auto blocked = services.stand({me, true, nullptr});
  CHECK_FALSE(services.lines.next_watch(0, services.stream.level()));
  CHECK(blocked->called()->has_ended());
}

TEST_CASE("a stream's error ends the wait of all in its line") {
  Services services(4);
  const auto turns = services.stand(2);
  const auto elsewhere = services.stand({me, false, token(3)}, 1);
  services.pending.fail_stream(0, 700);
  for (const auto& turn : turns) CHECK(turn->called()->error() == 700);
  CHECK_FALSE(elsewhere->called()->has_ended());
  services.lines.give_up(*turns[0]);
  services.lines.stand(turns[1], 0, services.stream.level(), services.most, {me, false, token(4)});  // to be told again
  CHECK_FALSE(turns[1]->called()->has_ended());
}

TEST_CASE("turns come and go while another thread makes room, and none is lost") {
  constexpr std::size_t turns_of_each = 300;
  Services services(8);
  std::mutex guard;  // what the GIL is
  std::atomic<std::size_t> done{0};
  std::atomic<bool> is_over{false};
  std::thread device([&] {
    while (!is_over) {
      {
        std::lock_guard lock(guard);
        *services.stream.passed = services.stream.submitted;
      }
      services.lines.has_room(0);
      services.lines.look(0);
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
          services.lines.stand(turn, 0, services.stream.level(), services.most, {id, true, nullptr});
          told = turn->called();
        };
        stand();
        if (i % 5 == 0) {
          std::lock_guard lock(guard);
          services.lines.leave(*turn, id, nullptr);
          ++done;
          continue;
        }
        for (;;) {
          while (!told->wait_for(std::chrono::milliseconds(1000))) {
          }
          std::unique_lock lock(guard);
          const bool may = services.stream.level().held() < services.most && services.may_pass(turn.get());
          if (may) {
            ++services.stream.submitted;
            services.lines.end(*turn, services.stream.level());
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
  CHECK(services.lines.is_empty());
  CHECK(services.pending.size() == 0);
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
  MemoryHouse services;
  const std::vector turns{services.stand(30, 1), services.stand(50, 2), services.stand(10, 3)};
  services.free(29);
  CHECK(called(turns) == std::vector{false, false, false});
  services.free(1);
  CHECK(called(turns) == std::vector{true, false, false});
  services.free(30);  // enough for the small one, which came later
  CHECK(called(turns) == std::vector{true, false, false});
  services.free(30);
  CHECK(called(turns) == std::vector{true, true, true});
  CHECK(services.used == 10);
}

TEST_CASE("what was promised to those who were called nobody else takes") {
  MemoryHouse services;
  const auto first = services.stand(60, 1);
  services.free(80);
  CHECK(first->called()->has_ended());
  CHECK_FALSE(services.may_pass(21));
  CHECK(services.may_pass(20));
  services.take(*first, 60);
  const auto second = services.stand(70, 2);
  services.free(50);
  CHECK(second->called()->has_ended());
  CHECK(services.lines.leave(*second, me, token(2)) == false);  // it was told
  services.lines.give_up(*second);
  CHECK(services.may_pass(70));
  CHECK(services.lines.is_empty());
}

TEST_CASE("who came and asks for more keeps his place, and is pending on his device's stream") {
  MemoryHouse services;
  const auto first = services.stand(10, 1), second = services.stand(10, 2);
  CHECK(services.pending.streams() == std::vector<std::uint32_t>{3});
  services.free(10);
  CHECK(called({first, second}) == std::vector{true, false});
  services.lines.stand(first, MemoryHouse::line, services.level(), MemoryHouse::most, {me, false, token(3)}, 40);
  CHECK_FALSE(first->called()->has_ended());
  services.free(20);
  CHECK(called({first, second}) == std::vector{false, false});
  services.free(20);
  CHECK(called({first, second}) == std::vector{true, true});
  CHECK(services.pending.size() == 0);
}

TEST_CASE("a higher priority goes first, and one call in eight goes to who has waited longest") {
  Services services(40);
  std::vector<std::shared_ptr<Turn>> usual, urgent;
  for (int i = 0; i < 3; ++i) usual.push_back(services.stand({me, false, token(1)}));
  for (int i = 0; i < 20; ++i) urgent.push_back(services.stand({me, false, token(2), 5}));
  *services.stream.passed = 7;
  services.lines.has_room(0);
  CHECK(std::ranges::count(called(urgent), true) == 7);
  CHECK(called(usual) == std::vector{false, false, false});
  *services.stream.passed = 8;
  services.lines.note(0, services.stream.level());
  CHECK(called(usual) == std::vector{true, false, false});
  CHECK(services.may_pass(usual[0].get()));  // while more urgent ones wait
  CHECK_FALSE(services.may_pass(usual[1].get()));
  const auto elsewhere = services.stand({me, false, token(3), 5}, 1);
  CHECK_FALSE(services.may_pass(usual[0].get(), 1));  // no turn of another line's
  *services.stream.passed = 15;
  services.lines.note(0, services.stream.level());
  CHECK(std::ranges::count(called(urgent), true) == 14);
}

TEST_CASE("an operation has the highest priority of those who wait for it") {
  Services services(4);
  const auto first = services.stand({me, false, token(1), 1});
  const auto second = services.stand({me, false, token(2)});
  services.lines.stand(second, 0, services.stream.level(), services.most, {another, true, nullptr, 2});
  *services.stream.passed = 1;
  services.lines.has_room(0);
  CHECK(second->called()->has_ended());
  CHECK_FALSE(first->called()->has_ended());
}
