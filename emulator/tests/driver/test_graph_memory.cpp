// Memory nodes: an address for good, memory between the allocation and the free, and what CUDA refuses.
#include "test_graph_support.hpp"

using namespace graph_test;

namespace {

CUresult try_launch(CUgraphExec executable, CUstream stream) { return cuGraphLaunch(executable, stream); }

cuuint64_t attribute(CUgraphMem_attribute which, CUdevice device = 0) {
  cuuint64_t value = ~0ull;
  CHECK_OK(cuDeviceGetGraphMemAttribute(device, which, &value));
  return value;
}

CUdeviceptr host_address(int& value) { return reinterpret_cast<CUdeviceptr>(&value); }

}  // namespace

TEST_CASE("memory that a graph allocates and frees is its own, at one address for every launch") {
  const Device device;
  const Graph graph;
  CUdeviceptr memory = 0;
  int seen = 0;
  const CUgraphNode allocate = graph.allocate({}, 1 << 20, memory);
  const CUgraphNode fill = graph.fill({allocate}, memory, 7, 1 << 18);
  const CUgraphNode copy = graph.copy({fill}, host_address(seen), memory + (1 << 20) - 4, 4);
  const CUgraphNode free = graph.free({copy}, memory);
  CUDA_MEM_ALLOC_NODE_PARAMS found{};
  CHECK_OK(cuGraphMemAllocNodeGetParams(allocate, &found));
  CHECK(found.dptr == memory);
  CHECK(found.bytesize == 1 << 20);
  CHECK(found.poolProps.location.id == 0);
  CUdeviceptr freed = 0;
  CHECK_OK(cuGraphMemFreeNodeGetParams(free, &freed));
  CHECK(freed == memory);
  const Executable executable(graph);
  const Stream stream;
  for (int each = 0; each < 3; ++each) {
    seen = 0;
    executable.run(stream);
    CHECK(seen == 7);
  }
  CHECK(cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFreeAsync(memory, stream) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("memory that the graph does not free is there until somebody else does") {
  const Device device;
  const Stream stream, other;
  const Graph graph;
  CUdeviceptr memory = 0;
  const CUgraphNode allocate = graph.allocate({}, 64, memory);
  graph.fill({allocate}, memory, 3, 16);
  CHECK(cuMemFreeAsync(memory, stream) == CUDA_ERROR_INVALID_VALUE);  // it was never allocated
  const Executable executable(graph);
  executable.run(stream);
  CHECK(read_ints(memory, 16) == std::vector<int>(16, 3));
  CHECK(try_launch(executable, stream) == CUDA_ERROR_INVALID_VALUE);
  SUBCASE("in stream order") { CHECK_OK(cuMemFreeAsync(memory, stream)); }
  SUBCASE("by the host") { CHECK_OK(cuMemFree(memory)); }
  SUBCASE("by another graph") {
    const Graph freeing;
    freeing.free({}, memory);
    const Executable frees(freeing);
    frees.run(other);
    CHECK(try_launch(frees, other) == CUDA_ERROR_INVALID_VALUE);  // nothing to free
  }
  CHECK(cuMemFreeAsync(memory, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
  executable.run(stream);
  CHECK(read_ints(memory, 1) == std::vector{3});
  CHECK_OK(cuMemFreeAsync(memory, stream));
  REQUIRE_OK(cuStreamSynchronize(stream));
}

TEST_CASE("memory outlives the graph and the executable that allocated it") {
  const Device device;
  const Stream stream;
  CUdeviceptr memory = 0;
  {
    const Graph graph;
    const CUgraphNode allocate = graph.allocate({}, 64, memory);
    graph.fill({allocate}, memory, 3, 16);
    Executable(graph).run(stream);
  }
  CHECK(read_ints(memory, 16) == std::vector<int>(16, 3));
  CHECK_OK(cuMemFreeAsync(memory, stream));
  REQUIRE_OK(cuStreamSynchronize(stream));
  int value = 0;
  CHECK(cuMemcpyDtoH(&value, memory, sizeof value) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an executable may free what a former launch has left") {
  const Device device;
  const Stream stream, other;
  const Graph graph;
  CUdeviceptr memory = 0;
  const CUgraphNode allocate = graph.allocate({}, 64, memory);
  graph.fill({allocate}, memory, 3, 16);
  const Executable executable(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  executable.run(stream);
  executable.run(other);
  executable.run(stream);
  CHECK(read_ints(memory, 16) == std::vector<int>(16, 3));
  CHECK_OK(cuMemFree(memory));
}

TEST_CASE("what a launch frees of a former one is gone until it is allocated again") {
  const Device device;
  const Module module;
  const Stream stream;
  const Graph graph;
  CUdeviceptr memory = 0;
  const CUgraphNode allocate = graph.allocate({}, 64, memory);
  const CUgraphNode early = graph.kernel({}, module.function("store"), 1, memory, 1);
  REQUIRE_OK(cuGraphAddDependencies_v2(graph, &early, &allocate, nullptr, 1));
  const Executable executable(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  REQUIRE_OK(cuGraphNodeSetEnabled(executable, early, 0));
  executable.run(stream);
  executable.run(stream);
  REQUIRE_OK(cuGraphNodeSetEnabled(executable, early, 1));
  executable.launch(stream);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("who may free an allocation is settled when nodes are added") {
  const Device device;
  const Graph graph, other;
  CUdeviceptr one = 0, two = 0, three = 0;
  const CUgraphNode first = graph.allocate({}, 64, one), second = graph.allocate({}, 64, two);
  graph.allocate({}, 64, three);
  graph.free({first}, one);
  CUgraphNode node = nullptr;
  CHECK(cuGraphAddMemFreeNode(&node, graph, &first, 1, one) == CUDA_ERROR_INVALID_VALUE);  // twice
  CHECK(cuGraphAddMemFreeNode(&node, other, nullptr, 0, one) == CUDA_ERROR_INVALID_VALUE);
  other.free({}, two);
  CHECK(cuGraphAddMemFreeNode(&node, graph, &second, 1, two) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, three + 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  const Memory plain(64);
  CHECK(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, plain) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a graph with memory nodes keeps what it has, is not copied, and has one executable at a time") {
  const Device device;
  const Graph graph, other;
  CUdeviceptr memory = 0;
  const CUgraphNode allocate = graph.allocate({}, 64, memory);
  const CUgraphNode empty = graph.empty({allocate});
  CHECK(cuGraphRemoveDependencies_v2(graph, &allocate, &empty, nullptr, 1) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuGraphDestroyNode(empty) == CUDA_ERROR_NOT_SUPPORTED);
  CUgraph copy = nullptr;
  CHECK(cuGraphClone(&copy, graph) == CUDA_ERROR_NOT_SUPPORTED);
  CUgraphNode node = nullptr;
  CHECK(cuGraphAddChildGraphNode(&node, other, nullptr, 0, graph) == CUDA_ERROR_NOT_SUPPORTED);
  CUgraphExec another = nullptr;
  {
    const Executable executable(graph);
    CHECK(cuGraphInstantiateWithFlags(&another, graph, 0) == CUDA_ERROR_NOT_SUPPORTED);
    CUgraphNodeParams parameters{};
    parameters.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    CHECK(cuGraphExecNodeSetParams(executable, allocate, &parameters) == CUDA_ERROR_NOT_SUPPORTED);
  }
  CHECK_OK(cuGraphInstantiateWithFlags(&another, graph, 0));
  CHECK_OK(cuGraphExecDestroy(another));
}

TEST_CASE("a graph with memory nodes becomes a child by moving into its parent") {
  const Device device;
  const Stream stream;
  CUdeviceptr memory = 0;
  int seen = 0;
  CUgraph moved = nullptr;
  REQUIRE_OK(cuGraphCreate(&moved, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS described{};
  described.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  described.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  described.bytesize = 64;
  CUgraphNode allocate = nullptr;
  REQUIRE_OK(cuGraphAddMemAllocNode(&allocate, moved, nullptr, 0, &described));
  memory = described.dptr;
  const CUDA_MEMSET_NODE_PARAMS fill = fill_of_ints(memory, 4, 16);
  CUgraphNode filled = nullptr;
  REQUIRE_OK(cuGraphAddMemsetNode(&filled, moved, &allocate, 1, &fill, current_context()));
  const CUDA_MEMCPY3D copy = linear_copy(host_address(seen), memory, 4);
  CUgraphNode copied = nullptr, freed = nullptr;
  REQUIRE_OK(cuGraphAddMemcpyNode(&copied, moved, &filled, 1, &copy, current_context()));
  REQUIRE_OK(cuGraphAddMemFreeNode(&freed, moved, &copied, 1, memory));
  const Graph graph, other;
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph = {moved, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &parameters));
  CHECK(cuGraphAddNode_v2(&node, other, nullptr, nullptr, 0, &parameters) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuGraphDestroy(moved) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddMemAllocNode(&node, moved, nullptr, 0, &described) == CUDA_ERROR_NOT_SUPPORTED);
  CUgraphExec alone = nullptr;
  CHECK(cuGraphInstantiateWithFlags(&alone, moved, 0) == CUDA_ERROR_NOT_SUPPORTED);
  Executable(graph).run(stream);
  CHECK(seen == 4);
}

TEST_CASE("allocation nodes that cannot be are refused") {
  const Device device;
  const Graph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS right{};
  right.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  right.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  right.bytesize = 64;
  CUgraphNode node = nullptr;
  const auto add = [&](CUDA_MEM_ALLOC_NODE_PARAMS parameters) {
    return cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters);
  };
  auto wrong = right;
  wrong.bytesize = 0;
  CHECK(add(wrong) == CUDA_ERROR_INVALID_VALUE);
  wrong = right;
  wrong.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  CHECK(add(wrong) == CUDA_ERROR_INVALID_VALUE);
  wrong = right;
  wrong.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CHECK(add(wrong) == CUDA_ERROR_NOT_SUPPORTED);
  wrong = right;
  wrong.poolProps.location.id = 9;
  CHECK(add(wrong) == CUDA_ERROR_INVALID_VALUE);
  wrong = right;
  wrong.poolProps.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CHECK(add(wrong) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(graph.nodes().empty());
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {1}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  right.accessDescs = &access;
  right.accessDescCount = 1;
  CHECK_OK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &right));
  access = {};
  CUDA_MEM_ALLOC_NODE_PARAMS found{};
  CHECK_OK(cuGraphMemAllocNodeGetParams(node, &found));
  CHECK(found.accessDescs[0].location.id == 1);
}

TEST_CASE("memory of graphs is counted, kept for the next launch, and given back by a trim") {
  const Device device;
  const Stream stream;
  constexpr std::size_t bytes = 1 << 20;
  CHECK_OK(cuDeviceGraphMemTrim(0));
  cuuint64_t zero = 0;
  REQUIRE_OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  REQUIRE_OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
  std::size_t free_before = 0, free_now = 0, total = 0;
  REQUIRE_OK(cuMemGetInfo(&free_before, &total));
  CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
  CHECK(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
  {
    const Graph graph;
    CUdeviceptr memory = 0;
    const CUgraphNode allocate = graph.allocate({}, bytes, memory);
    graph.free({allocate}, memory);
    const Executable executable(graph);
    CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    executable.run(stream);
    CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == bytes);
    REQUIRE_OK(cuMemGetInfo(&free_now, &total));
    CHECK(free_before - free_now == bytes);
    {
      Gate gate(stream);
      executable.launch(stream);
      CHECK_OK(cuDeviceGraphMemTrim(0));  // it is in use
      CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == bytes);
    }
    REQUIRE_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuDeviceGraphMemTrim(0));
    CHECK(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
    executable.run(stream);
  }
  CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == bytes);  // although no graph has it any more
  CHECK(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == bytes);
  CHECK(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == bytes);
  CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == bytes);
  CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, 1) == 0);
  CHECK_OK(cuDeviceGraphMemTrim(0));
  CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
  CHECK(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
  REQUIRE_OK(cuMemGetInfo(&free_now, &total));
  CHECK(free_now == free_before);
  cuuint64_t one = 1;
  CHECK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDeviceGraphMemTrim(9) == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("a launch or an upload whose memory cannot be had is out of memory") {
  const Device device;
  const Stream stream;
  const Graph graph;
  CUdeviceptr memory = 0;
  const CUgraphNode allocate = graph.allocate({}, std::size_t{900} << 20, memory);
  graph.free({allocate}, memory);
  const Executable executable(graph);
  {
    const Memory most(std::size_t{512} << 20);
    CHECK(try_launch(executable, stream) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuGraphUpload(executable, stream) == CUDA_ERROR_OUT_OF_MEMORY);
  }
  CHECK_OK(cuGraphUpload(executable, stream));
  executable.run(stream);
}
