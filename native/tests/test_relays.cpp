// Relays: what they wait for, and whom they hold up.
#include <doctest/doctest.h>

#include <set>

#include "fake_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;

namespace {

CUstream stream_of_others(std::uintptr_t number) { return reinterpret_cast<CUstream>(number * 16); }

}  // namespace

TEST_CASE("a relay passes when another library's stream has passed what it held") {
  FakeEngine engine;
  const CUstream theirs = stream_of_others(1);
  engine.driver.hold(theirs);
  engine.driver.submit(theirs);
  const Tick tick = engine.relays.behind(theirs, 0);
  CHECK(engine.driver.waits_for(engine.handle(tick.stream), theirs));
  const StreamIndex ours = engine.streams.create(0, 0);
  engine.streams.after(ours, tick);
  CHECK(engine.driver.waits_for(engine.handle(ours), theirs));  // and not for the relay
  CHECK(engine.driver.count(Function::cuEventRecord) == 1);
}

TEST_CASE("each stream of others at work has a relay of its own, and later points of it the same one") {
  FakeEngine engine;
  std::set<StreamIndex> relays;
  for (std::uintptr_t number = 1; number <= 40; ++number) {
    const Tick tick = engine.relays.behind(stream_of_others(number), 0);
    engine.driver.hold(engine.handle(tick.stream));
    const Tick later = engine.relays.behind(stream_of_others(number), 0);
    CHECK(later.stream == tick.stream);
    CHECK(later.count == tick.count + 1);
    relays.insert(tick.stream);
  }
  CHECK(relays.size() == 40);
}

TEST_CASE("a relay that has passed everything serves another stream") {
  FakeEngine engine;
  const Tick first = engine.relays.behind(stream_of_others(1), 0);
  CHECK(engine.relays.behind(stream_of_others(2), 0).stream == first.stream);
  CHECK(engine.relays.unnamed(0) == first.stream);
}

TEST_CASE("a later stream with the same handle is another one") {
  FakeEngine engine;
  const CUstream theirs = stream_of_others(1);
  const Tick tick = engine.relays.behind(theirs, 0);
  engine.driver.hold(engine.handle(tick.stream));
  engine.driver.submit(engine.handle(tick.stream));
  engine.timeline.advance(tick.stream);
  CHECK(engine.relays.behind(theirs, 0).stream == tick.stream);
  engine.driver.stream_numbers[theirs] = 99;
  CHECK(engine.relays.behind(theirs, 0).stream != tick.stream);
}

TEST_CASE("owners who name no stream share relays only where many are at work") {
  FakeEngine engine;
  std::set<StreamIndex> relays;
  for (int i = 0; i < 100; ++i) {
    const StreamIndex relay = engine.relays.unnamed(0);
    engine.driver.hold(engine.handle(relay));
    engine.streams.pass(relay);
    relays.insert(relay);
    if (i == 31) CHECK(relays.size() == 32);
  }
  CHECK(relays.size() == 32);
  CHECK_FALSE(relays.contains(engine.relays.behind(stream_of_others(1), 0).stream));
}

TEST_CASE("a stream that somebody captures is left alone") {
  FakeEngine engine;
  const CUstream theirs = stream_of_others(1);
  engine.driver.capture(theirs);
  engine.driver.forget_calls();
  CHECK(code_of([&] { engine.relays.behind(theirs, 0); }) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(engine.driver.count(Function::cuEventRecord) == 0);
}

TEST_CASE("a stream that would end a capture is left alone as one that is captured") {
  for (int code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; ++code) {
    FakeEngine engine;
    const CUstream theirs = stream_of_others(1);
    engine.driver.refuse(Function::cuStreamIsCapturing, static_cast<CUresult>(code), 1, 10);
    engine.driver.forget_calls();
    CHECK(code_of([&] { engine.relays.behind(theirs, 0); }) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_FALSE(engine.streams.has_passed_all(theirs, 0));
    CHECK(engine.driver.count(Function::cuStreamQuery) == 0);
    CHECK(engine.driver.count(Function::cuEventRecord) == 0);
  }
}

TEST_CASE("an event of a capture is not waited for") {
  FakeEngine engine;
  CUevent event = nullptr;
  REQUIRE(engine.table.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  engine.driver.refuse(Function::cuEventQuery, CUDA_ERROR_CAPTURED_EVENT);
  CHECK(code_of([&] { engine.relays.behind(event, 0); }) == CUDA_ERROR_CAPTURED_EVENT);
  CHECK(engine.driver.count(Function::cuStreamWaitEvent) == 0);
  const Tick tick = engine.relays.behind(event, 0);
  CHECK(engine.driver.count(Function::cuStreamWaitEvent) == 1);
  CHECK(tick.count > 0);
}

TEST_CASE("whichever call is refused, a relay can be tried again") {
  for (std::size_t nth = 1;; ++nth) {
    FakeEngine engine;
    const CUstream theirs = stream_of_others(1);
    engine.driver.hold(theirs);
    engine.driver.submit(theirs);
    engine.driver.refuse_nth(nth);
    const CUresult result = code_of([&] { engine.relays.behind(theirs, 0); });
    const bool is_over = !engine.driver.has_refused_nth();
    CHECK((result == CUDA_SUCCESS) == is_over);
    engine.driver.refuse_no_more();
    const Tick tick = engine.relays.behind(theirs, 0);
    const StreamIndex ours = engine.streams.create(0, 0);
    engine.streams.after(ours, tick);
    CHECK(engine.driver.waits_for(engine.handle(tick.stream), theirs));
    CHECK(engine.driver.waits_for(engine.handle(ours), theirs));
    CHECK(engine.driver.misuses().empty());
    if (is_over) break;
    REQUIRE(nth < 100);
  }
}
