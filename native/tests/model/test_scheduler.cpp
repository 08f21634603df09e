// The scheduler finds what it is for: each program here is wrong in one way, and right without it.
#include "shadow_std.hpp"
// after the shadows: doctest uses the standard library's own
#include <doctest/doctest.h>

namespace aiocuda::model_test {
namespace {

using model::explore;
using model::require;

// Two threads that each say that they are there, and then look for the other: not both may miss the other.
std::function<void()> dekker(std::memory_order order) {
  return [order] {
    std::atomic<bool> first = false, second = false;
    bool first_sees = false, second_sees = false;
    std::thread other([&] {
      second.store(true, order);
      second_sees = first.load();
    });
    first.store(true, order);
    first_sees = second.load();
    other.join();
    require(first_sees || second_sees, "neither saw the other");
  };
}

}  // namespace

TEST_CASE("stores that are not sequentially consistent may be seen late") {
  CHECK(explore(dekker(std::memory_order_seq_cst)).failure.empty());
  CHECK(explore(dekker(std::memory_order_release)).failure.find("neither saw the other") == 0);
}

TEST_CASE("a thread sees its own stores, and others see them in their order") {
  const auto found = explore([] {
    std::atomic<int> data = 0, ready = 0;
    std::thread other([&] {
      if (ready.load() == 1) require(data.load() == 7, "the second store was seen before the first");
    });
    data.store(7, std::memory_order_relaxed);
    require(data.load() == 7, "its own store was not seen");
    ready.store(1, std::memory_order_release);
    other.join();
  });
  CHECK(found.failure.empty());
  CHECK(found.orders > 10);
}

TEST_CASE("an increment in two steps loses one, in one step none") {
  const auto count = [](bool in_one) {
    return [in_one] {
      std::atomic<int> counter = 0;
      const auto increment = [&] {
        if (in_one)
          ++counter;
        else
          counter.store(counter.load() + 1);
      };
      std::thread other(increment);
      increment();
      other.join();
      require(counter.load() == 2, "an increment was lost");
    };
  };
  CHECK(explore(count(true)).failure.empty());
  CHECK(explore(count(false)).failure.find("an increment was lost") == 0);
}

TEST_CASE("locks taken in two orders may block each other, and that is told") {
  const auto take = [](bool in_one_order) {
    return [in_one_order] {
      std::mutex a, b;
      const auto both = [](std::mutex& first, std::mutex& second) {
        std::lock_guard outer(first);
        std::lock_guard inner(second);
      };
      std::thread other([&] { in_one_order ? both(a, b) : both(b, a); });
      both(a, b);
      other.join();
    };
  };
  CHECK(explore(take(true)).failure.empty());
  CHECK(explore(take(false)).failure.find("all threads wait") == 0);
}

TEST_CASE("a wake that comes before the wait is lost, unless the condition is looked at under the lock") {
  const auto wait = [](bool looks) {
    return [looks] {
      std::mutex mutex;
      std::condition_variable woken;
      bool is_there = false;
      std::thread other([&] {
        {
          std::lock_guard lock(mutex);
          is_there = true;
        }
        woken.notify_one();
      });
      {
        std::unique_lock lock(mutex);
        if (looks)
          woken.wait(lock, [&] { return is_there; });
        else
          woken.wait(lock);
      }
      other.join();
    };
  };
  CHECK(explore(wait(true)).failure.empty());
  CHECK(explore(wait(false)).failure.find("all threads wait") == 0);
}

TEST_CASE("time-outs end only what nobody else can end") {
  model::Limits limits;
  int time_outs = 0;
  limits.on_time_out = [&] {
    ++time_outs;
    return ::std::string();
  };
  const auto wait = [](bool is_told) {
    return [is_told] {
      std::mutex mutex;
      std::condition_variable woken;
      bool is_there = false;
      std::thread other([&] {
        std::lock_guard lock(mutex);
        is_there = is_told;
        woken.notify_one();
      });
      {
        std::unique_lock lock(mutex);
        require(woken.wait_for(lock, std::chrono::milliseconds(1), [&] { return is_there; }) == is_told,
                "it was told something else");
      }
      other.join();
    };
  };
  CHECK(explore(wait(true), limits).failure.empty());
  CHECK(time_outs == 0);
  CHECK(explore(wait(false), limits).failure.empty());
  CHECK(time_outs > 0);
}

TEST_CASE("who yields lets others go on, and time with them") {
  const auto found = explore([] {
    std::atomic<bool> is_there = false;
    std::thread other([&] { is_there.store(true, std::memory_order_release); });
    const auto begin = std::chrono::steady_clock::now();
    while (!is_there.load()) std::this_thread::yield();
    require(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(2), "it waited for too long");
    other.join();
  });
  CHECK(found.failure.empty());
}

TEST_CASE("a program that does not end, or throws, fails") {
  model::Limits limits;
  limits.steps = 1000;
  CHECK(explore(
            [] {
              std::atomic<bool> never = false;
              while (!never.load()) {
              }
            },
            limits)
            .failure.find("it does not end") == 0);
  CHECK(explore([] { throw ::std::runtime_error("as it likes"); }).failure.find("it threw as it likes") == 0);
}

TEST_CASE("more deviations are more orders, and all of them are run") {
  const auto program = [] {
    std::atomic<int> shared = 0;
    std::thread other([&] {
      for (int i = 0; i < 3; ++i) ++shared;
    });
    for (int i = 0; i < 3; ++i) ++shared;
    other.join();
  };
  model::Limits limits;
  ::std::size_t before = 0;
  for (limits.deviations = 0; limits.deviations < 4; ++limits.deviations) {
    const auto found = explore(program, limits);
    CHECK(found.failure.empty());
    CHECK(found.orders > before);
    before = found.orders;
  }
}

}  // namespace aiocuda::model_test
