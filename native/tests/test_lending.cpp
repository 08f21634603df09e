// Borrows: what is ordered after what, how long memory lives, and what happens on other threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "fake_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
using aiocuda::dataflow::BufferRef;
using aiocuda::dataflow::Span;

namespace {

const auto theirs = reinterpret_cast<CUstream>(16);

Borrow::Bytes whole(const BufferRef& buffer, bool writes) {
  const Span span{0, buffer->size_bytes};
  return {buffer, span, {span}, 0, writes};
}

void use(FakeEngine& engine, StreamIndex stream, const BufferRef& buffer, bool writes) {
  if (buffer->is_lent) engine.lending.admit(*buffer, {0, buffer->size_bytes}, writes);
  engine.streams.order(stream, *buffer, {0, buffer->size_bytes});
  buffer->hazards.commit({0, buffer->size_bytes}, writes, engine.submit(stream));
}

// Does a stream come after what the borrower's stream held?
bool is_behind_theirs(FakeEngine& engine, StreamIndex stream) {
  return engine.driver.waits_for(engine.handle(stream), theirs);
}

}  // namespace

TEST_CASE("a borrower waits for the writes, and for the reads if it may write") {
  for (const bool writes : {false, true}) {
    FakeEngine engine;
    BufferRef buffer = engine.allocate(100);
    const StreamIndex writer = engine.streams.create(0, 0), reader = engine.streams.create(0, 0);
    engine.driver.hold(engine.handle(writer));
    engine.driver.hold(engine.handle(reader));
    use(engine, writer, buffer, true);
    use(engine, reader, buffer, false);
    engine.lending.give_back(engine.lending.lend(whole(buffer, writes), theirs, nullptr, true));
    CHECK(engine.driver.waits_for(theirs, engine.handle(writer)));
    CHECK(engine.driver.waits_for(theirs, engine.handle(reader)) == writes);
  }
}

TEST_CASE("while a borrow lives, each use comes after what is on the borrower's stream by then") {
  for (const bool lent_for_writing : {false, true})
    for (const bool writes : {false, true}) {
      FakeEngine engine;
      BufferRef buffer = engine.allocate(100);
      const StreamIndex stream = engine.streams.create(0, 0);
      Borrow* const borrow = engine.lending.lend(whole(buffer, lent_for_writing), theirs, nullptr, true);
      engine.driver.hold(theirs);
      engine.driver.submit(theirs);
      const bool must_wait = lent_for_writing || writes;
      for (StreamIndex relay = 0; relay < engine.streams.size(); ++relay) engine.driver.hold(engine.handle(relay));
      use(engine, stream, buffer, writes);
      CHECK(is_behind_theirs(engine, stream) == must_wait);
      engine.lending.give_back(borrow);
    }
}

TEST_CASE("a borrower comes after what another one has enqueued, if one of them may write") {
  const auto second = reinterpret_cast<CUstream>(32);
  for (const bool has_ended : {false, true})
    for (const bool first_writes : {false, true})
      for (const bool second_writes : {false, true}) {
        FakeEngine engine;
        BufferRef buffer = engine.allocate(100);
        Borrow* const first = engine.lending.lend(whole(buffer, first_writes), theirs, nullptr, true);
        engine.driver.hold(theirs);
        engine.driver.submit(theirs);
        if (has_ended) engine.lending.give_back(first);
        Borrow* const later = engine.lending.lend(whole(buffer, second_writes), second, nullptr, true);
        CHECK(engine.driver.waits_for(second, theirs) == (first_writes || second_writes));
        if (!has_ended) engine.lending.give_back(first);
        engine.lending.give_back(later);
      }
}

TEST_CASE("a borrower who has nothing to do is not waited for") {
  FakeEngine engine;
  BufferRef buffer = engine.allocate(100);
  Borrow* const borrow = engine.lending.lend(whole(buffer, true), theirs, nullptr, true);
  engine.driver.forget_calls();
  engine.lending.admit(*buffer, {0, 100}, true);
  engine.lending.give_back(borrow);
  engine.lending.take_back();
  CHECK(engine.driver.count(Function::cuEventRecord) == 0);
}

TEST_CASE("a borrower's stream waits for what was done with the bytes since, if one of the two writes") {
  for (const bool lent_for_writing : {false, true})
    for (const bool writes : {false, true}) {
      FakeEngine engine;
      BufferRef buffer = engine.allocate(100);
      const StreamIndex stream = engine.streams.create(0, 0);
      Borrow* const borrow = engine.lending.lend(whole(buffer, lent_for_writing), theirs, nullptr, true);
      engine.driver.hold(engine.handle(stream));
      use(engine, stream, buffer, writes);
      engine.lending.tell(*buffer, {0, 100}, writes);
      CHECK(engine.driver.waits_for(theirs, engine.handle(stream)) == (lent_for_writing || writes));
      engine.lending.give_back(borrow);
    }
}

