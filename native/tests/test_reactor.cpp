// Slots and the reactor; a thread of the test is the device (run under ThreadSanitizer).
#include <doctest/doctest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "completion/reactor.hpp"

using namespace aiocuda::completion;
using namespace std::chrono_literals;

namespace {

// Flags, and the device that writes them.
struct Flags {
  std::vector<std::uint32_t> memory;
  FlagTable slots;
  explicit Flags(std::size_t count) : memory(count * FlagTable::flag_stride), slots(memory) {}
  void write(Ticket ticket) {
    __atomic_store_n(&memory[ticket.slot * FlagTable::flag_stride], ticket.number, __ATOMIC_RELEASE);
  }
  std::vector<std::uint64_t> scan() {
    std::vector<std::uint64_t> keys;
    slots.scan([&](std::uint64_t key) { keys.push_back(key); });
    return keys;
  }
};

const Reactor::Ask all_well = [](std::uint32_t) { return 0; };
const Reactor::HasPassed none_passes = [](const void*) { return false; };

struct Waiting {
  std::shared_ptr<Completion> completion = std::make_shared<Completion>(1);
};

}  // namespace

TEST_CASE("slots are as many as there are flags, and come back") {
  Flags flags(2);
  const auto a = flags.slots.acquire(), b = flags.slots.acquire();
  REQUIRE(a);
  REQUIRE(b);
  CHECK(*a != *b);
  CHECK_FALSE(flags.slots.acquire());
  flags.slots.release(*a);
  CHECK(flags.slots.acquire() == a);
}

TEST_CASE("a slot is settled when the device has written all that it was given for it") {
  Flags flags(1);
  const Slot slot = *flags.slots.acquire();
  CHECK(flags.slots.is_settled(slot));
  const Ticket first = flags.slots.issue(slot), second = flags.slots.issue(slot);
  flags.write(first);
  CHECK_FALSE(flags.slots.is_settled(slot));
  flags.write(second);
  CHECK(flags.slots.is_settled(slot));
  flags.slots.take_back(flags.slots.issue(slot));
  CHECK(flags.slots.is_settled(slot));
}

TEST_CASE("a number passes all before it in its slot, and none in another") {
  Flags flags(2);
  const Slot a = *flags.slots.acquire(), b = *flags.slots.acquire();
  const Ticket first = flags.slots.issue(a), second = flags.slots.issue(a), third = flags.slots.issue(a),
               other = flags.slots.issue(b);
  flags.slots.watch(first, 1);
  flags.slots.watch(second, 2);
  flags.slots.watch(third, 3);
  flags.slots.watch(other, 4);
  CHECK(flags.scan().empty());
  flags.write(second);
  CHECK(flags.slots.has_passed(first));
  CHECK_FALSE(flags.slots.has_passed(third));
  CHECK(flags.scan() == std::vector<std::uint64_t>{1, 2});
  CHECK_FALSE(flags.slots.is_idle());
  flags.write(other);
  CHECK(flags.scan() == std::vector<std::uint64_t>{4});
  flags.write(third);
  CHECK(flags.scan() == std::vector<std::uint64_t>{3});
  CHECK(flags.slots.is_idle());
}

TEST_CASE("tickets that come in the wrong order pass in the right one") {
  Flags flags(1);
  const Slot slot = *flags.slots.acquire();
  const Ticket first = flags.slots.issue(slot), second = flags.slots.issue(slot);
  flags.slots.watch(second, 2);
  flags.slots.watch(first, 1);
  flags.write(first);
  CHECK(flags.scan() == std::vector<std::uint64_t>{1});
}

TEST_CASE("numbers wrap") {
  Flags flags(1);
  const Slot slot = *flags.slots.acquire();
  Ticket before{slot, 0xffffffff}, after{slot, 1};
  flags.write({slot, 0xfffffffe});
  CHECK_FALSE(flags.slots.has_passed(before));
  CHECK_FALSE(flags.slots.has_passed(after));
  flags.write(before);
  CHECK(flags.slots.has_passed(before));
  CHECK_FALSE(flags.slots.has_passed(after));
  flags.write(after);
  CHECK(flags.slots.has_passed(before));
}

TEST_CASE("what is forgotten is given out no more") {
  Flags flags(1);
  const Slot slot = *flags.slots.acquire();
  const Ticket first = flags.slots.issue(slot), second = flags.slots.issue(slot);
  flags.slots.watch(first, 1);
  flags.slots.watch(second, 2);
  flags.slots.forget([](std::uint64_t key) { return key == 1; });
  flags.write(second);
  CHECK(flags.scan() == std::vector<std::uint64_t>{2});
}

