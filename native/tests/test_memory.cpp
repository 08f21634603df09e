// The memory of arrays, and loaded images, over a driver that counts and refuses.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <vector>

#include "driver/retained.hpp"
#include "fake_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
using aiocuda::dataflow::Buffer;
using aiocuda::dataflow::BufferRef;
using aiocuda::dataflow::MemoryKind;
using aiocuda::dataflow::Span;

namespace {

constexpr std::uint64_t mib = 1 << 20;

void use(BufferRef& buffer, bool writes, Tick tick) { buffer->hazards.commit({0, buffer->size_bytes}, writes, tick); }

}  // namespace

TEST_CASE("an array's memory is one allocation and one free, in the order of the stream that last wrote it") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.driver.forget_calls();
  BufferRef buffer = engine.memory.allocate_device(0, 100, stream, [] {});
  use(buffer, true, engine.submit(stream));
  CHECK(engine.memory.account(0).used_bytes == 100);
  buffer.reset();
  CHECK(engine.memory.account(0).used_bytes == 0);
  CHECK(engine.memory.account(0).peak_bytes == 100);
  CHECK(engine.driver.count(Function::cuMemAllocFromPoolAsync) == 1);
  const auto freed = engine.driver.calls(Function::cuMemFreeAsync);
  REQUIRE(freed.size() == 1);
  CHECK(freed[0].arguments[1] == reinterpret_cast<std::uint64_t>(engine.handle(stream)));
  CHECK(engine.driver.alive(Function::cuMemAllocFromPoolAsync) == 0);
  CHECK(engine.driver.count(Function::cuStreamWaitEvent) == 0);
}

TEST_CASE("memory that several streams use is freed aside, behind them all") {
  FakeEngine engine;
  const StreamIndex a = engine.streams.create(0, 0), b = engine.streams.create(0, 0);
  BufferRef buffer = engine.allocate(100);
  engine.driver.hold(engine.handle(a));
  engine.driver.hold(engine.handle(b));
  use(buffer, false, engine.submit(a));
  use(buffer, false, engine.submit(b));
  engine.driver.forget_calls();
  buffer.reset();
  const CUstream aside = engine.handle(*engine.devices.at(0).aside);
  CHECK(engine.driver.waits_for(aside, engine.handle(a)));
  CHECK(engine.driver.waits_for(aside, engine.handle(b)));
  const auto freed = engine.driver.calls(Function::cuMemFreeAsync);
  REQUIRE(freed.size() == 1);
  CHECK(freed[0].arguments[1] == reinterpret_cast<std::uint64_t>(aside));
  CHECK(engine.driver.calls().back().function == Function::cuMemFreeAsync);
}

TEST_CASE("memory is not freed before a wait that the driver refused was made") {
  for (const Function refused : {Function::cuEventCreate, Function::cuEventRecord, Function::cuStreamWaitEvent}) {
    FakeEngine engine;
    engine.streams.aside(0);
    const StreamIndex a = engine.streams.create(0, 0), b = engine.streams.create(0, 0);
    BufferRef buffer = engine.allocate(100);
    for (const StreamIndex stream : {a, b}) {
      engine.driver.hold(engine.handle(stream));
      use(buffer, false, engine.submit(stream));
    }
    engine.driver.refuse(refused);
    buffer.reset();
    CHECK(engine.driver.count(Function::cuMemFreeAsync) == 0);
    CHECK(engine.memory.account(0).used_bytes == 100);
    CHECK(engine.memory.has_returned());
    engine.collect();
    const CUstream aside = engine.handle(*engine.devices.at(0).aside);
    CHECK(engine.driver.waits_for(aside, engine.handle(a)));
    CHECK(engine.driver.waits_for(aside, engine.handle(b)));
    CHECK(engine.driver.count(Function::cuMemFreeAsync) == 1);
    CHECK(engine.memory.account(0).used_bytes == 0);
  }
}

