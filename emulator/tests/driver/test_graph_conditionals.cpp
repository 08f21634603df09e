// Conditional nodes: which body runs, and how often, is decided on the device while the graph runs.
#include "test_graph_support.hpp"

using namespace graph_test;

namespace {

CUgraphConditionalHandle make_handle(CUgraph graph, unsigned value = 0, unsigned flags = 0) {
  CUgraphConditionalHandle handle = 0;
  REQUIRE_OK(cuGraphConditionalHandleCreate(&handle, graph, current_context(), value, flags));
  return handle;
}

CUresult add_conditional(CUgraph graph, const Nodes& after, CUgraphConditionalHandle handle,
                         CUgraphConditionalNodeType type, unsigned size, Nodes& nodes, std::vector<CUgraph>& bodies) {
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.handle = handle;
  parameters.conditional.type = type;
  parameters.conditional.size = size;
  parameters.conditional.ctx = current_context();
  CUgraphNode node = nullptr;
  const CUresult result = cuGraphAddNode_v2(&node, graph, after.data(), nullptr, after.size(), &parameters);
  if (result != CUDA_SUCCESS) return result;
  nodes.push_back(node);
  bodies.assign(parameters.conditional.phGraph_out, parameters.conditional.phGraph_out + size);
  return result;
}

// A graph of one conditional node behind a kernel that sets its value, whose bodies log their numbers.
struct Conditional {
  Conditional(const Module& module, const Log& log, CUgraphConditionalNodeType type, unsigned size) {
    handle = make_handle(graph);
    setter = graph.kernel({}, module.function("set_condition"), 1, handle, 0u);
    REQUIRE_OK(add_conditional(graph, {setter}, handle, type, size, nodes, bodies));
    for (unsigned each = 0; each < size; ++each) {
      const KernelNode appends(module.function("append"), 1, log.data(), static_cast<int>(each) + 1);
      CUgraphNode node = nullptr;
      REQUIRE_OK(cuGraphAddKernelNode_v2(&node, bodies[each], nullptr, 0, &appends.parameters));
    }
    graph.kernel(nodes, module.function("append"), 1, log.data(), 100);
  }

  void run(const Module& module, const Executable& executable, CUstream stream, unsigned value) const {
    const KernelNode sets(module.function("set_condition"), 1, handle, value);
    REQUIRE_OK(cuGraphExecKernelNodeSetParams_v2(executable, setter, &sets.parameters));
    executable.run(stream);
  }

  const Graph graph;
  CUgraphConditionalHandle handle = 0;
  CUgraphNode setter = nullptr;
  Nodes nodes;
  std::vector<CUgraph> bodies;
};

}  // namespace

TEST_CASE("an if node runs its body where the value is not zero, else the other one, if it has one") {
  const Device device;
  const Module module;
  const Stream stream;
  const Log log;
  SUBCASE("without an else") {
    const Conditional conditional(module, log, CU_GRAPH_COND_TYPE_IF, 1);
    const Executable executable(conditional.graph);
    for (const unsigned value : {0u, 1u, 7u}) conditional.run(module, executable, stream, value);
    CHECK(log.entries() == std::vector{100, 1, 100, 1, 100});
  }
  SUBCASE("with an else") {
    const Conditional conditional(module, log, CU_GRAPH_COND_TYPE_IF, 2);
    const Executable executable(conditional.graph);
    for (const unsigned value : {0u, 1u}) conditional.run(module, executable, stream, value);
    CHECK(log.entries() == std::vector{2, 100, 1, 100});
  }
}

TEST_CASE("a switch node runs the body of that number, or none") {
  const Device device;
  const Module module;
  const Stream stream;
  const Log log;
  const Conditional conditional(module, log, CU_GRAPH_COND_TYPE_SWITCH, 3);
  const Executable executable(conditional.graph);
  for (const unsigned value : {2u, 0u, 3u, 1u}) conditional.run(module, executable, stream, value);
  CHECK(log.entries() == std::vector{3, 100, 1, 100, 100, 2, 100});
}

TEST_CASE("a while node runs its body until the body says that it is enough") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<2> shared;
  const Graph graph;
  const CUgraphConditionalHandle handle = make_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  Nodes nodes;
  std::vector<CUgraph> bodies;
  const CUgraphNode start = graph.kernel({}, module.function("store"), 1, shared.data(), 5);
  REQUIRE_OK(add_conditional(graph, {start}, handle, CU_GRAPH_COND_TYPE_WHILE, 1, nodes, bodies));
  const KernelNode adds(module.function("add"), 1, shared.data() + 1, 1);
  CUgraphNode added = nullptr, counted = nullptr;
  REQUIRE_OK(cuGraphAddKernelNode_v2(&added, bodies[0], nullptr, 0, &adds.parameters));
  const KernelNode counts(module.function("count_down"), 1, handle, shared.data());
  REQUIRE_OK(cuGraphAddKernelNode_v2(&counted, bodies[0], &added, 1, &counts.parameters));
  const Executable executable(graph);
  executable.run(stream);
  CHECK(shared[1] == 5);
  executable.run(stream);  // the default value is assigned again
  CHECK(shared[1] == 10);
}

