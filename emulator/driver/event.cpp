// Events: the class and its part of the API.
#include "event.hpp"

#include <atomic>
#include <chrono>

#include "capture/capture.hpp"
#include "graph/node_parameters.hpp"
#include "memory/memory.hpp"
#include "settings.hpp"

namespace aiocuda::emulator {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

EventTable& events() {
  static EventTable* const table = new EventTable;
  return *table;
}

void Event::record(Stream& stream) {
  auto record = std::make_shared<EventRecord>();
  const auto shared = begin_shared(*record);
  // Where the work is dropped, the shared record passes with it.
  record->ticket = stream.enqueue_with_ticket(
      Stream::work_of([time = std::shared_ptr<std::atomic<std::int64_t>>(record, &record->passed_at_ns), shared] {
        time->store(now_ns(), std::memory_order_release);
        if (shared) shared->pass();
      }));
  const std::lock_guard lock(mutex_);
  record_ = std::move(record);
}

void Event::record(std::shared_ptr<const capture::Fork> fork) {
  auto record = std::make_shared<EventRecord>();
  record->fork = std::move(fork);
  const std::lock_guard lock(mutex_);
  record_ = std::move(record);
}

void Event::set_record(std::shared_ptr<EventRecord> record) {
  const std::lock_guard lock(mutex_);
  record_ = std::move(record);
}

std::shared_ptr<const SharedRecord> Event::begin_shared(EventRecord& record) const {
  if (!shared_) return nullptr;
  auto shared = std::make_shared<const SharedRecord>(shared_);
  record.shared_number = shared->number();
  return shared;
}

std::shared_ptr<const EventRecord> Event::last_record() const {
  const std::lock_guard lock(mutex_);
  if (!shared_) return record_;
  const std::uint64_t last = shared_->last_record();
  const bool is_own = record_ && (record_->fork || record_->shared_number == last);
  if (is_own || last == 0) return record_;
  auto record = std::make_shared<EventRecord>();
  record->ticket = Ticket(std::make_shared<const ForeignRecord>(context_, shared_, last));
  return record;
}

CUresult record(const std::shared_ptr<Event>& event, Stream& stream) {
  bool was_captured = false;
  if (const CUresult error = capture::record(stream, *event, was_captured)) return error;
  if (was_captured) return CUDA_SUCCESS;
  if (const CUresult error = stream.context().pass_gate()) return error;
  event->record(stream);
  return CUDA_SUCCESS;
}

}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

namespace {

// The live event that a handle means, or why the call cannot go on.
CUresult resolve_event(CUevent handle, std::shared_ptr<Event>& event) {
  if (const CUresult error = check_initialised()) return error;
  event = events().find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  return event->context().error();
}

// A record or a wait of the graph that is captured into, and not of the capture. ILLEGAL_STATE where there is none.
CUresult capture_node(CUgraphNodeType type, const std::shared_ptr<Event>& event, Stream& stream) {
  const auto captured = capture::instead_of_work(stream, [&](graph::ParametersPointer& made) {
    made = std::make_shared<graph::EventParameters>(type, event);
    return CUDA_SUCCESS;
  });
  return captured.value_or(CUDA_ERROR_ILLEGAL_STATE);
}

CUresult record_event(CUevent handle, CUstream stream_handle, unsigned flags) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(stream_handle, stream)) return error;
  std::shared_ptr<Event> event;
  if (const CUresult error = resolve_event(handle, event)) return error;
  if (&event->context() != &stream->context()) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) return capture_node(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, *stream);
  return record(event, *stream);
}

}  // namespace

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (handle == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = entry.context().pass_gate()) return error;
  std::shared_ptr<SharedEvent> shared;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    if ((flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    shared = SharedEvent::make();
    if (!shared) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = events().add(std::make_shared<Event>(entry.context().shared_from_this(), flags, std::move(shared)));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  if (const CUresult error = check_initialised()) return error;
  return events().take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
  return record_event(handle, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned flags) {
  if (const CUresult error = check_initialised()) return error;
  if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
  return record_event(handle, stream, flags);
}

CUresult cuEventQuery(CUevent handle) {
  std::shared_ptr<Event> event;
  if (const CUresult error = resolve_event(handle, event)) return error;
  const auto record = event->last_record();
  if (const CUresult error = capture::check_may_ask(record.get())) return error;
  if (!record) return CUDA_SUCCESS;
  return record->ticket.query() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  std::shared_ptr<Event> event;
  if (const CUresult error = resolve_event(handle, event)) return error;
  if (const CUresult error = check_may_wait()) return error;
  const auto record = event->last_record();
  if (const CUresult error = capture::check_may_ask(record.get())) return error;
  if (!record) return CUDA_SUCCESS;
  if (const CUresult error = record->ticket.wait()) return error;
  memory::after_synchronise(event->context().device());
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  std::shared_ptr<Event> start, end;
  if (const CUresult error = check_initialised()) return error;
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = resolve_event(start_handle, start)) return error;
  if (const CUresult error = resolve_event(end_handle, end)) return error;
  if (!start->has_timing() || !end->has_timing()) return CUDA_ERROR_INVALID_HANDLE;
  if (&start->context() != &end->context()) return CUDA_ERROR_INVALID_HANDLE;
  const auto from = start->last_record(), to = end->last_record();
  if (!from || !to) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& record : {from, to}) {
    if (const CUresult error = capture::check_not_captured(*record)) return error;
  }
  if (!from->ticket.query() || !to->ticket.query()) return CUDA_ERROR_NOT_READY;
  const std::int64_t elapsed_ns =
      to->passed_at_ns.load(std::memory_order_acquire) - from->passed_at_ns.load(std::memory_order_acquire);
  *milliseconds = static_cast<float>(static_cast<double>(elapsed_ns) / 1e6);
  return CUDA_SUCCESS;
}

// The one wait that a program is to be run without, to see that somebody notices.
static bool is_dropped() {
  static std::atomic<int> waits{0};
  return settings().dropped_wait != 0 && ++waits == settings().dropped_wait;
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(stream_handle, stream)) return error;
  if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Event> event;
  if (const CUresult error = resolve_event(handle, event)) return error;
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) return capture_node(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, *stream);
  const auto record = event->last_record();
  bool was_captured = false;
  if (const CUresult error = capture::wait(stream, record.get(), was_captured)) return error;
  if (!was_captured && record && !is_dropped()) stream->wait_for(record->ticket);
  return CUDA_SUCCESS;
}

// The form of CUDA 2 to 12.7.
#undef cuEventElapsedTime
extern "C" [[gnu::visibility("default")]] CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}
