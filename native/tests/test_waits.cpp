// Waits for streams, and room in them, over a driver that counts and refuses (run under ThreadSanitizer: the reactor is
// there).
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "fake_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
using namespace std::chrono_literals;
using aiocuda::completion::Completion;

namespace {

bool ends(Completion& completion) { return completion.wait_for(10s); }

struct Waiting : FakeEngine {
  explicit Waiting(std::int32_t device_count = 1) : FakeEngine(device_count) { waits.start(devices.at(0).context); }
  ~Waiting() override { waits.shut_down(); }  // its thread calls virtual functions of this
};

}  // namespace

TEST_CASE("a wait is one number that the stream writes, and ends when that is written") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(stream));
  const Tick tick = engine.submit(stream);
  engine.driver.forget_calls();
  const Waits::Armed armed = engine.waits.arm({tick}, {});
  REQUIRE(armed.parts.size() == 1);
  CHECK(armed.has_tickets());
  CHECK_FALSE(engine.waits.has_passed(armed));
  const auto completion = engine.waits.watch(armed);
  CHECK(engine.driver.count(Function::cuStreamWriteValue32) == 1);
  CHECK_FALSE(completion->has_ended());
  engine.driver.go_on(engine.handle(stream));
  CHECK(engine.waits.has_passed(armed));
  REQUIRE(ends(*completion));
  CHECK(completion->error() == 0);
  CHECK(engine.timeline.is_known_complete(tick));
  CHECK(engine.pending.size() == 0);
}

TEST_CASE("a wait that its thread looked at is learnt from, with what it implies") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0), other = engine.streams.create(0, 0);
  auto buffer = engine.allocate(100);
  const Tick first = engine.submit(other);
  buffer->hazards.commit({0, 100}, true, first);
  engine.driver.hold(engine.handle(stream));
  engine.streams.order(stream, *buffer, {0, 100});
  const Tick second = engine.submit(stream), third = engine.submit(stream);
  std::vector<Streams::Mark> marks;
  Tick asked = third;
  SUBCASE("at the end of its stream") {}
  SUBCASE("in the middle") {
    asked = engine.submit(stream);
    marks.push_back(engine.streams.mark(stream));
    engine.submit(stream);
  }
  const Waits::Armed armed = engine.waits.arm({asked}, marks);
  engine.driver.go_on(engine.handle(stream));
  while (!engine.waits.has_passed(armed)) std::this_thread::yield();
  for (const Tick tick : {first, second, third}) CHECK_FALSE(engine.timeline.is_known_complete(tick));
  engine.waits.learn(armed);
  for (const Tick tick : {first, second, third, asked}) CHECK(engine.timeline.is_known_complete(tick));
}

TEST_CASE("who waits for what a number already stands behind, waits for that number") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(stream));
  const Tick first = engine.submit(stream), second = engine.submit(stream);
  engine.waits.arm({second}, {});
  engine.waits.arm({first}, {});
  CHECK(engine.driver.count(Function::cuStreamWriteValue32) == 1);
  engine.waits.arm({first}, {}, true);  // what others may have put there
  CHECK(engine.driver.count(Function::cuStreamWriteValue32) == 2);
}

TEST_CASE("a point in the middle of a stream is waited for beside it, by one more stream") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(stream));
  const Tick tick = engine.submit(stream);
  std::vector<Streams::Mark> marks;
  marks.push_back(engine.streams.mark(stream));
  engine.submit(stream);
  engine.driver.forget_calls();
  for (int i = 0; i < 3; ++i) {
    const Waits::Armed armed = engine.waits.arm({tick}, marks);
    CHECK(armed.parts.front().complete.last.count == tick.count);
  }
  CHECK(engine.driver.count(Function::cuStreamCreateWithPriority) == 1);
  engine.driver.go_on(engine.handle(stream));
  const auto completion = engine.waits.watch(engine.waits.arm({tick}, marks));
  CHECK(ends(*completion));
  // With the stream goes the one beside it.
  marks.clear();
  const std::size_t alive = engine.driver.alive(Function::cuStreamCreateWithPriority);
  engine.streams.close(stream);
  engine.collect();
  CHECK(engine.driver.alive(Function::cuStreamCreateWithPriority) == alive - 2);
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("an event of the program's is asked about: that makes no stream and writes no number") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0), other = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(stream));
  engine.submit(stream);
  const auto event = Event::record(engine.devices, engine.streams, stream, {});
  const auto held_up = Event::record(engine.devices, engine.streams, stream, {});
  const auto beside = Event::record(engine.devices, engine.streams, other, {});
  CHECK_FALSE(event->has_passed());
  engine.driver.forget_calls();
  const auto later = engine.waits.watch(held_up), first = engine.waits.watch(event);
  REQUIRE(ends(*engine.waits.watch(beside)));
  CHECK_FALSE(first->has_ended());
  engine.driver.go_on(engine.handle(stream));
  REQUIRE(ends(*first));
  REQUIRE(ends(*later));
  CHECK(first->error() == 0);
  CHECK(event->has_passed());
  for (const Function made : {Function::cuStreamCreateWithPriority, Function::cuEventCreate, Function::cuEventRecord,
                              Function::cuStreamWaitEvent, Function::cuStreamWriteValue32})
    CHECK(engine.driver.count(made) == 0);
  CHECK(engine.pending.size() == 0);
}

