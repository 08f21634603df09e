// Blocks that are not kept go back to the driver on a thread of their own, over a driver that takes as long as it is
// told.
#include <doctest/doctest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

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
  CHECK(engine.memory.page_locked().held_bytes() == 2 * mib);
  CHECK(engine.memory.page_locked().cached_bytes() == 2 * mib);
  CHECK(engine.driver.alive(Function::cuMemHostAlloc) == 2);
  gate.open();
  engine.memory.shut_down();
  CHECK(engine.driver.alive(Function::cuMemHostAlloc) == 1);
  CHECK(gate.caller() != std::this_thread::get_id());
  CHECK(gate.context() == engine.devices.at(0).context);
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("a thread that has ended is followed by another") {
  FakeEngine engine;
  const std::uint64_t kept = engine.memory.page_locked().kind().most_kept_bytes;
  for (int i = 0; i < 3; ++i) {
    engine.memory.allocate_host(kept + mib).reset();
    engine.memory.allocate_host(kept + 2 * mib).reset();
    engine.memory.shut_down();
    CHECK(engine.driver.alive(Function::cuMemHostAlloc) == 0);
  }
  CHECK(engine.driver.count(Function::cuMemFreeHost) == 6);
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
  gate.open();
  engine.memory.shut_down();
  CHECK(engine.driver.alive(Function::cuMemAllocManaged) == 0);
  CHECK(gate.caller() != std::this_thread::get_id());
}
