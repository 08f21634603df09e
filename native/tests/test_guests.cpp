// Memory that other libraries take from the memory pools, over a driver that counts and refuses.
#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <thread>

#include "fake_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;

namespace {

CUdeviceptr allocate(FakeEngine& engine, std::uint64_t size_bytes, CUstream stream) {
  CUdeviceptr address = 0;
  REQUIRE(engine.devices.guests().allocate(0, size_bytes, stream, address) == CUDA_SUCCESS);
  return address;
}
std::uint64_t used_bytes(FakeEngine& engine) { return engine.devices.guests().account(0).used_bytes(); }

}  // namespace

TEST_CASE("a guest is one allocation from the memory pool and one free, on the stream that its owner names") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.streams.create(0, 0));
  engine.driver.forget_calls();
  const CUdeviceptr address = allocate(engine, 100, stream);
  CHECK(used_bytes(engine) == 100);
  engine.devices.guests().free(address);
  engine.devices.guests().free(address);  // nobody's any more
  CHECK(used_bytes(engine) == 0);
  const auto allocated = engine.driver.calls(Function::cuMemAllocFromPoolAsync);
  const auto freed = engine.driver.calls(Function::cuMemFreeAsync);
  REQUIRE(allocated.size() == 1);
  REQUIRE(freed.size() == 1);
  CHECK(allocated[0].arguments[2] == 0x200);
  CHECK(freed[0].arguments == std::vector<std::uint64_t>{address, reinterpret_cast<std::uint64_t>(stream)});
  CHECK(engine.memory.account(0).used_bytes == 0);
}

TEST_CASE("a thread has the context that it had before") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.streams.create(0, 0));
  std::thread([&] {
    const auto of_theirs = reinterpret_cast<CUcontext>(0x999);
    engine.table.cuCtxSetCurrent(of_theirs);
    engine.devices.guests().free(allocate(engine, 100, stream));
    CHECK(engine.driver.context() == of_theirs);
  }).join();
}

TEST_CASE("a guest that other streams use is freed aside, behind them all, once") {
  FakeEngine engine;
  const CUstream own = engine.handle(engine.streams.create(0, 0)), other = engine.handle(engine.streams.create(0, 0));
  for (int round = 0; round < 2; ++round) {
    const CUdeviceptr address = allocate(engine, 100, own);
    for (const CUstream user : {own, other, other}) engine.devices.guests().note_use(address, user);
    engine.driver.forget_calls();
    engine.devices.guests().free(address);
    const auto freed = engine.driver.calls(Function::cuMemFreeAsync);
    REQUIRE(freed.size() == 1);
    const auto aside = reinterpret_cast<CUstream>(freed[0].arguments[1]);
    CHECK(aside != own);
    CHECK(aside != other);
    CHECK(engine.driver.waits_for(aside, own));
    CHECK(engine.driver.waits_for(aside, other));
    CHECK(engine.driver.count(Function::cuStreamWaitEvent) == 2);
    CHECK(engine.driver.count(Function::cuStreamCreateWithPriority) == (round == 0 ? 1 : 0));
    CHECK(engine.driver.calls().back().function == Function::cuEventDestroy);
  }
  CHECK(used_bytes(engine) == 0);
}

TEST_CASE("an owner may free a guest behind one stream alone, and the others are left in peace") {
  FakeEngine engine;
  const auto own = reinterpret_cast<CUstream>(0x10), other = reinterpret_cast<CUstream>(0x20),
             last = reinterpret_cast<CUstream>(0x30);
  const CUdeviceptr address = allocate(engine, 100, own);
  engine.devices.guests().note_use(address, other);
  engine.driver.forget_calls();
  engine.driver.capture(last);
  engine.devices.guests().free_behind(address, last);
  CHECK(used_bytes(engine) == 100);                   // it waits for the end of the capture
  engine.devices.guests().free_behind(address, own);  // nobody's any more
  engine.driver.capture(last, false);
  const CUdeviceptr later = allocate(engine, 1, last);  // what waited is freed
  CHECK(used_bytes(engine) == 1);
  const auto freed = engine.driver.calls(Function::cuMemFreeAsync);
  REQUIRE(freed.size() == 1);
  CHECK(freed[0].arguments == std::vector<std::uint64_t>{address, reinterpret_cast<std::uint64_t>(last)});
  for (const auto& call : engine.driver.calls())
    for (const CUstream each : {own, other}) CHECK(call.arguments[0] != reinterpret_cast<std::uint64_t>(each));
  engine.devices.guests().free_behind(later, last);
  CHECK(used_bytes(engine) == 0);
}