TEST_CASE("an event that nobody holds but who waits for it is destroyed when it has passed") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  const std::size_t alive = engine.driver.alive(Function::cuEventCreate);
  engine.driver.hold(engine.handle(stream));
  engine.submit(stream);
  const auto completion = engine.waits.watch(Event::record(engine.devices, engine.streams, stream, {}));
  CHECK(engine.driver.alive(Function::cuEventCreate) == alive + 1);
  engine.driver.go_on(engine.handle(stream));
  REQUIRE(ends(*completion));
  CHECK(engine.driver.alive(Function::cuEventCreate) == alive);
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("an event that is refused leaves nothing behind") {
  for (const Function refused : {Function::cuEventCreate, Function::cuEventRecord}) {
    Waiting engine;
    const std::size_t alive = engine.driver.alive(Function::cuEventCreate);
    engine.driver.refuse(refused);
    CHECK(code_of([&] { Event::record(engine.devices, engine.streams, 0, {}); }) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(engine.driver.alive(Function::cuEventCreate) == alive);
  }
}

TEST_CASE("the wait for an event of a broken device ends with its error") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0), known = engine.devices.at(0).default_stream;
  engine.driver.hold(engine.handle(stream));
  engine.submit(stream);
  const auto event = Event::record(engine.devices, engine.streams, stream, {});
  const auto completion = engine.waits.watch(event);
  for (const StreamIndex each : {stream, known}) engine.driver.break_stream(engine.handle(each));
  REQUIRE(ends(*completion));
  CHECK(completion->error() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(code_of([&] { event->has_passed(); }) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a device that writes no flags is asked about events, which are used again") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.driver.refuse(Function::cuStreamWriteValue32, CUDA_ERROR_NOT_SUPPORTED);
  for (int i = 0; i < 3; ++i) {
    const Tick tick = engine.submit(stream);
    const Waits::Armed armed = engine.waits.arm({tick}, {});
    CHECK_FALSE(armed.has_tickets());
    const auto completion = engine.waits.watch(armed);
    REQUIRE(ends(*completion));
    CHECK(engine.timeline.is_known_complete(tick));
  }
  CHECK(engine.waits.without_flag == 3);
  CHECK(engine.driver.count(Function::cuStreamWriteValue32) == 1);
  CHECK_FALSE(engine.devices.at(0).writes_flags);
}

TEST_CASE("a wait that is refused is an error of its device, and leaves nothing pending; the next one is well") {
  for (const bool has_flags : {true, false}) {
    std::size_t refused_calls = 0;
    for (std::size_t nth = 1;; ++nth) {
      Waiting engine;
      const StreamIndex stream = engine.streams.create(0, 0);
      engine.devices.at(0).writes_flags = has_flags;
      const Tick tick = engine.submit(stream);
      std::vector<Streams::Mark> marks;
      marks.push_back(engine.streams.mark(stream));
      engine.submit(stream);
      engine.driver.refuse_nth(nth);
      auto wait = [&] { return engine.waits.watch(engine.waits.arm({tick}, marks)); };
      std::shared_ptr<Completion> completion;
      const CUresult result = code_of([&] { completion = wait(); });
      if (result == CUDA_SUCCESS) {
        CHECK(ends(*completion));
        break;
      }
      ++refused_calls;
      CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
      CHECK(engine.pending.size() == 0);
      CHECK(ends(*wait()));
      CHECK(engine.driver.misuses().empty());
      REQUIRE(nth < 100);
    }
    CHECK(refused_calls >= 3);
  }
}

TEST_CASE("a number that was refused is written by the next wait") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  const Tick tick = engine.submit(stream);
  engine.driver.refuse(Function::cuStreamWriteValue32, CUDA_ERROR_UNKNOWN);
  try {
    engine.waits.arm({tick}, {});
    FAIL("it was not refused");
  } catch (const Refusal& refusal) {
    CHECK(refusal.device == 0);
  }
  const Waits::Armed armed = engine.waits.arm({tick}, {});
  CHECK(armed.parts.front().ticket->number == 1);
  CHECK(engine.waits.has_passed(armed));
}

TEST_CASE("a broken context ends what is pending, with its error") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(stream));
  const Tick tick = engine.submit(stream);
  const auto completion = engine.waits.watch(engine.waits.arm({tick}, {}));
  engine.driver.break_stream(engine.handle(stream));
  REQUIRE(ends(*completion));
  CHECK(completion->error() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_FALSE(engine.timeline.is_known_complete(tick));
}

