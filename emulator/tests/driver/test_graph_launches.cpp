// What a launch of an executable graph does: every node once, in an order that agrees with the edges.
#include "test_graph_support.hpp"

using namespace graph_test;

TEST_CASE("a launch runs every node after those it depends on") {
  const Device device;
  const Module module;
  const Log one, other, final;
  const auto address_of = [](const Log& log) { return reinterpret_cast<CUdeviceptr>(log.data()); };
  const CUfunction append = module.function("append");
  const Graph graph;
  // A diamond, whose nodes are added in an order that is not the one in which they must run.
  const CUgraphNode last = graph.copy({}, address_of(final), address_of(one), 16);
  const CUgraphNode left = graph.kernel({}, append, 1, one.data(), 2);
  const CUgraphNode right = graph.kernel({}, append, 1, other.data(), 3);
  const CUgraphNode first = graph.kernel({}, append, 1, one.data(), 1);
  const CUgraphNode copied = graph.copy({first}, address_of(other), address_of(one), 16);
  const std::array from{copied, copied, left, right}, to{left, right, last, last};
  REQUIRE_OK(cuGraphAddDependencies(graph, from.data(), to.data(), nullptr, from.size()));
  const Executable executable(graph);
  const Stream stream;
  executable.run(stream);
  CHECK(one.entries() == std::vector{1, 2});
  CHECK(other.entries() == std::vector{1, 3});
  CHECK(final.entries() == std::vector{1, 2});
}

TEST_CASE("kernels, copies, memsets, host functions, empty nodes and child graphs run in one graph") {
  const Device device;
  const Module module;
  const Memory one(4 * sizeof(int)), other(4 * sizeof(int));
  std::array<int, 4> seen{};
  const Graph child;
  const CUgraphNode fill = child.fill({}, one, 5, 4);
  child.kernel({fill}, module.function("add"), 4, static_cast<CUdeviceptr>(one), 2);
  const Graph graph;
  const CUgraphNode inner = graph.child({}, child);
  const CUgraphNode copied = graph.copy({inner}, other, one, sizeof seen);
  const CUgraphNode nothing = graph.empty({copied});
  const CUgraphNode read = graph.copy({nothing}, reinterpret_cast<CUdeviceptr>(seen.data()), other, sizeof seen);
  bool was_called = false;
  graph.host({read}, [](void* flag) { *static_cast<bool*>(flag) = true; }, &was_called);
  const Executable executable(graph);
  const Stream stream;
  executable.run(stream);
  CHECK(seen == std::array{7, 7, 7, 7});
  CHECK(was_called);
  executable.run(stream);
  CHECK(seen == std::array{7, 7, 7, 7});
}

TEST_CASE("launches of one executable come one after the other, whatever streams they are in") {
  const Device device;
  const Module module;
  const Log log;
  const CUfunction append = module.function("append");
  const Graph graph;
  const CUgraphNode first = graph.kernel({}, append, 1, log.data(), 1);
  graph.kernel({first}, append, 1, log.data(), 2);
  const Executable executable(graph);
  const Stream one, other;
  {
    Gate gate(one);
    executable.launch(one);
    executable.launch(other);
    executable.launch(one);
    CHECK(cuStreamQuery(other) == CUDA_ERROR_NOT_READY);
    CHECK(log.entries().empty());
  }
  REQUIRE_OK(cuStreamSynchronize(one));
  REQUIRE_OK(cuStreamSynchronize(other));
  CHECK(log.entries() == std::vector{1, 2, 1, 2, 1, 2});
}

TEST_CASE("no launch of an executable begins before the last one has ended") {
  const Device device;
  struct Inside {
    std::atomic<int> now{0};
    std::atomic<bool> met{false};
  } inside;
  const Graph graph;
  graph.host(
      {},
      [](void* data) {
        auto& [now, met] = *static_cast<Inside*>(data);
        if (now.fetch_add(1) != 0) met = true;
        for (int each = 0; each < 20; ++each) std::this_thread::yield();
        now.fetch_sub(1);
      },
      &inside);
  const Executable executable(graph);
  const Stream one, other;
  for (int each = 0; each < 300; ++each) {
    executable.launch(one);
    executable.launch(other);
  }
  REQUIRE_OK(cuStreamSynchronize(one));
  REQUIRE_OK(cuStreamSynchronize(other));
  CHECK_FALSE(inside.met);
}

