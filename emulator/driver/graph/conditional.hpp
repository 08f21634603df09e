// Conditional nodes: bodies that run, or run again, as long as a value says so. The value belongs to a handle, which
// kernels are given: it is the value's address, so device code writes it with a plain store.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/node_parameters.hpp"

namespace aiocuda::emulator::graph {

// The object behind a handle. It lives until the process ends, because a kernel may hold the handle for as long.
struct ConditionalValue {
  std::atomic<unsigned> value{0};
  unsigned default_value = 0;
  bool has_default = false;  // it is given the default when the graph is launched
  std::shared_ptr<Context> context;
  std::uint64_t graph_id = 0;  // of the graph that it was made for
  bool has_node = false;       // at most one
};

class ConditionalParameters final : public NodeParameters {
 public:
  ~ConditionalParameters() override;
  // For a node of this graph. Makes the bodies, which are empty at first.
  static CUresult make(const CUDA_CONDITIONAL_NODE_PARAMS& given, const Graph& graph,
                       std::shared_ptr<const ConditionalParameters>& made);

  CUgraphNodeType type() const noexcept override { return CU_GRAPH_NODE_TYPE_CONDITIONAL; }
  std::shared_ptr<Context> context() const override { return value_->context; }
  CUgraphExecUpdateResult check_update(const NodeParameters& next) const override;
  std::string title() const override;
  void describe(unsigned flags, Details& details) const override;
  CUgraphConditionalNodeType kind() const noexcept { return kind_; }
  const std::shared_ptr<ConditionalValue>& value() const noexcept { return value_; }
  const std::vector<std::shared_ptr<Graph>>& bodies() const noexcept { return bodies_; }
  // The bodies' handles, as long as the node lives.
  CUgraph* handles() const noexcept { return handles_.get(); }

 private:
  ConditionalParameters(CUgraphConditionalNodeType kind, std::shared_ptr<ConditionalValue> value, unsigned bodies);

  const CUgraphConditionalNodeType kind_;
  const std::shared_ptr<ConditionalValue> value_;
  std::vector<std::shared_ptr<Graph>> bodies_;
  const std::unique_ptr<CUgraph[]> handles_;
};

// May a node of this type be in the body of a conditional one? Asked when an executable is made.
bool may_be_in_a_body(CUgraphNodeType type) noexcept;
// Has a handle been made for the graph that no node has?
bool has_unused_handle(const Graph& graph);

}  // namespace aiocuda::emulator::graph