TEST_CASE("the reactor ends what the device has written, and parks") {
  Flags flags(1);
  Points points;
  Pending pending;
  Reactor reactor(pending, flags.slots, points, none_passes, all_well, 1h);
  const Slot slot = *flags.slots.acquire();
  for (int round = 0; round < 50; ++round) {
    Waiting waiting;
    const Ticket ticket = flags.slots.issue(slot);
    flags.slots.watch(ticket, pending.add({waiting.completion, 0, {}, {}}));
    reactor.wake();
    if (round % 2) std::this_thread::sleep_for(200us);  // it is asleep by then, or spins: both must do
    CHECK_FALSE(waiting.completion->has_ended());
    flags.write(ticket);
    REQUIRE(waiting.completion->wait_for(10s));
    CHECK(waiting.completion->error() == 0);
  }
  CHECK(reactor.counts().completed == 50);
  CHECK(pending.size() == 0);
}

TEST_CASE("the reactor asks while something is pending, with a slot or without, and only then") {
  for (const bool has_slot : {false, true}) {
    CAPTURE(has_slot);
    Flags flags(1);
    Points points;
    Pending pending;
    std::atomic<int> asked{0};
    std::atomic<bool> broken{false};
    Reactor reactor(
        pending, flags.slots, points, none_passes,
        [&](std::uint32_t stream) {
          CHECK(stream == 3);
          ++asked;
          return broken ? 700 : 0;
        },
        1ms);
    CHECK(asked == 0);
    Waiting waiting;
    const auto number = pending.add({waiting.completion, 3, {}, {}});
    if (has_slot) {
      flags.slots.watch(flags.slots.issue(*flags.slots.acquire()), number);
      reactor.wake();
    }
    while (asked == 0) std::this_thread::yield();
    CHECK_FALSE(waiting.completion->has_ended());
    broken = true;
    CHECK(waiting.completion->wait_for(10s));
    CHECK(waiting.completion->error() == 700);
    CHECK(pending.size() == 0);
  }
}

TEST_CASE("a reactor with nothing to do, and one with something that never comes, ends at once") {
  Flags flags(1);
  Points points;
  {
    Pending pending;
    Reactor reactor(pending, flags.slots, points, none_passes, all_well, 1h);
  }
  Pending pending;
  Reactor reactor(pending, flags.slots, points, none_passes, all_well, 1h);
  flags.slots.watch(flags.slots.issue(*flags.slots.acquire()),
                    pending.add({std::make_shared<Completion>(1), 0, {}, {}}));
  reactor.wake();
}

TEST_CASE("points pass in the order of their series, only the first is asked about, and none is kept") {
  Points points;
  std::vector<int> asked;
  std::vector<std::uint64_t> passed;
  int done = 0;
  std::vector<std::weak_ptr<const void>> kept;
  for (int number : {1, 2, 3}) {
    auto point = std::make_shared<const int>(number);
    kept.push_back(point);
    points.watch(number == 3 ? 8 : 4, std::move(point), static_cast<std::uint64_t>(number));
  }
  CHECK_FALSE(points.is_idle());
  const auto scan = [&] {
    asked.clear();
    return points.scan(
        [&](const void* point) {
          asked.push_back(*static_cast<const int*>(point));
          return asked.back() <= done;
        },
        [&](std::uint64_t key) { passed.push_back(key); });
  };
  CHECK(scan() == 0);
  CHECK(std::set(asked.begin(), asked.end()) == std::set{1, 3});
  done = 2;
  CHECK(scan() == 2);
  CHECK(passed == std::vector<std::uint64_t>{1, 2});
  CHECK((kept[0].expired() && kept[1].expired()));
  points.forget([](std::uint64_t key) { return key == 3; });
  CHECK(kept[2].expired());
  CHECK(points.is_idle());
}

TEST_CASE("points that come out of order pass in that of their series") {
  Points points;
  std::vector<std::uint64_t> passed;
  for (const std::uint64_t order : {5, 2, 9, 2})
    points.watch(1, std::make_shared<const std::uint64_t>(order), order * 10, order);
  std::uint64_t done = 4;
  const auto scan = [&] {
    return points.scan([&](const void* point) { return *static_cast<const std::uint64_t*>(point) <= done; },
                       [&](std::uint64_t key) { passed.push_back(key); });
  };
  CHECK(scan() == 2);
  CHECK(passed == std::vector<std::uint64_t>{20, 20});
  points.watch(1, std::make_shared<const std::uint64_t>(3), 30, 3);
  CHECK(scan() == 1);
  done = 9;
  CHECK(scan() == 2);
  CHECK(passed == std::vector<std::uint64_t>{20, 20, 30, 50, 90});
  CHECK(points.is_idle());
}

