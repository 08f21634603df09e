// Slots and the reactor, in every order of what callers, the reactor and the device do (see scheduler.hpp).
#include "shadow_std.hpp"

#include "completion/reactor.hpp"
// after the shadows: doctest uses the standard library's own
#include "check_orders.hpp"

namespace aiocuda::completion {
namespace {

using namespace ::std::chrono_literals;
using model::require;

// The parts of an engine: flags and the rest. The test plays the callers and the device.
struct House {
  std::vector<std::uint32_t> memory = std::vector<std::uint32_t>(2 * FlagTable::flag_stride);
  Pending pending;
  FlagTable slots{memory};
  Points points;
  std::atomic<bool> point_passed = false;
  std::int32_t broken = 0;

  void write(Ticket ticket) {
    __atomic_store_n(&memory[ticket.slot * FlagTable::flag_stride], ticket.number, __ATOMIC_RELEASE);
  }
  // As callers do: under a lock of their own, which is not a part of this.
  std::shared_ptr<Completion> arm(Reactor& reactor, Ticket ticket, std::uint32_t stream = 0) {
    auto completion = std::make_shared<Completion>(1);
    slots.watch(ticket, pending.add({completion, stream, {}, {}}));
    reactor.wake();
    return completion;
  }
  Reactor::HasPassed has_passed() {
    return [this](const void*) { return point_passed.load(); };
  }
  Reactor::Ask ask() {
    return [this](std::uint32_t) { return broken; };
  }
};

// Runs a program with a house and a reactor. No sleep of the reactor's may end by its time-out while something new is
// there for it to look at.
void check_all(const std::function<void(House&, Reactor&)>& program, std::size_t deviations = 2) {
  const House* running = nullptr;
  model::Limits limits;
  limits.deviations = deviations;
  limits.on_time_out = [&running]() -> ::std::string {
    const bool is_new = running && (running->slots.has_incoming() || running->points.has_incoming());
    return is_new ? "the reactor slept while something new was there" : "";
  };
  model::check_orders(
      [&] {
        House house;
        running = &house;
        {
          Reactor reactor(house.pending, house.slots, house.points, house.has_passed(), house.ask(), 20ms);
          program(house, reactor);
        }
        require(house.pending.size() == 0, "something is still pending");
        running = nullptr;
      },
      limits);
}

void wait(Completion& completion) { require(completion.wait_for(10s), "it was never told"); }

}  // namespace

TEST_CASE("a wait that is armed while the device writes its flag is told") {
  check_all([](House& house, Reactor& reactor) {
    const Ticket ticket = house.slots.issue(*house.slots.acquire());
    std::thread device([&] { house.write(ticket); });
    wait(*house.arm(reactor, ticket));
    device.join();
  });
}

// The yields let the reactor come to where it falls asleep, so that few deviations are needed there.
TEST_CASE("the reactor does not fall asleep over a new flag") {
  check_all(
      [](House& house, Reactor& reactor) {
        const Ticket ticket = house.slots.issue(*house.slots.acquire());
        house.write(ticket);
        auto completion = std::make_shared<Completion>(1);
        const auto number = house.pending.add({completion, 0, {}, {}});
        model::yield();
        model::yield();
        house.slots.watch(ticket, number);
        reactor.wake();
        wait(*completion);
      },
      4);
}

TEST_CASE("the reactor does not fall asleep over a new point") {
  check_all(
      [](House& house, Reactor& reactor) {
        house.point_passed.store(true);
        auto completion = std::make_shared<Completion>(1);
        const auto number = house.pending.add({completion, 0, {}, {}});
        model::yield();
        model::yield();
        house.points.watch(0, std::make_shared<int>(1), number);
        reactor.wake();
        wait(*completion);
      },
      4);
}

TEST_CASE("waits of one slot that two threads arm are told, whoever comes first to the table") {
  check_all([](House& house, Reactor& reactor) {
    const Slot slot = *house.slots.acquire();
    const Ticket first = house.slots.issue(slot), second = house.slots.issue(slot);
    std::thread other([&] { wait(*house.arm(reactor, first)); });
    const auto later = house.arm(reactor, second);
    house.write(first);
    other.join();  // the first does not wait for the second
    house.write(second);
    wait(*later);
  });
}

TEST_CASE("a slot that is used again after it settled tells its next user nothing of the one before") {
  check_all([](House& house, Reactor& reactor) {
    const Slot slot = *house.slots.acquire();
    const Ticket before = house.slots.issue(slot);
    std::thread device([&] { house.write(before); });
    wait(*house.arm(reactor, before));
    device.join();
    require(house.slots.is_settled(slot), "it was told before the device wrote");
    house.slots.release(slot);
    const Ticket next = house.slots.issue(*house.slots.acquire());
    const auto completion = house.arm(reactor, next);
    require(!completion->has_ended(), "the next user was told of the one before");
    house.write(next);
    wait(*completion);
  });
}

TEST_CASE("a point without a flag is asked about until it has passed") {
  check_all([](House& house, Reactor& reactor) {
    auto completion = std::make_shared<Completion>(1);
    std::thread device([&] { house.point_passed.store(true); });
    house.points.watch(0, std::make_shared<int>(1), house.pending.add({completion, 0, {}, {}}));
    reactor.wake();
    wait(*completion);
    device.join();
  });
}

TEST_CASE("a stream that breaks ends its waits with the error, and no others") {
  check_all(
      [](House& house, Reactor& reactor) {
        const Ticket broken = house.slots.issue(*house.slots.acquire()),
                     well = house.slots.issue(*house.slots.acquire());
        const auto fails = house.arm(reactor, broken, 1);
        const auto passes = house.arm(reactor, well, 0);
        std::thread device([&] {
          house.write(well);
          house.broken = 700;
        });
        wait(*fails);
        wait(*passes);
        device.join();
        require(fails->error() == 700, "it ended with another error");
      },
      1);
}

TEST_CASE("a reactor that is told to end does, whatever it waits for") {
  check_all([](House& house, Reactor& reactor) {
    const Ticket ticket = house.slots.issue(*house.slots.acquire());
    const auto number = house.pending.add({std::make_shared<Completion>(1), 0, {}, {}});
    std::thread caller([&] {
      house.slots.watch(ticket, number);
      reactor.wake();
    });
    require(reactor.stops_within(10s), "it did not end");
    caller.join();
    house.pending.withdraw(number);
  });
}

}  // namespace aiocuda::completion
