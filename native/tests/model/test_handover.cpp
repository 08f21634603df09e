// What one thread decides and another performs, in every order of what they do (see scheduler.hpp).
#include "shadow_std.hpp"

#include "handover.hpp"
// after the shadows: doctest uses the standard library's own
#include "check_orders.hpp"

namespace aiocuda {
namespace {

using namespace ::std::chrono_literals;
using model::require;

// Items are numbers: each must be performed once, behind the one before it.
struct House {
  explicit House(::std::size_t size) : handover(size, 0us) {}
  auto perform_one() {
    return [this](int item) { require(item == ++last, "an item was performed twice, or before its turn"); };
  }
  void give(int item) {
    while (!handover.has_room()) model::yield();
    handover.next() = item;
    handover.give();
  }

  Handover<int> handover;
  int last = 0;
};

// `count`: of the items that the program gives.
void check_all(const ::std::function<void(House&)>& program, int count, ::std::size_t size,
               ::std::size_t deviations = 3) {
  model::Limits limits;
  limits.deviations = deviations;
  model::check_orders(
      [&] {
        House house(size);
        std::thread thread([&] { house.handover.run(house.perform_one()); });
        program(house);
        house.handover.stop();
        thread.join();
        require(house.last == count, "an item was lost");
      },
      limits);
}

}  // namespace

TEST_CASE("the thread does not fall asleep over an item, and performs all of them in order") {
  check_all(
      [](House& house) {
        for (int item = 1; item <= 3; ++item) house.give(item);
        while (!house.handover.is_empty()) model::yield();
      },
      3, 2);
}

TEST_CASE("a thread that fell asleep between two items is woken by the second") {
  check_all(
      [](House& house) {
        for (int item = 1; item <= 2; ++item) {
          house.give(item);
          while (!house.handover.is_empty()) model::yield();
          model::yield();
          model::yield();
        }
      },
      2, 2);
}

TEST_CASE("a thread that is called in vain falls asleep again, and is woken by the next item") {
  check_all(
      [](House& house) {
        house.handover.call();
        model::yield();
        house.handover.call();
        house.give(1);
        while (!house.handover.is_empty()) model::yield();
      },
      1, 2);
}

TEST_CASE("the giver and the thread perform items in one order, whoever has the baton") {
  check_all(
      [](House& house) {
        house.give(1);
        house.give(2);
        house.handover.perform(house.handover.given(), house.perform_one());
        house.give(3);
        house.handover.perform(house.handover.given(), house.perform_one());
      },
      3, 4);
}

}  // namespace aiocuda
