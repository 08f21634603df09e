// What a trace records: numbers, needs, who asked.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "trace/recorder.hpp"

using namespace aiocuda::trace;

namespace {

Number put(Recorder& recorder, Tick tick, std::vector<Tick> after) {
  const Number number = recorder.begin_work({}, after, nullptr);
  recorder.end_work(number, tick);
  return number;
}
std::vector<Number> needs(const Recorder& recorder, Number number) {
  const auto found = recorder.needs(recorder.work(number));
  return {found.begin(), found.end()};
}

}  // namespace

TEST_CASE("work needs the work that its ticks are, each once, and nothing from before the trace") {
  Recorder recorder;
  const Number first = put(recorder, {0, 7}, {}), second = put(recorder, {3, 2}, {{0, 7}});
  const Number last = put(recorder, {0, 9}, {{3, 2}, {0, 7}, {0, 7}, {0, 8}, {0, 3}, {5, 1}, {0, 0}});
  CHECK(needs(recorder, second) == std::vector<Number>{first});
  CHECK(needs(recorder, last) == std::vector<Number>{first, second});
}

TEST_CASE("work is for whoever asked last in this thread, and for nobody once a recorder has ended") {
  Recorder recorder;
  const int await = 0, inner = 0;
  const Number outer_ask = recorder.begin_ask(&await, {});
  const Number before = recorder.enter(outer_ask);
  const Number inner_ask = recorder.begin_ask(&inner, {.kind = AskKind::sync});
  const Number around = recorder.enter(inner_ask);
  CHECK(recorder.work(put(recorder, {0, 1}, {})).ask == inner_ask);
  recorder.leave(around, now_ns());
  CHECK(recorder.work(put(recorder, {0, 2}, {})).ask == outer_ask);
  recorder.end_ask(&inner, Outcome::done, std::vector<Tick>{{0, 1}});
  CHECK(recorder.asks().at(inner_ask).outcome == Outcome::done);
  CHECK(recorder.asks().at(inner_ask).results.front() == 0);
  {
    Recorder next;
    CHECK(next.current() == none);
  }
  recorder.leave(before, now_ns());
  CHECK(recorder.current() == none);
  CHECK(recorder.steps().size() == 2);
}

TEST_CASE("the time of building is that of the object at the address, once") {
  Recorder recorder;
  const int object = 0;
  recorder.note_built(&object);
  const Number first = recorder.begin_work({}, {}, &object), second = recorder.begin_work({}, {}, &object);
  CHECK(recorder.work(first).built > 0);
  CHECK(recorder.work(first).built <= recorder.work(first).decided);
  CHECK(recorder.work(second).built == 0);
}

TEST_CASE("work that is withdrawn begins again, and was built when it was built") {
  Recorder recorder;
  const int object = 0;
  recorder.note_built(&object);
  const Number first = recorder.begin_work({}, {}, &object);
  recorder.withdraw(first, &object);
  const Number again = recorder.begin_work({}, {}, &object);
  CHECK(recorder.work(first).state == WorkState::withdrawn);
  CHECK(recorder.work(again).built == recorder.work(first).built);
  CHECK(recorder.work(again).built > 0);
}

TEST_CASE("a record and what belongs to it take less than 300 bytes") {
  Recorder recorder;
  for (std::uint64_t i = 1; i <= 1000; ++i) put(recorder, {0, i}, {{0, i - 1}});
  CHECK(recorder.size_bytes() < 300 * 1000);
}

namespace {

std::vector<Number> take_work(Recorder& recorder, Nanoseconds patience = 1'000'000'000'000, bool all = false) {
  std::vector<Number> taken;
  recorder.take_work(patience, all, [&](Number number, const Work&) { taken.push_back(number); });
  return taken;
}
std::vector<Number> take_asks(Recorder& recorder) {
  std::vector<Number> taken;
  recorder.take_asks([&](Number number, const Ask&) { taken.push_back(number); });
  return taken;
}

}  // namespace

TEST_CASE("what is complete is taken, each record once, and numbers go on") {
  Recorder recorder;
  const Number first = put(recorder, {0, 1}, {}), second = put(recorder, {0, 2}, {{0, 1}});
  recorder.work(first).returned = 1;
  CHECK(take_work(recorder) == std::vector<Number>{first});
  CHECK(take_work(recorder).empty());
  const Number third = put(recorder, {0, 3}, {{0, 1}, {0, 2}});
  CHECK(third == 2);
  CHECK(needs(recorder, second) == std::vector<Number>{first});
  CHECK(needs(recorder, third) == std::vector<Number>{second});  // the first is nobody's any more
  recorder.work(second).returned = recorder.work(third).returned = 1;
  recorder.work(third).is_timed = true;
  CHECK(take_work(recorder) == std::vector<Number>{second});
  recorder.work(third).is_timed = false;
  CHECK(take_work(recorder) == std::vector<Number>{third});
  recorder.work(first).state = WorkState::refused;  // nobody reads it
}

TEST_CASE("work that is late holds nothing up, and is taken when it is complete") {
  Recorder recorder;
  const Number late = put(recorder, {0, 1}, {}), next = put(recorder, {1, 1}, {});
  recorder.work(next).returned = 1;
  CHECK(take_work(recorder).empty());
  CHECK(take_work(recorder, -1'000'000'000) == std::vector<Number>{next});
  CHECK(take_work(recorder, -1'000'000'000).empty());
  recorder.work(late).state = WorkState::refused;
  CHECK(take_work(recorder) == std::vector<Number>{late});
  const Number last = put(recorder, {0, 2}, {});
  CHECK(take_work(recorder).empty());
  CHECK(take_work(recorder, 0, true) == std::vector<Number>{last});
}

TEST_CASE("who asked is taken behind the end and all work") {
  Recorder recorder;
  const int key = 0, other = 0;
  const Number open = recorder.begin_ask(&other, {}), ask = recorder.begin_ask(&key, {});
  const Number around = recorder.enter(ask);
  const Number work = put(recorder, {0, 1}, {});
  recorder.leave(around, now_ns());
  CHECK(take_asks(recorder).empty());
  recorder.end_ask(&key, Outcome::done, std::vector<Tick>{{0, 1}});
  CHECK(take_asks(recorder).empty());
  recorder.work(work).returned = 1;
  CHECK(take_work(recorder) == std::vector<Number>{work});
  CHECK(take_asks(recorder) == std::vector<Number>{ask});
  CHECK(recorder.asks().size() == 1);
  CHECK(recorder.asks().contains(open));
  CHECK(recorder.steps().empty());
}

TEST_CASE("what is taken takes no memory, however many names there are") {
  Recorder recorder;
  const int key = 0;
  std::size_t most_bytes = 0;
  for (std::uint64_t i = 1; i <= 100'000; ++i) {
    const Number ask = recorder.begin_ask(&key, {.name = recorder.name("ask " + std::to_string(i))});
    const Number around = recorder.enter(ask);
    const Number work = put(recorder, {0, i}, std::vector<Tick>{{0, i - 1}});
    recorder.work(work).name = recorder.name("work " + std::to_string(i));
    recorder.work(work).returned = 1;
    recorder.leave(around, now_ns());
    recorder.end_ask(&key, Outcome::done, {});
    if (i % 100) continue;
    take_work(recorder);
    take_asks(recorder);
    if (i == 10'000) most_bytes = recorder.size_bytes() + recorder.names().size();
  }
  CHECK(recorder.size_bytes() + recorder.names().size() <= most_bytes + 5'000);
}
