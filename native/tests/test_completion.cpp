// Completions and ports, also from many threads at once (run under ThreadSanitizer).
#include <doctest/doctest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "completion/completion.hpp"

using namespace aiocuda::completion;
using namespace std::chrono_literals;

namespace {

Token token(std::uintptr_t number) { return reinterpret_cast<Token>(number); }

bool readable(const Port& port, int timeout_ms = 0) {
  pollfd waiting{port.fd(), POLLIN, 0};
  return poll(&waiting, 1, timeout_ms) == 1;
}

Pending::Part part_of(const std::shared_ptr<Completion>& completion, std::uint32_t stream) {
  return {completion, stream, {}, {}};
}

}  // namespace

TEST_CASE("who waits for several is told with the first that ends, once, and forgets the others") {
  Completion first(1), second(1);
  auto either = std::make_shared<Completion>(1);
  first.end_too(either);
  second.end_too(either);
  CHECK_FALSE(either->has_ended());
  second.part_done(7);
  CHECK(either->error() == 7);
  first.part_done(0);
  CHECK(either->error() == 7);

  auto late = std::make_shared<Completion>(1);
  first.end_too(late);
  CHECK(late->has_ended());

  Completion third(1);
  auto gone = std::make_shared<Completion>(1);
  third.end_too(gone);
  third.forget(*gone);
  CHECK(gone.use_count() == 1);
  third.part_done(0);
  CHECK_FALSE(gone->has_ended());
}

TEST_CASE("a port is readable while a token is due, and a batch is one wake") {
  Orphans orphans;
  Port port(orphans);
  CHECK_FALSE(readable(port));
  port.put(token(1), 0);
  port.put(token(2), 700);
  CHECK(readable(port));
  const auto due = port.take();
  REQUIRE(due.size() == 2);
  CHECK(due[0].token == token(1));
  CHECK(due[1].result == 700);
  CHECK_FALSE(readable(port));
  CHECK(port.take().empty());
}

TEST_CASE("no token is lost with its port") {
  Orphans orphans;
  {
    Port port(orphans);
    port.put(token(1), 0);
    port.close();
    port.put(token(2), 0);
  }
  CHECK(orphans.take() == std::vector<Token>{token(1), token(2)});
  CHECK(orphans.take().empty());
}

TEST_CASE("a completion ends when all its parts have passed, and tells everyone once") {
  Orphans orphans;
  auto port = std::make_shared<Port>(orphans);
  Completion completion(2);
  CHECK(completion.tell(port, token(1)));
  CHECK(completion.tell(port, token(2)));
  completion.part_done(0);
  CHECK_FALSE(completion.has_ended());
  CHECK(port->take().empty());
  completion.part_done(0);
  CHECK(completion.has_ended());
  CHECK(completion.error() == 0);
  CHECK(port->take().size() == 2);
  CHECK_FALSE(completion.tell(port, token(3)));
  completion.part_done(0);
  CHECK(port->take().empty());
}

TEST_CASE("a completion of nothing has ended") {
  CHECK(Completion(0).has_ended());
  CHECK(Completion(0).error() == 0);
}

TEST_CASE("an error ends a completion at once") {
  Orphans orphans;
  auto port = std::make_shared<Port>(orphans);
  Completion completion(3);
  CHECK(completion.tell(port, token(1)));
  completion.part_done(700);
  CHECK(completion.error() == 700);
  REQUIRE(port->take().size() == 1);
  completion.part_done(0);
  CHECK(completion.error() == 700);
}

TEST_CASE("a part that passes does what is to be done first, once") {
  Pending pending;
  auto completion = std::make_shared<Completion>(1);
  int passed = 0;
  const auto number = pending.add({completion,
                                   0,
                                   [&] {
                                     CHECK_FALSE(completion->has_ended());
                                     ++passed;
                                     return 0;
                                   },
                                   {}});
  CHECK(pending.size() == 1);
  pending.done(number);
  CHECK(passed == 1);
  CHECK(completion->has_ended());
  CHECK(pending.size() == 0);
  pending.done(number);  // a second time: nothing is left to end
  CHECK(pending.size() == 0);
  CHECK(passed == 1);
}

TEST_CASE("a part that passes, and finds that it should not have, ends with an error") {
  Pending pending;
  auto completion = std::make_shared<Completion>(2);
  pending.done(pending.add({completion, 0, [] { return 700; }, {}}));
  CHECK(completion->error() == 700);
}

TEST_CASE("a broken stream fails what waits for it, and nothing else") {
  Pending pending;
  auto broken = std::make_shared<Completion>(1), well = std::make_shared<Completion>(1),
       both = std::make_shared<Completion>(2);
  pending.add(part_of(broken, 0));
  const auto number = pending.add(part_of(well, 1));
  pending.add(part_of(both, 0));
  pending.add(part_of(both, 1));
  pending.fail_stream(0, 719);
  CHECK(broken->error() == 719);
  CHECK(both->error() == 719);
  CHECK_FALSE(well->has_ended());
  pending.done(number);
  CHECK(well->has_ended());
  CHECK(well->error() == 0);
}

TEST_CASE("what is withdrawn neither ends nor stays") {
  Pending pending;
  auto completion = std::make_shared<Completion>(1);
  pending.withdraw(pending.add(part_of(completion, 0)));
  CHECK(pending.size() == 0);
  CHECK_FALSE(completion->has_ended());
}