TEST_CASE("memory is freed once its user's capture has ended, and not before") {
  FakeEngine engine;
  const auto theirs = reinterpret_cast<CUstream>(8);
  const StreamIndex stream = engine.streams.adopt(theirs, 0, nullptr), own = engine.streams.create(0, 0);
  BufferRef buffer = engine.allocate(100);
  for (const StreamIndex each : {stream, own}) {
    engine.driver.hold(engine.handle(each));
    use(buffer, false, engine.submit(each));
  }
  engine.driver.capture(theirs);
  buffer.reset();
  CHECK(engine.driver.count(Function::cuMemFreeAsync) == 0);
  engine.driver.capture(theirs, false);
  engine.collect();
  CHECK(engine.driver.count(Function::cuMemFreeAsync) == 1);
}

TEST_CASE("a free that is refused is tried again; a broken context's memory is gone") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.devices.at(0).default_stream);
  BufferRef buffer = engine.allocate(100), lost = engine.allocate(100);
  engine.driver.refuse(Function::cuMemFreeAsync);
  buffer.reset();
  CHECK(engine.memory.account(0).used_bytes == 200);
  engine.collect();
  CHECK(engine.memory.account(0).used_bytes == 100);
  CHECK(engine.driver.alive(Function::cuMemAllocFromPoolAsync) == 1);
  engine.driver.break_stream(stream);
  lost.reset();
  CHECK(engine.memory.account(0).used_bytes == 0);
  CHECK_FALSE(engine.memory.has_returned());
}

TEST_CASE("a device that is lost does not keep another's memory") {
  FakeEngine engine(2);
  const StreamIndex far = engine.streams.create(1, 0), near = engine.streams.create(0, 0);
  BufferRef buffer = engine.allocate(100);
  for (const StreamIndex each : {far, near}) {
    engine.driver.hold(engine.handle(each));
    use(buffer, false, engine.submit(each));
  }
  engine.driver.break_stream(engine.handle(far));
  buffer.reset();
  CHECK(engine.driver.count(Function::cuMemFreeAsync) == 1);
  CHECK(engine.driver.waits_for(engine.handle(*engine.devices.at(0).aside), engine.handle(near)));
}

TEST_CASE("where no stream can be made for it, memory is freed in the default stream, behind its users") {
  FakeEngine engine;
  const StreamIndex a = engine.streams.create(0, 0), b = engine.streams.create(0, 0);
  BufferRef buffer = engine.allocate(100);
  for (const StreamIndex each : {a, b}) {
    engine.driver.hold(engine.handle(each));
    use(buffer, false, engine.submit(each));
  }
  engine.driver.refuse(Function::cuStreamCreateWithPriority);
  buffer.reset();
  const CUstream stream = engine.handle(engine.devices.at(0).default_stream);
  CHECK(engine.driver.calls(Function::cuMemFreeAsync).at(0).arguments[1] == reinterpret_cast<std::uint64_t>(stream));
  CHECK(engine.driver.waits_for(stream, engine.handle(a)));
  CHECK(engine.driver.waits_for(stream, engine.handle(b)));
}

TEST_CASE("an allocation that is refused once has what nobody holds freed, and is asked for again") {
  FakeEngine engine;
  BufferRef idle = engine.allocate(100);
  engine.is_submitting = true;
  idle.reset();
  CHECK(engine.driver.count(Function::cuMemFreeAsync) == 0);
  engine.driver.refuse(Function::cuMemAllocFromPoolAsync);
  engine.driver.forget_calls();
  int told = 0;
  BufferRef buffer = engine.memory.allocate_device(0, 50, 0, [&] {
    ++told;
    CHECK(engine.driver.count(Function::cuMemFreeAsync) == 0);  // what a walk holds back comes first
  });
  CHECK(told == 1);
  CHECK(engine.driver.count(Function::cuMemAllocFromPoolAsync) == 2);
  CHECK(engine.driver.count(Function::cuMemFreeAsync) == 1);
  CHECK(engine.driver.count(Function::cuMemPoolTrimTo) == 0);
  CHECK(engine.memory.account(0).used_bytes == 50);
}

