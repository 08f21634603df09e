// The submission thread and what it loses, over a driver that counts and refuses. Knows no Python.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "fake_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
using aiocuda::dataflow::FillBlock;

namespace {

// Calls are given by hand. Some are for memory at multiples of 64.
struct Giver {
  Giver() {
    engine.submission.set(ThreadUse::always);
    stream = engine.streams.create(0, 0);
    other = engine.streams.create(0, 0);
    engine.submission.start();
    engine.driver.forget_calls();
  }

  On on(StreamIndex index) { return engine.streams.at(index).on(); }
  // A fill of memory which reads other memory, as its ranges say; its submission.
  Tick fill(StreamIndex index, std::uint64_t writes, std::uint64_t reads = 0) {
    const Tick tick = engine.timeline.advance(index);
    REQUIRE(engine.submission.takes(on(index)));
    Command& command = engine.submission.next(Command::Kind::fill, on(index));
    std::array ranges{MemoryRange{writes * 64, writes * 64 + 64, true},
                      MemoryRange{reads * 64, reads * 64 + 64, false}};
    command.note({&engine, tick, 0}, {ranges.data(), reads ? 2u : 1u});
    std::construct_at(&command.fill, FillBlock{.offset = writes * 64, .width = 64});
    engine.submission.give();
    return tick;
  }
  bool is_lost(Tick tick) { return engine.submission.losses.find(tick).has_value(); }
  // What the driver was given, as "fill 64", in its order.
  std::vector<std::uint64_t> filled() {
    std::vector<std::uint64_t> found;
    for (const FakeDriver::Call& each : engine.driver.calls(Function::cuMemsetD8Async))
      found.push_back(each.arguments[0] / 64);
    return found;
  }

  FakeEngine engine;
  StreamIndex stream = 0, other = 0;
};

CUresult code(std::optional<Losses::Cause> cause) { return cause ? cause->result : CUDA_SUCCESS; }

}  // namespace

TEST_CASE("calls are made once, in the order in which they were given, and a drain waits for all of them") {
  Giver giver;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t i = 1; i <= 5000; ++i) {  // more than can be on their way
    giver.fill(i % 2 ? giver.stream : giver.other, i);
    expected.push_back(i);
  }
  giver.engine.now.drain();
  CHECK(giver.engine.submission.has_made_all());
  CHECK(giver.filled() == expected);
  CHECK(giver.engine.submission.given() == 5000);
  CHECK(giver.engine.driver.misuses().empty());
}

TEST_CASE("the thread makes the calls by itself, also after it slept") {
  Giver giver;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(i * 20));  // whether it sleeps or looks on
    giver.fill(giver.stream, i);
    while (!giver.engine.submission.has_made_all()) std::this_thread::yield();
  }
  CHECK(giver.filled().size() == 20);
}

TEST_CASE("a refused piece of work is left out, with what touches the bytes that it was to write, and no more") {
  Giver giver;
  giver.engine.driver.refuse(Function::cuMemsetD8Async, CUDA_ERROR_INVALID_VALUE, 2);
  const Tick before = giver.fill(giver.stream, 1);
  const Tick refused = giver.fill(giver.stream, 2);
  const Tick reads = giver.fill(giver.other, 3, 2);
  const Tick overwrites = giver.fill(giver.stream, 2);
  const Tick behind = giver.fill(giver.other, 4, 3);
  const Tick apart = giver.fill(giver.stream, 5, 1);
  giver.engine.now.drain();
  CHECK(giver.filled() == std::vector<std::uint64_t>{1, 2, 5});  // the second was asked for, and refused
  for (const Tick tick : {refused, reads, overwrites, behind}) {
    CHECK(giver.is_lost(tick));
    CHECK(code(giver.engine.submission.losses.find(tick)) == CUDA_ERROR_INVALID_VALUE);
  }
  CHECK_FALSE(giver.is_lost(before));
  CHECK_FALSE(giver.is_lost(apart));

  const Losses::Known known = giver.engine.submission.losses.known();
  REQUIRE(known.causes.size() == 1);
  CHECK(std::string(known.causes.front().function) == "cuMemsetD8Async");
  CHECK(known.causes.front().of.tick.count == refused.count);
  CHECK(known.lost.size() == 4);
  giver.engine.submission.losses.forget();
  CHECK_FALSE(giver.engine.submission.losses.is_any());
  const Tick later = giver.fill(giver.stream, 2);  // who gives it knows of the loss
  giver.engine.now.drain();
  CHECK_FALSE(giver.is_lost(later));
}