TEST_CASE("a stream with much to do writes how far it is, now and then") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(stream));
  for (int i = 0; i < 1000; ++i) {
    engine.submit(stream);
    engine.waits.note_progress(stream);
  }
  CHECK(engine.driver.count(Function::cuStreamWriteValue32) == 7);  // after each 128
  CHECK(engine.waits.is_full(stream, 1000));
  CHECK_FALSE(engine.waits.is_full(stream, 1001));
  engine.driver.go_on(engine.handle(stream));
  engine.driver.forget_calls();
  CHECK_FALSE(engine.waits.is_full(stream, 1000));
  CHECK(engine.timeline.backlog(stream) == 104);
  CHECK(engine.driver.count(Function::cuStreamQuery) == 0);
}

TEST_CASE("a stream that somebody captures is not written to") {
  Waiting engine;
  const auto theirs = reinterpret_cast<CUstream>(8);
  const StreamIndex stream = engine.streams.adopt(theirs, 0, nullptr);
  const Tick tick = engine.submit(stream);
  std::vector<Streams::Mark> marks;
  marks.push_back(engine.streams.mark(stream));
  engine.driver.capture(theirs);
  CHECK(code_of([&] { engine.waits.arm({tick}, {}); }) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  engine.driver.forget_calls();
  const Waits::Armed armed = engine.waits.arm({tick}, marks);  // beside it
  REQUIRE(engine.driver.count(Function::cuStreamWriteValue32) == 1);
  CHECK(engine.driver.calls(Function::cuStreamWriteValue32)[0].arguments[0] != reinterpret_cast<std::uint64_t>(theirs));
}

TEST_CASE("what was put on somebody else's stream is waited for beside it") {
  for (const bool has_flags : {true, false}) {
    Waiting engine;
    const auto theirs = reinterpret_cast<CUstream>(0x7777);
    const StreamIndex stream = engine.streams.adopt(theirs, 0, nullptr);
    const Tick tick = engine.submit(stream);
    engine.streams.rest();
    engine.driver.capture(theirs);
    engine.driver.forget_calls();
    engine.devices.at(0).writes_flags = has_flags;
    const Waits::Armed armed = engine.waits.arm({tick}, {}, true);
    CHECK(armed.has_tickets() == has_flags);
    const auto completion = engine.waits.watch(armed);
    for (const FakeDriver::Call& call : engine.driver.calls())
      for (const std::uint64_t argument : call.arguments) CHECK(argument != reinterpret_cast<std::uint64_t>(theirs));
  }
}

TEST_CASE("a stream is not destroyed while it has a number to write") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  const CUstream handle = engine.handle(stream);
  const Tick tick = engine.submit(stream);
  CHECK(engine.streams.is_complete(tick));
  engine.driver.hold(handle);
  engine.waits.arm({tick}, {}, true);
  engine.streams.close(stream);
  CHECK(engine.driver.is_alive(handle));
  engine.driver.go_on(handle);
  engine.collect();
  CHECK_FALSE(engine.driver.is_alive(handle));
}

TEST_CASE("more streams than there are flags are waited for all the same") {
  Waiting engine;
  std::vector<Tick> ticks;
  for (int i = 0; i < 1030; ++i) ticks.push_back(engine.submit(engine.streams.create(0, 0)));
  const Waits::Armed armed = engine.waits.arm(ticks, {});
  CHECK(armed.parts.size() == 1030);
  CHECK_FALSE(armed.has_tickets());
  const auto completion = engine.waits.watch(armed);
  CHECK(ends(*completion));
  CHECK(engine.waits.without_flag > 0);
}

TEST_CASE("who waits for room in a stream is called when it has passed") {
  Waiting engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(stream));
  for (int i = 0; i < 4; ++i) engine.submit(stream);
  const auto turn = std::make_shared<aiocuda::completion::Turn>();
  engine.lines.stand(turn, stream, engine.room.level(stream), 4, {1, true});
  engine.room.keep_moving(stream);
  CHECK_FALSE(turn->called()->has_ended());
  engine.driver.go_on(engine.handle(stream));
  CHECK(ends(*turn->called()));
  engine.lines.give_up(*turn);
}

TEST_CASE("who waits for memory of a device is called when arrays hold less of it") {
  Waiting engine;
  auto held = engine.allocate(100);
  const auto line = engine.room.memory_line(0);
  CHECK(engine.room.level(line).held() == 100);
  const auto turn = std::make_shared<aiocuda::completion::Turn>();
  engine.lines.stand(turn, line, engine.room.level(line), 100, {1, true}, 50);
  engine.room.keep_moving(line);
  CHECK_FALSE(turn->called()->has_ended());
  held.reset();
  CHECK(ends(*turn->called()));
  engine.lines.give_up(*turn);
}

TEST_CASE("streams come and go while others are waited for") {
  Waiting engine;
  for (int round = 0; round < 200; ++round) {
    const StreamIndex a = engine.streams.create(0, 0), b = engine.streams.create(0, 0);
    const auto first = engine.waits.watch(engine.waits.arm({engine.submit(a), engine.submit(b)}, {}));
    engine.streams.close(a);
    engine.streams.close(b);
    REQUIRE(ends(*first));
    engine.collect();
  }
  engine.collect();
  CHECK(engine.streams.size() <= 8);
  CHECK(engine.driver.misuses().empty());
}