TEST_CASE("an allocation that stays refused holds nothing, and says what was refused") {
  for (const bool is_trim_refused : {false, true}) {
    FakeEngine engine;
    engine.driver.refuse(Function::cuMemAllocFromPoolAsync, CUDA_ERROR_OUT_OF_MEMORY, 1, 9);
    if (is_trim_refused) engine.driver.refuse(Function::cuMemPoolTrimTo, CUDA_ERROR_INVALID_VALUE);
    try {
      engine.allocate(100);
      FAIL("it was not refused");
    } catch (const Refusal& refusal) {
      CHECK(refusal.result == CUDA_ERROR_OUT_OF_MEMORY);
      CHECK(std::string(refusal.function) == "cuMemAllocFromPoolAsync");
    }
    CHECK(engine.driver.count(Function::cuMemPoolTrimTo) == 1);
    CHECK(engine.memory.account(0).used_bytes == 0);
    CHECK(engine.memory.account(0).peak_bytes == 0);
    CHECK(engine.driver.alive(Function::cuMemAllocFromPoolAsync) == 0);
  }
}

TEST_CASE("an allocation that found no memory has what former memory pools do not use, until they are gone") {
  FakeEngine engine;
  const auto first = engine.allocate(50);
  const auto former =
      static_cast<std::uintptr_t>(engine.driver.calls(Function::cuMemAllocFromPoolAsync).at(0).arguments[2]);
  const std::uintptr_t current = 0x300;
  engine.devices.set_pool(0, reinterpret_cast<CUmemoryPool>(current));
  engine.driver.forget_calls();
  engine.driver.refuse(Function::cuMemAllocFromPoolAsync, CUDA_ERROR_OUT_OF_MEMORY);
  const auto second = engine.allocate(50);
  CHECK(engine.driver.calls(Function::cuMemPoolTrimTo).at(0).arguments[0] == former);
  CHECK(engine.driver.count(Function::cuMemPoolTrimTo) == 1);
  CHECK(engine.driver.calls(Function::cuMemAllocFromPoolAsync).at(1).arguments[2] == current);
  CHECK(engine.memory.account(0).used_bytes == 100);

  engine.devices.former_pools().forget(0, reinterpret_cast<CUmemoryPool>(former));
  engine.driver.forget_calls();
  engine.driver.refuse(Function::cuMemAllocFromPoolAsync, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_THROWS_AS(engine.allocate(50), Refusal);
  CHECK(engine.driver.count(Function::cuMemPoolTrimTo) == 1);
  CHECK(engine.driver.calls(Function::cuMemPoolTrimTo).at(0).arguments[0] == current);
}

TEST_CASE("more than a device has is refused without the driver, which would take all that there is first") {
  FakeEngine engine;
  const auto held = engine.allocate(50);
  try {
    engine.allocate(FakeEngine::memory_bytes + 1);
    FAIL("it was not refused");
  } catch (const Refusal& refusal) {
    CHECK(refusal.result == CUDA_ERROR_OUT_OF_MEMORY);
  }
  CHECK(engine.driver.count(Function::cuMemAllocFromPoolAsync) == 1);
  CHECK(engine.memory.account(0).used_bytes == 50);
  CHECK(engine.memory.account(0).peak_bytes == 50);
}

TEST_CASE("page-locked memory is used again when all its users have passed") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  engine.driver.hold(engine.handle(stream));
  BufferRef buffer = engine.memory.allocate_host(4096);
  const std::uint64_t address = buffer->address;
  use(buffer, false, engine.submit(stream));
  buffer.reset();
  BufferRef other = engine.memory.allocate_host(4096);
  CHECK(other->address != address);
  CHECK(engine.slow_calls == 2);  // the driver may wait for a thread that waits for the interpreter
  engine.driver.go_on(engine.handle(stream));
  engine.collect();
  BufferRef again = engine.memory.allocate_host(4096);
  CHECK(again->address == address);
  CHECK(engine.driver.count(Function::cuMemHostAlloc) == 2);
  CHECK(engine.slow_calls == 2);
}

