// What one thread decides and another performs.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "handover.hpp"

using namespace std::chrono_literals;

namespace {

// The thread of its own, which notes what it and others perform.
struct Performed {
  explicit Performed(std::size_t size, std::chrono::microseconds awake = 50us)
      : handover(size, awake), thread([this] { handover.run([this](int item) { note(item); }); }) {}
  ~Performed() {
    handover.stop();
    thread.join();
  }
  // Under the baton.
  void note(int item) { items.push_back(item); }
  void give(int item) {
    while (!handover.has_room()) std::this_thread::yield();
    handover.next() = item;
    handover.give();
  }
  void wait() {
    while (!handover.is_empty()) std::this_thread::yield();
  }

  std::vector<int> items;
  aiocuda::Handover<int> handover;
  std::thread thread;
};

std::vector<int> up_to(int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

}  // namespace

TEST_CASE("items are performed once and in order, also where there is little room, and the giver helps now and then") {
  for (const std::size_t size : {1u, 3u, 64u}) {
    constexpr int count = 20000;
    Performed performed(size);
    for (int i = 0; i < count; ++i) {
      performed.give(i);
      if (i % 7 == 0) performed.handover.perform(performed.handover.given(), [&](int item) { performed.note(item); });
    }
    performed.wait();
    CHECK(performed.items == up_to(count));
    CHECK(performed.handover.performed() == count);
  }
}

TEST_CASE("a thread that sleeps is woken by the next item") {
  Performed performed(8, 0us);
  for (int i = 0; i < 200; ++i) {
    while (performed.handover.is_awake()) std::this_thread::yield();
    performed.give(i);
    performed.wait();
  }
  CHECK(performed.items == up_to(200));
}

TEST_CASE("a thread that sleeps comes when it is called, and looks on for a while") {
  Performed performed(8, 200us);
  for (int i = 0; i < 50; ++i) {
    while (performed.handover.is_awake()) std::this_thread::yield();
    do {
      performed.handover.call();  // again, if it has come and gone while this thread had no core
      std::this_thread::yield();
    } while (!performed.handover.is_awake());
  }
  performed.give(0);
  performed.wait();
  CHECK(performed.items == up_to(1));
}

TEST_CASE("a thread that is told to stop performs what was given before") {
  std::vector<int> items;
  aiocuda::Handover<int> handover(16, 50us);
  for (int i = 0; i < 16; ++i) {
    handover.next() = i;
    handover.give();
  }
  CHECK_FALSE(handover.has_room());
  handover.stop();
  std::thread([&] { handover.run([&](int item) { items.push_back(item); }); }).join();
  CHECK(items == up_to(16));
}

TEST_CASE("who helps stops at the number that was asked for, and does nothing while another thread has the baton") {
  std::vector<int> items;
  aiocuda::Handover<int> handover(16, 50us);
  for (int i = 0; i < 8; ++i) {
    handover.next() = i;
    handover.give();
  }
  bool is_refused = false;
  CHECK(handover.perform(5, [&](int item) {
    items.push_back(item);
    is_refused = !handover.perform(8, [&](int other) { items.push_back(-other); });
  }));
  CHECK(is_refused);
  CHECK(items == up_to(5));
  CHECK(handover.performed() == 5);
  CHECK_FALSE(handover.is_empty());
}
