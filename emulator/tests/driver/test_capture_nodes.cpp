// Stream capture: what each call on a captured stream becomes, and that it does the same when the graph runs.
#include <cstring>

#include "checking/checking.hpp"
#include "test_capture_support.hpp"

using namespace capture_test;

TEST_CASE("captured calls do not run, and run in their order with every launch of the graph") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<3> log;
  begin(stream);
  REQUIRE_OK(launch(module.function("append"), stream, 1, log.data(), 5));
  REQUIRE_OK(launch(module.function("append"), stream, 1, log.data(), 7));
  const Graph graph = end(stream);
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(log[0] == 0);
  graph.run(stream);
  CHECK(log[0] == 2);
  CHECK(log[1] == 5);
  CHECK(log[2] == 7);
}

TEST_CASE("the nodes of one stream form a chain") {
  const Device device;
  const Module module;
  const Stream stream;
  constexpr std::size_t launches = 5;
  begin(stream);
  for (std::size_t each = 0; each < launches; ++each) REQUIRE_OK(launch(module.function("nothing"), stream, 1));
  const Graph graph = end(stream);
  const auto nodes = graph.nodes();
  REQUIRE(nodes.size() == launches);
  CHECK(Graph::dependencies_of(nodes[0]).empty());
  for (std::size_t each = 1; each < launches; ++each) {
    CHECK(Graph::dependencies_of(nodes[each]) == std::vector<CUgraphNode>{nodes[each - 1]});
  }
  CHECK(graph.edge_count() == launches - 1);
}

TEST_CASE("a captured launch keeps its arguments, shape and attributes") {
  const Device device;
  const Module module;
  CUstream handle = nullptr;
  REQUIRE_OK(cuStreamCreateWithPriority(&handle, CU_STREAM_NON_BLOCKING, -3));
  const SharedInts<1> out;
  int* pointer = out.data();
  int value = 4;
  void* parameters[] = {&pointer, &value};
  const CUfunction add = module.function("add");
  begin(handle);
  REQUIRE_OK(cuLaunchCooperativeKernel(add, 1, 1, 1, 2, 3, 1, 16, handle, parameters));
  value = 1000;
  const Graph graph = end(handle);
  const CUgraphNode node = graph.node(CU_GRAPH_NODE_TYPE_KERNEL);
  CUDA_KERNEL_NODE_PARAMS given{};
  REQUIRE_OK(cuGraphKernelNodeGetParams(node, &given));
  CHECK(given.func == add);
  CHECK(given.blockDimX == 2);
  CHECK(given.blockDimY == 3);
  CHECK(given.sharedMemBytes == 16);
  CUlaunchAttributeValue attribute{};
  REQUIRE_OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &attribute));
  CHECK(attribute.cooperative == 1);
  REQUIRE_OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &attribute));
  CHECK(attribute.priority == -3);
  graph.run(handle);
  CHECK(out[0] == 4);
  CHECK_OK(cuStreamDestroy(handle));
}

TEST_CASE("the attributes of a captured launch are the node's") {
  const Device device;
  const Module module;
  const Stream stream;
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[0].value.priority = -1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].value.clusterDim = {1, 1, 1};
  CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, stream, attributes, 2};
  begin(stream);
  CHECK_OK(cuLaunchKernelEx(&config, module.function("nothing"), nullptr, nullptr));
  const Graph graph = end(stream);
  const CUgraphNode node = graph.node(CU_GRAPH_NODE_TYPE_KERNEL);
  CUlaunchAttributeValue value{};
  REQUIRE_OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  CHECK(value.priority == -1);
  REQUIRE_OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
  CHECK(value.clusterDim.x == 1);
}