TEST_CASE("the reactor asks about points, beside flags and without them, and leaves a broken stream's") {
  for (const bool has_flag : {false, true}) {
    CAPTURE(has_flag);
    Flags flags(1);
    Points points;
    Pending pending;
    std::atomic<bool> broken{false};
    Reactor reactor(
        pending, flags.slots, points,
        [](const void* point) { return static_cast<const std::atomic<bool>*>(point)->load(); },
        [&](std::uint32_t stream) { return broken && stream == 5 ? 700 : 0; }, 1ms);
    Waiting of_flag;
    if (has_flag)
      flags.slots.watch(flags.slots.issue(*flags.slots.acquire()), pending.add({of_flag.completion, 1, {}, {}}));
    for (int round = 0; round < 50; ++round) {
      Waiting waiting;
      const auto point = std::make_shared<std::atomic<bool>>(false);
      points.watch(4, point, pending.add({waiting.completion, 2, {}, {}}));
      reactor.wake();
      if (round % 2) std::this_thread::sleep_for(200us);  // it is asleep by then, or asks: both must do
      CHECK_FALSE(waiting.completion->has_ended());
      *point = true;
      REQUIRE(waiting.completion->wait_for(10s));
    }
    Waiting lost;
    const auto point = std::make_shared<std::atomic<bool>>(false);
    points.watch(10, point, pending.add({lost.completion, 5, {}, {}}));
    reactor.wake();
    broken = true;
    REQUIRE(lost.completion->wait_for(10s));
    CHECK(lost.completion->error() == 700);
    CHECK_FALSE(of_flag.completion->has_ended());
    CHECK(pending.size() == (has_flag ? 1 : 0));
  }
}

TEST_CASE("many threads arm, a device writes in its own time: each ends once, in the order of its slot") {
  constexpr std::size_t slots = 8, arming = 4, rounds = 500;
  Flags flags(slots);
  Points points;
  Pending pending;
  Orphans orphans;
  auto port = std::make_shared<Port>(orphans);
  Reactor reactor(pending, flags.slots, points, none_passes, all_well, 1ms);
  std::vector<Slot> taken;
  for (std::size_t i = 0; i < slots; ++i) taken.push_back(*flags.slots.acquire());
  std::mutex order;  // stands for the submission's: numbers are issued and "submitted" in one order
  std::vector<std::atomic<std::uint32_t>> submitted(slots);
  std::atomic<bool> ended{false};
  std::thread device([&] {
    std::mt19937 random(1);
    std::vector<std::uint32_t> written(slots, 0);
    for (bool is_last = false; !is_last;) {
      is_last = ended;
      for (std::size_t i = 0; i < slots; ++i) {
        const std::uint32_t goal = submitted[i];
        if (goal == written[i]) continue;
        written[i] += 1 + static_cast<std::uint32_t>(
                              random() % (goal - written[i]));  // it may run past several before anyone looks
        flags.write({taken[i], written[i]});
        is_last = false;
      }
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < arming; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (std::size_t i = 0; i < rounds; ++i) {
        const std::size_t at = random() % slots;
        auto completion = std::make_shared<Completion>(1);
        Ticket ticket;
        {
          std::lock_guard lock(order);
          ticket = flags.slots.issue(taken[at]);
          submitted[at] = ticket.number;
        }
        flags.slots.watch(ticket, pending.add({completion, static_cast<std::uint32_t>(at), {}, {}}));
        reactor.wake();
        const auto token = reinterpret_cast<Token>(t * rounds + i + 1);
        if (!completion->tell(port, token)) port->put(token, 0);
      }
    });
  std::set<Token> out;
  while (out.size() < arming * rounds) {
    pollfd waiting{port->fd(), POLLIN, 0};
    REQUIRE(poll(&waiting, 1, 10000) == 1);
    for (const auto& due : port->take()) CHECK(out.insert(due.token).second);
  }
  for (auto& thread : threads) thread.join();
  ended = true;
  device.join();
  CHECK(pending.size() == 0);
}

TEST_CASE("a reactor whose question is not answered is not waited for") {
  Pending pending;
  Flags flags(1);
  Points points;
  std::atomic<bool> is_asked{false}, may_answer{false};
  auto answers_late = [&](std::uint32_t) {
    is_asked = true;
    while (!may_answer) std::this_thread::yield();
    return 0;
  };
  Reactor reactor(pending, flags.slots, points, none_passes, answers_late, 1ms);
  pending.add({std::make_shared<Completion>(1), 0, nullptr, {}});
  while (!is_asked) std::this_thread::yield();
  CHECK_FALSE(reactor.stops_within(10ms));
  may_answer = true;
  CHECK(reactor.stops_within(10s));
}
