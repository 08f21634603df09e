// The class Sequence; see sequence.hpp.
#include "capture/sequence.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "capture/capture.hpp"

namespace aiocuda::emulator::capture {
namespace {

std::vector<std::shared_ptr<Sequence>>& all() {
  static auto* const sequences = new std::vector<std::shared_ptr<Sequence>>;
  return *sequences;
}

void add_edges(std::vector<graph::Edge>& edges, const std::vector<graph::Edge>& more) {
  for (const graph::Edge& edge : more) {
    const auto is_same = [&](const graph::Edge& each) { return each.node == edge.node; };
    if (std::none_of(edges.begin(), edges.end(), is_same)) edges.push_back(edge);
  }
}

}  // namespace

std::uint64_t this_thread() {
  thread_local const std::uint64_t id = next_id();
  return id;
}

const std::vector<std::shared_ptr<Sequence>>& sequences() { return all(); }

Branch* branch_of(const Stream& stream) noexcept { return stream.capture_branch.get(); }

Sequence::Sequence(std::shared_ptr<graph::Graph> graph, CUstreamCaptureMode mode)
    : id_(next_id()), thread_(this_thread()), mode_(mode), graph_(std::move(graph)) {}

void Sequence::begin(const std::shared_ptr<Stream>& origin, std::shared_ptr<graph::Graph> graph,
                     std::vector<graph::Edge> dependencies, CUstreamCaptureMode mode) {
  const auto sequence = std::make_shared<Sequence>(std::move(graph), mode);
  sequence->origin_ = origin.get();
  sequence->join(origin, {sequence, std::move(dependencies)});
  all().push_back(sequence);
  going_on.fetch_add(1);
}

CUresult Sequence::add(Branch& branch, graph::ParametersPointer parameters) {
  graph::Node* node = nullptr;
  if (const CUresult error = graph_->add(std::move(parameters), branch.dependencies, node)) return error;
  auto& behind = captured_behind_[node];
  for (const graph::Edge& edge : branch.dependencies) behind.push_back(edge.node);
  branch.dependencies = {{node}};
  return CUDA_SUCCESS;
}

void Sequence::join(Branch& branch, const Fork& fork) { add_edges(branch.dependencies, fork.dependencies); }

void Sequence::join(const std::shared_ptr<Stream>& stream, const Fork& fork) {
  auto branch = std::make_shared<Branch>();
  branch->sequence = shared_from_this();
  branch->stream = stream;
  branch->dependencies = fork.dependencies;
  stream->capture_branch = branch;
  branches_.push_back(std::move(branch));
}

void Sequence::replace_dependencies(Branch& branch, std::vector<graph::Edge> dependencies) {
  add_edges(let_go_, branch.dependencies);
  branch.dependencies = std::move(dependencies);
}

void Sequence::invalidate() noexcept {
  if (state_ == State::active) state_ = State::invalidated;
}

CUresult Sequence::end(std::shared_ptr<graph::Graph>& graph) {
  CUresult result = CUDA_SUCCESS;
  if (state_ != State::active) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!is_joined()) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  const auto self = shared_from_this();  // the branches and the list may be all that holds it
  for (const auto& branch : branches_) branch->stream->capture_branch.reset();
  branches_.clear();
  captured_behind_.clear();
  std::erase(all(), self);
  going_on.fetch_sub(1);
  state_ = State::ended;
  graph = std::exchange(graph_, nullptr);
  if (result != CUDA_SUCCESS && graph->owner() == nullptr) graph->destroy();
  return result;
}

void Sequence::leave(const Stream& stream, std::shared_ptr<graph::Graph>& graph) {
  if (is_origin(stream)) {
    invalidate();
    static_cast<void>(end(graph));
    return;
  }
  const auto found = std::find(branches_.begin(), branches_.end(), stream.capture_branch);
  add_edges(left_behind_, (*found)->dependencies);
  (*found)->stream->capture_branch.reset();
  branches_.erase(found);
}

// Does all that was captured in other streams lie before the origin's next node?
bool Sequence::is_joined() const {
  std::unordered_set<const graph::Node*> joined;
  std::vector<const graph::Node*> pending;
  const auto visit = [&](const graph::Node* node) {
    if (joined.insert(node).second) pending.push_back(node);
  };
  for (const graph::Edge& edge : branches_.front()->dependencies) visit(edge.node);
  for (const graph::Edge& edge : let_go_) visit(edge.node);
  while (!pending.empty()) {
    const graph::Node* const node = pending.back();
    pending.pop_back();
    for (const graph::Edge& edge : node->dependencies()) visit(edge.node);
    const auto captured = captured_behind_.find(node);
    if (captured == captured_behind_.end()) continue;
    for (const graph::Node* const before : captured->second) visit(before);
  }
  const auto are_joined = [&](const std::vector<graph::Edge>& edges) {
    return std::all_of(edges.begin(), edges.end(), [&](const graph::Edge& edge) { return joined.contains(edge.node); });
  };
  const auto branch_is_joined = [&](const std::shared_ptr<Branch>& branch) { return are_joined(branch->dependencies); };
  return are_joined(left_behind_) && std::all_of(branches_.begin(), branches_.end(), branch_is_joined);
}

}  // namespace aiocuda::emulator::capture