TEST_CASE("a launch that copies within host memory returns when it has ended") {
  const Device device;
  const SharedInts<2> shared;
  shared.set(0, 7);
  const Memory memory(sizeof(int));
  const Graph within, through;
  within.copy({}, shared.address(1), shared.address(0), sizeof(int));
  const CUgraphNode up = through.copy({}, memory, shared.address(0), sizeof(int));
  through.copy({up}, shared.address(1), memory, sizeof(int));
  const Executable keeps_the_caller(within), does_not(through);
  const Stream stream;
  {
    Gate gate(stream);
    does_not.launch(stream);
    CHECK(shared.get(1) == 0);
    std::thread opener([&gate] { gate.open(); });
    keeps_the_caller.launch(stream);
    CHECK(shared.get(1) == 7);
    opener.join();
  }
  CHECK_OK(cuStreamQuery(stream));
}

TEST_CASE("two executables of one graph run side by side") {
  const Device device;
  const Module module;
  const SharedInts<3> shared;
  const Graph graph;
  graph.kernel({}, module.function("wait_for"), 1, shared.data(), shared.data() + 1);
  const Executable one(graph), other(graph);
  const Stream first, second;
  one.launch(first);
  shared.wait_until_set(1);
  shared.set(1, 0);
  other.launch(second);
  shared.wait_until_set(1);  // while the first still runs
  shared.set(0, 1);
  REQUIRE_OK(cuStreamSynchronize(first));
  REQUIRE_OK(cuStreamSynchronize(second));
}

TEST_CASE("a launch is behind what was in its stream, and before what comes later") {
  const Device device;
  const Module module;
  const Log log;
  const CUfunction append = module.function("append");
  const Graph graph;
  graph.kernel({}, append, 1, log.data(), 2);
  const Executable executable(graph);
  const Stream stream;
  REQUIRE_OK(driver_test::launch(append, stream, 1, log.data(), 1));
  executable.launch(stream);
  REQUIRE_OK(driver_test::launch(append, stream, 1, log.data(), 3));
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{1, 2, 3});
}

TEST_CASE("an executable and its graph may be destroyed while a launch is in flight") {
  const Device device;
  const Module module;
  const SharedInts<1> out;
  const Stream stream;
  {
    Graph graph;
    graph.kernel({}, module.function("add"), 1, out.data(), 5);
    Executable executable(graph);
    Gate gate(stream);
    executable.launch(stream);
    CHECK_OK(executable.destroy());
    CHECK_OK(graph.destroy());
  }
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(out[0] == 5);
}

TEST_CASE("changes of a graph do not reach its executables") {
  const Device device;
  const Module module;
  const Log log;
  const CUfunction append = module.function("append");
  const Graph graph;
  const CUgraphNode node = graph.kernel({}, append, 1, log.data(), 1);
  const Executable executable(graph);
  graph.kernel({node}, append, 1, log.data(), 2);
  const KernelNode changed(append, 1, log.data(), 3);
  REQUIRE_OK(cuGraphKernelNodeSetParams_v2(node, &changed.parameters));
  const Stream stream;
  executable.run(stream);
  CHECK(log.entries() == std::vector{1});
}

