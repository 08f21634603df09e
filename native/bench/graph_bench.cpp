#include "graph_bench.hpp"

#include <nanobind/stl/vector.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "../driver/graph.hpp"
#include "../python/process.hpp"
#include "floor.hpp"

namespace aiocuda {
namespace {
using floor::Arguments;
using floor::check;
using floor::Clock;
using floor::seconds_since;
using Values = std::vector<nb::bytes>;  // of a launch's parameters, one after another

std::vector<Arguments> all_arguments(const std::vector<Values>& given) {
  std::vector<Arguments> all;
  for (const Values& values : given) all.emplace_back(values);
  return all;
}

// Branches of one kernel's launches, as a graph: all of a branch have its arguments, each comes behind the one before
// it. The engine knows nothing of the launches; when a loop returns, all of them have passed.
class GraphFloor {
 public:
  GraphFloor(std::int32_t device, std::uintptr_t function, std::uint32_t grid, std::uint32_t block,
             const std::vector<Values>& branches, std::uint32_t depth)
      : device_(device),
        function_(reinterpret_cast<CUfunction>(function)),
        grid_(grid),
        block_(block),
        depth_(depth),
        branches_(all_arguments(branches)) {
    if (branches.empty() || depth == 0) throw nb::value_error("a graph's floor needs a branch, and a launch in it");
    make();
  }
  GraphFloor(const GraphFloor&) = delete;
  GraphFloor& operator=(const GraphFloor&) = delete;

  std::size_t node_count() const { return nodes_.size(); }
  std::size_t edge_count() const { return nodes_.size() - branches_.size(); }
  std::uintptr_t handle() const { return reinterpret_cast<std::uintptr_t>(graph_.get()); }

  // Makes the graph and its executable once more. Returns the seconds until a launch could follow.
  double make() {
    return floor::on_device(device_, [this] {
      const driver::Table& table = process_engine().table;
      std::vector<CUgraphNode> nodes;
      nodes.reserve(branches_.size() * depth_);
      const auto start = Clock::now();
      CUgraph made = nullptr;
      check(table.cuGraphCreate(&made, 0), "cuGraphCreate");
      driver::GraphHandle graph(made, {&process_engine().devices});
      for (Arguments& branch : branches_) {
        const CUDA_KERNEL_NODE_PARAMS parameters = parameters_of(branch);
        for (std::uint32_t i = 0; i < depth_; ++i) {
          CUgraphNode node = nullptr;
          const CUgraphNode* before = i == 0 ? nullptr : &nodes.back();
          check(table.cuGraphAddKernelNode(&node, graph.get(), before, i == 0 ? 0 : 1, &parameters),
                "cuGraphAddKernelNode");
          nodes.push_back(node);
        }
      }
      CUgraphExec instantiated = nullptr;
      check(table.cuGraphInstantiateWithFlags(&instantiated, graph.get(), 0), "cuGraphInstantiateWithFlags");
      const double taken = seconds_since(start);
      // The ones before go here, outside of what is timed; nothing of them is in flight.
      executable_ = driver::ExecutableHandle(instantiated, {&process_engine().devices});
      graph_ = std::move(graph);
      nodes_ = std::move(nodes);
      return taken;
    });
  }

  // Launches, and waits for each by spinning on the stream. Returns the seconds that each took.
  std::vector<double> replays(std::uintptr_t stream, std::uint32_t number) {
    return launches(stream, number, [](std::uint32_t) {});
  }

  // The same, where each launch is given other arguments in all nodes: these in turn.
  std::vector<double> rebound_replays(std::uintptr_t stream, std::uint32_t number, const std::vector<Values>& others) {
    if (others.empty()) throw nb::value_error("a launch with other arguments needs some");
    std::vector<Arguments> arguments = all_arguments(others);
    return launches(stream, number, [&](std::uint32_t i) {
      const CUDA_KERNEL_NODE_PARAMS parameters = parameters_of(arguments[i % arguments.size()]);
      for (const CUgraphNode node : nodes_)
        check(process_engine().table.cuGraphExecKernelNodeSetParams(executable_.get(), node, &parameters),
              "cuGraphExecKernelNodeSetParams");
    });
  }

 private:
  CUDA_KERNEL_NODE_PARAMS parameters_of(Arguments& arguments) const {
    CUDA_KERNEL_NODE_PARAMS parameters{};
    parameters.func = function_;
    parameters.gridDimX = grid_, parameters.gridDimY = 1, parameters.gridDimZ = 1;
    parameters.blockDimX = block_, parameters.blockDimY = 1, parameters.blockDimZ = 1;
    parameters.kernelParams = arguments.words();
    return parameters;
  }

  template <class Prepare>
  std::vector<double> launches(std::uintptr_t handle, std::uint32_t number, Prepare&& prepare) {
    const CUstream stream = reinterpret_cast<CUstream>(handle);
    return floor::on_device(device_, [&] {
      return floor::rounds(stream, number, [&](std::uint32_t i) {
        prepare(i);
        check(process_engine().table.cuGraphLaunch(executable_.get(), stream), "cuGraphLaunch");
      });
    });
  }

  const std::int32_t device_;
  const CUfunction function_;
  const std::uint32_t grid_, block_, depth_;
  std::vector<Arguments> branches_;
  driver::GraphHandle graph_;
  std::vector<CUgraphNode> nodes_;
  driver::ExecutableHandle executable_;
};

}  // namespace

void bind_graph_bench(nb::module_& module) {
  nb::class_<GraphFloor>(module, "GraphFloor")
      .def(nb::init<std::int32_t, std::uintptr_t, std::uint32_t, std::uint32_t, const std::vector<Values>&,
                    std::uint32_t>())
      .def_prop_ro("nodes", &GraphFloor::node_count)
      .def_prop_ro("edges", &GraphFloor::edge_count)
      .def_prop_ro("handle", &GraphFloor::handle)
      .def("make", &GraphFloor::make)
      .def("replays", &GraphFloor::replays)
      .def("rebound_replays", &GraphFloor::rebound_replays);
}

}  // namespace aiocuda
