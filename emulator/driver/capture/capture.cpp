// Stream capture, as the rest of the driver uses it; see capture.hpp.
#include "capture/capture.hpp"

#include <algorithm>
#include <mutex>

#include "capture/sequence.hpp"
#include "event.hpp"

namespace aiocuda::emulator::capture {
namespace {

bool is_active(const Sequence& sequence) noexcept { return sequence.state() == Sequence::State::active; }

// All of the rest is under graph::graphs_mutex().

// The captures that have a stream which the predicate picks.
template <typename Picks>
std::vector<std::shared_ptr<Sequence>> sequences_with(Picks&& picks) {
  std::vector<std::shared_ptr<Sequence>> found;
  for (const auto& sequence : sequences()) {
    const auto& branches = sequence->branches();
    if (std::any_of(branches.begin(), branches.end(), [&](const auto& each) { return picks(*each->stream); })) {
      found.push_back(sequence);
    }
  }
  return found;
}

// Those that the legacy default stream would order itself with.
std::vector<std::shared_ptr<Sequence>> implied_by(const Stream& stream) {
  if (stream.kind() != Stream::Kind::legacy_default) return {};
  return sequences_with(
      [&](const Stream& other) { return other.is_blocking() && &other.context() == &stream.context(); });
}

CUresult invalidate(const std::vector<std::shared_ptr<Sequence>>& sequences, CUresult error) {
  for (const auto& sequence : sequences) sequence->invalidate();
  return sequences.empty() ? CUDA_SUCCESS : error;
}

bool prohibits_unsafe_calls(const Sequence& sequence) {
  const CUstreamCaptureMode mode = mode_of_thread();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED || sequence.mode() == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (sequence.was_begun_by(this_thread())) return true;
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL && sequence.mode() == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult refuse_unsafe_call() {
  std::vector<std::shared_ptr<Sequence>> prohibiting;
  for (const auto& sequence : sequences()) {
    if (prohibits_unsafe_calls(*sequence)) prohibiting.push_back(sequence);
  }
  return invalidate(prohibiting, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

// Finds the stream's part in a capture that is still good; null where it takes part in none.
CUresult find_branch(const Stream& stream, Branch*& branch) {
  if (const CUresult error = invalidate(implied_by(stream), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)) return error;
  branch = branch_of(stream);
  return branch == nullptr || is_active(*branch->sequence) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

// A stream that takes part in no capture waits for captured work.
CUresult fork_into(const std::shared_ptr<Stream>& stream, const Fork& fork) {
  if (!is_active(*fork.sequence)) return CUDA_ERROR_INVALID_VALUE;
  if (stream->kind() == Stream::Kind::legacy_default) {
    fork.sequence->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  fork.sequence->join(stream, fork);
  return CUDA_SUCCESS;
}

// A captured stream waits for captured work, or for work that is not (null).
CUresult join(Branch& branch, const Fork* fork) {
  if (fork == nullptr) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (!is_active(*fork->sequence)) return CUDA_ERROR_INVALID_VALUE;
  if (fork->sequence != branch.sequence) {
    fork->sequence->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  Sequence::join(branch, *fork);
  return CUDA_SUCCESS;
}

}  // namespace

CUstreamCaptureMode& mode_of_thread() noexcept {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

std::optional<CUresult> capture(Stream& stream, const MakeParameters& make) {
  graph::ParametersPointer made;  // what is not used of it ends after the lock
  const std::lock_guard lock(graph::graphs_mutex());
  Branch* branch = nullptr;
  if (const CUresult error = find_branch(stream, branch)) return error;
  if (branch == nullptr) return std::nullopt;
  if (const CUresult error = make(made)) return error;
  return branch->sequence->add(*branch, std::move(made));
}

CUresult check_not_captured(Stream& stream, Consequence consequence) {
  if (!is_going_on()) return CUDA_SUCCESS;
  const std::lock_guard lock(graph::graphs_mutex());
  Branch* branch = nullptr;
  if (const CUresult error = find_branch(stream, branch)) return error;
  if (branch == nullptr) return CUDA_SUCCESS;
  if (consequence == Consequence::invalidates) branch->sequence->invalidate();
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void spoil(Stream& stream) {
  if (!is_going_on()) return;
  const std::lock_guard lock(graph::graphs_mutex());
  if (const Branch* const branch = branch_of(stream)) branch->sequence->invalidate();
}

CUresult check_may_ask(Stream& stream) {
  if (!is_going_on()) return CUDA_SUCCESS;
  const std::lock_guard lock(graph::graphs_mutex());
  if (const CUresult error = invalidate(implied_by(stream), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)) return error;
  if (const Branch* const branch = branch_of(stream)) {
    branch->sequence->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return refuse_unsafe_call();
}

CUresult check_may_ask(const Context& context) {
  if (!is_going_on()) return CUDA_SUCCESS;
  const std::lock_guard lock(graph::graphs_mutex());
  const auto captured = sequences_with([&](const Stream& stream) { return &stream.context() == &context; });
  if (const CUresult error = invalidate(captured, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)) return error;
  return refuse_unsafe_call();
}

CUresult check_may_ask(const EventRecord* record) {
  if (record == nullptr) return check_unsafe_call();
  const CUresult error = check_not_captured(*record);
  if (error == CUDA_SUCCESS) return check_unsafe_call();
  const std::lock_guard lock(graph::graphs_mutex());
  record->fork->sequence->invalidate();
  return error;
}

CUresult check_not_captured(const EventRecord& record) {
  if (!record.fork) return CUDA_SUCCESS;
  const std::lock_guard lock(graph::graphs_mutex());
  const bool is_over = record.fork->sequence->state() == Sequence::State::ended;
  return is_over ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_CAPTURED_EVENT;
}

CUresult check_unsafe_call() {
  if (!is_going_on()) return CUDA_SUCCESS;
  const std::lock_guard lock(graph::graphs_mutex());
  return refuse_unsafe_call();
}

CUresult check_implicit(const Stream& stream) {
  if (!is_going_on()) return CUDA_SUCCESS;
  const std::lock_guard lock(graph::graphs_mutex());
  return implied_by(stream).empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult record(Stream& stream, Event& event, bool& was_captured) {
  was_captured = false;
  if (!is_going_on()) return CUDA_SUCCESS;
  const std::lock_guard lock(graph::graphs_mutex());
  Branch* branch = nullptr;
  if (const CUresult error = find_branch(stream, branch)) return error;
  if (branch == nullptr) return CUDA_SUCCESS;
  was_captured = true;
  event.record(std::make_shared<Fork>(Fork{branch->sequence, branch->dependencies}));
  return CUDA_SUCCESS;
}

CUresult wait(const std::shared_ptr<Stream>& stream, const EventRecord* record, bool& was_captured) {
  const Fork* const fork = record != nullptr ? record->fork.get() : nullptr;
  was_captured = false;
  if (!is_going_on() && fork == nullptr) return CUDA_SUCCESS;
  const std::lock_guard lock(graph::graphs_mutex());
  Branch* branch = nullptr;
  if (const CUresult error = find_branch(*stream, branch)) return error;
  was_captured = branch != nullptr || fork != nullptr;
  if (!was_captured || record == nullptr) return CUDA_SUCCESS;  // an event that was never recorded orders nothing
  const CUresult error = branch == nullptr ? fork_into(stream, *fork) : join(*branch, fork);
  if (error != CUDA_SUCCESS && branch != nullptr) branch->sequence->invalidate();
  return error;
}

void leave(Stream& stream) {
  if (!is_going_on()) return;
  std::shared_ptr<graph::Graph> graph;  // ends after the lock
  const std::lock_guard lock(graph::graphs_mutex());
  const Branch* const branch = branch_of(stream);
  if (branch == nullptr) return;
  const std::shared_ptr<Sequence> sequence = branch->sequence;
  sequence->leave(stream, graph);
}

bool is_captured_into(const graph::Graph& graph) {
  const auto& all = sequences();
  const graph::Graph& root = graph.root();
  return std::any_of(all.begin(), all.end(), [&](const auto& each) { return &each->graph()->root() == &root; });
}

}  // namespace aiocuda::emulator::capture