TEST_CASE("a wait in the place of an earlier one has a number of its own") {
  Pending pending;
  auto first = std::make_shared<Completion>(1), second = std::make_shared<Completion>(1);
  const auto gone = pending.add(part_of(first, 0));
  CHECK(gone != 0);
  pending.withdraw(gone);
  const auto number = pending.add(part_of(second, 0));
  CHECK(number != gone);
  CHECK_FALSE(pending.contains(gone));
  pending.done(gone);
  pending.withdraw(gone);
  CHECK(pending.contains(number));
  CHECK_FALSE(second->has_ended());
  pending.done(number);
  CHECK(second->has_ended());
  CHECK_FALSE(pending.contains(0));
}

TEST_CASE("whatever is taken out, and in whatever order, the others are found") {
  constexpr std::uint32_t streams = 5, count = 40;
  for (std::uint32_t step = 1; step < count; step += 3) {
    Pending pending;
    std::vector<std::shared_ptr<Completion>> completions;
    std::vector<std::uint64_t> numbers;
    for (std::uint32_t i = 0; i < count; ++i) {
      completions.push_back(std::make_shared<Completion>(1));
      numbers.push_back(pending.add(part_of(completions.back(), i % streams)));
    }
    for (std::uint32_t i = 0; i < count; i += step) pending.withdraw(numbers[i]);
    pending.fail_stream(1, 719);
    for (std::uint32_t i = 0; i < count; ++i) {
      const bool is_gone = i % step == 0, has_failed = !is_gone && i % streams == 1;
      CHECK(pending.contains(numbers[i]) == !(is_gone || has_failed));
      pending.done(numbers[i]);
      CHECK(completions[i]->has_ended() == !is_gone);
      CHECK(completions[i]->error() == (has_failed ? 719 : 0));
    }
    CHECK(pending.size() == 0);
    CHECK(pending.streams().empty());
  }
}

TEST_CASE("how long what completed was pending is counted, and of the others nothing") {
  Pending pending;
  const auto count = [&] {
    std::uint64_t all = 0;
    for (const std::uint64_t bucket : pending.histogram()) all += bucket;
    return all;
  };
  const auto first = pending.add(part_of(std::make_shared<Completion>(1), 0));
  pending.withdraw(pending.add(part_of(std::make_shared<Completion>(1), 0)));
  pending.add(part_of(std::make_shared<Completion>(1), 1));
  pending.fail_stream(1, 700);
  CHECK(count() == 0);
  pending.done(first);
  pending.done(first);
  CHECK(count() == 1);
}

TEST_CASE("many threads end what many others wait for: every token comes out once") {
  constexpr std::uintptr_t rounds = 2000, enders = 4;
  Orphans orphans;
  auto port = std::make_shared<Port>(orphans);
  Pending pending;
  std::vector<std::shared_ptr<Completion>> completions;
  std::vector<std::uint64_t> numbers;
  for (std::uintptr_t i = 0; i < rounds; ++i) {
    completions.push_back(std::make_shared<Completion>(1));
    numbers.push_back(pending.add(part_of(completions.back(), static_cast<std::uint32_t>(i % 7))));
  }
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (std::uintptr_t t = 0; t < enders; ++t)
    threads.emplace_back([&, t] {
      while (!go) std::this_thread::yield();
      for (std::uintptr_t i = t; i < rounds; i += enders) {
        if (i % 50 == 0) pending.fail_stream(static_cast<std::uint32_t>(i % 7), 700);
        pending.done(numbers[i]);
      }
    });
  std::set<Token> told_at_once;
  go = true;
  for (std::uintptr_t i = 0; i < rounds; ++i)
    if (!completions[i]->tell(port, token(i + 1))) told_at_once.insert(token(i + 1));
  std::set<Token> out;
  while (out.size() + told_at_once.size() < rounds) {
    REQUIRE(readable(*port, 10000));
    for (const auto& due : port->take()) CHECK(out.insert(due.token).second);
  }
  for (auto& thread : threads) thread.join();
  CHECK(pending.size() == 0);
  for (const Token early : told_at_once) CHECK_FALSE(out.contains(early));
}

TEST_CASE("the longest wait for a device is known, and places in lines are none") {
  Pending pending;
  const auto is_odd = [](std::uint32_t stream) { return stream % 2 == 1; };
  CHECK_FALSE(pending.longest_since(is_odd));
  pending.add({std::make_shared<Completion>(1), 1, {}, {}});  // a place in a line
  CHECK_FALSE(pending.longest_since(is_odd));
  const auto passed = [] { return 0; };
  pending.add({std::make_shared<Completion>(1), 2, passed, {}});  // of another device
  const auto before = Pending::Clock::now();
  const std::uint64_t first = pending.add({std::make_shared<Completion>(1), 3, passed, {}});
  const auto between = Pending::Clock::now();
  pending.add({std::make_shared<Completion>(1), 1, passed, {}});
  REQUIRE(pending.longest_since(is_odd));
  CHECK(*pending.longest_since(is_odd) >= before);
  CHECK(*pending.longest_since(is_odd) <= between);
  pending.done(first);
  REQUIRE(pending.longest_since(is_odd));
  CHECK(*pending.longest_since(is_odd) >= between);
}