TEST_CASE("a guest whose free was refused is freed with the next") {
  for (const Function refused :
       {Function::cuMemFreeAsync, Function::cuStreamIsCapturing, Function::cuEventCreate, Function::cuEventRecord,
        Function::cuStreamWaitEvent, Function::cuStreamCreateWithPriority}) {
    CAPTURE(name_of(refused));
    FakeEngine engine;
    const CUstream own = engine.handle(engine.streams.create(0, 0)), other = engine.handle(engine.streams.create(0, 0));
    const CUdeviceptr address = allocate(engine, 100, own);
    engine.devices.guests().note_use(address, other);
    engine.driver.refuse(refused);
    engine.devices.guests().free(address);
    CHECK(used_bytes(engine) == 100);
    CHECK(engine.driver.is_allocated(address));
    engine.devices.guests().free(0);
    CHECK(used_bytes(engine) == 0);
    CHECK_FALSE(engine.driver.is_allocated(address));
    CHECK(engine.driver.misuses().empty());
  }
}

TEST_CASE("in a capture nothing is allocated, and what is freed waits for its end") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.streams.create(0, 0));
  const CUdeviceptr address = allocate(engine, 100, stream);
  engine.driver.capture(stream);
  engine.driver.forget_calls();
  CUdeviceptr none = 0;
  CHECK(engine.devices.guests().allocate(0, 1, stream, none) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  engine.devices.guests().free(address);
  CHECK(engine.driver.count(Function::cuMemAllocFromPoolAsync) == 0);
  CHECK(engine.driver.count(Function::cuMemFreeAsync) == 0);
  CHECK(used_bytes(engine) == 100);
  engine.driver.capture(stream, false);
  const CUdeviceptr next = allocate(engine, 1, stream);
  CHECK(used_bytes(engine) == 1);
  engine.devices.guests().free(next);
}

TEST_CASE("memory on a device that is lost went with it") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.streams.create(0, 0));
  const CUdeviceptr address = allocate(engine, 100, stream);
  engine.driver.refuse(Function::cuMemFreeAsync, CUDA_ERROR_ILLEGAL_ADDRESS);
  engine.devices.guests().free(address);
  CHECK(used_bytes(engine) == 0);
}

TEST_CASE("a refused guest leaves nothing, and the memory pool keeps nothing from others") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.streams.create(0, 0));
  engine.driver.forget_calls();
  engine.driver.refuse(Function::cuMemAllocFromPoolAsync);
  CUdeviceptr none = 0;
  CHECK(engine.devices.guests().allocate(0, 100, stream, none) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(engine.driver.count(Function::cuMemPoolTrimTo) == 1);
  CHECK(used_bytes(engine) == 0);
  CHECK(engine.devices.guests().allocate(1, 100, stream, none) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(engine.devices.guests().allocate(-1, 100, stream, none) == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("a guest that found no memory has what former memory pools do not use") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.streams.create(0, 0));
  engine.devices.set_pool(0, reinterpret_cast<CUmemoryPool>(0x300));
  engine.driver.forget_calls();
  engine.driver.refuse(Function::cuMemAllocFromPoolAsync, CUDA_ERROR_OUT_OF_MEMORY);
  const CUdeviceptr address = allocate(engine, 100, stream);
  CHECK(engine.driver.calls(Function::cuMemPoolTrimTo).at(0).arguments[0] != 0x300);
  CHECK(engine.driver.count(Function::cuMemPoolTrimTo) == 1);
  CHECK(engine.driver.calls(Function::cuMemAllocFromPoolAsync).at(1).arguments[2] == 0x300);
  engine.devices.guests().free(address);
}

TEST_CASE("more than a device has is refused without the driver") {
  FakeEngine engine;
  engine.driver.forget_calls();
  CUdeviceptr address = 0;
  CHECK(engine.devices.guests().allocate(0, FakeEngine::memory_bytes + 1, nullptr, address) ==
        CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(engine.driver.count(Function::cuMemAllocFromPoolAsync) == 0);
  CHECK(used_bytes(engine) == 0);
}

TEST_CASE("guests come from the memory pool of the day") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.streams.create(0, 0));
  engine.devices.set_pool(0, reinterpret_cast<CUmemoryPool>(0x300));
  engine.driver.forget_calls();
  engine.devices.guests().free(allocate(engine, 100, stream));
  CHECK(engine.driver.calls(Function::cuMemAllocFromPoolAsync).at(0).arguments[2] == 0x300);
}