TEST_CASE("a completion event asked for by a captured launch stands for its node") {
  const Device device;
  const Module module;
  const Stream stream, other;
  const Event event(CU_EVENT_DISABLE_TIMING);
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent.event = event;
  CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
  begin(stream);
  REQUIRE_OK(cuLaunchKernelEx(&config, module.function("nothing"), nullptr, nullptr));
  REQUIRE_OK(cuStreamWaitEvent(other, event, 0));
  CHECK(dependencies_of_next(other) == dependencies_of_next(stream));
  const Graph graph = end(stream);
  CHECK(graph.nodes().size() == 1);
}

TEST_CASE("captured copies read and write when the graph runs") {
  const Device device;
  const Stream stream;
  constexpr std::size_t bytes = 64;
  const DeviceMemory first(bytes), second(bytes);
  std::vector<char> source(bytes, 'a'), destination(bytes, '-');
  begin(stream);
  REQUIRE_OK(cuMemcpyHtoDAsync(first, source.data(), bytes, stream));
  REQUIRE_OK(cuMemcpyDtoDAsync(second, first, bytes, stream));
  REQUIRE_OK(cuMemcpyDtoHAsync(destination.data(), second, bytes / 2, stream));
  REQUIRE_OK(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(destination.data()) + bytes / 2, second, bytes / 2, stream));
  REQUIRE_OK(cuMemcpyHtoDAsync(first, source.data(), 0, stream));  // nothing to do
  const Graph graph = end(stream);
  const auto nodes = graph.nodes();
  REQUIRE(nodes.size() == 4);
  CUDA_MEMCPY3D given{};
  REQUIRE_OK(cuGraphMemcpyNodeGetParams(nodes[0], &given));
  CHECK(given.srcMemoryType == CU_MEMORYTYPE_HOST);
  CHECK(given.srcHost == source.data());
  CHECK(given.dstMemoryType == CU_MEMORYTYPE_DEVICE);
  CHECK(given.dstDevice == first);
  CHECK(given.WidthInBytes == bytes);
  CHECK(given.Height == 1);
  CHECK(given.Depth == 1);
  source.assign(bytes, 'b');  // read by the launch, not by the call
  graph.run(stream);
  CHECK(destination == source);
}

TEST_CASE("captured copies of two and three dimensions keep their shape") {
  const Device device;
  const Stream stream;
  constexpr std::size_t pitch = 8, rows = 3, slices = 2;
  const DeviceMemory memory(pitch * rows * slices);
  REQUIRE_OK(cuMemsetD8(memory, '-', pitch * rows * slices));
  REQUIRE_OK(cuCtxSynchronize());
  const std::vector<char> source{'a', 'b', 'c', 'd'};
  CUDA_MEMCPY2D plane{};
  plane.srcMemoryType = CU_MEMORYTYPE_HOST;
  plane.srcHost = source.data();
  plane.srcPitch = 2;
  plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  plane.dstDevice = memory;
  plane.dstPitch = pitch;
  plane.dstXInBytes = 1;
  plane.dstY = 1;
  plane.WidthInBytes = 2;
  plane.Height = 2;
  std::vector<char> destination(pitch * rows * slices, ' ');
  CUDA_MEMCPY3D cube{};
  cube.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  cube.srcDevice = memory;
  cube.srcPitch = pitch;
  cube.srcHeight = rows;
  cube.dstMemoryType = CU_MEMORYTYPE_HOST;
  cube.dstHost = destination.data();
  cube.dstPitch = pitch;
  cube.dstHeight = rows;
  cube.WidthInBytes = pitch - 1;
  cube.Height = rows;
  cube.Depth = slices;
  begin(stream);
  REQUIRE_OK(cuMemcpy2DAsync(&plane, stream));
  REQUIRE_OK(cuMemcpy3DAsync(&cube, stream));
  const Graph graph = end(stream);
  REQUIRE(graph.nodes().size() == 2);
  CUDA_MEMCPY3D given{};
  REQUIRE_OK(cuGraphMemcpyNodeGetParams(graph.nodes()[1], &given));
  CHECK(given.WidthInBytes == pitch - 1);
  CHECK(given.Height == rows);
  CHECK(given.Depth == slices);
  CHECK(given.srcHeight == rows);
  CHECK(given.dstHeight == rows);
  graph.run(stream);
  const std::string found(destination.begin(), destination.end());
  CHECK(found == "------- -ab---- -cd---- ------- ------- ------- ");
}

