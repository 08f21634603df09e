// A capture sequence: the graph that is captured into, and the streams that take part. Always: a stream takes part in
// at most one, and a sequence that has ended has no streams. All of it is under graph::graphs_mutex().
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "graph/graph.hpp"
#include "stream.hpp"

namespace aiocuda::emulator::capture {

class Sequence;

// A stream's part in a sequence.
struct Branch {
  std::shared_ptr<Sequence> sequence;
  std::shared_ptr<Stream> stream;
  std::vector<graph::Edge> dependencies;  // of the next node that is captured in the stream
  // The same in two arrays, as cuStreamGetCaptureInfo told them last.
  std::vector<CUgraphNode> told_nodes;
  std::vector<CUgraphEdgeData> told_data;
};

// What an event means that was recorded in a capturing stream: nodes, and no point in time.
struct Fork {
  std::shared_ptr<Sequence> sequence;
  std::vector<graph::Edge> dependencies;
};

// A thread of the program, by a number that no other thread ever has.
std::uint64_t this_thread();

class Sequence : public std::enable_shared_from_this<Sequence> {
 public:
  enum class State { active, invalidated, ended };

  // Begins one with `origin` as its first stream, which takes part in none.
  static void begin(const std::shared_ptr<Stream>& origin, std::shared_ptr<graph::Graph> graph,
                    std::vector<graph::Edge> dependencies, CUstreamCaptureMode mode);
  Sequence(std::shared_ptr<graph::Graph> graph, CUstreamCaptureMode mode);

  std::uint64_t id() const noexcept { return id_; }
  State state() const noexcept { return state_; }
  CUstreamCaptureMode mode() const noexcept { return mode_; }
  bool was_begun_by(std::uint64_t thread) const noexcept { return thread_ == thread; }
  bool is_origin(const Stream& stream) const noexcept { return origin_ == &stream; }
  const std::vector<std::shared_ptr<Branch>>& branches() const noexcept { return branches_; }
  const std::shared_ptr<graph::Graph>& graph() const noexcept { return graph_; }

  // Adds a node behind what the branch's stream has captured.
  CUresult add(Branch& branch, graph::ParametersPointer parameters);
  // Makes what the branch captures next come after the fork, too.
  static void join(Branch& branch, const Fork& fork);
  // Another stream takes part from here on.
  void join(const std::shared_ptr<Stream>& stream, const Fork& fork);
  // Puts other dependencies in the place of the branch's. The former ones count as joined.
  void replace_dependencies(Branch& branch, std::vector<graph::Edge> dependencies);

  // An active sequence comes to nothing; its streams take part until it is ended.
  void invalidate() noexcept;
  // All streams are free again. UNJOINED or INVALIDATED where nothing has come of it; the graph, which is given up, is
  // then destroyed, whoever made it, unless it is the body of a conditional node.
  CUresult end(std::shared_ptr<graph::Graph>& graph);
  // A stream is about to be destroyed. With its origin, the sequence ends as if it had been invalidated.
  void leave(const Stream& stream, std::shared_ptr<graph::Graph>& graph);

 private:
  bool is_joined() const;

  const std::uint64_t id_;
  const std::uint64_t thread_;
  const CUstreamCaptureMode mode_;
  std::shared_ptr<graph::Graph> graph_;  // null once ended: events that stand for captured work live on
  State state_ = State::active;
  Stream* origin_ = nullptr;
  std::vector<std::shared_ptr<Branch>> branches_;  // the origin's is the first
  std::vector<graph::Edge> left_behind_;           // dependencies of streams that were destroyed
  std::vector<graph::Edge> let_go_;                // dependencies that others were put in the place of
  // For each captured node, the nodes behind which it was captured, whatever became of the graph's edges.
  std::unordered_map<const graph::Node*, std::vector<const graph::Node*>> captured_behind_;
};

// All that have begun and not ended.
const std::vector<std::shared_ptr<Sequence>>& sequences();

// The stream's own; null where it takes part in none.
Branch* branch_of(const Stream& stream) noexcept;

}  // namespace aiocuda::emulator::capture
