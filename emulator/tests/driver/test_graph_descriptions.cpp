// Ids of graphs, and the parameters of nodes of any type as one structure (CUDA 13.1 to 13.4).
#include <cstring>
#include <fstream>
#include <sstream>

#include "newer_api.hpp"
#include "test_graph_support.hpp"

using namespace graph_test;
using aiocuda::emulator::host_task_spin_wait;
using aiocuda::emulator::HostNodeParameters;

namespace {

CUgraphNodeParams parameters_of(CUgraphNode node) {
  CUgraphNodeParams found;
  std::memset(static_cast<void*>(&found), 0xff, sizeof found);
  REQUIRE_OK(cuGraphNodeGetParams(node, &found));
  CUgraphNodeType type{};
  REQUIRE_OK(cuGraphNodeGetType(node, &type));
  CHECK(found.type == type);
  return found;
}

CUgraphNode added(CUgraph graph, CUgraphNodeParams& parameters) {
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddNode_v3(&node, graph, nullptr, nullptr, 0, &parameters));
  return node;
}

unsigned id_of(CUgraph graph) {
  unsigned id = 0;
  REQUIRE_OK(cuGraphGetId(graph, &id));
  return id;
}

void do_nothing(void*) {}

}  // namespace

TEST_CASE("graphs, executables and nodes have ids, which a picture of the graph has, too") {
  const Device device;
  const Graph graph, other;
  const CUgraphNode first = graph.empty(), second = graph.empty();
  CHECK(id_of(graph) != id_of(other));
  unsigned first_id = 9, second_id = 9;
  REQUIRE_OK(cuGraphNodeGetLocalId(first, &first_id));
  REQUIRE_OK(cuGraphNodeGetLocalId(second, &second_id));
  CHECK(first_id == 0);
  CHECK(second_id == 1);
  unsigned long long first_tool = 0, second_tool = 0;
  REQUIRE_OK(cuGraphNodeGetToolsId(first, &first_tool));
  REQUIRE_OK(cuGraphNodeGetToolsId(second, &second_tool));
  CHECK(first_tool != second_tool);
  CUgraph containing = nullptr;
  REQUIRE_OK(cuGraphNodeGetContainingGraph(second, &containing));
  CHECK(containing == graph);
  CUgraphExec executable = nullptr;
  REQUIRE_OK(cuGraphInstantiate(&executable, graph, 0));
  unsigned executable_id = 0;
  REQUIRE_OK(cuGraphExecGetId(executable, &executable_id));
  CHECK(executable_id != id_of(graph));
  CHECK_OK(cuGraphExecDestroy(executable));
  CHECK(cuGraphExecGetId(executable, &executable_id) == CUDA_ERROR_INVALID_VALUE);

  const std::string path = "aiocuda-test-" + std::to_string(getpid()) + ".dot";
  REQUIRE_OK(cuGraphDebugDotPrint(graph, path.c_str(), 0));
  std::ostringstream picture;
  picture << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  CHECK(picture.str().find("graph_" + std::to_string(id_of(graph)) + "_node_" + std::to_string(second_id)) !=
        std::string::npos);

  CHECK(cuGraphGetId(nullptr, &first_id) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphGetId(graph, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphNodeGetLocalId(nullptr, &first_id) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a node in a child graph is in that graph") {
  const Device device;
  const Graph inner, outer;
  inner.empty();
  const CUgraphNode child = outer.child({}, inner);
  const CUgraphNodeParams found = parameters_of(child);
  CHECK(found.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
  CUgraphNode node = nullptr;
  std::size_t count = 1;
  REQUIRE_OK(cuGraphGetNodes(found.graph.graph, &node, &count));
  CUgraph containing = nullptr;
  REQUIRE_OK(cuGraphNodeGetContainingGraph(node, &containing));
  CHECK(containing == found.graph.graph);
  CHECK(containing != static_cast<CUgraph>(outer));
}

TEST_CASE("the parameters of a node of any type are given back as one structure") {
  const Device device;
  const Module module;
  const SharedInts<4> out;
  const Event event;
  const Graph graph;
  const CUgraphNodeParams kernel = parameters_of(graph.kernel({}, module.function("add"), 4, out.data(), 3));
  CHECK(kernel.kernel.func == module.function("add"));
  CHECK(kernel.kernel.gridDimX == 4);
  CHECK(*static_cast<int*>(kernel.kernel.kernelParams[1]) == 3);
  const CUgraphNodeParams fill = parameters_of(graph.fill({}, out.address(), 7, 4));
  CHECK(fill.memset.dst == out.address());
  CHECK(fill.memset.value == 7);
  CHECK(fill.memset.ctx == device.context());
  const CUgraphNodeParams copy = parameters_of(graph.copy({}, out.address(), out.address() + 8, 8));
  CHECK(copy.memcpy.copyParams.dstDevice == out.address());
  CHECK(copy.memcpy.copyParams.WidthInBytes == 8);
  CHECK(copy.memcpy.copyCtx == device.context());
  CHECK(parameters_of(graph.record({}, event)).eventRecord.event == static_cast<CUevent>(event));

  CUgraphNodeParams wait{};
  wait.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  wait.eventWait.event = event;
  CHECK(parameters_of(added(graph, wait)).eventWait.event == static_cast<CUevent>(event));

  CUgraphNodeParams allocate{};
  allocate.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  allocate.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocate.alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  allocate.alloc.bytesize = 64;
  const CUgraphNode allocation = added(graph, allocate);
  CHECK(parameters_of(allocation).alloc.dptr == allocate.alloc.dptr);
  CHECK(parameters_of(allocation).alloc.bytesize == 64);
  CUgraphNodeParams free{};
  free.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  free.free.dptr = allocate.alloc.dptr;
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddNode_v3(&node, graph, &allocation, nullptr, 1, &free));
  CHECK(parameters_of(node).free.dptr == allocate.alloc.dptr);

  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = out.address();
  CUgraphNodeParams batch{};
  batch.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  batch.memOp = {device.context(), 1, &operation, 0};
  const CUgraphNodeParams found_batch = parameters_of(added(graph, batch));
  CHECK(found_batch.memOp.count == 1);
  CHECK(found_batch.memOp.paramArray != &operation);
  CHECK(found_batch.memOp.paramArray[0].writeValue.address == out.address());

  CHECK(cuGraphNodeGetParams(node, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphNodeGetParams(nullptr, &batch) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a conditional node gives back its handle and its bodies") {
  const Device device;
  const Graph graph;
  CUgraphNodeParams conditional{};
  conditional.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  REQUIRE_OK(cuGraphConditionalHandleCreate(&conditional.conditional.handle, graph, device.context(), 0, 0));
  conditional.conditional.type = CU_GRAPH_COND_TYPE_IF;
  conditional.conditional.size = 2;
  conditional.conditional.ctx = device.context();
  const CUgraphNodeParams found = parameters_of(added(graph, conditional));
  CHECK(found.conditional.handle == conditional.conditional.handle);
  CHECK(found.conditional.type == CU_GRAPH_COND_TYPE_IF);
  CHECK(found.conditional.size == 2);
  CHECK(found.conditional.phGraph_out[1] == conditional.conditional.phGraph_out[1]);
  CHECK(found.conditional.ctx == device.context());
}

TEST_CASE("a host node keeps how its thread waits, and refuses what is no way to") {
  const Device device;
  const Graph graph;
  CUgraphNodeParams host{};
  host.type = CU_GRAPH_NODE_TYPE_HOST;
  HostNodeParameters described{&do_nothing, nullptr, host_task_spin_wait, device.context()};
  std::memcpy(&host.host, &described, sizeof described);
  const CUgraphNodeParams found = parameters_of(added(graph, host));
  HostNodeParameters told;
  std::memcpy(&told, &found.host, sizeof told);
  CHECK((told.function == &do_nothing));
  CHECK(told.sync_mode == host_task_spin_wait);
  CHECK(told.preferred == device.context());

  CUgraphNode node = nullptr;
  described.sync_mode = 2;
  std::memcpy(&host.host, &described, sizeof described);
  CHECK(cuGraphAddNode_v3(&node, graph, nullptr, nullptr, 0, &host) == CUDA_ERROR_INVALID_VALUE);
  described = {&do_nothing, nullptr, 0, reinterpret_cast<CUcontext>(&node)};
  std::memcpy(&host.host, &described, sizeof described);
  CHECK(cuGraphAddNode_v3(&node, graph, nullptr, nullptr, 0, &host) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("the newest form of a kernel node refuses another context than its function's") {
  const Device device;
  const Module module;
  const SharedInts<4> out;
  CUcontext other = nullptr;
  REQUIRE_OK(cuDevicePrimaryCtxRetain(&other, 1));
  const Graph graph;
  const CUgraphNode node = graph.kernel({}, module.function("add"), 1, out.data(), 1);
  CUgraphNodeParams changed = parameters_of(node);
  CHECK(changed.kernel.ctx == device.context());
  CHECK_OK(cuGraphNodeSetParams_v2(node, &changed));
  changed = parameters_of(node);  // what was asked before points to arguments that the node has let go
  changed.kernel.ctx = other;
  CHECK(cuGraphNodeSetParams_v2(node, &changed) == CUDA_ERROR_INVALID_CONTEXT);
  CUgraphNode another = nullptr;
  CHECK(cuGraphAddNode_v3(&another, graph, nullptr, nullptr, 0, &changed) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK_OK(cuGraphNodeSetParams(node, &changed));  // the form of CUDA 12 ignores it
  CHECK_OK(cuDevicePrimaryCtxRelease(1));
}