TEST_CASE("captured peer copies go between devices") {
  const Device peer(1);
  CUdeviceptr there = 0;
  REQUIRE_OK(cuMemAlloc(&there, 4));
  REQUIRE_OK(cuMemsetD32(there, 77, 1));
  REQUIRE_OK(cuCtxSynchronize());
  const Device device(0);
  const Stream stream;
  const DeviceMemory here(4);
  const DeviceMemory once_more(4);
  CUDA_MEMCPY3D_PEER cube{};
  cube.srcMemoryType = cube.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  cube.srcContext = peer.context();
  cube.dstContext = device.context();
  cube.srcDevice = there;
  cube.dstDevice = once_more;
  cube.WidthInBytes = 4;
  cube.Height = cube.Depth = 1;
  begin(stream);
  REQUIRE_OK(cuMemcpyPeerAsync(here, device.context(), there, peer.context(), 4, stream));
  REQUIRE_OK(cuMemcpy3DPeerAsync(&cube, stream));
  const Graph graph = end(stream);
  CHECK(graph.nodes().size() == 2);
  graph.run(stream);
  for (const CUdeviceptr each : {CUdeviceptr{here}, CUdeviceptr{once_more}}) {
    int value = 0;
    REQUIRE_OK(cuMemcpyDtoH(&value, each, 4));
    CHECK(value == 77);
  }
  peer.make_current();
  CHECK_OK(cuMemFree(there));
  device.make_current();
}

TEST_CASE("captured memsets of every width and both dimensions keep their elements") {
  const Device device;
  const Stream stream;
  constexpr std::size_t bytes = 48;
  const DeviceMemory memory(bytes);
  REQUIRE_OK(cuMemsetD8(memory, 0, bytes));
  REQUIRE_OK(cuCtxSynchronize());
  begin(stream);
  REQUIRE_OK(cuMemsetD8Async(memory, 1, 8, stream));
  REQUIRE_OK(cuMemsetD16Async(memory + 8, 0x0203, 4, stream));
  REQUIRE_OK(cuMemsetD32Async(memory + 16, 0x04050607, 2, stream));
  REQUIRE_OK(cuMemsetD2D8Async(memory + 24, 4, 8, 2, 2, stream));
  REQUIRE_OK(cuMemsetD2D16Async(memory + 32, 4, 0x090a, 1, 2, stream));
  REQUIRE_OK(cuMemsetD2D32Async(memory + 40, 4, 0x0b0c0d0e, 1, 2, stream));
  const Graph graph = end(stream);
  const auto nodes = graph.nodes();
  REQUIRE(nodes.size() == 6);
  CUDA_MEMSET_NODE_PARAMS given{};
  REQUIRE_OK(cuGraphMemsetNodeGetParams(nodes[4], &given));
  CHECK(given.dst == memory + 32);
  CHECK(given.elementSize == 2);
  CHECK(given.value == 0x090a);
  CHECK(given.width == 1);
  CHECK(given.height == 2);
  CHECK(given.pitch == 4);
  graph.run(stream);
  std::vector<unsigned char> found(bytes);
  REQUIRE_OK(cuMemcpyDtoH(found.data(), memory, bytes));
  const std::vector<unsigned char> expected{1,  1, 1, 1, 1,  1, 1, 1, 3,  2,  3,  2,  3,  2,  3,  2,  //
                                            7,  6, 5, 4, 7,  6, 5, 4, 8,  8,  0,  0,  8,  8,  0,  0,  //
                                            10, 9, 0, 0, 10, 9, 0, 0, 14, 13, 12, 11, 14, 13, 12, 11};
  CHECK(found == expected);
}

