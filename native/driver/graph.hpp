// A plan as the driver's graph: its nodes and edges, and the executable that is launched.
//
// Always true: each node's parameters in the executable are those that `addresses_` and `numbers_` say, so a launch
// sets those that differ from what it wants, and no others. Earlier launches do not see what a launch sets. Guarded by
// the GIL.
#pragma once
#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../dataflow/graph_plan.hpp"
#include "engine.hpp"
#include "graph_handles.hpp"

namespace aiocuda::driver {

class Graph {
 public:
  // The driver does not know of it yet.
  Graph(Engine& engine, dataflow::GraphPlan plan);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Gives it to the driver, and makes it executable, unless that has been done. Its kernels are loaded. Other threads
  // go on meanwhile, and may submit. Not in the middle of a submission. Throws Refusal.
  void make();
  bool is_made() const { return static_cast<bool>(executable_); }
  bool is_being_made() const { return is_being_made_; }
  // Takes the words of a launch, if the graph is to be made for that.
  void take(const dataflow::ReplayOp& op);
  // Sets what the launch replaces, and launches. If the graph is not made yet, makes it.
  void launch(const dataflow::ReplayOp& op, CUstream stream);
  // A launch will be the stream's next submission.
  void note_launch(StreamIndex stream) {
    last_ = {stream, engine_.timeline.submitted(stream) + 1};
    for (const dataflow::BufferRef& image : images_) engine_.images.note_use(*image, stream);
    ++launches_;
  }
  // Brings what the first launch needs to the device.
  void upload(CUstream stream);
  // Takes another plan's parameters: of a DAG of the same shape. Throws Refusal; raises CaptureError with the first
  // difference.
  void update(dataflow::GraphPlan plan);
  // No launch any more; its memory is freed behind the launches that there were.
  void close();

  dataflow::GraphPlan plan;
  CUgraph handle() const { return graph_.get(); }
  CUgraphExec executable() const { return executable_.get(); }
  Tick last() const { return last_; }  // of its launches
  std::uint64_t launches() const { return launches_; }
  std::uint64_t parameter_sets() const { return parameter_sets_; }
  std::uint64_t instantiations() const { return instantiations_; }

 private:
  struct Parameters;  // of one node, as the driver takes them
  void add_node(dataflow::NodeIndex index);
  void fill_in(const dataflow::GraphNode& node, Parameters& into);
  enum class Making : std::uint8_t { keeps_gil, gives_up_gil };
  void instantiate(Making making);
  void set(const std::vector<dataflow::NodeIndex>& nodes, Making making);
  void put(std::uint32_t slot, std::uint64_t word, bool is_number);
  template <class Each>
  void put_all(Each&& each_wanted, std::vector<std::uint32_t>& strayed, bool is_number);
  std::uint64_t as_made(std::uint32_t slot, bool is_number) const;
  CUdeviceptr address_of(const dataflow::Pointer& pointer) const { return addresses_[pointer.slot] + pointer.offset; }
  void reset_words();
  void renew_addresses();
  void rebuild(Making making);
  void begin();
  void make_conditions();
  CUgraph graph_of(const dataflow::GraphNode& node) const;
  void add_conditional(dataflow::NodeIndex index, const std::vector<CUgraphNode>& after, CUgraphNode& made);
  void add_nodes(std::size_t most);
  void hold_of_graph(const dataflow::BufferRef& image);
  void use(Making making);
  void drop();
  void hold_image(const dataflow::BufferRef& image);
  void hold_images_of_plan();
  void retire();
  void keep_captured(const dataflow::GraphPlan& of);

  Engine& engine_;
  // The images of kernels: of the graph and the executable, which they outlive; of the graph as it was made.
  std::vector<dataflow::BufferRef> images_, graph_images_;
  GraphHandle graph_;
  ExecutableHandle executable_;
  std::vector<CUgraphNode> nodes_;
  std::vector<CUgraphConditionalHandle> conditions_;
  std::unordered_map<dataflow::NodeIndex, std::array<CUgraph, 2>> bodies_;  // of conditional nodes, which own them
  std::vector<bool> is_settable_;                                           // as the executable was made
  std::vector<std::uint64_t> addresses_, numbers_;                          // as the executable has them
  std::vector<std::uint32_t> strayed_addresses_, strayed_numbers_;          // that are not as the graph was made
  std::vector<dataflow::NodeIndex> dirty_;
  std::vector<bool> is_dirty_;
  bool is_being_made_ = false;  // by a thread that has given up the GIL
  bool is_behind_ = true;       // the executable is not what the words say: it is not made, or a change was refused
  Tick last_;
  std::uint64_t launches_ = 0, parameter_sets_ = 0, instantiations_ = 0;
};

// A graph as Python holds it.
struct GraphObject {
  std::shared_ptr<Graph> graph;
};
inline const std::shared_ptr<Graph>& graph_of(const dataflow::ReplayOp& op) {
  return nb::inst_ptr<GraphObject>(op.graph)->graph;
}

}  // namespace aiocuda::driver