TEST_CASE("who passes by asks about a few streams for all memory that waits, until all of it is given back") {
  FakeEngine engine;
  constexpr std::size_t many = 5, of_each = 100;
  std::vector<StreamIndex> streams;
  std::vector<BufferRef> buffers;
  for (std::size_t i = 0; i < many; ++i) {
    streams.push_back(engine.streams.create(0, 0));
    engine.driver.hold(engine.handle(streams.back()));
    const Tick tick = engine.submit(streams.back());
    for (std::size_t j = 0; j < of_each; ++j) {
      buffers.push_back(j % 2 ? engine.memory.allocate_host(64) : engine.memory.allocate_managed(0, 64));
      use(buffers.back(), true, tick);
    }
  }
  engine.is_submitting = true;
  buffers.clear();
  engine.memory.free_due();
  engine.driver.forget_calls();
  for (std::size_t i = 0; i < 10; ++i) engine.memory.free_due(2);
  CHECK(engine.driver.count(Function::cuStreamQuery) == 20);
  CHECK(engine.memory.has_returned());
  for (const StreamIndex stream : streams) engine.driver.go_on(engine.handle(stream));
  engine.driver.forget_calls();
  for (std::size_t i = 0; i < (many + 1) / 2; ++i) engine.memory.free_due(2);
  CHECK_FALSE(engine.memory.has_returned());
  CHECK(engine.memory.account(0).managed_bytes == 0);
  CHECK(engine.driver.count(Function::cuStreamQuery) == many);
}

TEST_CASE("memory that several streams use waits for each of them") {
  FakeEngine engine;
  BufferRef buffer = engine.memory.allocate_managed(0, 64);
  std::vector<StreamIndex> streams;
  for (int i = 0; i < 3; ++i) {
    streams.push_back(engine.streams.create(0, 0));
    engine.driver.hold(engine.handle(streams.back()));
    use(buffer, false, engine.submit(streams.back()));
  }
  buffer.reset();
  for (const StreamIndex stream : streams) {
    engine.memory.free_due(2);
    CHECK(engine.memory.account(0).managed_bytes == 64);
    engine.driver.go_on(engine.handle(stream));
  }
  engine.memory.free_due(2);
  CHECK(engine.memory.account(0).managed_bytes == 0);
  CHECK_FALSE(engine.memory.has_returned());
}

TEST_CASE("no other thread goes on while calls are held back") {
  FakeEngine engine;
  engine.now.note_held_back();
  BufferRef buffer = engine.memory.allocate_host(4096);
  CHECK(engine.slow_calls == 0);
  engine.now.note_given();
  BufferRef other = engine.memory.allocate_host(4096);
  CHECK(engine.slow_calls == 1);
}

