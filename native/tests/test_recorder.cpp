// What a trace records: numbers, needs, who asked.
#include <doctest/doctest.h>

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
  CHECK(recorder.asks()[inner_ask].outcome == Outcome::done);
  CHECK(recorder.results(recorder.asks()[inner_ask]).front() == 0);
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