TEST_CASE("a fault in a node loses the context, and the rest of the graph does not run") {
  const Device device;
  const Module module;
  std::atomic<bool> was_called{false};
  {
    const Graph graph;
    CUgraphNode node = nullptr;
    CUdeviceptr freed_later = 0;
    SUBCASE("an illegal address") {
      node = graph.kernel({}, module.function("store"), 1, static_cast<int*>(nullptr), 1);
    }
    SUBCASE("a trap") { node = graph.kernel({}, module.function("fail"), 1, static_cast<int>(CUDA_ERROR_ASSERT)); }
    SUBCASE("memory that was freed") {
      REQUIRE_OK(cuMemAlloc(&freed_later, 256));
      node = graph.fill({}, freed_later, 1, 4);
    }
    graph.host({node}, [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &was_called);
    const Executable executable(graph);
    if (freed_later != 0) REQUIRE_OK(cuMemFree(freed_later));
    const Stream stream;
    executable.launch(stream);
    const CUresult error = cuStreamSynchronize(stream);
    CHECK((error == CUDA_ERROR_ILLEGAL_ADDRESS || error == CUDA_ERROR_ASSERT));
    CHECK(cuGraphLaunch(executable, stream) == error);
  }
  CHECK_FALSE(was_called);
}

TEST_CASE("a graph runs nodes of several devices, and a fault on one is told where it was launched") {
  const Device second(1);
  const Module module_of_second;
  const Device first;
  const Module module;
  const SharedInts<2> out;
  const Stream stream;
  {
    const Graph graph;
    const CUgraphNode here = graph.kernel({}, module.function("add"), 1, out.data(), 1);
    graph.kernel({here}, module_of_second.function("add"), 1, out.data() + 1, 2);
    Executable(graph).run(stream);
    CHECK(out[0] == 1);
    CHECK(out[1] == 2);
  }
  const Graph graph;
  graph.kernel({}, module_of_second.function("store"), 1, static_cast<int*>(nullptr), 1);
  const Executable executable(graph);
  executable.launch(stream);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("an event node records when the graph gets there, not when it ends") {
  const Device device;
  const Module module;
  const SharedInts<2> shared;
  const Event event;
  const Graph graph;
  const CUgraphNode record = graph.record({}, event);
  graph.kernel({record}, module.function("wait_for"), 1, shared.data(), shared.data() + 1);
  const Executable executable(graph);
  const Stream stream, other;
  CHECK_OK(cuEventQuery(event));  // never recorded
  {
    Gate gate(stream);
    executable.launch(stream);
    CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    REQUIRE_OK(cuStreamWaitEvent(other, event, 0));
    CHECK(cuStreamQuery(other) == CUDA_ERROR_NOT_READY);
  }
  REQUIRE_OK(cuEventSynchronize(event));
  REQUIRE_OK(cuStreamSynchronize(other));
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  shared.set(0, 1);
  REQUIRE_OK(cuStreamSynchronize(stream));
}

TEST_CASE("a thread that sleeps for an event node is woken when the graph gets there") {
  const Device device;
  const Module module;
  const SharedInts<4> shared;
  const Event event;
  const CUfunction wait_for = module.function("wait_for");
  const Graph graph;
  const CUgraphNode first = graph.kernel({}, wait_for, 1, shared.data(), shared.data() + 1);
  const CUgraphNode record = graph.record({first}, event);
  graph.kernel({record}, wait_for, 1, shared.data() + 2, shared.data() + 3);
  const Executable executable(graph);
  const Stream stream;
  executable.launch(stream);
  shared.wait_until_set(1);  // nothing else ends until the record
  std::atomic<pid_t> id{0};
  std::thread waiter([&] {
    device.make_current();
    id = gettid();
    REQUIRE_OK(cuEventSynchronize(event));
    shared.set(2, 1);  // lets the graph end
  });
  while (id == 0) std::this_thread::yield();
  while (!driver_test::is_asleep(id)) std::this_thread::yield();
  shared.set(0, 1);
  waiter.join();
  REQUIRE_OK(cuStreamSynchronize(stream));
}

TEST_CASE("the time between two event nodes is measured") {
  const Device device;
  const Event start, end;
  const Graph graph;
  const CUgraphNode first = graph.record({}, start);
  graph.record({first}, end);
  const Executable executable(graph);
  const Stream stream;
  executable.run(stream);
  float milliseconds = -1;
  CHECK_OK(cuEventElapsedTime_v2(&milliseconds, start, end));
  CHECK(milliseconds >= 0);
}

TEST_CASE("an event wait node waits for what the event stood for when the graph was launched") {
  const Device device;
  const Module module;
  const Log log;
  const CUfunction append = module.function("append");
  const Event event;
  const Graph graph;
  const CUgraphNode wait = graph.wait({}, event);
  graph.kernel({wait}, append, 1, log.data(), 2);
  const Executable executable(graph);
  const Stream stream, other;
  {
    Gate gate(other);
    REQUIRE_OK(driver_test::launch(append, other, 1, log.data(), 1));
    REQUIRE_OK(cuEventRecord(event, other));
    executable.launch(stream);
    CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  }
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{1, 2});
}

TEST_CASE("a branch that waits for a value does not hold up one that does not") {
  const Device device;
  const SharedInts<2> shared;
  CUstreamBatchMemOpParams wait{}, write{};
  wait.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, shared.address(1), {1}, CU_STREAM_WAIT_VALUE_EQ, 0};
  write.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, shared.address(0), {1}, 0, 0};
  const CUDA_BATCH_MEM_OP_NODE_PARAMS waits{device.context(), 1, &wait, 0}, writes{device.context(), 1, &write, 0};
  const Graph graph;
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &waits));  // added first
  REQUIRE_OK(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &writes));
  const Executable executable(graph);
  const Stream stream, other;
  // The other stream answers the one branch, and so ends the wait of the other.
  REQUIRE_OK(cuStreamWaitValue32(other, shared.address(0), 1, CU_STREAM_WAIT_VALUE_EQ));
  REQUIRE_OK(cuStreamWriteValue32(other, shared.address(1), 1, 0));
  executable.run(stream);
  REQUIRE_OK(cuStreamSynchronize(other));
}

