// Streams and devices, over a driver that counts and refuses.
#include <doctest/doctest.h>

#include <algorithm>

#include "fake_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
using aiocuda::dataflow::Buffer;

namespace {

std::size_t handles(const FakeEngine& engine) {
  return engine.driver.alive(Function::cuStreamCreateWithPriority) + engine.driver.alive(Function::cuEventCreate);
}

// How many calls have named a handle.
std::int64_t named(const FakeEngine& engine, CUstream handle) {
  const auto calls = engine.driver.calls();
  return std::count_if(calls.begin(), calls.end(), [handle](const FakeDriver::Call& call) {
    return std::ranges::find(call.arguments, reinterpret_cast<std::uint64_t>(handle)) != call.arguments.end();
  });
}

}  // namespace

TEST_CASE("a stream is a handle and one event; its end destroys both, and its slot is used again as another stream") {
  FakeEngine engine;
  const std::size_t before = handles(engine);
  const StreamIndex stream = engine.streams.create(0, -1);
  CHECK(handles(engine) == before + 2);
  const auto id = engine.streams.id_of(stream);
  engine.submit(stream);
  engine.streams.close(stream);
  CHECK(handles(engine) == before);
  const StreamIndex next = engine.streams.create(0, 0);
  CHECK(next == stream);
  CHECK(engine.streams.id_of(next) != id);
  CHECK(engine.timeline.is_known_complete({next, 1}));
  CHECK(engine.streams.at(next).before == 1);
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("a stream that cannot be made in full leaves nothing behind") {
  FakeEngine engine;
  const std::size_t before = handles(engine);
  for (const Function refused : {Function::cuStreamCreateWithPriority, Function::cuEventCreate}) {
    engine.driver.refuse(refused);
    CHECK(code_of([&] { engine.streams.create(0, 0); }) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(handles(engine) == before);
    CHECK(engine.streams.size() == 1);
  }
  engine.driver.refuse(Function::cuEventCreate);
  const auto theirs = reinterpret_cast<CUstream>(8);
  CHECK(code_of([&] { engine.streams.adopt(theirs, 0, nullptr); }) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(handles(engine) == before);
  engine.streams.adopt(theirs, 0, nullptr);
  CHECK(engine.streams.size() == 2);
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("a device that cannot be opened is not open, and is opened the next time") {
  FakeEngine engine;
  engine.driver.refuse(Function::cuEventCreate);
  CHECK(code_of([&] { engine.devices.at(3); }) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_FALSE(engine.devices.is_open(3));
  CHECK(engine.devices.at(3).context != nullptr);
  CHECK_FALSE(engine.devices.is_open(2));
}

TEST_CASE("what a device is stays where it is while others are opened") {
  FakeEngine engine;
  DeviceState& first = engine.devices.at(0);
  for (std::int32_t ordinal = 1; ordinal < 40; ++ordinal) CHECK(engine.devices.is_peer(0, ordinal));
  CHECK(&first == &engine.devices.at(0));
  CHECK(first.peers.size() == 40);
}

TEST_CASE("a device is let into another's pool once, and once more when that has another pool") {
  FakeEngine engine(2);
  CHECK(engine.devices.is_peer(0, 1));
  CHECK(engine.devices.is_peer(0, 1));
  CHECK(engine.driver.count(Function::cuMemPoolSetAccess) == 1);
  const auto pool = reinterpret_cast<CUmemoryPool>(0x300);
  engine.devices.set_pool(1, pool);
  CHECK(engine.devices.is_peer(0, 1));
  const auto let_in = engine.driver.calls(Function::cuMemPoolSetAccess);
  REQUIRE(let_in.size() == 2);
  CHECK(let_in[1].arguments[0] == reinterpret_cast<std::uint64_t>(pool));
}

TEST_CASE("a device that cannot be let in is no peer") {
  FakeEngine engine(2);
  engine.driver.refuse(Function::cuMemPoolSetAccess, CUDA_ERROR_NOT_SUPPORTED);
  CHECK_FALSE(engine.devices.is_peer(0, 1));
  engine.driver.is_peer_possible = false;
  CHECK_FALSE(engine.devices.is_peer(1, 0));
  CHECK(engine.driver.count(Function::cuMemPoolSetAccess) == 1);
}

TEST_CASE("a stream that is closed with work is destroyed when that has passed") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  const CUstream handle = engine.handle(stream);
  engine.driver.hold(handle);
  engine.submit(stream);
  engine.streams.close(stream);
  engine.streams.close(stream);
  CHECK(engine.driver.is_alive(handle));
  engine.collect();
  CHECK(engine.driver.is_alive(handle));
  engine.driver.go_on(handle);
  engine.collect();
  CHECK_FALSE(engine.driver.is_alive(handle));
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("a closed stream is destroyed when nobody holds it") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  const CUstream handle = engine.handle(stream);
  CHECK_FALSE(engine.streams.hold(handle, 0, 0));  // nobody got the handle
  engine.streams.lend(stream);
  std::shared_ptr<void> first = engine.streams.hold(handle, 0, 0), second = engine.streams.hold(handle, 0, 0);
  engine.streams.close(stream);
  engine.collect();
  CHECK(engine.driver.is_alive(handle));
  first.reset();
  engine.collect();
  CHECK(engine.driver.is_alive(handle));
  second.reset();
  engine.collect();
  CHECK_FALSE(engine.driver.is_alive(handle));
  CHECK_FALSE(engine.streams.hold(handle, 0, 0));
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("a stream of ours that was adopted by its handle lives as long as that") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  const CUstream handle = engine.streams.lend(stream);
  const StreamIndex adopted = engine.streams.adopt(handle, 0, nullptr);
  CHECK(adopted != stream);
  engine.streams.close(stream);
  engine.collect();
  CHECK(engine.driver.is_alive(handle));
  engine.streams.close(adopted);
  engine.collect();
  engine.collect();  // the first has let go of it
  CHECK_FALSE(engine.driver.is_alive(handle));
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("in the middle of a submission no stream is destroyed") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.is_submitting = true;
  engine.driver.forget_calls();
  engine.streams.close(stream);
  CHECK(engine.driver.calls().empty());
  engine.is_submitting = false;
  engine.collect();
  CHECK(engine.driver.count(Function::cuStreamDestroy) == 1);
}

TEST_CASE("a broken context's streams are destroyed as those are that have passed") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  const CUstream handle = engine.handle(stream);
  engine.driver.hold(handle);
  engine.submit(stream);
  engine.driver.break_stream(handle);
  engine.streams.close(stream);
  CHECK_FALSE(engine.driver.is_alive(handle));
}

TEST_CASE("a stream is asked only where nothing is known of it, and once for all that it holds") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  const Tick first = engine.submit(stream), second = engine.submit(stream);
  CHECK(engine.streams.is_complete(first));
  CHECK(engine.streams.is_complete(second));
  CHECK(engine.driver.count(Function::cuStreamQuery) == 1);
  engine.driver.hold(engine.handle(stream));
  const Tick third = engine.submit(stream);
  const std::vector<Tick> asked{first, second, third};
  CHECK(engine.streams.incomplete(asked).size() == 1);
  CHECK(engine.driver.count(Function::cuStreamQuery) == 2);
}

TEST_CASE("a stream that somebody captures while work is put there is never asked, and nothing is put on it") {
  FakeEngine engine;
  const auto theirs = reinterpret_cast<CUstream>(8);
  const StreamIndex stream = engine.streams.adopt(theirs, 0, nullptr), other = engine.streams.create(0, 0);
  const Tick tick = engine.submit(stream);
  engine.driver.capture(theirs);
  engine.driver.forget_calls();
  CHECK_FALSE(engine.streams.is_complete(tick));
  CHECK(engine.streams.ask(stream) == 0);
  CHECK(engine.streams.wait(other, stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(code_of([&] { engine.streams.put_mark(stream, 0); }) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(code_of([&] { engine.streams.require_not_captured(stream); }) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  for (const auto& call : engine.driver.calls(Function::cuStreamQuery))
    CHECK(call.arguments[0] != reinterpret_cast<std::uint64_t>(theirs));
  CHECK(engine.driver.count(Function::cuEventRecord) == 0);
  engine.driver.capture(theirs, false);
  CHECK(engine.streams.is_complete(tick));
}

TEST_CASE("somebody else's stream is not touched once a submission has ended: its owner may destroy it") {
  FakeEngine engine;
  const auto theirs = reinterpret_cast<CUstream>(0x7777);
  const StreamIndex stream = engine.streams.adopt(theirs, 0, nullptr), other = engine.streams.create(0, 0);
  auto buffer = engine.allocate(100);
  engine.driver.hold(engine.streams.at(stream).beside);
  const Tick tick = engine.submit(stream);
  buffer->hazards.commit({0, 100}, true, tick);
  engine.streams.rest();
  const CUstream beside = engine.streams.at(stream).beside;
  CHECK(engine.driver.waits_for(beside, theirs));
  engine.driver.forget_calls();
  CHECK_FALSE(engine.streams.is_complete(tick));
  engine.streams.order(other, *buffer, {0, 100});
  CHECK(engine.driver.waits_for(engine.handle(other), beside));
  CHECK(engine.streams.wait(other, stream) == CUDA_SUCCESS);
  engine.streams.settle(0);
  CHECK(engine.streams.ask(stream) == 0);
  {
    const Streams::Mark mark = engine.streams.mark(stream);
  }
  buffer.reset();
  engine.collect();
  engine.driver.go_on(beside);
  CHECK(engine.streams.is_complete(tick));
  engine.streams.close(stream);
  engine.collect();
  CHECK_FALSE(engine.driver.is_alive(beside));
  CHECK(named(engine, theirs) == 0);
}

TEST_CASE("more for somebody else's stream is behind what was there, and is waited for, too") {
  FakeEngine engine;
  const auto theirs = reinterpret_cast<CUstream>(0x7777);
  const StreamIndex stream = engine.streams.adopt(theirs, 0, nullptr);
  const CUstream beside = engine.streams.at(stream).beside;
  engine.submit(stream);
  engine.streams.rest();
  engine.driver.hold(theirs);
  engine.driver.hold(beside);
  const Tick tick = engine.submit(stream);
  engine.driver.go_on(beside);
  CHECK_FALSE(engine.streams.is_complete(tick));  // it stands for what was there before
  engine.driver.hold(beside);
  engine.streams.rest();
  CHECK_FALSE(engine.streams.is_complete(tick));
  engine.driver.go_on(beside);
  CHECK(engine.streams.is_complete(tick));
}

TEST_CASE("what its owner puts on a stream is looked for where that is asked") {
  FakeEngine engine;
  const auto theirs = reinterpret_cast<CUstream>(0x7777);
  const StreamIndex stream = engine.streams.adopt(theirs, 0, nullptr);
  engine.driver.hold(theirs);
  engine.driver.submit(theirs);
  const CUstream beside = engine.streams.at(stream).beside;
  engine.driver.hold(beside);
  CHECK(engine.streams.query(engine.streams.at(stream)) == CUDA_SUCCESS);
  engine.streams.look_again(stream);
  CHECK(engine.driver.waits_for(beside, theirs));
  CHECK(engine.streams.query(engine.streams.at(stream)) == CUDA_ERROR_NOT_READY);
}

TEST_CASE("where the end of somebody else's stream cannot be noted, it is tried again") {
  for (const Function refused : {Function::cuEventRecord, Function::cuStreamWaitEvent}) {
    FakeEngine engine;
    const auto theirs = reinterpret_cast<CUstream>(0x7777);
    const StreamIndex stream = engine.streams.adopt(theirs, 0, nullptr);
    engine.driver.hold(theirs);
    const Tick tick = engine.submit(stream);
    engine.driver.refuse(refused, CUDA_ERROR_OUT_OF_MEMORY);
    engine.streams.rest();
    CHECK_FALSE(engine.streams.at(stream).is_at_rest);
    CHECK_FALSE(engine.streams.is_complete(tick));
    engine.streams.rest();
    CHECK(engine.streams.at(stream).is_at_rest);
    CHECK(engine.driver.waits_for(engine.streams.at(stream).beside, theirs));
  }
}

TEST_CASE("a default stream is there for good: nothing is put beside it") {
  FakeEngine engine;
  engine.driver.forget_calls();
  const StreamIndex stream = engine.streams.adopt(CU_STREAM_LEGACY, 0, nullptr);
  CHECK(engine.driver.count(Function::cuStreamCreateWithPriority) == 0);
  engine.submit(stream);
  engine.streams.rest();
  CHECK_FALSE(engine.streams.at(stream).is_at_rest);
}

TEST_CASE("an adopted stream is the same one for its handle on its device, and is never destroyed") {
  FakeEngine engine(2);
  const auto theirs = reinterpret_cast<CUstream>(8);
  const auto kept = std::make_shared<int>(1), later = std::make_shared<int>(2);
  const StreamIndex stream = engine.streams.adopt(theirs, 0, kept);
  CHECK(engine.streams.adopt(theirs, 1, nullptr) != stream);
  CHECK(kept.use_count() == 2);
  CHECK(engine.streams.adopt(theirs, 0, later) == stream);
  CHECK(kept.use_count() == 1);
  CHECK(engine.streams.adopt(theirs, 0, nullptr) == stream);
  CHECK(later.use_count() == 2);
  engine.streams.close(stream);
  CHECK(later.use_count() == 1);
  for (const auto& call : engine.driver.calls(Function::cuStreamDestroy))
    CHECK(call.arguments[0] != reinterpret_cast<std::uint64_t>(theirs));
  // The slot may have another stream by now, so the handle gets a slot anew.
  const StreamIndex other = engine.streams.create(0, 0);
  CHECK(other == stream);
  CHECK(engine.streams.adopt(theirs, 0, nullptr) != other);
}

TEST_CASE("adopted streams that nobody needs are let go of, but for the last 32") {
  FakeEngine engine;
  const auto kept = std::make_shared<int>(1);
  const std::uint64_t before = engine.streams.count_used(0);
  std::vector<StreamIndex> adopted;
  auto handle = [](std::uint64_t i) { return reinterpret_cast<CUstream>(0x7000 + 16 * i); };
  for (std::uint64_t i = 0; i < 40; ++i) adopted.push_back(engine.streams.adopt(handle(i), 0, kept));
  CHECK(engine.streams.adopt(handle(0), 0, nullptr) == adopted[0]);
  for (const StreamIndex each : adopted) engine.streams.leave(each);
  // The first is needed once more. Each of the 33 has one of ours beside it.
  CHECK(engine.streams.count_used(0) == before + 66);
  CHECK(kept.use_count() == 34);
  CHECK(engine.streams.is_open(engine.streams.id_of(adopted[0])));
  CHECK(engine.streams.adopt(handle(39), 0, nullptr) == adopted[39]);
  engine.streams.leave(adopted[0]);
  CHECK(engine.streams.count_used(0) == before + 66);
  for (std::uint64_t i = 100; i < 140; ++i) engine.streams.leave(engine.streams.adopt(handle(i), 0, nullptr));
  CHECK(kept.use_count() == 2);
  CHECK(engine.streams.is_open(engine.streams.id_of(adopted[39])));  // it is needed
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("an adopted stream that is let go of has its work first, and is the same one if it is named meanwhile") {
  FakeEngine engine;
  const auto theirs = reinterpret_cast<CUstream>(0x7777);
  const StreamIndex stream = engine.streams.adopt(theirs, 0, nullptr);
  const CUstream beside = engine.streams.at(stream).beside;
  engine.driver.hold(beside);
  const Tick tick = engine.submit(stream);
  engine.streams.rest();
  engine.streams.leave(stream);
  for (std::uint64_t i = 0; i < 40; ++i)
    engine.streams.leave(engine.streams.adopt(reinterpret_cast<CUstream>(0x8000 + 16 * i), 0, nullptr));
  CHECK_FALSE(engine.streams.is_open(engine.streams.id_of(stream)));
  engine.collect();
  CHECK(engine.driver.is_alive(beside));
  CHECK(engine.streams.adopt(theirs, 0, nullptr) == stream);
  CHECK(engine.streams.is_open(engine.streams.id_of(stream)));
  engine.driver.go_on(beside);
  engine.collect();
  CHECK(engine.driver.is_alive(beside));
  CHECK(engine.streams.is_complete(tick));
}

TEST_CASE("a later stream with the handle of an adopted one is another stream") {
  FakeEngine engine;
  const auto theirs = reinterpret_cast<CUstream>(8);
  const StreamIndex former = engine.streams.adopt(theirs, 0, nullptr);
  const CUstream beside = engine.streams.at(former).beside;
  engine.driver.hold(beside);
  const Tick tick = engine.submit(former);
  engine.streams.rest();
  engine.driver.stream_numbers[theirs] = 99;
  const StreamIndex later = engine.streams.adopt(theirs, 0, nullptr);
  CHECK(later != former);
  CHECK(engine.streams.at(former).closing);
  CHECK(engine.streams.adopt(theirs, 0, nullptr) == later);
  engine.driver.go_on(beside);
  engine.collect();
  CHECK(engine.timeline.is_known_complete(tick));
  CHECK_FALSE(engine.streams.at(former).mark);
  CHECK(engine.streams.adopt(theirs, 0, nullptr) == later);  // the end of the former is not its end
  for (const auto& call : engine.driver.calls(Function::cuStreamDestroy))
    CHECK(call.arguments[0] != reinterpret_cast<std::uint64_t>(theirs));
}

TEST_CASE("a wait that the driver refuses is not remembered: it is asked for again") {
  for (const Function refused : {Function::cuEventCreate, Function::cuEventRecord, Function::cuStreamWaitEvent}) {
    FakeEngine engine;
    const StreamIndex producer = engine.streams.create(0, 0), consumer = engine.streams.create(0, 0);
    engine.driver.hold(engine.handle(producer));
    const Tick tick = engine.submit(producer);
    engine.driver.refuse(refused);
    CHECK(code_of([&] { engine.streams.after(consumer, tick); }) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_FALSE(engine.driver.waits_for(engine.handle(consumer), engine.handle(producer)));
    engine.streams.after(consumer, tick);
    CHECK(engine.driver.waits_for(engine.handle(consumer), engine.handle(producer)));
    engine.driver.forget_calls();
    engine.streams.after(consumer, tick);
    CHECK(engine.driver.calls().empty());
    CHECK(engine.driver.misuses().empty());
  }
}

TEST_CASE("one mark serves all who wait for what is before it") {
  FakeEngine engine;
  const StreamIndex producer = engine.streams.create(0, 0), a = engine.streams.create(0, 0),
                    b = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(producer));
  const Tick first = engine.submit(producer), second = engine.submit(producer);
  engine.driver.forget_calls();
  engine.streams.after(a, second);
  engine.streams.after(b, first);
  CHECK(engine.driver.count(Function::cuEventCreate) == 1);
  CHECK(engine.driver.count(Function::cuEventRecord) == 1);
  CHECK(engine.driver.count(Function::cuStreamWaitEvent) == 2);
}

TEST_CASE("a stream has not passed what a broken device was to make for it") {
  FakeEngine engine(2);
  const StreamIndex far = engine.streams.create(1, 0), near = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(far));
  const Tick made = engine.submit(far);
  engine.streams.after(near, made);
  const Tick used = engine.submit(near);
  engine.driver.break_stream(engine.handle(far), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(code_of([&] { engine.streams.is_complete(used); }) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_FALSE(engine.timeline.is_known_complete(used));
  CHECK(engine.streams.has_ended(used));
}

TEST_CASE("a broken device ends its own uses of memory, and no others") {
  FakeEngine engine(2);
  const StreamIndex lost = engine.streams.create(1, 0), well = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(lost));
  engine.driver.hold(engine.handle(well));
  Buffer buffer(4096);
  buffer.hazards.commit({0, 4096}, false, engine.submit(lost));
  buffer.hazards.commit({0, 4096}, false, engine.submit(well));
  engine.driver.break_stream(engine.handle(lost));
  CHECK_FALSE(engine.streams.has_ended(buffer));
  engine.driver.go_on(engine.handle(well));
  CHECK(engine.streams.has_ended(buffer));
}

TEST_CASE("a mark's event is used again, also where its record was refused") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.submit(stream);
  {
    const Streams::Mark mark = engine.streams.mark(stream);
  }
  const std::size_t made = engine.driver.count(Function::cuEventCreate);
  engine.driver.refuse(Function::cuEventRecord, CUDA_ERROR_UNKNOWN);
  CHECK(code_of([&] { engine.streams.mark(stream); }) == CUDA_ERROR_UNKNOWN);
  const Streams::Mark mark = engine.streams.mark(stream);
  CHECK(engine.driver.count(Function::cuEventCreate) == made);
  CHECK(mark.covers({stream, 1}));
  CHECK_FALSE(mark.covers({stream, 2}));
  const Streams::Mark second = engine.streams.mark(stream);
  CHECK(second.event() != mark.event());
}

TEST_CASE("the driver takes note of what has passed on streams that are idle, and waits for none") {
  FakeEngine engine;
  const StreamIndex busy = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(busy));
  engine.submit(busy);
  engine.driver.forget_calls();
  engine.streams.settle(0);
  const auto settled = engine.driver.calls(Function::cuStreamSynchronize);
  REQUIRE(settled.size() == 1);
  CHECK(settled[0].arguments[0] == reinterpret_cast<std::uint64_t>(engine.handle(engine.devices.at(0).default_stream)));
}

TEST_CASE("where the engine is over no driver is called") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  const Tick tick = engine.submit(stream);
  engine.is_ended = true;
  engine.driver.forget_calls();
  engine.streams.close(stream);
  CHECK_THROWS_AS(engine.streams.is_complete(tick), Over);
  CHECK_THROWS_AS(engine.devices.at(0), Over);
  engine.is_ended = false;
  engine.fork();
  CHECK_THROWS_AS(engine.streams.is_complete(tick), Over);
  CHECK(engine.driver.calls().empty());
}

TEST_CASE("a context is bound once, and the thread's own comes back") {
  FakeEngine engine(2);
  const auto own = reinterpret_cast<CUcontext>(0x77);
  engine.table.cuCtxSetCurrent(own);
  engine.driver.forget_calls();
  {
    ContextScope scope(engine.devices);
  }
  CHECK(engine.driver.count(Function::cuCtxGetCurrent) == 0);
  {
    ContextScope scope(engine.devices);
    scope.bind(0);
    scope.bind(0);
    CHECK(engine.driver.count(Function::cuCtxSetCurrent) == 1);
    scope.bind(1);
    CHECK(engine.driver.count(Function::cuCtxSetCurrent) == 2);
  }
  CUcontext now = nullptr;
  engine.table.cuCtxGetCurrent(&now);
  CHECK(now == own);
  CHECK(engine.driver.count(Function::cuThreadExchangeStreamCaptureMode) == 2);
}

TEST_CASE("work at a stream's end needs no mark until more comes there") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0), other = engine.streams.create(0, 0);
  aiocuda::dataflow::AtEnd first, second;
  const auto tick = engine.submit(stream);
  CHECK(engine.streams.stand_at_end(first, tick));
  CHECK(engine.streams.stand_at_end(first, tick));
  CHECK_FALSE(engine.streams.stand_at_end(second, tick));  // one at a place
  engine.streams.enter(other);
  CHECK(engine.marked.empty());
  engine.streams.enter(stream);
  CHECK(engine.marked == std::vector{stream});
  engine.streams.enter(stream);
  CHECK(engine.marked.size() == 1);
  const auto later = engine.submit(stream);
  CHECK_FALSE(engine.streams.stand_at_end(first, tick));  // it is not the last any more
  CHECK(engine.streams.stand_at_end(first, later));
  CHECK(engine.streams.wait(stream, other) == CUDA_SUCCESS);  // a wait is more, too
  CHECK(engine.marked.size() == 2);
  {
    aiocuda::dataflow::AtEnd dropped;
    CHECK(engine.streams.stand_at_end(dropped, later));
  }
  engine.streams.enter(stream);
  CHECK(engine.marked.size() == 2);
}

TEST_CASE("a mark is kept behind what stands at the end of a stream that others may use") {
  FakeEngine engine;
  const StreamIndex lent = engine.streams.create(0, 0);
  const StreamIndex theirs = engine.streams.adopt(reinterpret_cast<CUstream>(8), 0, nullptr);
  aiocuda::dataflow::AtEnd work;
  CHECK_FALSE(engine.streams.stand_at_end(work, engine.timeline.advance(theirs)));
  const auto tick = engine.submit(lent);
  CHECK(engine.streams.stand_at_end(work, tick));
  CHECK(engine.streams.lend(lent) == engine.handle(lent));
  CHECK(engine.marked == std::vector{lent});
  CHECK_FALSE(engine.streams.stand_at_end(work, tick));
}

TEST_CASE("work outlives the stream at whose end it stands, and the streams") {
  aiocuda::dataflow::AtEnd work, other;
  {
    FakeEngine engine;
    const StreamIndex stream = engine.streams.create(0, 0);
    CHECK(engine.streams.stand_at_end(work, engine.submit(stream)));
    engine.streams.close(stream);
    const StreamIndex next = engine.streams.create(0, 0);
    CHECK(next == stream);
    CHECK(engine.streams.at(next).end == nullptr);
    CHECK(engine.streams.stand_at_end(other, engine.submit(next)));
  }
  other.leave();
}
