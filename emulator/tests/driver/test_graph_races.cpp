// Races inside of a replay: two nodes are ordered where a path of edges leads from one to the other.
#include <algorithm>
#include <string>

#include "checking/checking.hpp"
#include "test_graph_support.hpp"

using namespace graph_test;

namespace {

std::string take_reports() {
  std::string text(aiocuda_emulator_take_race_reports(nullptr, 0), ' ');
  text.resize(aiocuda_emulator_take_race_reports(text.data(), text.size()));
  return text;
}

std::size_t count(const std::string& reports) {
  return static_cast<std::size_t>(std::count(reports.begin(), reports.end(), '\n'));
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int run_checked(const std::string& settings) {
  return run_again("AIOCUDA_EMULATOR_CHECK=races " + settings, "checked: *");
}

// Two buffers, and a stream to run graphs in.
struct Bench {
  const Device device{};
  const Memory one{64}, other{64};
  const Stream stream{}, second{};
  // The reports of one launch, or several, that have ended.
  std::string run(const Executable& executable, int times = 1) const {
    for (int each = 0; each < times; ++each) executable.launch(stream);
    REQUIRE_OK(cuStreamSynchronize(stream));
    return take_reports();
  }
};

}  // namespace

// The programs below race on purpose, some of them between threads: ThreadSanitizer would tell of just that.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define AIOCUDA_THREAD_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(AIOCUDA_THREAD_SANITIZED)
constexpr bool is_thread_sanitized = true;
#else
constexpr bool is_thread_sanitized = false;
#endif

TEST_CASE("races in graphs are found in the plan's order, and in any other" * doctest::skip(is_thread_sanitized)) {
  CHECK(run_checked("") == 0);
  for (const char* seed : {"1", "2", "3"}) CHECK(run_checked(std::string("AIOCUDA_EMULATOR_SHUFFLE=") + seed) == 0);
}

TEST_CASE("checked: two nodes without a path between them race" * doctest::skip()) {
  const Bench bench;
  const Graph graph;
  const CUgraphNode root = graph.empty();
  graph.fill({root}, bench.one, 1, 16);
  graph.copy({root}, bench.other, bench.one, 32);
  const std::string reports = bench.run(Executable(graph));
  CHECK(count(reports) == 1);
  CHECK(has(reports, "a memset of 64 bytes (node 1 of graph "));
  CHECK(has(reports, "a copy of 32 bytes (node 2 of graph "));
  CHECK(has(reports, "32 bytes"));
  CHECK(has(reports, "no path of edges leads from one of these nodes to the other"));
  CHECK(has(reports,
            "\"first_stream_handle\": " + std::to_string(reinterpret_cast<std::size_t>(CUstream(bench.stream)))));
}

TEST_CASE("checked: a path of edges, however long, orders two nodes" * doctest::skip()) {
  const Bench bench;
  const Graph graph;
  CUgraphNode node = graph.fill({}, bench.one, 1, 16);
  for (int each = 0; each < 5; ++each) node = graph.empty({node});
  const CUgraphNode side = graph.fill({}, bench.other, 1, 16);
  const CUgraphNode joined = graph.copy({node, side}, bench.other, bench.one, 64);
  graph.fill({joined}, bench.one, 2, 16);
  CHECK(bench.run(Executable(graph), 3).empty());
}

TEST_CASE("checked: nodes of many branches race in pairs, and only those that touch the same" * doctest::skip()) {
  const Bench bench;
  const Graph graph;
  graph.fill({}, bench.one, 1, 4);
  graph.fill({}, static_cast<CUdeviceptr>(bench.one) + 16, 1, 4);
  graph.fill({}, static_cast<CUdeviceptr>(bench.one) + 12, 1, 2);  // the end of the first, the beginning of the second
  const std::string reports = bench.run(Executable(graph));
  CHECK(count(reports) == 2);
}

TEST_CASE("checked: the nodes of a child graph are behind what its node is behind, and before what comes after it" *
          doctest::skip()) {
  const Bench bench;
  const Graph inner;
  inner.fill({}, bench.one, 1, 16);
  const CUgraphNode copy = inner.copy({}, bench.other, bench.one, 64);
  SUBCASE("among themselves they need edges") {
    const Graph graph;
    graph.child({}, inner);
    CHECK(count(bench.run(Executable(graph))) == 1);
  }
  SUBCASE("with others they need those of their node") {
    REQUIRE_OK(cuGraphDestroyNode(copy));
    const Graph graph;
    const CUgraphNode before = graph.copy({}, bench.other, bench.one, 64);
    const CUgraphNode child = graph.child({before}, inner);
    graph.copy({child}, bench.other, bench.one, 64);
    CHECK(bench.run(Executable(graph)).empty());
    graph.fill({before}, bench.one, 2, 16);
    // With the child's memset, and with the copy behind that.
    CHECK(count(bench.run(Executable(graph))) == 2);
  }
}

TEST_CASE("checked: a graph is behind its stream's past, its stream's future is behind all of the graph" *
          doctest::skip()) {
  const Bench bench;
  const Graph graph;
  graph.fill({}, bench.one, 1, 16);
  graph.fill({}, bench.other, 1, 16);
  const Executable executable(graph);
  REQUIRE_OK(cuMemsetD32Async(bench.one, 0, 16, bench.stream));
  REQUIRE_OK(cuMemsetD32Async(bench.other, 0, 16, bench.stream));
  executable.launch(bench.stream);
  REQUIRE_OK(cuMemsetD32Async(bench.one, 2, 16, bench.stream));
  REQUIRE_OK(cuMemsetD32Async(bench.other, 2, 16, bench.stream));
  CHECK(bench.run(executable).empty());
}

TEST_CASE("checked: a graph races with another stream that nothing orders it with" * doctest::skip()) {
  const Bench bench;
  const Event event(CU_EVENT_DISABLE_TIMING);
  const Graph graph;
  const CUgraphNode first = graph.fill({}, bench.one, 1, 16);
  graph.fill({first}, bench.other, 1, 16);
  const Executable executable(graph);
  SUBCASE("not ordered") {
    REQUIRE_OK(cuMemsetD32Async(bench.other, 3, 16, bench.second));
    const std::string reports = bench.run(executable);
    REQUIRE_OK(cuStreamSynchronize(bench.second));
    const std::string all = reports + take_reports();
    CHECK(count(all) == 1);
    CHECK(has(all, "a memset of 64 bytes (node 1 of graph "));
    CHECK(has(all, "never waited for"));
  }
  SUBCASE("ordered by an event before, and by one behind") {
    REQUIRE_OK(cuMemsetD32Async(bench.other, 3, 16, bench.second));
    REQUIRE_OK(cuEventRecord(event, bench.second));
    REQUIRE_OK(cuStreamWaitEvent(bench.stream, event, 0));
    executable.launch(bench.stream);
    REQUIRE_OK(cuEventRecord(event, bench.stream));
    REQUIRE_OK(cuStreamWaitEvent(bench.second, event, 0));
    REQUIRE_OK(cuMemsetD32Async(bench.other, 3, 16, bench.second));
    REQUIRE_OK(cuStreamSynchronize(bench.second));
    CHECK(take_reports().empty());
  }
}

TEST_CASE("checked: launches of one executable are ordered, those of two are not" * doctest::skip()) {
  const Bench bench;
  const Graph graph;
  graph.fill({}, bench.one, 1, 16);
  const Executable one(graph), other(graph);
  one.launch(bench.stream);
  one.launch(bench.second);
  one.launch(bench.stream);
  REQUIRE_OK(cuStreamSynchronize(bench.stream));
  REQUIRE_OK(cuStreamSynchronize(bench.second));
  CHECK(take_reports().empty());
  one.launch(bench.stream);
  other.launch(bench.second);
  REQUIRE_OK(cuStreamSynchronize(bench.stream));
  REQUIRE_OK(cuStreamSynchronize(bench.second));
  CHECK(count(take_reports()) == 1);
}

TEST_CASE("checked: a record node orders what waits for it behind itself, and behind no other branch" *
          doctest::skip()) {
  const Bench bench;
  const Event event(CU_EVENT_DISABLE_TIMING);
  const Graph graph;
  const CUgraphNode first = graph.fill({}, bench.one, 1, 16);
  graph.record({first}, event);
  graph.fill({}, bench.other, 1, 16);
  const Executable executable(graph);
  executable.launch(bench.stream);
  REQUIRE_OK(cuStreamWaitEvent(bench.second, event, 0));
  REQUIRE_OK(cuMemsetD32Async(bench.one, 2, 16, bench.second));
  REQUIRE_OK(cuStreamSynchronize(bench.second));
  REQUIRE_OK(cuStreamSynchronize(bench.stream));
  CHECK(take_reports().empty());
  executable.launch(bench.stream);
  REQUIRE_OK(cuStreamWaitEvent(bench.second, event, 0));
  REQUIRE_OK(cuMemsetD32Async(bench.other, 2, 16, bench.second));
  REQUIRE_OK(cuStreamSynchronize(bench.second));
  REQUIRE_OK(cuStreamSynchronize(bench.stream));
  CHECK(count(take_reports()) == 1);
  // The host learns by a record node's event what is behind it.
  executable.launch(bench.stream);
  REQUIRE_OK(cuEventSynchronize(event));
  REQUIRE_OK(cuMemsetD32Async(bench.one, 2, 16, bench.second));
  REQUIRE_OK(cuStreamSynchronize(bench.second));
  REQUIRE_OK(cuStreamSynchronize(bench.stream));
  CHECK(take_reports().empty());
}

TEST_CASE("checked: a wait node orders what comes after it, and no other branch" * doctest::skip()) {
  const Bench bench;
  const Event event(CU_EVENT_DISABLE_TIMING);
  const Graph graph;
  const CUgraphNode wait = graph.wait({}, event);
  graph.fill({wait}, bench.one, 1, 16);
  graph.fill({}, bench.other, 1, 16);
  const Executable executable(graph);
  REQUIRE_OK(cuMemsetD32Async(bench.one, 2, 16, bench.second));
  REQUIRE_OK(cuMemsetD32Async(bench.other, 2, 16, bench.second));
  REQUIRE_OK(cuEventRecord(event, bench.second));
  const std::string reports = bench.run(executable);
  CHECK(count(reports) == 1);
  CHECK(has(reports, "(node 2 of graph "));
}

TEST_CASE("checked: what uses memory of a graph comes after its allocation and before its free" * doctest::skip()) {
  const Bench bench;
  CUdeviceptr memory = 0;
  SUBCASE("in order") {
    const Graph graph;
    const CUgraphNode allocate = graph.allocate({}, 64, memory);
    const CUgraphNode fill = graph.fill({allocate}, memory, 1, 16);
    graph.free({fill}, memory);
    CHECK(bench.run(Executable(graph), 3).empty());
  }
  SUBCASE("left to the stream") {
    const Graph graph;
    graph.allocate({}, 64, memory);
    const Executable executable(graph);
    executable.launch(bench.stream);
    REQUIRE_OK(cuMemsetD32Async(memory, 1, 16, bench.stream));
    REQUIRE_OK(cuMemFreeAsync(memory, bench.stream));
    REQUIRE_OK(cuStreamSynchronize(bench.stream));
    CHECK(take_reports().empty());
  }
  SUBCASE("another stream that does not wait") {
    const Graph graph;
    graph.allocate({}, 64, memory);
    const Executable executable(graph);
    executable.launch(bench.stream);
    // Begun, so that the memory is there, and not known to be.
    while (cuStreamQuery(bench.stream) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
    REQUIRE_OK(cuMemsetD32Async(memory, 1, 16, bench.stream));
    REQUIRE_OK(cuMemsetD32Async(memory, 1, 16, bench.second));
    REQUIRE_OK(cuStreamSynchronize(bench.second));
    REQUIRE_OK(cuStreamSynchronize(bench.stream));
    REQUIRE_OK(cuMemFreeAsync(memory, bench.stream));
    REQUIRE_OK(cuStreamSynchronize(bench.stream));
    CHECK(count(take_reports()) == 1);
  }
}

TEST_CASE("checked: bodies of conditional nodes come one after the other, and after what their node is after" *
          doctest::skip()) {
  const Bench bench;
  const Module module;
  const SharedInts<1> rounds;
  const Graph graph;
  CUgraphConditionalHandle handle = 0;
  REQUIRE_OK(cuGraphConditionalHandleCreate(&handle, graph, current_context(), 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  const CUgraphNode start = graph.kernel({}, module.function("store"), 1, rounds.data(), 3);
  const CUgraphNode before = graph.fill({start}, bench.one, 1, 16);
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.handle = handle;
  parameters.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
  parameters.conditional.size = 1;
  parameters.conditional.ctx = current_context();
  CUgraphNode loop = nullptr, node = nullptr, counted = nullptr;
  REQUIRE_OK(cuGraphAddNode_v2(&loop, graph, &before, nullptr, 1, &parameters));
  const CUgraph body = parameters.conditional.phGraph_out[0];
  const CUDA_MEMSET_NODE_PARAMS fill = fill_of_ints(bench.one, 2, 16);
  REQUIRE_OK(cuGraphAddMemsetNode(&node, body, nullptr, 0, &fill, current_context()));
  const KernelNode counts(module.function("count_down"), 1, handle, rounds.data());
  REQUIRE_OK(cuGraphAddKernelNode_v2(&counted, body, nullptr, 0, &counts.parameters));
  graph.copy({loop}, bench.other, bench.one, 64);
  CHECK(bench.run(Executable(graph), 2).empty());
  // And they are concurrent with what is beside their node.
  graph.fill({before}, bench.one, 3, 4);
  CHECK(count(bench.run(Executable(graph))) > 0);
}

TEST_CASE("checked: a race is told for each launch" * doctest::skip()) {
  const Bench bench;
  const Graph graph;
  const CUgraphNode first = graph.fill({}, bench.one, 1, 16);
  graph.copy({first}, bench.other, bench.one, 64);
  graph.copy({first}, static_cast<CUdeviceptr>(bench.other) + 60, bench.one, 4);
  const Executable executable(graph);
  for (int each = 0; each < 300; ++each) executable.launch(bench.stream);
  REQUIRE_OK(cuStreamSynchronize(bench.stream));
  CHECK(count(take_reports()) == 300);  // of the two copies
}
