// Events around work: what is read when, and what ends.
#include <doctest/doctest.h>

#include "driver/timing.hpp"
#include "fake_engine.hpp"

using namespace aiocuda;
using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;

namespace {

trace::Number begin(FakeEngine& engine, trace::Recorder& recorder, Timing& timing, StreamIndex stream) {
  const trace::Number work = recorder.begin_work({.device = 0}, {}, nullptr);
  const Timing::Events events = timing.begin(work, 0);
  engine.now.record(events.before, engine.streams.at(stream).on());
  engine.now.record(events.behind, engine.streams.at(stream).on());
  recorder.work(work).returned = trace::now_ns();
  return work;
}

}  // namespace

TEST_CASE("what has passed is measured, and what has not is read another time") {
  FakeEngine engine;
  trace::Recorder recorder;
  {
    Timing timing(recorder, engine.devices, engine.streams);
    const StreamIndex stream = engine.streams.create(0, 0);
    const trace::Number first = begin(engine, recorder, timing, stream);
    const trace::Number second = begin(engine, recorder, timing, stream);
    engine.driver.refuse(Function::cuEventQuery, CUDA_ERROR_NOT_READY, 2);
    timing.read();
    CHECK(recorder.work(first).state == trace::WorkState::measured);
    CHECK(recorder.work(second).state == trace::WorkState::submitted);
    CHECK_FALSE(timing.has_read_all());
    timing.read();
    CHECK(recorder.work(second).state == trace::WorkState::measured);
    CHECK(timing.has_read_all());
  }
}

TEST_CASE("work that is held back is not read before its events are recorded") {
  FakeEngine engine;
  trace::Recorder recorder;
  Timing timing(recorder, engine.devices, engine.streams);
  const trace::Number work = recorder.begin_work({.device = 0}, {}, nullptr);
  timing.begin(work, 0);
  timing.read();
  CHECK_FALSE(timing.has_read_all());
  recorder.work(work).returned = trace::now_ns();
  timing.read();
  CHECK(timing.has_read_all());
}

TEST_CASE("work that has passed before the base is read another time") {
  FakeEngine engine;
  trace::Recorder recorder;
  Timing timing(recorder, engine.devices, engine.streams);
  const trace::Number work = begin(engine, recorder, timing, engine.streams.create(0, 0));
  engine.driver.refuse(Function::cuEventElapsedTime, CUDA_ERROR_NOT_READY);
  timing.read();
  CHECK(recorder.work(work).state == trace::WorkState::submitted);
  timing.read();
  CHECK(recorder.work(work).state == trace::WorkState::measured);
}

TEST_CASE("work on a device that was lost, and work that was given up, is not waited for") {
  FakeEngine engine;
  trace::Recorder recorder;
  Timing timing(recorder, engine.devices, engine.streams);
  const StreamIndex stream = engine.streams.create(0, 0);
  const trace::Number lost = begin(engine, recorder, timing, stream),
                      given_up = begin(engine, recorder, timing, stream);
  timing.give_up(given_up);
  engine.driver.refuse(Function::cuEventQuery, CUDA_ERROR_ILLEGAL_ADDRESS);
  timing.read();
  CHECK(timing.has_read_all());
  CHECK(recorder.work(lost).state == trace::WorkState::submitted);
  CHECK(recorder.work(given_up).state == trace::WorkState::submitted);
}

TEST_CASE("events are used again, and all end with the trace") {
  FakeEngine engine;
  trace::Recorder recorder;
  const std::size_t made = engine.driver.count(Function::cuEventCreate),
                    ended = engine.driver.count(Function::cuEventDestroy);
  {
    Timing timing(recorder, engine.devices, engine.streams);
    const StreamIndex stream = engine.streams.create(0, 0);
    engine.streams.aside(0);
    const std::size_t before = engine.driver.count(Function::cuEventCreate);
    for (int i = 0; i < 10; ++i) {
      begin(engine, recorder, timing, stream);
      timing.read();
    }
    CHECK(engine.driver.count(Function::cuEventCreate) - before == 3);  // with the base
    begin(engine, recorder, timing, stream);
  }
  CHECK(engine.driver.count(Function::cuEventDestroy) - ended == 3);
  CHECK(engine.driver.count(Function::cuEventCreate) > made);
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("the clock of a device is compared with the host's again and again, by three events at most") {
  FakeEngine engine;
  trace::Recorder recorder;
  const std::size_t ended = engine.driver.count(Function::cuEventDestroy);
  std::size_t made = 0;
  {
    Timing timing(recorder, engine.devices, engine.streams, 0);
    const StreamIndex stream = engine.streams.create(0, 0);
    engine.streams.aside(0);
    const std::size_t before = engine.driver.count(Function::cuEventCreate);
    trace::Number work = begin(engine, recorder, timing, stream);
    timing.read();
    const trace::Nanoseconds first = recorder.work(work).started;  // the device's clock of this driver stands still
    for (int i = 0; i < 10; ++i) {
      const trace::Nanoseconds earlier = trace::now_ns();
      begin(engine, recorder, timing, stream);                                           // the next event is recorded
      if (i % 2) engine.driver.refuse(Function::cuEventQuery, CUDA_ERROR_NOT_READY, 2);  // and passes later
      timing.read();
      timing.read();
      work = begin(engine, recorder, timing, stream);
      timing.read();
      CHECK(recorder.work(work).state == trace::WorkState::measured);
      CHECK(recorder.work(work).started >= earlier);
    }
    CHECK(recorder.work(work).started > first);
    made = engine.driver.count(Function::cuEventCreate) - before;
    CHECK(made <= 6);  // with the base, the next and those of two pieces of work
  }
  CHECK(engine.driver.count(Function::cuEventDestroy) - ended == made);
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("where the driver has no event there is no time, and nothing fails") {
  FakeEngine engine;
  trace::Recorder recorder;
  Timing timing(recorder, engine.devices, engine.streams);
  engine.streams.aside(0);
  engine.driver.refuse(Function::cuEventCreate, CUDA_ERROR_OUT_OF_MEMORY, 3);
  CHECK(timing.begin(recorder.begin_work({.device = 0}, {}, nullptr), 0).before == nullptr);
  CHECK(timing.has_read_all());
}