TEST_CASE("page-locked memory that is refused has what nobody uses freed first") {
  FakeEngine engine;
  BufferRef idle = engine.memory.allocate_host(8192);
  idle.reset();
  engine.driver.refuse(Function::cuMemHostAlloc);
  BufferRef buffer = engine.memory.allocate_host(4096);
  CHECK(engine.driver.count(Function::cuMemFreeHost) == 1);
  CHECK(engine.memory.page_locked().held_bytes() == 4096);
  engine.driver.refuse(Function::cuMemHostAlloc, CUDA_ERROR_OUT_OF_MEMORY, 1, 2);
  CHECK(code_of([&] { engine.memory.allocate_host(4096); }) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(engine.memory.page_locked().held_bytes() == 4096);
}

TEST_CASE("memory that was got ahead is a block as all others, and one that nobody takes is kept") {
  FakeEngine engine;
  const auto host = aiocuda::dataflow::host_ordinal;
  CHECK(engine.memory.has_block(MemoryKind::ordinary, host, mib / 4));  // the driver gives that in no time
  for (const auto& [kind, device] : {std::pair{MemoryKind::ordinary, host}, std::pair{MemoryKind::managed, 0},
                                     std::pair{MemoryKind::interprocess, 0}}) {
    CHECK_FALSE(engine.memory.has_block(kind, device, mib));
    BufferRef buffer = engine.memory.allocate_ahead(kind, device, mib);
    CHECK(buffer->kind == kind);
    CHECK_FALSE(engine.memory.has_block(kind, device, mib));
    buffer.reset();
    engine.memory.free_due();
    CHECK(engine.memory.has_block(kind, device, mib));
  }
  engine.driver.refuse(Function::cuMemHostAlloc, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(code_of([&] { engine.memory.allocate_ahead(MemoryKind::ordinary, host, 2 * mib); }) ==
        CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("managed and interprocess memory count where they belong, and come back as blocks") {
  FakeEngine engine;
  BufferRef managed = engine.memory.allocate_managed(0, 100), lent = engine.memory.allocate_interprocess(0, 100);
  CHECK(engine.slow_calls == 2);
  CHECK(engine.memory.account(0).managed_bytes == 100);
  CHECK(engine.memory.account(0).used_bytes == 100);
  managed.reset();
  lent.reset();
  CHECK(engine.memory.account(0).managed_bytes == 0);
  CHECK(engine.memory.account(0).used_bytes == 0);
  CHECK(engine.driver.count(Function::cuMemFree) == 0);
  engine.memory.trim_blocks(0);
  CHECK(engine.driver.count(Function::cuMemFree) == 2);
  CHECK(engine.driver.alive(Function::cuMemAlloc) == 0);
  CHECK(engine.driver.alive(Function::cuMemAllocManaged) == 0);
}

TEST_CASE("blocks that the driver does not take back are still held, and go back another time") {
  FakeEngine engine;
  BufferRef first = engine.memory.allocate_managed(0, 100), second = engine.memory.allocate_managed(0, 100);
  first.reset();
  second.reset();
  const std::uint64_t held = engine.memory.managed(0).held_bytes();
  engine.driver.refuse(Function::cuMemFree, CUDA_ERROR_INVALID_VALUE);
  CHECK(code_of([&] { engine.memory.trim_blocks(0); }) == CUDA_ERROR_INVALID_VALUE);
  CHECK(engine.memory.managed(0).held_bytes() == held / 2);
  CHECK(engine.memory.managed(0).cached_bytes() == held / 2);
  engine.memory.trim_blocks(0);
  CHECK(engine.memory.managed(0).held_bytes() == 0);
  CHECK(engine.driver.alive(Function::cuMemAllocManaged) == 0);
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("interprocess memory that is refused gets what the pool keeps, and what blocks there are") {
  FakeEngine engine;
  engine.driver.refuse(Function::cuMemAlloc, CUDA_ERROR_OUT_OF_MEMORY, 1, 2);
  BufferRef lent = engine.memory.allocate_interprocess(0, 100);
  CHECK(engine.driver.count(Function::cuMemPoolTrimTo) == 1);
  CHECK(engine.driver.count(Function::cuStreamSynchronize) == 1);
  engine.driver.refuse(Function::cuMemAlloc, CUDA_ERROR_OUT_OF_MEMORY, 1, 3);
  CHECK(code_of([&] { engine.memory.allocate_interprocess(0, 100); }) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(engine.memory.account(0).used_bytes == 100);
  CHECK(engine.driver.alive(Function::cuMemAlloc) == 1);
}

TEST_CASE("what is lent to another process is behind its users; a refused call lends nothing that is not so") {
  for (std::size_t nth = 1;; ++nth) {
    FakeEngine engine;
    const StreamIndex stream = engine.streams.create(0, 0);
    BufferRef lent = engine.memory.allocate_interprocess(0, 100);
    engine.driver.hold(engine.handle(stream));
    use(lent, true, engine.submit(stream));
    engine.driver.refuse_nth(nth);
    const CUresult result = code_of([&] { engine.memory.export_bytes(*lent, Span{0, 100}); });
    const bool is_over = !engine.driver.has_refused_nth();
    CHECK((result == CUDA_SUCCESS) == is_over);
    if (!is_over) engine.memory.export_bytes(*lent, Span{0, 100});
    const CUstream ready = engine.handle(*engine.devices.at(0).aside);
    CHECK(engine.driver.waits_for(ready, engine.handle(stream)));
    CHECK(engine.driver.misuses().empty());
    if (is_over) break;
    REQUIRE(nth < 100);
  }
}

TEST_CASE("another process' memory is opened once, and closed when its users have passed") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  BufferRef first = engine.memory.open({}, 2 * mib, 0), second = engine.memory.open({}, 2 * mib, 0);
  CHECK(first.get() == second.get());
  CHECK(engine.driver.count(Function::cuIpcCloseMemHandle) == 1);
  engine.driver.hold(engine.handle(stream));
  use(first, false, engine.submit(stream));
  first.reset();
  second.reset();
  BufferRef again = engine.memory.open({}, 2 * mib, 0);  // while the device still uses it
  CHECK(engine.driver.count(Function::cuIpcCloseMemHandle) == 2);
  again.reset();
  engine.driver.go_on(engine.handle(stream));
  engine.collect();
  CHECK(engine.driver.count(Function::cuIpcCloseMemHandle) == 3);
  CHECK(engine.memory.account(0).used_bytes == 0);
}

TEST_CASE("all memory of others on a device is one buffer, by address") {
  FakeEngine engine(2);
  engine.driver.allocations = {{0x5000, 64}, {0x5040, 64}, {0x9000, 64}};
  engine.driver.refuse(Function::cuPointerGetAttribute, CUDA_ERROR_INVALID_VALUE);
  CHECK(code_of([&] { engine.memory.borrow(0x5000, 64, 0); }) == CUDA_ERROR_INVALID_VALUE);
  const Memory::Borrowed first = engine.memory.borrow(0x5010, 32, 0), second = engine.memory.borrow(0x9000, 64, 0);
  CHECK(first.buffer.get() == second.buffer.get());
  CHECK(first.offset == 0x5010);
  CHECK(second.offset == 0x9000);
  CHECK(engine.memory.borrow(0x5010, 32, 1).buffer.get() != first.buffer.get());
  CHECK(engine.driver.alive(Function::cuMemAllocFromPoolAsync) == 0);
}

TEST_CASE("memory of others may lie in several allocations of the driver's, one behind another") {
  FakeEngine engine;
  engine.driver.allocations = {{0x5000, 64}, {0x5040, 64}, {0x9000, 64}};
  CHECK(engine.memory.borrow(0x5020, 96, 0).allocated_bytes == 96);
  CHECK(engine.memory.borrow(0x5020, 97, 0).allocated_bytes == 96);
  CHECK(engine.memory.borrow(0x5020, 0x8000, 0).allocated_bytes == 96);
  CHECK(code_of([&] { engine.memory.borrow(0x7000, 1, 0); }) == CUDA_ERROR_INVALID_VALUE);
  CHECK(engine.memory.borrow(0, 0, 0).allocated_bytes == 0);
}

TEST_CASE("memory of frameworks is asked about once, until some of it is ours") {
  FakeEngine engine(2);
  engine.driver.allocations = {{0x50000, 0x1000}};
  const Memory::Borrowed first = engine.memory.borrow_again(0x50100, 64, 0);
  CHECK(first.offset == 0x50100);
  engine.driver.forget_calls();
  CHECK(engine.memory.borrow_again(0x50200, 64, 0).buffer.get() == first.buffer.get());
  CHECK(engine.driver.count(Function::cuPointerGetAttribute) == 0);
  CHECK(engine.memory.borrow_again(0x50000, 0x1000, 0).allocated_bytes == 0x1000);  // it begins earlier
  CHECK(engine.driver.count(Function::cuPointerGetAttribute) > 0);
  engine.driver.forget_calls();
  CHECK(engine.memory.borrow_again(0x50f00, 0x100, 0).offset == 0x50f00);
  CHECK(engine.driver.count(Function::cuPointerGetAttribute) == 0);
  CHECK(engine.memory.borrow_again(0x50f00, 0x200, 0).allocated_bytes == 0x100);
  CHECK(engine.memory.borrow_again(0x50100, 64, 1).buffer.get() != first.buffer.get());

  const BufferRef one = engine.allocate(100), another = engine.allocate(100);
  const std::uint64_t next = another->address + (another->address - one->address);
  engine.driver.allocations = {{next, 100}};
  CHECK(engine.memory.borrow_again(next, 64, 0).buffer->is_address_space());
  const BufferRef own = engine.allocate(100);
  REQUIRE(own->address == next);  // they gave it back
  CHECK(engine.memory.borrow_again(next, 64, 0).buffer.get() == own.get());
}

TEST_CASE("a part of an array of ours that others lend is that array's memory") {
  FakeEngine engine;
  BufferRef own = engine.allocate(100);
  const Memory::Borrowed part = engine.memory.borrow(own->address + 40, 20, 0);
  CHECK(part.buffer.get() == own.get());
  CHECK(part.offset == 40);
  CHECK(part.allocated_bytes == 60);
  engine.driver.allocations = {{own->address + 100, 64}};
  CHECK(engine.memory.borrow(own->address + 100, 20, 0).buffer.get() != own.get());
}

TEST_CASE("in the middle of a submission, and where the engine is over, a finalizer calls no driver") {
  FakeEngine engine;
  BufferRef first = engine.allocate(100), second = engine.allocate(100);
  engine.is_submitting = true;
  engine.driver.forget_calls();
  first.reset();
  CHECK(engine.driver.calls().empty());
  engine.is_submitting = false;
  engine.is_ended = true;
  second.reset();
  engine.collect();
  CHECK(engine.driver.calls().empty());
}

TEST_CASE("whichever call is refused, all memory is given back in the end, and no account is wrong") {
  std::size_t most = 0;
  for (std::size_t nth = 1; nth <= most + 1; ++nth) {
    FakeEngine engine;
    const StreamIndex a = engine.streams.create(0, 0), b = engine.streams.create(0, 0);
    engine.driver.forget_calls();
    engine.driver.refuse_nth(nth);
    {
      std::vector<BufferRef> held;
      auto attempt = [](auto&& f) {
        try {
          f();
        } catch (const Refusal&) {
        }
      };
      attempt([&] { held.push_back(engine.allocate(100)); });
      attempt([&] { held.push_back(engine.memory.allocate_host(100)); });
      attempt([&] { held.push_back(engine.memory.allocate_managed(0, 100)); });
      attempt([&] { held.push_back(engine.memory.allocate_interprocess(0, 100)); });
      for (BufferRef& buffer : held)
        for (const StreamIndex stream : {a, b}) use(buffer, false, engine.submit(stream));
    }
    engine.collect();
    engine.collect();
    const Memory::Account& account = engine.memory.account(0);
    CHECK(account.used_bytes == 0);
    CHECK(account.managed_bytes == 0);
    CHECK_FALSE(engine.memory.has_returned());
    for (int i = 0; i < 2; ++i) {
      code_of([&] { engine.memory.trim_blocks(0); });
      engine.memory.page_locked().trim();
    }
    for (const Function maker : {Function::cuMemAllocFromPoolAsync, Function::cuMemHostAlloc,
                                 Function::cuMemAllocManaged, Function::cuMemAlloc})
      CHECK(engine.driver.alive(maker) == 0);
    CHECK(engine.driver.misuses().empty());
    if (engine.driver.has_refused_nth()) most = nth;
  }
  CHECK(most > 4);
}

TEST_CASE("an image is unloaded once, when nobody holds it, its users have passed and the device is idle") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0), other = engine.streams.create(0, 0);
  BufferRef image = engine.images.own(reinterpret_cast<CUlibrary>(0x9000), 0);
  engine.images.note_use(*image, stream);
  engine.driver.hold(engine.handle(stream));
  engine.driver.hold(engine.handle(other));
  engine.submit(stream);
  engine.submit(other);
  image.reset();
  CHECK(engine.images.count() == 1);
  engine.driver.go_on(engine.handle(stream));
  engine.collect();
  CHECK(engine.driver.count(Function::cuLibraryUnload) == 0);  // the device does something else
  engine.images.unload(0);
  CHECK(engine.driver.count(Function::cuLibraryUnload) == 1);
  CHECK(engine.images.count() == 0);
  engine.driver.go_on(engine.handle(other));
  engine.collect();
  CHECK(engine.driver.count(Function::cuLibraryUnload) == 1);
  CHECK(engine.images.dropped_count() == 0);
}

TEST_CASE("where images are loaded on every device, none is unloaded while another device works") {
  FakeEngine engine(2);
  const StreamIndex there = engine.streams.create(1, 0);
  for (const bool loads_eagerly : {false, true}) {
    engine.driver.loads_eagerly = loads_eagerly;
    engine.driver.hold(engine.handle(there));
    engine.submit(there);
    const std::size_t unloaded = engine.driver.count(Function::cuLibraryUnload);
    engine.images.own(reinterpret_cast<CUlibrary>(0x9000), 0).reset();
    engine.collect();
    CHECK(engine.driver.count(Function::cuLibraryUnload) == unloaded + (loads_eagerly ? 0 : 1));
    engine.driver.go_on(engine.handle(there));
    engine.collect();
    CHECK(engine.driver.count(Function::cuLibraryUnload) == unloaded + 1);
  }
}

TEST_CASE("an image whose user still runs is not unloaded, whoever asks") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  BufferRef image = engine.images.own(reinterpret_cast<CUlibrary>(0x9000), 0);
  engine.images.note_use(*image, stream);
  engine.driver.hold(engine.handle(stream));
  engine.submit(stream);
  image.reset();
  engine.images.unload(0);
  CHECK(engine.driver.count(Function::cuLibraryUnload) == 0);
  engine.driver.break_stream(engine.handle(stream));  // which runs nothing any more
  engine.images.unload(0);
  CHECK(engine.driver.count(Function::cuLibraryUnload) == 1);
}

TEST_CASE("a stream is asked about once more than it has passed, however many objects wait for it") {
  Retained<std::shared_ptr<int>> retained;
  std::map<StreamIndex, std::uint64_t> passed{{3, 0}, {7, 0}};
  int questions = 0;
  const auto drop = [&] {
    questions = 0;
    retained.drop_ended([&](Tick tick) { return ++questions, tick.count <= passed[tick.stream]; });
  };
  std::vector<std::weak_ptr<int>> kept;
  for (const std::uint64_t count : {4, 1, 3, 2, 5})
    for (const StreamIndex stream : {3, 7}) {
      auto object = std::make_shared<int>(0);
      kept.push_back(object);
      retained.keep({stream, count}, std::move(object));
    }
  drop();
  CHECK(questions == 2);
  CHECK(retained.size() == 10);
  passed[7] = 3;
  drop();
  CHECK(questions == 1 + 4);
  for (std::size_t i = 0; i < kept.size(); ++i)  // those of the second stream that were kept until 1, 3 and 2
    CHECK(kept[i].expired() == (i == 3 || i == 5 || i == 7));
  retained.keep({7, 4}, std::make_shared<int>(0));
  passed[3] = passed[7] = 5;
  drop();
  CHECK(questions == 5 + 3);
  CHECK(retained.size() == 0);
  drop();
  CHECK(questions == 0);
}

TEST_CASE("who passes by asks about a few streams in turn, until all have been asked about") {
  Retained<std::shared_ptr<int>> retained;
  std::vector<StreamIndex> asked;
  bool have_passed = false;
  const auto pass_by = [&] {
    asked.clear();
    retained.drop_ended([&](Tick tick) { return asked.push_back(tick.stream), have_passed; }, 2);
    return asked;
  };
  for (StreamIndex stream = 0; stream < 5; ++stream) retained.keep({stream, 1}, std::make_shared<int>(0));
  using Streams = std::vector<StreamIndex>;
  CHECK(pass_by() == Streams{0, 1});
  CHECK(pass_by() == Streams{2, 3});
  CHECK(pass_by() == Streams{4, 0});
  have_passed = true;
  CHECK(pass_by() == Streams{1, 2});
  CHECK(pass_by() == Streams{3, 4});
  CHECK(retained.size() == 1);
  CHECK(pass_by() == Streams{0});
  CHECK(retained.size() == 0);
}

TEST_CASE("an object is kept until its tick has ended, and may be dropped into what drops it") {
  Retained<std::shared_ptr<void>> retained;
  bool is_let_go = false;
  retained.keep({0, 2}, nullptr);
  retained.keep({0, 1}, std::shared_ptr<void>(nullptr, [&](void*) {
                  is_let_go = true;
                  retained.keep({0, 3}, nullptr);
                }));
  retained.drop_ended([](Tick tick) { return tick.count < 1; });
  CHECK_FALSE(is_let_go);
  retained.drop_ended([](Tick tick) { return tick.count <= 1; });
  CHECK(is_let_go);
  CHECK(retained.size() == 2);
}
