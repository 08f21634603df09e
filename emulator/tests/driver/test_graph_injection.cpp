// Faults on purpose in graphs: each is made where the plan has it, as outside of graphs.
#include "test_graph_support.hpp"

using namespace graph_test;

TEST_CASE("faults are made in graphs as they are planned") {
  CHECK(run_again("AIOCUDA_EMULATOR_FAULTS=launch:2", "in a graph: the second launch") == 0);
  CHECK(run_again("AIOCUDA_EMULATOR_FAULTS=illegal:2", "in a graph: the second kernel") == 0);
  CHECK(run_again("AIOCUDA_EMULATOR_FAULTS=alloc:2", "in a graph: the second allocation") == 0);
  CHECK(run_again("AIOCUDA_EMULATOR_FAULTS=lost:3", "in a graph: the third piece of work") == 0);
}

TEST_CASE("in a graph: the second launch" * doctest::skip()) {
  const Device device;
  const Module module;
  const SharedInts<1> out;
  const Graph graph;
  graph.kernel({}, module.function("add"), 1, out.data(), 1);
  const Executable executable(graph);
  const Stream stream;
  CHECK_OK(cuGraphLaunch(executable, stream));
  CHECK(cuGraphLaunch(executable, stream) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK_OK(cuGraphLaunch(executable, stream));
  CHECK_OK(cuStreamSynchronize(stream));
  CHECK(out[0] == 2);
}

TEST_CASE("in a graph: the second kernel" * doctest::skip()) {
  const Device device;
  const Module module;
  const Log log;
  const Graph graph;
  const CUgraphNode first = graph.kernel({}, module.function("append"), 1, log.data(), 1);
  const CUgraphNode second = graph.kernel({first}, module.function("append"), 1, log.data(), 2);
  graph.kernel({second}, module.function("append"), 1, log.data(), 3);
  const Executable executable(graph);
  const Stream stream;
  CHECK_OK(cuGraphLaunch(executable, stream));
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(log.entries() == std::vector{1});
}

TEST_CASE("in a graph: the second allocation" * doctest::skip()) {
  const Device device;
  const Graph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS described{};
  described.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  described.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  described.bytesize = 64;
  CUgraphNode node = nullptr;
  CHECK_OK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &described));
  CHECK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &described) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(graph.nodes().size() == 1);
}

// A launch is one piece of work, whatever is in the graph.
TEST_CASE("in a graph: the third piece of work" * doctest::skip()) {
  const Device device;
  const Module module;
  const SharedInts<1> out;
  const Graph graph;
  const CUgraphNode first = graph.kernel({}, module.function("add"), 1, out.data(), 1);
  graph.kernel({first}, module.function("add"), 1, out.data(), 1);
  const Executable executable(graph);
  const Stream stream;
  executable.run(stream);
  executable.run(stream);
  CHECK_OK(cuGraphLaunch(executable, stream));
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ECC_UNCORRECTABLE);
  CHECK(out[0] == 4);
}
