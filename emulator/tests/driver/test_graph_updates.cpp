// What can be changed in an executable graph: for launches to come, never for one that was submitted.
#include <cstring>

#include "test_graph_support.hpp"

using namespace graph_test;

namespace {

CUgraphExecUpdateResultInfo update(CUgraphExec executable, CUgraph graph, CUresult expected) {
  CUgraphExecUpdateResultInfo info{};
  CHECK(cuGraphExecUpdate_v2(executable, graph, &info) == expected);
  return info;
}

}  // namespace

TEST_CASE("parameters that are set in an executable hold for later launches only") {
  const Device device;
  const Module module;
  const Log log;
  const CUfunction append = module.function("append");
  const Graph graph;
  const CUgraphNode node = graph.kernel({}, append, 1, log.data(), 1);
  const Executable executable(graph);
  const Stream stream;
  {
    Gate gate(stream);
    executable.launch(stream);
    const KernelNode second(append, 1, log.data(), 2);
    CHECK_OK(cuGraphExecKernelNodeSetParams_v2(executable, node, &second.parameters));
    const KernelNode third(append, 1, log.data(), 3);
    CHECK_OK(cuGraphExecKernelNodeSetParams_v2(executable, node, &third.parameters));
    executable.launch(stream);
    executable.launch(stream);
    const KernelNode last(append, 1, log.data(), 4);
    CHECK_OK(cuGraphExecKernelNodeSetParams_v2(executable, node, &last.parameters));
  }
  REQUIRE_OK(cuStreamSynchronize(stream));
  executable.run(stream);
  CHECK(log.entries() == std::vector{1, 3, 3, 4});
  CUDA_KERNEL_NODE_PARAMS found{};
  CHECK_OK(cuGraphKernelNodeGetParams_v2(node, &found));
  CHECK(*static_cast<int*>(found.kernelParams[1]) == 1);  // the node itself stays
}

TEST_CASE("a kernel's function may change in an executable, its context may not") {
  const Device second(1);
  const Module other_module;
  const Device first;
  const Module module;
  const SharedInts<1> out;
  const Graph graph;
  const CUgraphNode node = graph.kernel({}, module.function("add"), 1, out.data(), 1);
  const Executable executable(graph);
  const KernelNode stores(module.function("store"), 1, out.data(), 42);
  CHECK_OK(cuGraphExecKernelNodeSetParams_v2(executable, node, &stores.parameters));
  const KernelNode elsewhere(other_module.function("store"), 1, out.data(), 43);
  CHECK(cuGraphExecKernelNodeSetParams_v2(executable, node, &elsewhere.parameters) == CUDA_ERROR_INVALID_VALUE);
  KernelNode wrong(module.function("store"), 0, out.data(), 44);
  CHECK(cuGraphExecKernelNodeSetParams_v2(executable, node, &wrong.parameters) == CUDA_ERROR_INVALID_VALUE);
  const Stream stream;
  executable.run(stream);
  CHECK(out[0] == 42);
}

TEST_CASE("copies, memsets, host functions, events and batches can be set in an executable") {
  const Device device;
  const Memory memory(64), other(64);
  const SharedInts<8> out;
  const Event one, two;
  const Graph graph;
  const CUgraphNode fill = graph.fill({}, memory, 1, 4);
  const CUgraphNode copy = graph.copy({fill}, out.address(), memory, 4);
  const CUhostFn function = [](void* value) { *static_cast<int*>(value) = 7; };
  const CUgraphNode host = graph.host({copy}, function, out.data() + 4);
  const CUgraphNode record = graph.record({host}, one);
  const CUgraphNode wait = graph.wait({record}, one);
  CUstreamBatchMemOpParams operation{};
  operation.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, out.address(5), {1}, 0, 0};
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{device.context(), 1, &operation, 0};
  CUgraphNode write = nullptr;
  REQUIRE_OK(cuGraphAddBatchMemOpNode(&write, graph, &wait, 1, &batch));
  const Executable executable(graph);

  const CUDA_MEMSET_NODE_PARAMS other_fill = fill_of_ints(other, 9, 8);
  CHECK_OK(cuGraphExecMemsetNodeSetParams(executable, fill, &other_fill, device.context()));
  const CUDA_MEMCPY3D other_copy = linear_copy(out.address(1), other, 8);
  CHECK_OK(cuGraphExecMemcpyNodeSetParams(executable, copy, &other_copy, device.context()));
  const CUDA_HOST_NODE_PARAMS other_host{function, out.data() + 3};
  CHECK_OK(cuGraphExecHostNodeSetParams(executable, host, &other_host));
  CHECK_OK(cuGraphExecEventRecordNodeSetEvent(executable, record, two));
  CHECK_OK(cuGraphExecEventWaitNodeSetEvent(executable, wait, two));
  operation.writeValue.value = 6;
  CHECK_OK(cuGraphExecBatchMemOpNodeSetParams(executable, write, &batch));
  const Stream stream;
  {
    Gate gate(stream);
    executable.launch(stream);
    CHECK_OK(cuEventQuery(one));
    CHECK(cuEventQuery(two) == CUDA_ERROR_NOT_READY);
  }
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(std::vector<int>(out.data(), out.data() + 6) == std::vector{0, 9, 9, 7, 0, 6});
}

