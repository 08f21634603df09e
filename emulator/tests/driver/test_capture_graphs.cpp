// Stream capture and the graph that it goes into: what is told of it, dependencies that a program sets, and graphs
// of the program's own.
#include "test_capture_support.hpp"

using namespace capture_test;

namespace {

// The body of a new conditional node, which runs.
CUgraph add_body(CUgraph graph, const Device& device, CUgraphNode& node) {
  CUgraphNodeParams described{};
  described.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  described.conditional.type = CU_GRAPH_COND_TYPE_IF;
  described.conditional.size = 1;
  described.conditional.ctx = device.context();
  REQUIRE_OK(cuGraphConditionalHandleCreate(&described.conditional.handle, graph, device.context(), 1,
                                            CU_GRAPH_COND_ASSIGN_DEFAULT));
  REQUIRE_OK(cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &described));
  return described.conditional.phGraph_out[0];
}

}  // namespace

TEST_CASE("a stream that captures tells its graph and the dependencies of the next node") {
  const Device device;
  const Module module;
  const Stream stream;
  const Info before = info_of(stream);
  CHECK(before.status == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(before.count == 0);
  begin(stream);
  const Info empty = info_of(stream);
  CHECK(empty.status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(empty.id != 0);
  CHECK(empty.graph != nullptr);
  CHECK(empty.count == 0);
  REQUIRE_OK(launch(module.function("nothing"), stream, 1));
  const Info info = info_of(stream);
  REQUIRE(info.count == 1);
  CHECK(Graph::type_of(info.nodes[0]) == CU_GRAPH_NODE_TYPE_KERNEL);
  CHECK(info.data[0].type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
  Info other;
  CHECK(cuStreamGetCaptureInfo_v3(stream, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamGetCaptureInfo_v3(stream, &other.status, nullptr, nullptr, nullptr, &other.data, nullptr) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamIsCapturing(stream, nullptr) == CUDA_ERROR_INVALID_VALUE);
  const Graph graph = end(stream);
  CHECK(CUgraph{graph} == info.graph);
}

TEST_CASE("a program may add nodes to a graph that is captured into, and put them in the stream's way") {
  const Device device;
  const Module module;
  const Stream stream;
  const CUfunction nothing = module.function("nothing");
  begin(stream);
  REQUIRE_OK(launch(nothing, stream, 1));
  const CUgraphNode first = only_dependency_of_next(stream);
  CUgraphNode added = nullptr, apart = nullptr;
  REQUIRE_OK(cuGraphAddEmptyNode(&added, info_of(stream).graph, &first, 1));
  REQUIRE_OK(cuStreamUpdateCaptureDependencies_v2(stream, &added, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  CHECK(dependencies_of_next(stream) == std::vector<CUgraphNode>{added});
  REQUIRE_OK(cuGraphAddEmptyNode(&apart, info_of(stream).graph, nullptr, 0));
  REQUIRE_OK(cuStreamUpdateCaptureDependencies_v2(stream, &apart, nullptr, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  REQUIRE_OK(cuStreamUpdateCaptureDependencies_v2(stream, &added, nullptr, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  REQUIRE_OK(launch(nothing, stream, 1));
  const CUgraphNode last = only_dependency_of_next(stream);
  const Graph graph = end(stream);
  CHECK(graph.nodes().size() == 4);
  CHECK(Graph::dependencies_of(last) == std::vector<CUgraphNode>{added, apart});
}

TEST_CASE("dependencies that a program replaces need no join") {
  const Device device;
  const Module module;
  const Stream origin, branch;
  const CUfunction nothing = module.function("nothing");
  begin(origin);
  join(origin, branch);
  REQUIRE_OK(launch(nothing, branch, 1));
  REQUIRE_OK(cuStreamUpdateCaptureDependencies_v2(branch, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  REQUIRE_OK(launch(nothing, origin, 1));
  REQUIRE_OK(launch(nothing, branch, 1));
  join(branch, origin);
  REQUIRE_OK(cuStreamUpdateCaptureDependencies_v2(origin, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  const Graph graph = end(origin);
  CHECK(graph.nodes().size() == 3);
  CHECK(graph.edge_count() == 0);
}

TEST_CASE("an edge that a program takes away leaves what it led from joined") {
  const Device device;
  const Module module;
  const Stream origin, branch;
  const CUfunction nothing = module.function("nothing");
  begin(origin);
  join(origin, branch);
  REQUIRE_OK(launch(nothing, branch, 1));
  const CUgraphNode forked = only_dependency_of_next(branch);
  join(branch, origin);
  REQUIRE_OK(launch(nothing, origin, 1));
  const CUgraphNode last = only_dependency_of_next(origin);
  REQUIRE_OK(cuGraphRemoveDependencies_v2(info_of(origin).graph, &forked, &last, nullptr, 1));
  CHECK(end(origin).edge_count() == 0);
}

TEST_CASE("dependencies that cannot be are refused, and the capture goes on") {
  const Device device;
  const Stream stream, other;
  CUgraph foreign_graph = nullptr;
  REQUIRE_OK(cuGraphCreate(&foreign_graph, 0));
  const Graph foreign(foreign_graph);
  CUgraphNode foreign_node = nullptr, node = nullptr, nowhere = nullptr;
  REQUIRE_OK(cuGraphAddEmptyNode(&foreign_node, foreign, nullptr, 0));
  begin(stream);
  REQUIRE_OK(cuGraphAddEmptyNode(&node, info_of(stream).graph, nullptr, 0));
  const auto update = [](CUstream of, CUgraphNode* nodes, std::size_t count, unsigned flags) {
    return cuStreamUpdateCaptureDependencies_v2(of, nodes, nullptr, count, flags);
  };
  CHECK(update(stream, nullptr, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES) == CUDA_ERROR_INVALID_VALUE);
  CHECK(update(stream, &node, 1, 20) == CUDA_ERROR_INVALID_VALUE);
  CHECK(update(stream, &nowhere, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES) == CUDA_ERROR_INVALID_VALUE);
  CHECK(update(stream, &foreign_node, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES) == CUDA_ERROR_INVALID_VALUE);
  CUgraphNode twice[] = {node, node};
  CHECK(update(stream, twice, 2, CU_STREAM_SET_CAPTURE_DEPENDENCIES) == CUDA_ERROR_INVALID_VALUE);
  CHECK(update(other, &node, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(dependencies_of_next(stream).empty());
  CHECK(end(stream).nodes().size() == 1);
}

TEST_CASE("edge data of the next node is told, and a query that would lose it fails") {
  const Device device;
  const Module module;
  const Stream stream;
  const CUfunction nothing = module.function("nothing");
  begin(stream);
  REQUIRE_OK(launch(nothing, stream, 1));
  CUgraphNode first = only_dependency_of_next(stream);
  CUgraphEdgeData data{};
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  REQUIRE_OK(cuStreamUpdateCaptureDependencies_v2(stream, &first, &data, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  CHECK(info_of(stream).data[0].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  Info lossy;
  CHECK(cuStreamGetCaptureInfo_v3(stream, &lossy.status, nullptr, nullptr, &lossy.nodes, nullptr, &lossy.count) ==
        CUDA_ERROR_LOSSY_QUERY);
  REQUIRE_OK(launch(nothing, stream, 1));
  const Graph graph = end(stream);
  CUgraphNode from = nullptr, to = nullptr;
  CUgraphEdgeData found{};
  std::size_t count = 1;
  REQUIRE_OK(cuGraphGetEdges_v2(graph, &from, &to, &found, &count));
  CHECK(from == first);
  CHECK(found.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
}

TEST_CASE("a capture into a graph of the program's adds to it, behind the nodes that it names") {
  const Device device;
  const Module module;
  const Stream stream;
  CUgraph handle = nullptr;
  REQUIRE_OK(cuGraphCreate(&handle, 0));
  const Graph graph(handle);
  CUgraphNode root = nullptr;
  REQUIRE_OK(cuGraphAddEmptyNode(&root, graph, nullptr, 0));
  REQUIRE_OK(cuStreamBeginCaptureToGraph(stream, graph, &root, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(info_of(stream).graph == handle);
  REQUIRE_OK(launch(module.function("nothing"), stream, 1));
  const CUgraphNode captured = only_dependency_of_next(stream);
  CUgraph ended = nullptr;
  REQUIRE_OK(cuStreamEndCapture(stream, &ended));
  CHECK(ended == handle);
  CHECK(Graph::dependencies_of(captured) == std::vector<CUgraphNode>{root});
}

TEST_CASE("a capture into a graph that comes to nothing takes the graph with it") {
  const Device device;
  const Stream stream;
  CUgraph graph = nullptr;
  REQUIRE_OK(cuGraphCreate(&graph, 0));
  REQUIRE_OK(cuStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(end_in_vain(stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuGraphDestroy(graph) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a capture into a graph is refused what it cannot be behind") {
  const Device device;
  const Stream stream;
  CUgraph handle = nullptr;
  REQUIRE_OK(cuGraphCreate(&handle, 0));
  const Graph graph(handle);
  CUgraphNode nowhere = nullptr;
  const auto begin_to = [&](CUgraph to, const CUgraphNode* nodes, std::size_t count) {
    return cuStreamBeginCaptureToGraph(stream, to, nodes, nullptr, count, CU_STREAM_CAPTURE_MODE_RELAXED);
  };
  CHECK(begin_to(nullptr, nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(begin_to(graph, nullptr, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(begin_to(graph, &nowhere, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamBeginCaptureToGraph(nullptr, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED) ==
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK_OK(begin_to(graph, nullptr, 0));
  CHECK(begin_to(graph, nullptr, 0) == CUDA_ERROR_ILLEGAL_STATE);
  CUgraph ended = nullptr;
  CHECK_OK(cuStreamEndCapture(stream, &ended));
}

TEST_CASE("the body of a node is captured into, and while it is, the node stays") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<1> out;
  CUgraph handle = nullptr;
  REQUIRE_OK(cuGraphCreate(&handle, 0));
  const Graph graph(handle);
  CUgraphNode node = nullptr;
  const CUgraph body = add_body(graph, device, node);
  REQUIRE_OK(cuStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  REQUIRE_OK(launch(module.function("add"), stream, 1, out.data(), 3));
  CHECK(cuGraphDestroyNode(node) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuGraphDestroy(graph) == CUDA_ERROR_ILLEGAL_STATE);
  CUgraph ended = nullptr;
  REQUIRE_OK(cuStreamEndCapture(stream, &ended));
  CHECK(ended == body);
  graph.run(stream);
  CHECK(out[0] == 3);
}

TEST_CASE("a capture into a body that comes to nothing leaves the body") {
  const Device device;
  const Stream stream;
  CUgraph handle = nullptr;
  REQUIRE_OK(cuGraphCreate(&handle, 0));
  const Graph graph(handle);
  CUgraphNode node = nullptr;
  const CUgraph body = add_body(graph, device, node);
  REQUIRE_OK(cuStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(end_in_vain(stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  std::size_t count = 1;
  CHECK_OK(cuGraphGetNodes(body, nullptr, &count));
  CHECK(count == 0);
}

TEST_CASE("a graph that is captured into is not destroyed and loses no node, but may be instantiated") {
  const Device device;
  const Stream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  const CUgraph handle = info_of(stream).graph;
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddEmptyNode(&node, handle, nullptr, 0));
  CUgraphExec executable = nullptr;
  CHECK_OK(cuGraphInstantiate(&executable, handle, 0));
  CHECK(cuGraphDestroyNode(node) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuGraphDestroy(handle) == CUDA_ERROR_ILLEGAL_STATE);
  const Graph graph = end(stream);
  CHECK_OK(cuGraphDestroyNode(node));
  CHECK_OK(cuGraphExecDestroy(executable));
}
