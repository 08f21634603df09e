// Blocks that are not kept go back to the driver when it is at rest, on a thread of their own, over a driver that takes
// as long as it is told.
#include <doctest/doctest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "fake_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
using aiocuda::dataflow::BufferRef;

namespace {

constexpr std::uint64_t mib = 1 << 20;

// The driver takes nothing back while one lives that has not been opened.
class Gate {
 public:
  Gate(FakeEngine& engine, Function function) : engine_(engine) {
    engine.driver.set_before_call([this, function, &engine](Function called) {
      if (called != function) return;
      std::unique_lock lock(mutex_);
      caller_ = std::this_thread::get_id();
      context_ = engine.driver.context();
      opened_.wait(lock, [this] { return is_open_; });
    });
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    open();
    engine_.memory.shut_down();
    engine_.driver.set_before_call([](Function) {});
  }
  void open() {
    const std::scoped_lock lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  std::thread::id caller() {
    const std::scoped_lock lock(mutex_);
    return caller_;
  }
  CUcontext context() {
    const std::scoped_lock lock(mutex_);
    return context_;
  }

 private:
  FakeEngine& engine_;
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
  std::thread::id caller_;
  CUcontext context_ = nullptr;
};

}  // namespace

TEST_CASE("who drops page-locked memory that is not kept does not wait for the driver to take it back") {
  FakeEngine engine;
  const std::uint64_t kept = engine.memory.page_locked().kind().most_kept_bytes;
  Gate gate(engine, Function::cuMemFreeHost);
  BufferRef large = engine.memory.allocate_host(kept + mib), small = engine.memory.allocate_host(2 * mib);
  large.reset();  // would not come back if this thread asked the driver
  small.reset();
  CHECK(engine.memory.is_freeing());
  CHECK(engine.memory.page_locked().held_bytes() == 2 * mib);
  CHECK(engine.memory.page_locked().cached_bytes() == 2 * mib);
  CHECK(engine.driver.alive(Function::cuMemHostAlloc) == 2);
  gate.open();
  engine.memory.await_freeing();
  CHECK_FALSE(engine.memory.is_freeing());
  CHECK(engine.driver.alive(Function::cuMemHostAlloc) == 1);
  CHECK(gate.caller() != std::this_thread::get_id());
  CHECK(gate.context() == engine.devices.at(0).context);
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("while a device is at work nothing goes back, and what is not kept is used again") {
  FakeEngine engine(2);
  PageLocked& kind = engine.memory.page_locked().kind();
  const std::uint64_t kept = kind.most_kept_bytes;
  const StreamIndex busy = engine.devices.at(1).default_stream;
  engine.driver.hold(engine.handle(busy));
  engine.submit(busy);
  BufferRef large = engine.memory.allocate_host(kept + mib);
  const std::uint64_t address = large->address;
  large.reset();
  CHECK_FALSE(engine.memory.is_freeing());
  CHECK(engine.memory.has_excess());
  large = engine.memory.allocate_host(kept + mib);
  CHECK(large->address == address);
  large.reset();
  engine.collect();
  CHECK(engine.driver.count(Function::cuMemFreeHost) == 0);
  engine.driver.go_on(engine.handle(busy));
  engine.collect();
  engine.memory.await_freeing();
  CHECK(engine.driver.count(Function::cuMemFreeHost) == 1);
  CHECK_FALSE(engine.memory.has_excess());
  CHECK(engine.memory.page_locked().held_bytes() == 0);
}

TEST_CASE("somebody's memory is unlocked when all devices are at rest, and kept until then") {
  FakeEngine engine(2);
  const StreamIndex busy = engine.devices.at(1).default_stream;
  engine.driver.hold(engine.handle(busy));
  engine.submit(busy);
  auto keeper = std::make_shared<int>();
  const std::weak_ptr<int> seen = keeper;
  engine.memory.unlock_at_rest(0x1000, std::move(keeper));
  engine.collect();
  CHECK(engine.driver.count(Function::cuMemHostUnregister) == 0);
  CHECK_FALSE(engine.memory.is_freeing());
  Gate gate(engine, Function::cuMemHostUnregister);
  engine.driver.go_on(engine.handle(busy));
  engine.collect();
  CHECK(engine.memory.is_freeing());
  engine.collect();
  CHECK_FALSE(seen.expired());
  gate.open();
  engine.memory.await_freeing();
  engine.collect();
  CHECK(seen.expired());
  CHECK(engine.driver.count(Function::cuMemHostUnregister) == 1);
  CHECK_FALSE(engine.memory.has_excess());
}

TEST_CASE("a device whose context is broken is at rest") {
  FakeEngine engine;
  const std::uint64_t kept = engine.memory.page_locked().kind().most_kept_bytes;
  BufferRef large = engine.memory.allocate_host(kept + mib);
  engine.driver.hold(engine.handle(engine.devices.at(0).default_stream));
  engine.submit(engine.devices.at(0).default_stream);
  engine.driver.refuse(Function::cuStreamQuery, CUDA_ERROR_ILLEGAL_ADDRESS);
  large.reset();
  engine.memory.await_freeing();
  CHECK(engine.driver.count(Function::cuMemFreeHost) == 1);
}

TEST_CASE("one block goes back at a time, the largest first, until no more is there than is kept") {
  FakeEngine engine;
  BlockPool<PageLocked>& pool = engine.memory.page_locked();
  const std::uint64_t kept = pool.kind().most_kept_bytes;
  engine.driver.hold(engine.handle(engine.devices.at(0).default_stream));
  engine.submit(engine.devices.at(0).default_stream);
  auto block = [&](std::uint64_t size_bytes) { return PageLocked::size_of(size_bytes); };
  std::vector<BufferRef> blocks;
  for (const std::uint64_t more : {mib, 3 * mib, 2 * mib}) blocks.push_back(engine.memory.allocate_host(kept + more));
  blocks.push_back(engine.memory.allocate_host(kept / 2));
  blocks.clear();
  engine.driver.go_on(engine.handle(engine.devices.at(0).default_stream));
  std::vector<std::uint64_t> held;
  while (engine.memory.has_excess()) {
    engine.collect();
    engine.memory.await_freeing();
    held.push_back(pool.held_bytes());
  }
  const std::uint64_t least = block(kept / 2), two = least + block(kept + mib), three = two + block(kept + 2 * mib);
  CHECK(held == std::vector{three, two, least});
  CHECK(engine.driver.alive(Function::cuMemHostAlloc) == 1);
}

TEST_CASE("page-locked memory that is refused is asked for again when what was handed over has gone back") {
  FakeEngine engine;
  const std::uint64_t kept = engine.memory.page_locked().kind().most_kept_bytes;
  Gate gate(engine, Function::cuMemFreeHost);
  engine.memory.allocate_host(kept + mib).reset();
  engine.driver.refuse(Function::cuMemHostAlloc);
  std::thread opener([&] {
    while (gate.caller() == std::thread::id()) std::this_thread::yield();
    gate.open();
  });
  BufferRef buffer = engine.memory.allocate_host(4096);
  opener.join();
  CHECK(engine.driver.alive(Function::cuMemHostAlloc) == 1);
  CHECK(engine.driver.calls().back().function == Function::cuMemHostAlloc);
}

TEST_CASE("a block of managed memory whose advice cannot be undone goes back in the same way") {
  FakeEngine engine;
  BufferRef managed = engine.memory.allocate_managed(0, 100);
  engine.memory.advise(*managed, {0, 100}, CU_MEM_ADVISE_SET_READ_MOSTLY, location_of(0));
  engine.driver.refuse(Function::cuMemAdvise, CUDA_ERROR_INVALID_DEVICE);
  Gate gate(engine, Function::cuMemFree);
  managed.reset();
  CHECK(engine.memory.managed(0).held_bytes() == 0);
  CHECK(engine.memory.is_freeing());
  gate.open();
  engine.memory.shut_down();
  CHECK(engine.driver.alive(Function::cuMemAllocManaged) == 0);
  CHECK(gate.caller() != std::this_thread::get_id());
}