TEST_CASE("a captured host function is called by each launch") {
  const Device device;
  const Stream stream;
  std::atomic<int> calls{0};
  const CUhostFn count = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
  begin(stream);
  REQUIRE_OK(cuLaunchHostFunc(stream, count, &calls));
  const Graph graph = end(stream);
  CUDA_HOST_NODE_PARAMS given{};
  REQUIRE_OK(cuGraphHostNodeGetParams(graph.node(CU_GRAPH_NODE_TYPE_HOST), &given));
  CHECK((given.fn == count));
  CHECK(given.userData == &calls);
  CHECK(calls == 0);
  graph.run(stream);
  graph.run(stream);
  CHECK(calls == 2);
}

TEST_CASE("captured values are written and waited for in batches") {
  const Device device;
  const Stream stream;
  const SharedInts<4> values;
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[0].writeValue.address = values.address(1);
  operations[0].writeValue.value = 8;
  operations[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[1].waitValue.address = values.address(1);
  operations[1].waitValue.value = 8;
  begin(stream);
  REQUIRE_OK(cuStreamWriteValue32(stream, values.address(0), 7, 0));
  REQUIRE_OK(cuStreamWaitValue32(stream, values.address(0), 7, CU_STREAM_WAIT_VALUE_EQ));
  REQUIRE_OK(cuStreamWriteValue64(stream, values.address(2), 9, 0));
  REQUIRE_OK(cuStreamWaitValue64(stream, values.address(2), 9, CU_STREAM_WAIT_VALUE_GEQ));
  REQUIRE_OK(cuStreamBatchMemOp(stream, 2, operations, 0));
  CHECK(cuStreamWriteValue32(stream, values.address(0) + 1, 7, 0) == CUDA_ERROR_INVALID_VALUE);
  const Graph graph = end(stream);
  const auto nodes = graph.nodes();
  REQUIRE(nodes.size() == 5);
  for (const CUgraphNode node : nodes) CHECK(Graph::type_of(node) == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  CUDA_BATCH_MEM_OP_NODE_PARAMS given{};
  REQUIRE_OK(cuGraphBatchMemOpNodeGetParams(nodes[4], &given));
  CHECK(given.count == 2);
  graph.run(stream);
  CHECK(values[0] == 7);
  CHECK(values[1] == 8);
  CHECK(values[2] == 9);
}

TEST_CASE("captured allocations and frees are the graph's") {
  const Device device;
  const Stream stream;
  CUmemoryPool pool = nullptr;
  REQUIRE_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  CUdeviceptr first = 0, second = 0;
  SharedInts<2> out;
  begin(stream);
  REQUIRE_OK(cuMemAllocAsync(&first, 1024, stream));
  REQUIRE_OK(cuMemAllocFromPoolAsync(&second, 1024, pool, stream));
  REQUIRE_OK(cuMemsetD32Async(first, 5, 256, stream));
  REQUIRE_OK(cuMemcpyDtoDAsync(second, first, 1024, stream));
  REQUIRE_OK(cuMemcpyDtoHAsync(out.data(), second + 1016, 8, stream));
  REQUIRE_OK(cuMemFreeAsync(second, stream));
  REQUIRE_OK(cuMemFreeAsync(first, stream));
  const Graph graph = end(stream);
  CHECK(first != 0);
  CHECK(second != 0);
  const auto nodes = graph.nodes();
  REQUIRE(nodes.size() == 7);
  CUDA_MEM_ALLOC_NODE_PARAMS given{};
  REQUIRE_OK(cuGraphMemAllocNodeGetParams(nodes[0], &given));
  CHECK(given.dptr == first);
  CHECK(given.bytesize == 1024);
  CHECK(given.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  CHECK(given.poolProps.location.id == 0);
  CUdeviceptr freed = 0;
  REQUIRE_OK(cuGraphMemFreeNodeGetParams(nodes[5], &freed));
  CHECK(freed == second);
  graph.run(stream);
  CHECK(out[0] == 5);
  CHECK(out[1] == 5);
}

TEST_CASE("a captured free takes only memory that a graph allocates") {
  const Device device;
  const Stream stream;
  CUdeviceptr outside = 0;
  REQUIRE_OK(cuMemAllocAsync(&outside, 16, stream));
  begin(stream);
  CHECK(cuMemFreeAsync(outside, stream) == CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr inside = 0;
  REQUIRE_OK(cuMemAllocAsync(&inside, 16, stream));
  CHECK_OK(cuMemFreeAsync(inside, stream));
  CHECK(cuMemFreeAsync(inside, stream) == CUDA_ERROR_INVALID_VALUE);
  const Graph graph = end(stream);
  CHECK(graph.nodes().size() == 2);
  CHECK_OK(cuMemFreeAsync(outside, stream));
}

TEST_CASE("external records and waits are nodes of the event") {
  const Device device;
  const Module module;
  const Stream stream, outside;
  const Event recorded, awaited;
  const SharedInts<3> log;
  begin(stream);
  REQUIRE_OK(cuStreamWaitEvent(stream, awaited, CU_EVENT_WAIT_EXTERNAL));
  REQUIRE_OK(launch(module.function("append"), stream, 1, log.data(), 2));
  REQUIRE_OK(cuEventRecordWithFlags(recorded, stream, CU_EVENT_RECORD_EXTERNAL));
  const Graph graph = end(stream);
  CUevent event = nullptr;
  REQUIRE_OK(cuGraphEventRecordNodeGetEvent(graph.node(CU_GRAPH_NODE_TYPE_EVENT_RECORD), &event));
  CHECK(event == recorded);
  REQUIRE_OK(cuGraphEventWaitNodeGetEvent(graph.node(CU_GRAPH_NODE_TYPE_WAIT_EVENT), &event));
  CHECK(event == awaited);
  CHECK_OK(cuEventQuery(recorded));  // still one that was never recorded

  CUgraphExec executable = nullptr;
  REQUIRE_OK(cuGraphInstantiate(&executable, graph, 0));
  {
    Gate gate(outside);
    REQUIRE_OK(launch(module.function("append"), outside, 1, log.data(), 1));
    REQUIRE_OK(cuEventRecord(awaited, outside));
    REQUIRE_OK(cuGraphLaunch(executable, stream));
    CHECK(cuEventQuery(recorded) == CUDA_ERROR_NOT_READY);
  }
  CHECK_OK(cuEventSynchronize(recorded));
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(log[0] == 2);
  CHECK(log[1] == 1);
  CHECK(log[2] == 2);
  CHECK_OK(cuGraphExecDestroy(executable));
}

TEST_CASE("external records and waits mean nothing outside of a capture") {
  const Device device;
  const Stream stream;
  const Event event;
  CHECK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL) == CUDA_ERROR_ILLEGAL_STATE);
}

TEST_CASE("a capture itself touches no memory") {
  // While races are checked, two kernels on the same bytes without an order between them would be reported.
  const Device device;
  const Module module;
  const Stream stream, other;
  const SharedInts<1> out;
  const auto take_reports = [] {
    std::string text(aiocuda_emulator_take_race_reports(nullptr, 0), ' ');
    aiocuda_emulator_take_race_reports(text.data(), text.size());
    return text;
  };
  take_reports();
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  REQUIRE_OK(launch(module.function("add"), stream, 1, out.data(), 1));
  REQUIRE_OK(cuMemsetD32Async(out.address(), 9, 1, stream));
  REQUIRE_OK(launch(module.function("add"), other, 1, out.data(), 2));
  REQUIRE_OK(cuStreamSynchronize(other));
  const Graph graph = end(stream);
  CHECK(take_reports().empty());
  CHECK(out[0] == 2);
  graph.run(stream);
  CHECK(out[0] == 9);
  CHECK(take_reports().empty());
}