TEST_CASE("what cannot change in an executable is refused, and changes nothing") {
  const Device device;
  const Memory memory(256);
  const SharedInts<16> out;
  const Graph graph, stranger;
  const CUgraphNode fill = graph.fill({}, memory, 1, 4);
  CUDA_MEMSET_NODE_PARAMS rows = fill_of_ints(memory, 1, 2);
  rows.height = 2;
  rows.pitch = 16;
  CUgraphNode two_rows = nullptr;
  REQUIRE_OK(cuGraphAddMemsetNode(&two_rows, graph, &fill, 1, &rows, device.context()));
  const CUgraphNode copy = graph.copy({two_rows}, out.address(), memory, 16);
  CUstreamBatchMemOpParams operation{};
  operation.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, out.address(5), {1}, 0, 0};
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{device.context(), 1, &operation, 0};
  CUgraphNode write = nullptr;
  REQUIRE_OK(cuGraphAddBatchMemOpNode(&write, graph, &copy, 1, &batch));
  const CUgraphNode foreign = stranger.fill({}, memory, 1, 4);
  const CUgraphNode nothing = graph.empty();
  const Executable executable(graph);

  CUDA_MEMSET_NODE_PARAMS narrower = rows;
  narrower.width = 1;
  CHECK(cuGraphExecMemsetNodeSetParams(executable, two_rows, &narrower, device.context()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphExecMemsetNodeSetParams(executable, fill, &rows, device.context()) == CUDA_ERROR_INVALID_VALUE);
  const CUDA_MEMSET_NODE_PARAMS right = fill_of_ints(memory, 2, 4);
  CHECK(cuGraphExecMemsetNodeSetParams(executable, foreign, &right, device.context()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphExecMemsetNodeSetParams(executable, copy, &right, device.context()) == CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr of_pool = 0;
  REQUIRE_OK(cuMemAllocAsync(&of_pool, 256, nullptr));
  const CUDA_MEMCPY3D from_pool = linear_copy(out.address(), of_pool, 16);
  CHECK(cuGraphExecMemcpyNodeSetParams(executable, copy, &from_pool, device.context()) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuMemFreeAsync(of_pool, nullptr));
  CUDA_MEMCPY3D pitched = linear_copy(out.address(), memory, 4);
  pitched.Height = 2;
  pitched.srcPitch = pitched.dstPitch = 8;
  CHECK(cuGraphExecMemcpyNodeSetParams(executable, copy, &pitched, device.context()) == CUDA_ERROR_INVALID_VALUE);
  CUstreamBatchMemOpParams wait{};
  wait.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, out.address(5), {1}, CU_STREAM_WAIT_VALUE_EQ, 0};
  batch.paramArray = &wait;
  CHECK(cuGraphExecBatchMemOpNodeSetParams(executable, write, &batch) == CUDA_ERROR_INVALID_VALUE);
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_EMPTY;
  CHECK(cuGraphExecNodeSetParams(executable, fill, &parameters) == CUDA_ERROR_INVALID_VALUE);
  unsigned enabled = 0;
  CHECK(cuGraphNodeSetEnabled(executable, nothing, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphNodeGetEnabled(executable, foreign, &enabled) == CUDA_ERROR_INVALID_VALUE);
  const Stream stream;
  executable.run(stream);
  CHECK(out[0] == 1);
  CHECK(out[5] == 1);
}

TEST_CASE("a generic function sets the parameters of a node in an executable") {
  const Device device;
  const Memory memory(64);
  const Graph graph;
  const CUgraphNode fill = graph.fill({}, memory, 1, 4);
  const Executable executable(graph);
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_MEMSET;
  parameters.memset = {memory, 0, 8, 4, 4, 1, device.context()};
  CHECK_OK(cuGraphExecNodeSetParams(executable, fill, &parameters));
  const Stream stream;
  executable.run(stream);
  CHECK(read_ints(memory, 1) == std::vector{8});
}

TEST_CASE("a disabled node is as if it were empty, until it is enabled") {
  const Device device;
  const Module module;
  const Log log;
  const CUfunction append = module.function("append");
  const Graph graph;
  const CUgraphNode first = graph.kernel({}, append, 1, log.data(), 1);
  const CUgraphNode second = graph.kernel({first}, append, 1, log.data(), 2);
  graph.kernel({second}, append, 1, log.data(), 3);
  const Executable executable(graph);
  const Stream stream;
  unsigned enabled = 0;
  CHECK_OK(cuGraphNodeGetEnabled(executable, second, &enabled));
  CHECK(enabled == 1);
  {
    Gate gate(stream);
    executable.launch(stream);
    CHECK_OK(cuGraphNodeSetEnabled(executable, second, 0));
    executable.launch(stream);
  }
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK_OK(cuGraphNodeGetEnabled(executable, second, &enabled));
  CHECK(enabled == 0);
  // Its parameters can be set meanwhile.
  const KernelNode changed(append, 1, log.data(), 5);
  CHECK_OK(cuGraphExecKernelNodeSetParams_v2(executable, second, &changed.parameters));
  executable.run(stream);
  CHECK_OK(cuGraphNodeSetEnabled(executable, second, 7));
  executable.run(stream);
  CHECK(log.entries() == std::vector{1, 2, 3, 1, 3, 1, 3, 1, 5, 3});
}

TEST_CASE("the nodes in a child graph of an executable can be set, one by one or all at once") {
  const Device device;
  const Module module;
  const Log log;
  const CUfunction append = module.function("append");
  const Graph inner;
  const CUgraphNode first = inner.kernel({}, append, 1, log.data(), 1);
  inner.kernel({first}, append, 1, log.data(), 2);
  const Graph graph;
  const CUgraphNode child_node = graph.child({}, inner);
  const Executable executable(graph);
  CUgraph child = nullptr;
  REQUIRE_OK(cuGraphChildGraphNodeGetGraph(child_node, &child));
  std::size_t count = 2;
  std::array<CUgraphNode, 2> nodes{};
  REQUIRE_OK(cuGraphGetNodes(child, nodes.data(), &count));
  const Stream stream;
  const KernelNode changed(append, 1, log.data(), 3);
  CHECK_OK(cuGraphExecKernelNodeSetParams_v2(executable, nodes[1], &changed.parameters));
  executable.run(stream);
  const Graph others;
  const CUgraphNode four = others.kernel({}, append, 1, log.data(), 4);
  others.kernel({four}, append, 1, log.data(), 5);
  CHECK_OK(cuGraphExecChildGraphNodeSetParams(executable, child_node, others));
  executable.run(stream);
  others.empty();
  CHECK(cuGraphExecChildGraphNodeSetParams(executable, child_node, others) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK(log.entries() == std::vector{1, 3, 4, 5});
}

TEST_CASE("an executable is updated by a graph of the same form") {
  const Device device;
  const Module module;
  const Log log;
  const CUfunction append = module.function("append");
  const auto diamond = [&](const Graph& graph, int base) {
    const CUgraphNode top = graph.kernel({}, append, 1, log.data(), base + 1);
    const CUgraphNode left = graph.kernel({top}, append, 1, log.data(), base + 2);
    const CUgraphNode right = graph.kernel({left}, append, 1, log.data(), base + 3);
    graph.kernel({left, right}, append, 1, log.data(), base + 4);
  };
  const Graph graph, same;
  diamond(graph, 0);
  diamond(same, 10);
  const Executable executable(graph);
  const Stream stream;
  {
    Gate gate(stream);
    executable.launch(stream);
    const auto info = update(executable, same, CUDA_SUCCESS);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    CHECK(info.errorNode == nullptr);
    executable.launch(stream);
  }
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{1, 2, 3, 4, 11, 12, 13, 14});
}

TEST_CASE("an update pairs nodes by their edges, in whatever order they were added") {
  const Device device;
  const Module module;
  const Log log;
  const CUfunction append = module.function("append");
  const Graph graph, other;
  const CUgraphNode first = graph.kernel({}, append, 1, log.data(), 1);
  graph.kernel({first}, append, 1, log.data(), 2);
  const CUgraphNode second = other.kernel({}, append, 1, log.data(), 12);
  const CUgraphNode before = other.kernel({}, append, 1, log.data(), 11);
  REQUIRE_OK(cuGraphAddDependencies_v2(other, &before, &second, nullptr, 1));
  const Executable executable(graph);
  update(executable, other, CUDA_SUCCESS);
  const Stream stream;
  executable.run(stream);
  CHECK(log.entries() == std::vector{11, 12});
}

TEST_CASE("an update that cannot be says why, and changes nothing") {
  const Device device;
  const Module module;
  const Log log;
  const Memory memory(256);
  const CUfunction append = module.function("append");
  const Graph graph;
  const CUgraphNode first = graph.kernel({}, append, 1, log.data(), 1);
  graph.fill({first}, memory, 1, 4);
  const Executable executable(graph);
  constexpr CUresult failure = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;

  const Graph more;
  const CUgraphNode one = more.kernel({}, append, 1, log.data(), 2), two = more.fill({one}, memory, 2, 4);
  more.empty({two});
  auto info = update(executable, more, failure);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CHECK(info.errorNode == nullptr);

  const Graph apart;
  const CUgraphNode exit = apart.kernel({}, append, 1, log.data(), 2), other_exit = apart.fill({}, memory, 2, 4);
  info = update(executable, apart, failure);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CHECK((info.errorNode == exit || info.errorNode == other_exit));

  const Graph types;
  const CUgraphNode start = types.kernel({}, append, 1, log.data(), 2), empty = types.empty({start});
  info = update(executable, types, failure);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  CHECK(info.errorNode == empty);

  const Graph parameters;
  const CUgraphNode begin = parameters.kernel({}, append, 1, log.data(), 2);
  CUDA_MEMSET_NODE_PARAMS rows = fill_of_ints(memory, 1, 2);
  rows.height = 2;
  rows.pitch = 16;
  CUgraphNode two_rows = nullptr;
  REQUIRE_OK(cuGraphAddMemsetNode(&two_rows, parameters, &begin, 1, &rows, device.context()));
  info = update(executable, parameters, failure);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
  CHECK(info.errorNode == two_rows);

  const Graph attributes;
  const CUgraphNode cooperative = attributes.kernel({}, append, 1, log.data(), 2);
  attributes.fill({cooperative}, memory, 2, 4);
  CUlaunchAttributeValue value{};
  value.cooperative = 1;
  REQUIRE_OK(cuGraphKernelNodeSetAttribute(cooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  info = update(executable, attributes, failure);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
  CHECK(info.errorNode == cooperative);

  CHECK(cuGraphExecUpdate_v2(executable, nullptr, &info) == CUDA_ERROR_INVALID_VALUE);
  const Stream stream;
  executable.run(stream);
  CHECK(log.entries() == std::vector{1});
  CHECK(read_ints(memory, 1) == std::vector{1});
}

TEST_CASE("an update finds an edge that leads elsewhere") {
  const Device device;
  const Graph graph, other;
  {
    const CUgraphNode a = graph.empty(), b = graph.empty({a}), c = graph.empty({a, b});
    graph.empty({c});
  }
  const CUgraphNode a = other.empty(), b = other.empty({a}), c = other.empty({b, a});
  other.empty({c});
  const Executable executable(graph);
  // The pairs are found in the order of the edges: the node that has no dependencies meets one that has, and first.
  const auto info = update(executable, other, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CHECK(info.errorNode == b);
}

TEST_CASE("a function of another context cannot be updated in") {
  const Device second(1);
  const Module other_module;
  const Device first;
  const Module module;
  const Graph graph, other;
  graph.kernel({}, module.function("nothing"), 1);
  const CUgraphNode node = other.kernel({}, other_module.function("nothing"), 1);
  const Executable executable(graph);
  const auto info = update(executable, other, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
  CHECK(info.errorNode == node);
}

TEST_CASE("priorities of nodes are fixed where an executable uses them") {
  const Device device;
  const Module module;
  const Graph graph, other;
  graph.kernel({}, module.function("nothing"), 1);
  const CUgraphNode node = other.kernel({}, module.function("nothing"), 1);
  CUlaunchAttributeValue value{};
  value.priority = -2;
  REQUIRE_OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  update(Executable(graph), other, CUDA_SUCCESS);
  const Executable by_node(graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
  const auto info = update(by_node, other, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
}
