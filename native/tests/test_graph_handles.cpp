// Handles of graphs, and calls that are held back, over a driver that counts and refuses.
#include <doctest/doctest.h>

#include "driver/graph_handles.hpp"
#include "fake_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
using aiocuda::dataflow::BufferRef;

namespace {

CUgraph graph_of(FakeEngine& engine) {
  CUgraph graph = nullptr;
  check(engine.table.cuGraphCreate(&graph, 0), "cuGraphCreate");
  return graph;
}
CUgraphExec executable_of(FakeEngine& engine, CUgraph graph) {
  CUgraphExec executable = nullptr;
  check(engine.table.cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
  return executable;
}

}  // namespace

TEST_CASE("an executable gives its places back on each device when it is destroyed, once") {
  FakeEngine engine(2);
  const GraphHandle graph(graph_of(engine), {&engine.devices});
  ExecutableStore &first = engine.devices.at(0).executables, &second = engine.devices.at(1).executables;
  first.take(30);
  second.take(20);
  ExecutableHandle executable(executable_of(engine, graph.get()), {&engine.devices, {30, 20}});
  CHECK_FALSE(first.has(3));
  ExecutableHandle moved = std::move(executable);
  executable.reset();
  CHECK(engine.driver.count(Function::cuGraphExecDestroy) == 0);
  moved.reset();
  CHECK(engine.driver.count(Function::cuGraphExecDestroy) == 1);
  CHECK(engine.driver.alive(Function::cuGraphInstantiateWithFlags) == 0);
  CHECK(first.has(32));
  CHECK(second.has(32));
  // Another library's capture is not disturbed.
  CHECK(engine.driver.count(Function::cuThreadExchangeStreamCaptureMode) % 2 == 0);
  CHECK(engine.driver.misuses().empty());
}

TEST_CASE("an executable's end opens no device, and calls nothing where the engine is over") {
  FakeEngine engine;
  {
    const GraphHandle graph(graph_of(engine), {&engine.devices});
    const ExecutableHandle executable(executable_of(engine, graph.get()), {&engine.devices, {1, 0, 0}});
    engine.devices.at(0).executables.take(1);
  }
  CHECK_FALSE(engine.devices.is_open(1));
  CHECK(engine.driver.alive(Function::cuGraphCreate) == 0);
  GraphHandle graph(graph_of(engine), {&engine.devices});
  ExecutableHandle executable(executable_of(engine, graph.get()), {&engine.devices, {1}});
  engine.fork();
  engine.driver.forget_calls();
  executable.reset();
  graph.reset();
  CHECK(engine.driver.calls().empty());
}

TEST_CASE("while calls are held back, nothing is freed, destroyed or unloaded") {
  FakeEngine engine;
  const StreamIndex stream = engine.streams.create(0, 0);
  BufferRef device = engine.allocate(100), host = engine.memory.allocate_host(4096),
            block = engine.memory.allocate_managed(0, 100);
  BufferRef image = engine.images.own(reinterpret_cast<CUlibrary>(0x9000), 0);
  engine.now.note_held_back();
  engine.driver.forget_calls();
  device.reset();
  host.reset();
  block.reset();
  image.reset();
  engine.streams.close(stream);
  engine.memory.free_due();
  engine.streams.destroy_closed();
  engine.images.unload_idle();
  engine.images.unload(0);
  CHECK(engine.driver.calls().empty());
  CHECK(engine.memory.account(0).used_bytes == 100);
  engine.now.note_given();
  engine.collect();
  CHECK(engine.driver.count(Function::cuMemFreeAsync) == 1);
  CHECK(engine.driver.count(Function::cuStreamDestroy) == 1);
  CHECK(engine.driver.count(Function::cuLibraryUnload) == 1);
  CHECK(engine.memory.account(0).used_bytes == 0);
}

TEST_CASE("page-locked memory that is refused has what is held back made first, and then what is due freed") {
  FakeEngine engine;
  BufferRef device = engine.allocate(100), idle = engine.memory.allocate_host(8192);
  engine.is_submitting = true;
  engine.now.note_held_back();
  device.reset();
  idle.reset();
  engine.driver.forget_calls();
  engine.driver.refuse(Function::cuMemHostAlloc);
  int told = 0;
  BufferRef buffer = engine.memory.allocate_host(4096, [&] {
    ++told;
    CHECK(engine.driver.count(Function::cuMemFreeAsync) == 0);
    engine.now.note_given();
  });
  CHECK(told == 1);
  CHECK(engine.driver.count(Function::cuMemFreeAsync) == 1);
  CHECK(engine.driver.count(Function::cuMemFreeHost) == 1);
}

TEST_CASE("page-locked memory that is refused while calls are made frees nothing that they use") {
  FakeEngine engine;
  BufferRef device = engine.allocate(100);
  engine.is_submitting = true;
  engine.now.note_held_back();
  device.reset();
  engine.driver.refuse(Function::cuMemHostAlloc, CUDA_ERROR_OUT_OF_MEMORY, 1, 2);
  try {
    engine.memory.allocate_host(4096);
    FAIL("it was not refused");
  } catch (const Refusal& refusal) {
    CHECK(refusal.asked_host_bytes == 4096);
  }
  CHECK(engine.driver.count(Function::cuMemFreeAsync) == 0);
}
