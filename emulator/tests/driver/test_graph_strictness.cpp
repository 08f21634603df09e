// Some cases CUDA leaves open, and in some NVIDIA's driver crashes. Here they are errors: handles that have ended, null
// pointers, references that nobody holds, calls that fail half-way, memory and contexts that are not there.
#include "test_graph_support.hpp"

using namespace graph_test;

namespace {

std::size_t edges_of(CUgraph graph) {
  std::size_t count = 0;
  REQUIRE_OK(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count));
  return count;
}

CUresult connect(CUgraph graph, const Nodes& from, const Nodes& to) {
  return cuGraphAddDependencies_v2(graph, from.data(), to.data(), nullptr, from.size());
}

CUresult disconnect(CUgraph graph, const Nodes& from, const Nodes& to) {
  return cuGraphRemoveDependencies_v2(graph, from.data(), to.data(), nullptr, from.size());
}

}  // namespace

TEST_CASE("of edges that are added or removed in one call, either all are or none") {
  const Device device;
  const Graph graph;
  const CUgraphNode a = graph.empty(), b = graph.empty({a}), c = graph.empty();
  CHECK(connect(graph, {a, b, a}, {c, c, c}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(edges_of(graph) == 1);
  CHECK_OK(connect(graph, {b}, {c}));
  CHECK(disconnect(graph, {a, b, a}, {b, c, c}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(edges_of(graph) == 2);
  CHECK(cuGraphAddDependencies_v2(graph, nullptr, nullptr, nullptr, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(connect(graph, {nullptr}, {a}) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a copy whose memory was freed is not instantiated") {
  const Device device;
  const Graph graph;
  {
    const Memory memory(64), other(64);
    graph.copy({}, memory, other, 16);
  }
  CUgraphExec executable = nullptr;
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an update with what is no graph says that it failed") {
  const Device device;
  const Graph graph;
  graph.empty();
  const Executable executable(graph);
  CUgraphExecUpdateResultInfo info{};
  CHECK(cuGraphExecUpdate_v2(executable, nullptr, &info) == CUDA_ERROR_INVALID_VALUE);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR);
}

TEST_CASE("an edge is not removed by other data than it has") {
  const Device device;
  const Module module;
  const Graph graph;
  const CUgraphNode a = graph.kernel({}, module.function("nothing"), 1),
                    b = graph.kernel({}, module.function("nothing"), 1);
  CUgraphEdgeData data{};
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  const CUgraphEdgeData other{};
  REQUIRE_OK(cuGraphAddDependencies_v2(graph, &a, &b, &data, 1));
  CHECK(cuGraphRemoveDependencies_v2(graph, &a, &b, &other, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(edges_of(graph) == 1);
}

TEST_CASE("handles that have ended name nothing") {
  const Device device;
  const Stream stream;
  Graph graph;
  const CUgraphNode removed = graph.empty(), child_node = graph.child({}, Graph()), left = graph.empty();
  CUgraph child = nullptr;
  REQUIRE_OK(cuGraphChildGraphNodeGetGraph(child_node, &child));
  Executable executable(graph);
  const CUgraphExec ended = executable;
  REQUIRE_OK(cuGraphDestroyNode(removed));
  REQUIRE_OK(cuGraphDestroyNode(child_node));
  CUgraphNodeType type{};
  CUgraphNode node = nullptr;
  std::size_t count = 0;
  CHECK(cuGraphDestroyNode(removed) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphNodeGetType(removed, &type) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddEmptyNode(&node, graph, &removed, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphGetNodes(child, nullptr, &count) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(executable.destroy());
  CHECK(cuGraphLaunch(ended, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphExecDestroy(ended) == CUDA_ERROR_INVALID_VALUE);
  const CUgraph gone = graph;
  REQUIRE_OK(graph.destroy());
  CUgraphExec another = nullptr;
  CHECK(cuGraphDestroy(gone) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphGetNodes(gone, nullptr, &count) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddEmptyNode(&node, gone, nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphInstantiateWithFlags(&another, gone, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphNodeGetType(left, &type) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the module of a launch in flight may be unloaded") {
  const Device device;
  Module module;
  const SharedInts<1> out;
  const Stream stream;
  const Graph graph;
  graph.kernel({}, module.function("add"), 1, out.data(), 5);
  const Executable executable(graph);
  {
    Gate gate(stream);
    executable.launch(stream);
    CHECK_OK(module.unload());
  }
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(out[0] == 5);
}

TEST_CASE("null arguments are refused") {
  const Device device;
  const Module module;
  const Graph graph;
  const CUgraphNode kernel = graph.kernel({}, module.function("nothing"), 1);
  CUgraphNode node = nullptr;
  CUgraph made = nullptr;
  CUgraphExec executable = nullptr;
  CUgraphConditionalHandle handle = 0;
  CHECK(cuGraphCreate(nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphGetNodes(graph, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphClone(nullptr, graph) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphClone(&made, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphNodeFindInClone(&node, nullptr, graph) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddEmptyNode(&node, graph, nullptr, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddEmptyNode(nullptr, graph, nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddEmptyNode(&node, nullptr, nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, nullptr, device.context()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddMemsetNode(&node, graph, nullptr, 0, nullptr, device.context()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphKernelNodeGetParams_v2(kernel, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphKernelNodeSetParams_v2(kernel, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphKernelNodeSetAttribute(kernel, CU_LAUNCH_ATTRIBUTE_PRIORITY, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphConditionalHandleCreate(nullptr, graph, device.context(), 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphConditionalHandleCreate(&handle, nullptr, device.context(), 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphInstantiateWithFlags(nullptr, graph, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphInstantiateWithFlags(&executable, nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphInstantiateWithParams(&executable, graph, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphDebugDotPrint(graph, nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphLaunch(nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphUpload(nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphExecDestroy(nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  allocation.bytesize = 64;
  allocation.accessDescCount = 1;
  CHECK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocation) == CUDA_ERROR_INVALID_VALUE);
  CHECK(graph.nodes() == Nodes{kernel});
}

TEST_CASE("an executable of a context that has ended is not launched") {
  const Device device;
  CUcontext other = nullptr;
  REQUIRE_OK(cuCtxCreate(&other, nullptr, 0, 0));
  const Graph graph;
  CUdeviceptr memory = 0;
  REQUIRE_OK(cuMemAlloc(&memory, 64));
  graph.fill({}, memory, 1, 4);
  const Executable executable(graph);
  device.make_current();
  const Stream stream;
  REQUIRE_OK(cuCtxDestroy(other));
  CHECK(cuGraphLaunch(executable, stream) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_CASE("managed memory of a graph is managed") {
  const Device device;
  const Stream stream;
  const Graph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS described{};
  described.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  described.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  described.bytesize = 64;
  CUgraphNode allocate = nullptr;
  REQUIRE_OK(cuGraphAddMemAllocNode(&allocate, graph, nullptr, 0, &described));
  const Module module;
  graph.kernel({allocate}, module.function("store"), 1, described.dptr, 11);
  Executable(graph).run(stream);
  CHECK(*reinterpret_cast<int*>(described.dptr) == 11);
  CHECK_OK(cuMemFreeAsync(described.dptr, stream));
  REQUIRE_OK(cuStreamSynchronize(stream));
}

TEST_CASE("the end of a device's primary context takes what its graphs have left") {
  CUdeviceptr memory = 0;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  {
    const Device device;
    REQUIRE_OK(cuGraphCreate(&graph, 0));
    const Stream stream;
    CUDA_MEM_ALLOC_NODE_PARAMS described{};
    described.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    described.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    described.bytesize = 1 << 20;
    CUgraphNode allocate = nullptr;
    REQUIRE_OK(cuGraphAddMemAllocNode(&allocate, graph, nullptr, 0, &described));
    memory = described.dptr;
    REQUIRE_OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
    REQUIRE_OK(cuGraphLaunch(executable, stream));
    REQUIRE_OK(cuStreamSynchronize(stream));
  }
  const Device device;
  const Stream stream;
  std::size_t free = 0, total = 0;
  REQUIRE_OK(cuMemGetInfo(&free, &total));
  CHECK(free == total);
  CHECK(cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuGraphLaunch(executable, stream));  // it is not allocated any more
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK_OK(cuMemFree(memory));
  CHECK_OK(cuGraphExecDestroy(executable));
  CHECK_OK(cuGraphDestroy(graph));
}

TEST_CASE("memory is a fault before its allocation node and after its free node") {
  const Device device;
  CUdeviceptr memory = 0;
  const Graph graph;
  SUBCASE("before") {
    const CUgraphNode fill = graph.empty();
    const CUgraphNode allocate = graph.allocate({fill}, 64, memory);
    graph.free({allocate}, memory);
    const CUDA_MEMSET_NODE_PARAMS described = fill_of_ints(memory, 1, 4);
    CUgraphNode early = nullptr;
    REQUIRE_OK(cuGraphAddMemsetNode(&early, graph, nullptr, 0, &described, current_context()));
    REQUIRE_OK(cuGraphAddDependencies_v2(graph, &early, &fill, nullptr, 1));
  }
  SUBCASE("after") {
    const CUgraphNode allocate = graph.allocate({}, 64, memory);
    const CUgraphNode free = graph.free({allocate}, memory);
    graph.fill({free}, memory, 1, 4);
  }
  const Executable executable(graph);
  const Stream stream;
  executable.launch(stream);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("what is no function is no kernel") {
  const Device device;
  const Graph graph;
  int no_function = 0;
  const KernelNode<> described(reinterpret_cast<CUfunction>(&no_function), 1);
  CUgraphNode node = nullptr;
  CHECK(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &described.parameters) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a graph for the device has nodes that the device can launch") {
  const Device device;
  const Memory memory(64);
  const Graph fills, does_nothing;
  fills.fill({}, memory, 1, 4);
  const CUgraphNode empty = does_nothing.empty();
  CUgraphExec executable = nullptr;
  REQUIRE_OK(cuGraphInstantiateWithFlags(&executable, fills, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
  CHECK_OK(cuGraphExecDestroy(executable));
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  CHECK(cuGraphInstantiateWithParams(&executable, does_nothing, &parameters) == CUDA_ERROR_INVALID_VALUE);
  CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
  CHECK(parameters.hErrNode_out == empty);
}

TEST_CASE("a graph cannot be a child of itself, nor of a graph that is in it") {
  const Device device;
  const Graph graph, inner;
  inner.empty();
  CUgraphNode node = nullptr;
  CHECK(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, graph) == CUDA_ERROR_INVALID_VALUE);
  const CUgraphNode child_node = graph.child({}, inner);
  CUgraph child = nullptr;
  CHECK_OK(cuGraphChildGraphNodeGetGraph(child_node, &child));
  CHECK(cuGraphAddChildGraphNode(&node, child, nullptr, 0, graph) == CUDA_ERROR_INVALID_VALUE);
  CHECK(graph.nodes() == Nodes{child_node});
}

TEST_CASE("references that nobody holds cannot be released") {
  const Device device;
  const Graph graph;
  CUuserObject object = nullptr;
  std::atomic<bool> destroyed{false};
  REQUIRE_OK(cuUserObjectCreate(
      &object, &destroyed,
      [](void* flag) {
        auto& told = *static_cast<std::atomic<bool>*>(flag);
        told = true;
        told.notify_all();
      },
      1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CHECK(cuUserObjectRelease(object, 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphReleaseUserObject(graph, object, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphRetainUserObject(nullptr, object, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuUserObjectRelease(object, 1));
  destroyed.wait(false);
  CHECK(cuUserObjectRetain(object, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuUserObjectRelease(object, 1) == CUDA_ERROR_INVALID_VALUE);
}
