// The API of stream capture: beginning and ending it, what it has come to, and the modes of threads.
#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

#include "capture/capture.hpp"
#include "capture/sequence.hpp"

using namespace aiocuda::emulator;
using capture::Branch;
using capture::Sequence;
using graph::Edge;

namespace {

bool is_mode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

// Nodes of a graph as the API names them.
struct Named {
  const CUgraphNode* nodes;
  const CUgraphEdgeData* data;  // null: the default for all
  std::size_t count;
};

CUresult find_edges(const graph::Graph& graph, const Named& named, std::vector<Edge>& edges) {
  if (named.count > 0 && named.nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t each = 0; each < named.count; ++each) {
    const auto node = graph::nodes().find(named.nodes[each]);
    const CUgraphEdgeData data = named.data != nullptr ? named.data[each] : CUgraphEdgeData{};
    if (!node || &node->graph() != &graph || !graph::is_edge_data(data)) return CUDA_ERROR_INVALID_VALUE;
    const auto is_same = [&](const Edge& other) { return other.node == node.get(); };
    if (std::any_of(edges.begin(), edges.end(), is_same)) return CUDA_ERROR_INVALID_VALUE;
    edges.push_back({node.get(), data});
  }
  return CUDA_SUCCESS;
}

// The stream that a capture may begin in.
CUresult resolve_origin(CUstream handle, CUstreamCaptureMode mode, std::shared_ptr<Stream>& stream) {
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  return stream->kind() == Stream::Kind::legacy_default ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUstreamCaptureStatus status_of(const Branch* branch) {
  if (branch == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return branch->sequence->state() == Sequence::State::active ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                              : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

CUresult resolve_asked(CUstream handle, const CUstreamCaptureStatus* status, std::shared_ptr<Stream>& stream) {
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return capture::check_implicit(*stream);
}

void tell_dependencies(Branch& branch) {
  branch.told_nodes.clear();
  branch.told_data.clear();
  for (const Edge& edge : branch.dependencies) {
    branch.told_nodes.push_back(edge.node->handle());
    branch.told_data.push_back(edge.data);
  }
}

}  // namespace

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_origin(handle, mode, stream)) return error;
  const std::lock_guard lock(graph::graphs_mutex());
  if (capture::branch_of(*stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  Sequence::begin(stream, graph::Graph::create(), {}, mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* data, std::size_t count, CUstreamCaptureMode mode) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_origin(handle, mode, stream)) return error;
  const std::lock_guard lock(graph::graphs_mutex());
  const auto graph = graph::graphs().find(graph_handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Edge> edges;
  if (const CUresult error = find_edges(*graph, {dependencies, data, count}, edges)) return error;
  if (capture::branch_of(*stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  Sequence::begin(stream, graph, std::move(edges), mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  std::shared_ptr<Stream> stream;
  const CUresult lost = resolve_stream(handle, stream);
  // In a lost context a capture comes to nothing, but it ends: it may prohibit calls in others.
  if (!stream) return lost;
  std::shared_ptr<graph::Graph> captured;  // ends after the lock
  const std::lock_guard lock(graph::graphs_mutex());
  const Branch* const branch = capture::branch_of(*stream);
  if (branch == nullptr) return lost != CUDA_SUCCESS ? lost : CUDA_ERROR_ILLEGAL_STATE;
  if (graph != nullptr) *graph = nullptr;
  const std::shared_ptr<Sequence> sequence = branch->sequence;
  if (!sequence->is_origin(*stream)) {
    sequence->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  const bool may_any_thread = sequence->mode() == CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool is_other_thread = !may_any_thread && !sequence->was_begun_by(capture::this_thread());
  if (lost != CUDA_SUCCESS || is_other_thread || graph == nullptr) sequence->invalidate();
  const CUresult result = sequence->end(captured);
  if (lost != CUDA_SUCCESS) return lost;
  if (is_other_thread) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (graph == nullptr) return CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) *graph = captured->handle();
  return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_asked(handle, status, stream)) return error;
  const std::lock_guard lock(graph::graphs_mutex());
  *status = status_of(capture::branch_of(*stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, const CUgraphEdgeData** data, std::size_t* count) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_asked(handle, status, stream)) return error;
  if (data != nullptr && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(graph::graphs_mutex());
  Branch* const branch = capture::branch_of(*stream);
  *status = status_of(branch);
  const bool is_active = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (is_active) {
    tell_dependencies(*branch);
    const bool are_default = std::all_of(branch->told_data.begin(), branch->told_data.end(), graph::is_default);
    if (dependencies != nullptr && data == nullptr && !are_default) return CUDA_ERROR_LOSSY_QUERY;
  }
  if (id != nullptr) *id = is_active ? branch->sequence->id() : 0;
  if (graph != nullptr) *graph = is_active ? branch->sequence->graph()->handle() : nullptr;
  if (dependencies != nullptr) *dependencies = is_active ? branch->told_nodes.data() : nullptr;
  if (data != nullptr) *data = is_active ? branch->told_data.data() : nullptr;
  if (count != nullptr) *count = is_active ? branch->told_nodes.size() : 0;
  return CUDA_SUCCESS;
}

extern "C" [[gnu::visibility("default")]] CUresult cuStreamGetCaptureInfo_v2(CUstream handle,
                                                                             CUstreamCaptureStatus* status,
                                                                             cuuint64_t* id, CUgraph* graph,
                                                                             const CUgraphNode** dependencies,
                                                                             std::size_t* count) {
  return cuStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, nullptr, count);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* dependencies, const CUgraphEdgeData* data,
                                              std::size_t count, unsigned flags) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  const bool replaces = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES;
  if (!replaces && flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(graph::graphs_mutex());
  Branch* const branch = capture::branch_of(*stream);
  if (branch == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Sequence>& sequence = branch->sequence;
  if (sequence->state() != Sequence::State::active) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<Edge> edges;
  if (const CUresult error = find_edges(*sequence->graph(), {dependencies, data, count}, edges)) return error;
  if (replaces) {
    sequence->replace_dependencies(*branch, std::move(edges));
  } else {
    Sequence::join(*branch, {nullptr, std::move(edges)});
  }
  return CUDA_SUCCESS;
}

#undef cuStreamUpdateCaptureDependencies  // the older form has the plain name
extern "C"
    [[gnu::visibility("default")]] CUresult cuStreamUpdateCaptureDependencies(CUstream handle,
                                                                              CUgraphNode* dependencies,
                                                                              std::size_t count, unsigned flags) {
  return cuStreamUpdateCaptureDependencies_v2(handle, dependencies, nullptr, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (const CUresult error = check_initialised()) return error;
  if (mode == nullptr || !is_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  std::swap(capture::mode_of_thread(), *mode);
  return CUDA_SUCCESS;
}