TEST_CASE("batch nodes write values and wait for them") {
  const Device device;
  const Module module;
  const SharedInts<4> shared;
  std::array<CUstreamBatchMemOpParams, 2> operations{};
  operations[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, shared.address(0), {1}, 0, 0};
  operations[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, shared.address(1), {1}, CU_STREAM_WAIT_VALUE_EQ, 0};
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{device.context(), 2, operations.data(), 0};
  const Graph graph;
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &batch));
  graph.kernel({node}, module.function("add"), 1, shared.data() + 2, 1);
  const Executable executable(graph);
  const Stream stream;
  executable.launch(stream);
  shared.wait_until_set(0);
  CHECK(shared.get(2) == 0);
  shared.set(1, 1);
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(shared[2] == 1);
}

TEST_CASE("an executable can be uploaded, and says with which flags it was made") {
  const Device device;
  const Stream stream;
  const Graph graph;
  graph.empty();
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  parameters.hUploadStream = stream;
  CUgraphExec executable = nullptr;
  REQUIRE_OK(cuGraphInstantiateWithParams(&executable, graph, &parameters));
  cuuint64_t flags = 0;
  CHECK_OK(cuGraphExecGetFlags(executable, &flags));
  CHECK(flags == CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  CHECK_OK(cuGraphUpload(executable, stream));
  CHECK_OK(cuGraphLaunch(executable, stream));
  CHECK_OK(cuStreamSynchronize(stream));
  CHECK(cuGraphUpload(nullptr, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuGraphExecDestroy(executable));
}

TEST_CASE("a graph whose memory was freed before is not instantiated") {
  const Device device;
  const Graph graph;
  {
    const Memory memory(64);
    graph.fill({}, memory, 1, 4);
  }
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  CUgraphExec executable = nullptr;
  CHECK(cuGraphInstantiateWithParams(&executable, graph, &parameters) == CUDA_ERROR_INVALID_VALUE);
  CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_ERROR);
}

TEST_CASE("a graph of a thousand nodes in a row runs in order on the legacy stream") {
  const Device device;
  const Module module;
  const Log log;
  const SharedInts<1> out;
  const Graph graph;
  CUgraphNode last = graph.empty();
  for (int each = 0; each < 1000; ++each) last = graph.kernel({last}, module.function("add"), 1, out.data(), 1);
  const Executable executable(graph);
  executable.run(nullptr);
  executable.run(CU_STREAM_PER_THREAD);
  CHECK(out[0] == 2000);
}
