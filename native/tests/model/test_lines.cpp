// Lines of those who wait for room, in every order of what their threads do (see scheduler.hpp).
#include "shadow_std.hpp"

#include "completion/line.hpp"
// after the shadows: doctest uses the standard library's own
#include "check_orders.hpp"

namespace aiocuda::completion {
namespace {

using namespace ::std::chrono_literals;
using model::require;

constexpr std::uint64_t most = 2;
constexpr LineId line = 0;

// A stream that holds at most two submissions, and those who want to submit. The device passes what it is told to.
struct House {
  Pending pending;
  Lines lines{pending};
  std::mutex submitting;
  std::uint64_t submitted = most;
  std::atomic<std::uint64_t> passed = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> learnt =
      std::make_shared<std::atomic<std::uint64_t>>(0);  // of that, by the asking thread
  std::vector<Thread> order;                            // who submitted, in order

  Level level() const { return {submitted, learnt}; }

  bool is_full(const Turn& turn) {
    learnt->store(passed.load(), std::memory_order_release);
    if (submitted - learnt->load() >= most) return true;
    return !lines.is_empty() && !lines.may_pass(line, level(), most, &turn);
  }
  // As an engine does: submits if there is room and nobody stands before it; else it stands in line, waits and looks
  // again.
  void submit(Thread thread) {
    const auto turn = std::make_shared<Turn>();
    for (;;) {
      {
        std::lock_guard lock(submitting);
        if (!is_full(*turn)) {
          ++submitted;
          order.push_back(thread);
          lines.end(*turn, level());
          keep_moving();
          return;
        }
        lines.stand(turn, line, level(), most, {thread, false, nullptr});
        keep_moving();
      }
      require(turn->called()->wait_for(10s), "it was never called");
    }
  }
  std::shared_ptr<Turn> stand(Thread thread) {
    turns.push_back(std::make_shared<Turn>());
    lines.stand(turns.back(), line, level(), most, {thread, false, nullptr});
    keep_moving();
    return turns.back();
  }
  void keep_moving() {
    const auto until = lines.next_watch(line, level());
    if (!until) return;
    watched.emplace_back(*until, std::make_shared<Completion>(1));
    lines.set_watch(line, watched.back().second);
  }
  // The device passes up to `count`; the reactor sees it, and tells the lines what they watch for.
  void pass(std::uint64_t count) {
    passed.store(count);
    std::vector<std::shared_ptr<Completion>> reached;
    {
      std::lock_guard lock(submitting);
      for (const auto& [until, watch] : watched)
        if (until <= count && !watch->has_ended()) reached.push_back(watch);
    }
    for (const auto& watch : reached) {
      lines.has_room(line);
      watch->part_done(0);
    }
  }
  bool has_watch(std::uint64_t count) const {
    return std::any_of(watched.begin(), watched.end(),
                       [&](const auto& each) { return each.first == count && !each.second->has_ended(); });
  }
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Completion>>> watched;
  std::vector<std::shared_ptr<Turn>> turns;
};

void check_all(const std::function<void(House&)>& program, std::size_t deviations) {
  model::Limits limits;
  limits.deviations = deviations;
  limits.on_time_out = [] { return ::std::string("somebody was not called"); };
  model::check_orders(
      [&] {
        House house;
        program(house);
        require(house.lines.is_empty(), "somebody still stands in line");
        require(house.pending.size() == 0, "something is still pending");
      },
      limits);
}

}  // namespace

TEST_CASE("everybody who stands in line is called once there is room") {
  check_all(
      [](House& house) {
        std::thread other([&] { house.submit(2); });
        std::thread device([&] {
          // A real device has something that a test's device does not know of: a watch that is set later is looked at
          // again.
          for (std::uint64_t count = 1; count <= 2; ++count) {
            model::wait_until("somebody waits for the device",
                              [&] { return house.order.size() == 2 || house.has_watch(count); });
            house.pass(count);
          }
        });
        house.submit(1);
        other.join();
        device.join();
        require(house.order.size() == 2, "somebody did not submit");
      },
      2);
}

TEST_CASE("who leaves hands its turn on, called or not") {
  check_all(
      [](House& house) {
        Turn* const leaving = house.stand(2).get();
        std::thread other([&] { house.submit(1); });
        std::thread device([&] {
          model::wait_until("somebody waits for the device",
                            [&] { return house.order.size() == 1 || house.has_watch(1); });
          house.pass(1);
        });
        house.lines.leave(*leaving, 2, nullptr);
        {
          std::lock_guard lock(house.submitting);
          house.keep_moving();
        }
        other.join();
        device.join();
      },
      2);
}

TEST_CASE("a turn that was called and not taken is handed on when somebody looks") {
  check_all(
      [](House& house) {
        const auto away = house.stand(1);  // of a loop that stands still
        std::thread device([&] {
          house.pass(1);
          for (int i = 0; i < 3; ++i) house.lines.look(line);
        });
        house.submit(2);
        device.join();
        house.lines.give_up(*away);
      },
      2);
}

}  // namespace aiocuda::completion