TEST_CASE("bytes that are freed are another array's: what touches them then is not lost") {
  Giver giver;
  giver.engine.driver.refuse(Function::cuMemsetD8Async, CUDA_ERROR_INVALID_VALUE, 1);
  const auto buffer = giver.engine.allocate(64);
  const std::uint64_t at = buffer->address / 64;
  CHECK((giver.fill(giver.stream, at), giver.engine.now.drain(), giver.engine.submission.losses.is_any()));
  CHECK(giver.engine.now.free(buffer->address, 64, giver.on(giver.stream)) == CUDA_SUCCESS);
  const Tick next = giver.fill(giver.stream, at);
  giver.engine.now.drain();
  CHECK_FALSE(giver.is_lost(next));
}

TEST_CASE("an order that is refused is tried again; one that is refused for good breaks its context") {
  struct Order {
    Function function;
    std::function<CUresult(Giver&, CUevent)> give;
  };
  std::uint32_t word = 0;
  const std::vector<Order> orders{
      {Function::cuEventRecord,
       [](Giver& giver, CUevent event) { return giver.engine.now.record(event, giver.on(giver.stream)); }},
      {Function::cuStreamWaitEvent,
       [](Giver& giver, CUevent event) { return giver.engine.now.wait(giver.on(giver.other), event); }},
      {Function::cuStreamWriteValue32,
       [&word](Giver& giver, CUevent) {
         return giver.engine.now.write(giver.on(giver.stream), reinterpret_cast<CUdeviceptr>(&word), 1);
       }},
      {Function::cuMemFreeAsync, [](Giver& giver, CUevent) {
         auto freed = giver.engine.allocate(64);
         freed.reset();  // what nobody holds is freed at once
         return CUDA_SUCCESS;
       }}};
  for (const Order& order : orders) {
    for (const std::size_t times : {1u, 15u, 16u, 40u}) {
      CAPTURE(name_of(order.function));
      CAPTURE(times);
      Giver giver;
      const CUevent event = giver.engine.streams.at(giver.stream).mark;
      giver.engine.driver.refuse(order.function, CUDA_ERROR_OUT_OF_MEMORY, 1, times);
      CHECK(order.give(giver, event) == CUDA_SUCCESS);
      giver.engine.now.drain();
      const CUcontext context = giver.on(giver.stream).context;
      const CUresult broken = giver.engine.submission.losses.broken(context);
      CHECK(broken == (times < 16 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN));
      CHECK(giver.engine.driver.count(order.function) == std::min<std::size_t>(times + 1, 16));
      if (!broken) continue;
      // Nothing goes on there, and whoever asks is told.
      CHECK(giver.engine.streams.ask(giver.stream) == CUDA_ERROR_UNKNOWN);
      CHECK(giver.engine.now.record(event, giver.on(giver.stream)) == CUDA_ERROR_UNKNOWN);
      const Tick work = giver.fill(giver.stream, 1);
      giver.engine.now.drain();
      CHECK(giver.is_lost(work));
      CHECK(giver.filled().empty());
    }
  }
}