TEST_CASE("a stream of ours that a borrower works on is there until the borrow has ended") {
  FakeEngine engine;
  BufferRef buffer = engine.allocate(100);
  const StreamIndex stream = engine.streams.create(0, 0), other = engine.streams.create(0, 0);
  const CUstream handle = engine.streams.lend(stream);
  Borrow* const borrow = engine.lending.lend(whole(buffer, true), handle, nullptr, false);
  engine.streams.close(stream);
  engine.collect();
  use(engine, other, buffer, true);
  engine.lending.tell(*buffer, {0, 100}, true);
  CHECK(engine.driver.is_alive(handle));
  engine.lending.give_back(borrow);
  engine.lending.take_back();
  engine.collect();
  CHECK_FALSE(engine.driver.is_alive(handle));
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("a stream that nobody keeps is not asked about when the borrow has ended") {
  for (const bool lasts : {false, true}) {
    FakeEngine engine;
    BufferRef buffer = engine.allocate(100);
    const StreamIndex stream = engine.streams.create(0, 0);
    Borrow* const borrow = engine.lending.lend(whole(buffer, true), theirs, nullptr, lasts);
    engine.lending.give_back(borrow);
    engine.driver.forget_calls();
    use(engine, stream, buffer, true);
    engine.lending.take_back();
    bool is_asked = false;
    for (const FakeDriver::Call& call : engine.driver.calls())
      for (const std::uint64_t argument : call.arguments)
        is_asked = is_asked || argument == reinterpret_cast<std::uint64_t>(theirs);
    CHECK(is_asked == lasts);
    CHECK_FALSE(buffer->is_lent);
  }
}

TEST_CASE("a stream that was adopted with what keeps it is kept for the borrow, and asked about") {
  FakeEngine engine;
  BufferRef buffer = engine.allocate(100);
  const StreamIndex stream = engine.streams.create(0, 0);
  const auto keeper = std::make_shared<int>(1);
  engine.streams.close(engine.streams.adopt(theirs, 0, keeper));
  engine.collect();
  CHECK(keeper.use_count() == 1);
  engine.streams.adopt(theirs, 0, keeper);
  Borrow* const borrow = engine.lending.lend(whole(buffer, true), theirs, nullptr, false);
  CHECK(keeper.use_count() == 3);
  engine.lending.give_back(borrow);
  engine.driver.hold(theirs);
  engine.driver.submit(theirs);
  for (StreamIndex relay = 0; relay < engine.streams.size(); ++relay) engine.driver.hold(engine.handle(relay));
  use(engine, stream, buffer, true);
  CHECK(is_behind_theirs(engine, stream));
  engine.lending.take_back();
  CHECK(keeper.use_count() == 2);
}

TEST_CASE("a borrower is told of the bytes that it has") {
  FakeEngine engine;
  BufferRef buffer = engine.allocate(100);
  const StreamIndex stream = engine.streams.create(0, 0);
  Borrow* const borrow = engine.lending.lend({buffer, {0, 50}, {{0, 50}}, 0, true}, theirs, nullptr, true);
  engine.driver.hold(engine.handle(stream));
  buffer->hazards.commit({50, 100}, true, engine.submit(stream));
  engine.lending.tell(*buffer, {50, 100}, true);
  CHECK_FALSE(engine.driver.waits_for(theirs, engine.handle(stream)));
  engine.driver.stream_numbers[theirs] = 99;  // a later stream with the same handle is not the borrower's
  buffer->hazards.commit({0, 100}, true, engine.submit(stream));
  engine.lending.tell(*buffer, {0, 100}, true);
  CHECK_FALSE(engine.driver.waits_for(theirs, engine.handle(stream)));
  engine.lending.give_back(borrow);
}

TEST_CASE("a stream of others waits for ticks, and one of ours that they have no more often than it must") {
  FakeEngine engine;
  const StreamIndex first = engine.streams.create(0, 0), second = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(first));
  const std::vector<Tick> ticks{engine.submit(first)};
  engine.streams.order_others(theirs, 0, ticks);
  CHECK(engine.driver.waits_for(theirs, engine.handle(first)));
  engine.streams.order_others(engine.handle(second), 0, ticks);
  CHECK(engine.driver.waits_for(engine.handle(second), engine.handle(first)));
  engine.driver.forget_calls();
  engine.streams.order_others(engine.handle(second), 0, ticks);
  CHECK(engine.driver.count(Function::cuStreamWaitEvent) == 0);
  engine.driver.capture(theirs);
  CHECK(code_of([&] { engine.streams.order_others(theirs, 0, ticks); }) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_CASE("a stream that was adopted waits for a tick once, and the next one with its handle does again") {
  FakeEngine engine(2);
  const StreamIndex worker = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(worker));
  const std::vector<Tick> ticks{engine.submit(worker)};
  const auto count_waits = [&](std::int32_t device) {
    engine.driver.forget_calls();
    engine.streams.order_others(theirs, device, ticks);
    const auto calls = engine.driver.calls(Function::cuStreamWaitEvent);
    return std::count_if(calls.begin(), calls.end(),
                         [](const auto& call) { return call.arguments[0] == reinterpret_cast<std::uint64_t>(theirs); });
  };
  engine.streams.adopt(theirs, 0, nullptr);
  CHECK(count_waits(0) == 1);
  CHECK(count_waits(0) == 0);
  CHECK(count_waits(1) == 1);  // that of another device is another one
  engine.driver.stream_numbers[theirs] = 99;
  CHECK(count_waits(0) == 1);
  CHECK(count_waits(0) == 1);  // nothing is remembered of one that was not adopted
}

TEST_CASE("bytes beside a borrow do not wait for it") {
  FakeEngine engine;
  BufferRef buffer = engine.allocate(100);
  Borrow* const borrow = engine.lending.lend({buffer, {0, 50}, {{0, 50}}, 0, true}, theirs, nullptr, true);
  engine.driver.hold(theirs);
  engine.driver.submit(theirs);
  engine.driver.forget_calls();
  engine.lending.admit(*buffer, {50, 100}, true);
  CHECK(engine.driver.count(Function::cuEventRecord) == 0);
  engine.lending.admit(*buffer, {49, 100}, false);
  CHECK(engine.driver.count(Function::cuEventRecord) > 0);
  engine.lending.give_back(borrow);
}

TEST_CASE("a borrow keeps the memory, and what goes with it, until it is given back and somebody takes note") {
  FakeEngine engine;
  auto kept = std::make_shared<int>(1);
  BufferRef buffer = engine.allocate(100);
  const std::uint64_t address = buffer->address;
  Borrow* const borrow = engine.lending.lend(whole(buffer, true), theirs, kept, true);
  buffer.reset();
  engine.collect();
  CHECK(engine.driver.is_allocated(address));
  engine.driver.hold(theirs);
  engine.driver.submit(theirs);
  engine.driver.forget_calls();
  std::thread([&] { engine.lending.give_back(borrow); }).join();
  CHECK(engine.driver.calls().empty());
  CHECK(kept.use_count() == 2);
  engine.collect();
  CHECK(kept.use_count() == 1);
  CHECK_FALSE(engine.driver.is_allocated(address));
  // The memory was freed on a stream that comes after what the borrower had put on his.
  REQUIRE(engine.driver.work().size() == 1);
  const auto after = engine.driver.work().front().after;
  CHECK(after.contains(theirs));
}

TEST_CASE("many threads give back at once, and none is lost") {
  FakeEngine engine;
  BufferRef buffer = engine.allocate(100);
  auto kept = std::make_shared<int>(1);
  std::vector<Borrow*> borrows;
  for (int i = 0; i < 400; ++i) borrows.push_back(engine.lending.lend(whole(buffer, false), nullptr, kept, true));
  std::vector<std::thread> threads;
  for (std::size_t first = 0; first < 4; ++first)
    threads.emplace_back([&, first] {
      for (std::size_t i = first; i < borrows.size(); i += 4) engine.lending.give_back(borrows[i]);
    });
  while (kept.use_count() > 1) engine.lending.take_back();
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(buffer->is_lent);
}

TEST_CASE("a stream that is captured when a borrow ends is asked about later") {
  FakeEngine engine;
  auto kept = std::make_shared<int>(1);
  BufferRef buffer = engine.allocate(100);
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.lending.give_back(engine.lending.lend(whole(buffer, true), theirs, kept, true));
  engine.driver.capture(theirs);
  engine.collect();
  CHECK(kept.use_count() == 2);
  CHECK(code_of([&] { use(engine, stream, buffer, true); }) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  engine.driver.capture(theirs, false);
  engine.collect();
  CHECK(kept.use_count() == 1);
}

TEST_CASE("a captured stream borrows nothing") {
  FakeEngine engine;
  BufferRef buffer = engine.allocate(100);
  engine.driver.capture(theirs);
  CHECK(code_of([&] { engine.lending.lend(whole(buffer, true), theirs, nullptr, true); }) ==
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK_FALSE(buffer->is_lent);
}

TEST_CASE("a borrower's stream that was destroyed is not waited for, and the borrow ends when it is given back") {
  for (const bool is_used_again : {false, true}) {
    FakeEngine engine;
    BufferRef buffer = engine.allocate(100);
    Borrow* const borrow = engine.lending.lend(whole(buffer, true), theirs, nullptr, true);
    engine.driver.hold(theirs);
    engine.driver.submit(theirs);
    if (is_used_again)
      engine.driver.stream_numbers[theirs] = 99;
    else
      engine.driver.refuse(Function::cuStreamGetId, CUDA_ERROR_INVALID_HANDLE, 1, 100);
    engine.driver.forget_calls();
    engine.lending.admit(*buffer, {0, 100}, true);
    CHECK(buffer->is_lent);
    engine.lending.give_back(borrow);
    engine.lending.take_back();
    CHECK(engine.driver.count(Function::cuEventRecord) == 0);
    CHECK_FALSE(buffer->is_lent);
  }
}

TEST_CASE("a borrow ends with its context") {
  FakeEngine engine;
  auto kept = std::make_shared<int>(1);
  BufferRef buffer = engine.allocate(100);
  Borrow* const borrow = engine.lending.lend(whole(buffer, true), theirs, kept, true);
  engine.driver.break_stream(theirs);
  CHECK(code_of([&] { engine.lending.admit(*buffer, {0, 100}, true); }) == CUDA_ERROR_ILLEGAL_ADDRESS);
  engine.lending.give_back(borrow);
  engine.lending.take_back();
  CHECK(kept.use_count() == 1);
  CHECK_FALSE(buffer->is_lent);
}

TEST_CASE("a borrow whose end is refused for now ends later") {
  for (const Function refused : {Function::cuStreamGetId, Function::cuStreamQuery, Function::cuEventRecord}) {
    FakeEngine engine;
    auto kept = std::make_shared<int>(1);
    BufferRef buffer = engine.allocate(100);
    engine.driver.hold(theirs);
    engine.driver.submit(theirs);
    engine.lending.give_back(engine.lending.lend(whole(buffer, true), theirs, kept, true));
    engine.driver.refuse(refused);
    engine.lending.take_back();
    CHECK(buffer->is_lent);
    engine.lending.take_back();
    CHECK(kept.use_count() == 1);
    CHECK_FALSE(buffer->is_lent);
  }
}

TEST_CASE("the end of a borrow for reading forgets no other reader, however many slices there are") {
  FakeEngine engine;
  const std::uint64_t slices = aiocuda::dataflow::RangeHazards::most_segments + 100;
  BufferRef buffer = engine.allocate(slices * 4);
  const StreamIndex reader = engine.streams.create(0, 0), writer = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(reader));
  for (std::uint64_t i = 0; i < slices; ++i) buffer->hazards.commit({4 * i, 4 * i + 4}, false, engine.submit(reader));
  engine.driver.hold(theirs);
  engine.driver.submit(theirs);
  engine.lending.give_back(engine.lending.lend(whole(buffer, false), theirs, nullptr, true));
  use(engine, writer, buffer, true);
  CHECK(engine.driver.waits_for(engine.handle(writer), engine.handle(reader)));
  CHECK(is_behind_theirs(engine, writer));
}

TEST_CASE("a borrower on one of our streams waits for no more than that stream must") {
  FakeEngine engine;
  BufferRef buffer = engine.allocate(100);
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(stream));
  use(engine, stream, buffer, true);
  engine.driver.forget_calls();
  engine.lending.give_back(engine.lending.lend(whole(buffer, true), engine.handle(stream), nullptr, true));
  CHECK(engine.driver.count(Function::cuStreamWaitEvent) == 0);
}

TEST_CASE("whichever call is refused, nothing stays lent that nobody borrowed") {
  for (std::size_t nth = 1;; ++nth) {
    FakeEngine engine;
    BufferRef buffer = engine.allocate(100);
    const StreamIndex stream = engine.streams.create(0, 0);
    engine.driver.hold(engine.handle(stream));
    use(engine, stream, buffer, true);
    engine.driver.refuse_nth(nth);
    Borrow* borrow = nullptr;
    const CUresult result = code_of([&] { borrow = engine.lending.lend(whole(buffer, true), theirs, nullptr, true); });
    const bool is_over = !engine.driver.has_refused_nth();
    engine.driver.refuse_no_more();
    CHECK((result == CUDA_SUCCESS) == is_over);
    CHECK(buffer->is_lent == is_over);
    if (borrow) engine.lending.give_back(borrow);
    if (is_over) break;
    REQUIRE(nth < 100);
  }
}
