// Graphs as structures: nodes, edges, copies of them, and what CUDA refuses.
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "test_graph_support.hpp"

#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#undef cuGraphNodeGetDependencies
#undef cuGraphNodeGetDependentNodes
#undef cuGraphRemoveDependencies
// The forms without edge data, which cuda.h hides behind the newer ones.
extern "C" {
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode*, const CUgraphNode*, std::size_t);
CUresult cuGraphGetEdges(CUgraph, CUgraphNode*, CUgraphNode*, std::size_t*);
CUresult cuGraphNodeGetDependencies(CUgraphNode, CUgraphNode*, std::size_t*);
CUresult cuGraphNodeGetDependentNodes(CUgraphNode, CUgraphNode*, std::size_t*);
CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode*, const CUgraphNode*, std::size_t);
}

using namespace graph_test;

namespace {

Nodes dependencies_of(CUgraphNode node) {
  std::size_t count = 0;
  REQUIRE_OK(cuGraphNodeGetDependencies(node, nullptr, &count));
  Nodes found(count);
  REQUIRE_OK(cuGraphNodeGetDependencies(node, found.data(), &count));
  return found;
}

Nodes dependents_of(CUgraphNode node) {
  std::size_t count = 0;
  REQUIRE_OK(cuGraphNodeGetDependentNodes(node, nullptr, &count));
  Nodes found(count);
  REQUIRE_OK(cuGraphNodeGetDependentNodes(node, found.data(), &count));
  return found;
}

std::set<std::pair<CUgraphNode, CUgraphNode>> edges_of(CUgraph graph) {
  std::size_t count = 0;
  REQUIRE_OK(cuGraphGetEdges(graph, nullptr, nullptr, &count));
  Nodes from(count), to(count);
  REQUIRE_OK(cuGraphGetEdges(graph, from.data(), to.data(), &count));
  std::set<std::pair<CUgraphNode, CUgraphNode>> edges;
  for (std::size_t each = 0; each < count; ++each) edges.emplace(from[each], to[each]);
  return edges;
}

CUresult connect(CUgraph graph, CUgraphNode from, CUgraphNode to) {
  return cuGraphAddDependencies(graph, &from, &to, 1);
}
CUresult disconnect(CUgraph graph, CUgraphNode from, CUgraphNode to) {
  return cuGraphRemoveDependencies(graph, &from, &to, 1);
}

CUgraphEdgeData programmatic() {
  CUgraphEdgeData data{};
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  return data;
}

}  // namespace

TEST_CASE("a graph tells its nodes, roots and edges in the order in which they were added") {
  const Device device;
  const Graph graph;
  const CUgraphNode a = graph.empty(), b = graph.empty({a}), c = graph.empty({a}), d = graph.empty({b, c}),
                    e = graph.empty();
  CHECK(graph.nodes() == Nodes{a, b, c, d, e});
  std::size_t count = 5;
  Nodes roots(count, a);
  CHECK_OK(cuGraphGetRootNodes(graph, roots.data(), &count));
  CHECK(count == 2);
  CHECK(std::set(roots.begin(), roots.begin() + 2) == std::set{a, e});
  CHECK(std::set(roots.begin() + 2, roots.end()) == std::set<CUgraphNode>{nullptr});
  CHECK(edges_of(graph) == std::set{std::pair{a, b}, std::pair{a, c}, std::pair{b, d}, std::pair{c, d}});
  CHECK(dependencies_of(d) == Nodes{b, c});
  CHECK(dependents_of(a) == Nodes{b, c});
  CHECK(dependencies_of(e).empty());
  // As many as there is room for.
  count = 1;
  Nodes one(1);
  CHECK_OK(cuGraphNodeGetDependencies(d, one.data(), &count));
  CHECK(count == 1);
  CHECK(one == Nodes{b});
}

TEST_CASE("edges can be added and removed, and a removed node takes its edges along") {
  const Device device;
  const Graph graph;
  const CUgraphNode a = graph.empty(), b = graph.empty({a}), c = graph.empty({b});
  CHECK_OK(connect(graph, a, c));
  CHECK_OK(disconnect(graph, b, c));
  CHECK(edges_of(graph) == std::set{std::pair{a, b}, std::pair{a, c}});
  CHECK_OK(cuGraphDestroyNode(b));
  CHECK(graph.nodes() == Nodes{a, c});
  CHECK(dependents_of(a) == Nodes{c});
}

TEST_CASE("edges that cannot be are refused") {
  const Device device;
  const Graph graph, other;
  const CUgraphNode a = graph.empty(), b = graph.empty({a}), foreign = other.empty();
  CHECK(connect(graph, a, a) == CUDA_ERROR_INVALID_VALUE);
  CHECK(connect(graph, a, b) == CUDA_ERROR_INVALID_VALUE);  // it is there
  CHECK(connect(graph, a, foreign) == CUDA_ERROR_INVALID_VALUE);
  CHECK(connect(graph, foreign, a) == CUDA_ERROR_INVALID_VALUE);
  CHECK(disconnect(graph, b, a) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuGraphAddDependencies(graph, nullptr, nullptr, 0));
  CHECK(edges_of(graph) == std::set{std::pair{a, b}});
}