TEST_CASE("a fault is no order to try again: it breaks the context at once") {
  Giver giver;
  giver.engine.driver.refuse(Function::cuEventRecord, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(giver.engine.now.record(giver.engine.streams.at(giver.stream).mark, giver.on(giver.stream)) == CUDA_SUCCESS);
  giver.engine.now.drain();
  CHECK(giver.engine.driver.count(Function::cuEventRecord) == 1);
  CHECK(giver.engine.submission.losses.broken(giver.on(giver.stream).context) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a wait for another device's lost work loses the work that needs it, and not the context") {
  Giver giver;
  giver.engine.devices.at(1);
  const StreamIndex elsewhere = giver.engine.streams.create(1, 0);
  giver.engine.driver.refuse(Function::cuStreamWaitEvent, CUDA_ERROR_ILLEGAL_ADDRESS);
  const Tick tick{giver.stream, giver.engine.timeline.submitted(giver.stream) + 1};
  const MemoryRange range{64, 128, true};
  CHECK(giver.engine.now.wait(giver.on(giver.stream), giver.engine.streams.at(elsewhere).mark, {&giver, tick, 0},
                              {&range, 1}) == CUDA_SUCCESS);
  CHECK(giver.fill(giver.stream, 1).count == tick.count);
  const Tick apart = giver.fill(giver.stream, 2);
  giver.engine.now.drain();
  CHECK(code(giver.engine.submission.losses.find(tick)) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(giver.filled() == std::vector<std::uint64_t>{2});
  CHECK_FALSE(giver.is_lost(apart));
  CHECK(giver.engine.submission.losses.broken(giver.on(giver.stream).context) == CUDA_SUCCESS);
}

TEST_CASE("while calls are on their way no stream is idle, and no event counts that is not recorded") {
  Giver giver;
  std::atomic<bool> may_go_on{false};
  std::thread::id own = std::this_thread::get_id();
  giver.engine.driver.set_before_call([&](Function function) {
    if (function == Function::cuMemsetD8Async && std::this_thread::get_id() != own)
      while (!may_go_on.load()) std::this_thread::yield();
  });
  const Tick tick = giver.fill(giver.stream, 1);
  const Streams::Mark mark = giver.engine.streams.mark(giver.stream);
  CHECK_FALSE(giver.engine.now.has_made(mark.given()));
  CHECK_FALSE(giver.engine.streams.is_complete(tick));
  CHECK_FALSE(giver.engine.streams.is_idle(0));
  CHECK_FALSE(giver.engine.submission.drain_within(std::chrono::milliseconds(1)));
  may_go_on = true;
  giver.engine.now.drain();
  CHECK(giver.engine.now.has_made(mark.given()));
  CHECK(giver.engine.streams.is_complete(tick));
}

TEST_CASE("who closes a stream does not wait for calls on their way; the stream is destroyed when they were made") {
  Giver giver;
  std::atomic<bool> may_go_on = false;
  const std::thread::id own = std::this_thread::get_id();
  giver.engine.driver.set_before_call([&](Function function) {
    if (function == Function::cuMemsetD8Async && std::this_thread::get_id() != own)
      while (!may_go_on.load()) std::this_thread::yield();
  });
  const CUstream handle = giver.engine.handle(giver.other);
  giver.fill(giver.stream, 1);
  giver.engine.streams.close(giver.other);
  giver.engine.collect();
  CHECK(giver.engine.driver.is_alive(handle));
  CHECK_FALSE(giver.engine.submission.has_made_all());
  may_go_on = true;
  giver.engine.now.drain();
  giver.engine.collect();
  CHECK_FALSE(giver.engine.driver.is_alive(handle));
  CHECK(giver.engine.driver.misuses().empty());
}

TEST_CASE("a stream whose handle others have gets its calls at once, behind all that was given") {
  Giver giver;
  const CUstream theirs = giver.engine.streams.lend(giver.other);
  giver.fill(giver.stream, 1);
  CHECK_FALSE(giver.engine.submission.takes(giver.on(giver.other)));
  CHECK(giver.engine.submission.has_made_all());
  CHECK(giver.engine.now.record(giver.engine.streams.at(giver.other).mark, giver.on(giver.other)) == CUDA_SUCCESS);
  CHECK(giver.engine.driver.calls().back().arguments[1] == reinterpret_cast<std::uint64_t>(theirs));
}

TEST_CASE("automatic: the first calls after a wait are the caller's, then the thread has them") {
  FakeEngine engine;
  engine.submission.set(ThreadUse::automatic);
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.submission.start();
  if (!engine.submission.is_used()) return;  // one processor
  const On on = engine.streams.at(stream).on();
  for (int round = 0; round < 3; ++round) {
    engine.now.drain();
    engine.submission.note_wait();
    const std::uint64_t before = engine.submission.given();
    std::size_t made = 0;
    while (engine.submission.given() == before) {  // until the thread, which was called, has come
      CHECK(engine.now.record(engine.streams.at(stream).mark, on) == CUDA_SUCCESS);
      ++made;
      std::this_thread::yield();
    }
    CHECK(made > 4);
  }
  engine.now.drain();
  engine.submission.note_wait();
  const std::uint64_t before = engine.submission.given();
  {
    const SubmissionThread::AtOnce at_once(engine.submission);
    for (int i = 0; i < 40; ++i) CHECK(engine.now.record(engine.streams.at(stream).mark, on) == CUDA_SUCCESS);
  }
  CHECK(engine.submission.given() == before);
}