TEST_CASE("conditional nodes may be in the bodies of others") {
  const Device device;
  const Module module;
  const Stream stream;
  const Log log;
  const Graph graph;
  const CUgraphConditionalHandle outer = make_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  const CUgraphConditionalHandle inner = make_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  Nodes nodes;
  std::vector<CUgraph> outer_bodies, inner_bodies;
  REQUIRE_OK(add_conditional(graph, {}, outer, CU_GRAPH_COND_TYPE_IF, 2, nodes, outer_bodies));
  REQUIRE_OK(add_conditional(outer_bodies[0], {}, inner, CU_GRAPH_COND_TYPE_SWITCH, 2, nodes, inner_bodies));
  const KernelNode appends(module.function("append"), 1, log.data(), 42);
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddKernelNode_v2(&node, inner_bodies[1], nullptr, 0, &appends.parameters));
  const Executable executable(graph);
  executable.run(stream);
  CHECK(log.entries() == std::vector{42});
}

TEST_CASE("a fault in a body ends the loop") {
  const Device device;
  const Module module;
  const Stream stream;
  const Graph graph;
  const CUgraphConditionalHandle handle = make_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  Nodes nodes;
  std::vector<CUgraph> bodies;
  REQUIRE_OK(add_conditional(graph, {}, handle, CU_GRAPH_COND_TYPE_WHILE, 1, nodes, bodies));
  const KernelNode stores(module.function("store"), 1, static_cast<int*>(nullptr), 1);
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddKernelNode_v2(&node, bodies[0], nullptr, 0, &stores.parameters));
  const Executable executable(graph);
  executable.launch(stream);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("conditional nodes that cannot be are refused") {
  const Device device;
  const Graph graph, other;
  const CUgraphConditionalHandle handle = make_handle(graph);
  CUgraphConditionalHandle none = 0;
  CHECK(cuGraphConditionalHandleCreate(&none, graph, device.context(), 0, 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphConditionalHandleCreate(&none, graph, nullptr, 0, 0) == CUDA_ERROR_INVALID_CONTEXT);
  Nodes nodes;
  std::vector<CUgraph> bodies;
  const auto add = [&](CUgraph where, CUgraphConditionalHandle which, CUgraphConditionalNodeType type, unsigned size) {
    return add_conditional(where, {}, which, type, size, nodes, bodies);
  };
  CHECK(add(graph, 0, CU_GRAPH_COND_TYPE_IF, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(add(other, handle, CU_GRAPH_COND_TYPE_IF, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(add(graph, handle, CU_GRAPH_COND_TYPE_IF, 3) == CUDA_ERROR_INVALID_VALUE);
  CHECK(add(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(add(graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(add(graph, handle, CU_GRAPH_COND_TYPE_IF, 1));
  CHECK(add(graph, handle, CU_GRAPH_COND_TYPE_IF, 1) == CUDA_ERROR_INVALID_VALUE);  // it has a node
  CUgraphNode node = nullptr;
  CHECK(cuGraphDestroy(bodies[0]) == CUDA_ERROR_INVALID_VALUE);
  // A graph with such nodes is not copied, is no child, and has one executable at a time.
  CUgraph copy = nullptr;
  CHECK(cuGraphClone(&copy, graph) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuGraphAddChildGraphNode(&node, other, nullptr, 0, graph) == CUDA_ERROR_NOT_SUPPORTED);
  const Executable executable(graph);
  CUgraphExec another = nullptr;
  CHECK(cuGraphInstantiateWithFlags(&another, graph, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("a graph whose handle has no node, or whose body holds what no body may, is not instantiated") {
  const Device device;
  const Graph graph;
  const CUgraphConditionalHandle handle = make_handle(graph);
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  CUgraphExec executable = nullptr;
  CHECK(cuGraphInstantiateWithParams(&executable, graph, &parameters) == CUDA_ERROR_INVALID_VALUE);
  CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
  Nodes nodes;
  std::vector<CUgraph> bodies;
  REQUIRE_OK(add_conditional(graph, {}, handle, CU_GRAPH_COND_TYPE_IF, 1, nodes, bodies));
  const CUDA_HOST_NODE_PARAMS host{[](void*) {}, nullptr};
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddHostNode(&node, bodies[0], nullptr, 0, &host));
  CHECK(cuGraphInstantiateWithParams(&executable, graph, &parameters) == CUDA_ERROR_INVALID_VALUE);
  CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
  CHECK(parameters.hErrNode_out == node);
  REQUIRE_OK(cuGraphDestroyNode(node));
  REQUIRE_OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
  CHECK_OK(cuGraphExecDestroy(executable));
}