TEST_CASE("a node's dependencies are of its graph, and each is named once") {
  const Device device;
  const Graph graph, other;
  const CUgraphNode a = graph.empty(), foreign = other.empty();
  CUgraphNode node = nullptr;
  const std::array twice{a, a}, mixed{a, foreign};
  CHECK(cuGraphAddEmptyNode(&node, graph, twice.data(), 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddEmptyNode(&node, graph, mixed.data(), 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(graph.nodes() == Nodes{a});
}

TEST_CASE("a circle of edges is found when the graph is instantiated") {
  const Device device;
  const Graph graph;
  const CUgraphNode start = graph.empty(), a = graph.empty({start}), b = graph.empty({a}), end = graph.empty();
  CHECK_OK(connect(graph, b, a));
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  CUgraphExec executable = nullptr;
  CHECK(cuGraphInstantiateWithParams(&executable, graph, &parameters) == CUDA_ERROR_INVALID_VALUE);
  CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
  CHECK((parameters.hErrNode_out == a || parameters.hErrNode_out == b));
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(disconnect(graph, b, a));
  CHECK_OK(connect(graph, b, end));
  CHECK_OK(cuGraphInstantiateWithParams(&executable, graph, &parameters));
  CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
  CHECK(parameters.hErrNode_out == nullptr);
  CHECK_OK(cuGraphExecDestroy(executable));
}

TEST_CASE("edges between kernels may be programmatic, and are told with their data or not at all") {
  const Device device;
  const Module module;
  const CUfunction nothing = module.function("nothing");
  const Graph graph;
  const CUgraphNode a = graph.kernel({}, nothing, 1), b = graph.kernel({}, nothing, 1), empty = graph.empty();
  const CUgraphEdgeData data = programmatic();
  CHECK_OK(cuGraphAddDependencies_v2(graph, &a, &b, &data, 1));
  CHECK(cuGraphAddDependencies_v2(graph, &a, &empty, &data, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphAddDependencies_v2(graph, &empty, &a, &data, 1) == CUDA_ERROR_INVALID_VALUE);
  CUgraphEdgeData no_data{};
  no_data.to_port = 1;
  CHECK(cuGraphAddDependencies_v2(graph, &a, &empty, &no_data, 1) == CUDA_ERROR_INVALID_VALUE);
  no_data = {};
  no_data.reserved[2] = 1;
  CHECK(cuGraphAddDependencies_v2(graph, &a, &empty, &no_data, 1) == CUDA_ERROR_INVALID_VALUE);
  std::size_t count = 1;
  CUgraphNode from = nullptr, to = nullptr;
  CUgraphEdgeData found{};
  CHECK(cuGraphGetEdges(graph, &from, &to, &count) == CUDA_ERROR_LOSSY_QUERY);
  CHECK(cuGraphNodeGetDependencies(b, &from, &count) == CUDA_ERROR_LOSSY_QUERY);
  CHECK(cuGraphNodeGetDependentNodes(a, &to, &count) == CUDA_ERROR_LOSSY_QUERY);
  CHECK(cuGraphGetEdges_v2(graph, nullptr, nullptr, &found, &count) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuGraphGetEdges_v2(graph, &from, &to, &found, &count));
  CHECK(std::tuple(from, to, found.from_port, found.type) == std::tuple(a, b, data.from_port, data.type));
  found = {};
  CHECK_OK(cuGraphNodeGetDependencies_v2(b, &from, &found, &count));
  CHECK(found.type == data.type);
  found = {};
  CHECK_OK(cuGraphNodeGetDependentNodes_v2(a, &to, &found, &count));
  CHECK(found.type == data.type);
  CHECK_OK(cuGraphRemoveDependencies_v2(graph, &a, &b, &data, 1));
  CHECK(edges_of(graph).empty());
  CHECK_OK(cuGraphAddDependencies_v2(graph, &a, &b, &data, 1));
  CHECK_OK(disconnect(graph, a, b));  // whatever its data are
  CHECK(edges_of(graph).empty());
}

TEST_CASE("a copy of a graph has nodes of its own, and finds them by the originals") {
  const Device device;
  const Graph inner;
  const CUgraphNode in_child = inner.empty();
  const Graph graph;
  const CUgraphNode a = graph.empty(), b = graph.child({a}, inner);
  CUgraph copied = nullptr;
  REQUIRE_OK(cuGraphClone(&copied, graph));
  const Graph copy(copied);
  CUgraphNode a_copy = nullptr, b_copy = nullptr;
  CHECK_OK(cuGraphNodeFindInClone(&a_copy, a, copy));
  CHECK_OK(cuGraphNodeFindInClone(&b_copy, b, copy));
  CHECK(copy.nodes() == Nodes{a_copy, b_copy});
  CHECK(edges_of(copy) == std::set{std::pair{a_copy, b_copy}});
  CUgraph child = nullptr, child_of_copy = nullptr;
  CHECK_OK(cuGraphChildGraphNodeGetGraph(b, &child));
  CHECK_OK(cuGraphChildGraphNodeGetGraph(b_copy, &child_of_copy));
  CHECK(child != child_of_copy);
  CUgraphNode found = nullptr;
  CHECK(cuGraphNodeFindInClone(&found, in_child, copy) == CUDA_ERROR_INVALID_VALUE);  // the child was copied before
  CHECK(cuGraphNodeFindInClone(&found, a, graph) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuGraphDestroyNode(a_copy));
  CHECK(cuGraphNodeFindInClone(&found, a, copy) == CUDA_ERROR_INVALID_VALUE);
  CHECK(graph.nodes() == Nodes{a, b});
}

TEST_CASE("a child graph is a copy that its node owns, and that can be changed through its handle") {
  const Device device;
  const Module module;
  const Log log;
  Graph inner;
  inner.kernel({}, module.function("append"), 1, log.data(), 1);
  const Graph graph;
  const CUgraphNode node = graph.child({}, inner);
  REQUIRE_OK(inner.destroy());
  CUgraph child = nullptr;
  CHECK_OK(cuGraphChildGraphNodeGetGraph(node, &child));
  CHECK(cuGraphDestroy(child) == CUDA_ERROR_INVALID_VALUE);
  CUgraphExec executable = nullptr;
  CHECK(cuGraphInstantiateWithFlags(&executable, child, 0) == CUDA_ERROR_NOT_SUPPORTED);
  const KernelNode more(module.function("append"), 1, log.data(), 2);
  CUgraphNode added = nullptr;
  CUgraphNode first = nullptr;
  std::size_t count = 1;
  CHECK_OK(cuGraphGetNodes(child, &first, &count));
  CHECK_OK(cuGraphAddKernelNode(&added, child, &first, 1, &more.parameters));
  const Stream stream;
  Executable(graph).run(stream);
  CHECK(log.entries() == std::vector{1, 2});
  CHECK_OK(cuGraphDestroyNode(node));
}

TEST_CASE("host functions may not call the functions of graphs") {
  const Device device;
  const Graph graph;
  const Stream stream;
  struct Seen {
    CUgraph graph;
    CUresult created = CUDA_SUCCESS, counted = CUDA_SUCCESS;
  } seen{graph};
  REQUIRE_OK(cuLaunchHostFunc(
      stream,
      [](void* data) {
        auto& found = *static_cast<Seen*>(data);
        CUgraph made = nullptr;
        found.created = cuGraphCreate(&made, 0);
        std::size_t count = 0;
        found.counted = cuGraphGetNodes(found.graph, nullptr, &count);
      },
      &seen));
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(seen.created == CUDA_ERROR_NOT_PERMITTED);
  CHECK(seen.counted == CUDA_ERROR_NOT_PERMITTED);
}

TEST_CASE("a graph can be drawn, with as much as the flags ask for") {
  const Device device;
  const Module module;
  const Memory memory(64);
  const Graph inner;
  inner.fill({}, memory, 1, 4);
  const Graph graph;
  const CUgraphNode a = graph.kernel({}, module.function("add"), 4, static_cast<CUdeviceptr>(memory), 1);
  graph.child({a}, inner);
  const auto path = std::filesystem::temp_directory_path() / ("graph-" + std::to_string(getpid()) + ".dot");
  const auto draw = [&](unsigned flags) {
    REQUIRE_OK(cuGraphDebugDotPrint(graph, path.c_str(), flags));
    const std::vector<char> text = driver_test::read_file(path);
    return std::string(text.begin(), text.end());
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string plain = draw(0);
  CHECK(has(plain, "digraph dot {"));
  CHECK(has(plain, "add"));
  CHECK(has(plain, "MEMSET"));
  CHECK(has(plain, " -> "));
  CHECK_FALSE(has(plain, "<4,1,0"));
  const std::string kernels = draw(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS);
  CHECK(has(kernels, "<4,1,0"));
  CHECK_FALSE(has(kernels, "elementSize"));
  const std::string all = draw(CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
  CHECK(has(all, "<4,1,0"));
  CHECK(has(all, "elementSize"));
  CHECK(has(all, "node handle"));
  CHECK(cuGraphDebugDotPrint(graph, "/no/such/folder/graph.dot", 0) == CUDA_ERROR_OPERATING_SYSTEM);
  std::filesystem::remove(path);
}