TEST_CASE("a memory pool is not exchanged while somebody allocates from it") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.streams.create(0, 0));
  std::future<void> exchange;
  engine.driver.set_before_call([&](Function function) {
    if (function != Function::cuMemAllocFromPoolAsync) return;
    exchange = std::async(std::launch::async,
                          [&] { engine.devices.guests().set_pool(0, reinterpret_cast<CUmemoryPool>(0x300)); });
    CHECK(exchange.wait_for(std::chrono::milliseconds(10)) == std::future_status::timeout);
  });
  const CUdeviceptr address = allocate(engine, 100, stream);
  exchange.get();
  engine.driver.set_before_call([](Function) {});
  engine.devices.guests().free(address);
}

TEST_CASE("limits count guests, and who waits in line is called when one is freed") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.streams.create(0, 0));
  const CUdeviceptr address = allocate(engine, 100, stream);
  CHECK(engine.memory.has_room(0, 150, 50));
  CHECK_FALSE(engine.memory.has_room(0, 150, 51));
  const auto line = engine.room.memory_line(0);
  CHECK(engine.room.level(line).held() == 100);
  const auto turn = std::make_shared<aiocuda::completion::Turn>();
  engine.lines.stand(turn, line, engine.room.level(line), 150, {.thread = 1}, 100);
  engine.room.keep_moving(line);
  CHECK_FALSE(turn->called()->has_ended());
  std::thread([&] { engine.devices.guests().free(address); }).join();
  CHECK(turn->called()->has_ended());
  engine.lines.end(*turn, engine.room.level(line));
}

TEST_CASE("at the end, and in a fork, no driver is called") {
  for (const bool is_fork : {true, false}) {
    FakeEngine engine;
    const CUstream stream = engine.handle(engine.streams.create(0, 0));
    const CUdeviceptr address = allocate(engine, 100, stream);
    if (is_fork)
      engine.fork();
    else
      engine.devices.guests().end();
    engine.driver.forget_calls();
    CUdeviceptr none = 0;
    engine.devices.guests().note_use(address, nullptr);
    engine.devices.guests().free(address);
    CHECK(engine.devices.guests().allocate(0, 1, stream, none) == CUDA_ERROR_DEINITIALIZED);
    CHECK(engine.driver.calls().empty());
  }
}

TEST_CASE("threads allocate and free at once, while the memory pool is exchanged") {
  FakeEngine engine;
  const CUstream stream = engine.handle(engine.streams.create(0, 0)),
                 other = engine.handle(engine.streams.create(0, 0));
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 100; ++n) {
        CUdeviceptr address = 0;
        if (engine.devices.guests().allocate(0, 100, stream, address) != CUDA_SUCCESS) continue;
        if (n % 2) engine.devices.guests().note_use(address, other);
        engine.devices.guests().free(address);
      }
    });
  for (std::uintptr_t n = 0; n < 50; ++n) engine.devices.set_pool(0, reinterpret_cast<CUmemoryPool>(0x400 + n));
  for (std::thread& thread : threads) thread.join();
  CHECK(used_bytes(engine) == 0);
  CHECK(engine.driver.alive(Function::cuMemAllocFromPoolAsync) == 0);
  CHECK(engine.driver.misuses().empty());
}
