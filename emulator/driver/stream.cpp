// The class Stream: its queue, its thread, and the order among default and blocking streams.
#include "stream.hpp"

#include <cstdio>
#include <functional>
#include <map>

#include "capture/capture.hpp"
#include "checking/checking.hpp"
#include "event.hpp"
#include "fault.hpp"
#include "green_context.hpp"
#include "host_function.hpp"
#include "injection.hpp"
#include "spin.hpp"
#include "thread.hpp"

namespace aiocuda::emulator {
namespace {

// The calling thread's own default streams, by context id. They end with the thread.
struct PerThreadStreams {
  std::map<std::uint64_t, std::shared_ptr<Stream>> by_context;
  ~PerThreadStreams() {
    if (check_initialised() != CUDA_SUCCESS) {
      // A forked child: a lock of the parent's threads may be held for ever.
      new std::map<std::uint64_t, std::shared_ptr<Stream>>(std::move(by_context));
      return;
    }
    for (const auto& [id, stream] : by_context) {
      capture::leave(*stream);
      stream->close();
      stream->context().remove_stream(*stream);
    }
  }
};

PerThreadStreams& per_thread_streams() {
  thread_local PerThreadStreams streams;
  return streams;
}

// Another core has written it: it comes while the work before it runs.
void prefetch(const Work& work) noexcept {
  const auto* const lines = reinterpret_cast<const char*>(&work);
  for (const int line : {0, 1, 2}) __builtin_prefetch(lines + 64 * line);
}

std::unique_ptr<checking::Checker::Lane> make_lane(const Context& context, Stream::Kind kind, const Stream* stream) {
  checking::Checker* const checker = checking::checker();
  if (checker == nullptr) return nullptr;
  const std::string device = " of device " + std::to_string(context.device());
  if (kind == Stream::Kind::legacy_default) return checker->open_lane(0, "the legacy default stream" + device);
  if (kind == Stream::Kind::per_thread_default) return checker->open_lane(0, "a thread's default stream" + device);
  const auto handle = reinterpret_cast<std::uintptr_t>(stream);
  char text[24];
  std::snprintf(text, sizeof text, "0x%zx", static_cast<std::size_t>(handle));
  return checker->open_lane(handle, text + device);
}

std::unique_ptr<Shuffle> make_shuffle() {
  const auto seed = Shuffle::seed_of_next_stream();
  return seed ? std::make_unique<Shuffle>(*seed) : nullptr;
}

}  // namespace

StreamTable& streams() {
  static StreamTable* const table = new StreamTable;
  return *table;
}

bool Ticket::passed() const noexcept {
  if (foreign_) return foreign_->passed();
  return !stream_ || is_early() || stream_->has_passed(position_);
}

Ticket Ticket::earlier(std::shared_ptr<const std::atomic<bool>> flag, std::vector<checking::Point> points) const {
  Ticket ticket(stream_, position_, std::move(points));
  ticket.flag_ = std::move(flag);
  return ticket;
}

CUresult Ticket::wait() const {
  if (foreign_) return foreign_->wait();
  if (!stream_) return CUDA_SUCCESS;
  stream_->wait_until(*this);
  const CUresult error = stream_->context().error();
  if (error == CUDA_SUCCESS) observe();
  return error;
}

void Ticket::wait_in_stream(const Context& context) const {
  if (foreign_) foreign_->wait_in_stream(context);
  if (stream_) stream_->wait_until(*this);
}

bool Ticket::query() const {
  if (stream_ && stream_->shuffle_) stream_->shuffle_->somebody_asks();
  if (!passed()) return false;
  if (stream_ && injection::strikes(injection::Kind::not_ready, stream_->context().device())) return false;
  observe();
  return true;
}

void Ticket::observe() const {
  for (const checking::Point& point : points_) checking::checker()->observe(point);
}

Stream::Stream(std::shared_ptr<Context> context, unsigned flags, int priority, Kind kind)
    : context_(std::move(context)),
      id_(next_id()),
      flags_(flags),
      kind_(kind),
      priority_(priority),
      lane_(make_lane(*context_, kind, this)),
      shuffle_(make_shuffle()) {
  synchronisation_policy_.syncPolicy = CU_SYNC_POLICY_AUTO;
  memory_sync_domain_map_.memSyncDomainMap.remote = 1;
}

Stream::~Stream() {
  if (thread_started_) context_->executable_store.give_back(1);
}

void Stream::enqueue(std::unique_ptr<Work> work) {
  if (is_blocking()) wait_for_others();
  append(std::move(work));
}

Ticket Stream::enqueue_with_ticket(std::unique_ptr<Work> work) {
  if (is_blocking()) wait_for_others();
  Place place = append(std::move(work));
  std::vector<checking::Point> points;
  if (place.point) points.push_back(std::move(place.point));
  return {shared_from_this(), place.position, std::move(points)};
}

// The legacy default stream and the blocking streams of a context each wait for what the other side
// has submitted so far. Non-blocking streams take no part.
void Stream::wait_for_others() {
  const auto wait_for_all_of = [this](Stream& other) {
    if (&other != this) wait_for(other.tail());
  };
  if (kind_ == Kind::legacy_default) {
    for (const auto& other : context_->streams()) {
      if (other->is_blocking()) wait_for_all_of(*other);
    }
  } else if (Stream* const legacy = context_->legacy_stream_if_used()) {
    wait_for_all_of(*legacy);
  }
}

void Stream::wait_for(const Ticket& ticket) {
  // Later work of the same stream comes later anyway.
  if (ticket.stream().get() == this) return;
  if (!ticket.passed()) {
    // A lost context on the other side has failed on its own; here the wait is over.
    append(work_of([ticket, this] { ticket.wait_in_stream(*context_); }), &ticket.points_);
  } else if (!ticket.points_.empty()) {
    const std::lock_guard lock(mutex_);
    after_.insert(after_.end(), ticket.points_.begin(), ticket.points_.end());
  }
}

Stream::Place Stream::append(std::unique_ptr<Work> work, const std::vector<checking::Point>* after) {
  std::unique_lock lock(mutex_);
  // Only when a stream is destroyed while another thread submits to it: the work is dropped.
  if (closed_) return {submitted_.load(std::memory_order_relaxed), nullptr};
  checking::Point point;
  if (lane_) {
    if (after != nullptr) after_.insert(after_.begin(), after->begin(), after->end());
    point = last_point_ = work->point_ = lane_->submit(work->text(), std::exchange(after_, {}));
  }
  if (auto* const known = checking::known_memory()) work->memory_ = known->list();
  Work* const added = work.get();
  if (last_ != nullptr) {
    last_->next_ = std::move(work);
  } else {
    first_ = std::move(work);
  }
  last_ = added;
  const std::uint64_t position = submitted_.load(std::memory_order_relaxed) + 1;
  submitted_.store(position, std::memory_order_release);
  if (!thread_started_) {
    start_thread("cuda-stream", [self = shared_from_this()] { self->loop(); });
    thread_started_ = true;
    context_->executable_store.take_for_stream();
    return {position, std::move(point)};
  }
  const bool wake = parked_;
  parked_ = false;
  lock.unlock();
  if (wake) work_ready_.notify_one();
  return {position, std::move(point)};
}

void Stream::run(Work& work) {
  if (!work.memory_) return work.run();
  const checking::ListInForce in_force(work.memory_);
  const checking::Ordering ordering = work.ordering();
  if (lane_) lane_->begin(*work.point_, ordering);
  work.run();
  const checking::Accesses accesses = context_->lost() ? checking::Accesses{} : work.accesses();
  checking::note_writes(accesses);
  if (lane_) lane_->end(work.point_, ordering, accesses);
}

void Stream::loop() {
  keep_fault_handlers();
  while (std::unique_ptr<Work> work = next()) {
    if (shuffle_) shuffle_->let_others_go();
    go_wrong_as_planned();
    if (context_->lost()) {
      work->drop();
      if (lane_) lane_->drop(*work->point_);
    } else {
      run(*work);
    }
    work.reset();  // before its end is told: what it holds may be what somebody waits to be let go
    completed_.fetch_add(1);
    tell_progress();
  }
}

// Before a piece of work: what goes wrong with it whatever it is.
void Stream::go_wrong_as_planned() {
  if (injection::strikes(injection::Kind::lost, context_->device())) {
    context_->fail(CUDA_ERROR_ECC_UNCORRECTABLE, "a loss that was planned (AIOCUDA_EMULATOR_FAULTS)");
  }
  if (injection::strikes(injection::Kind::stall, context_->device())) {
    std::unique_lock lock(mutex_);
    progress_.wait_for(lock, injection::stall_time, [&] { return context_->lost(); });
  }
}

// The next work, or null when the stream is closed and all is done. The thread takes all that waits at once, so that it
// seldom meets those who submit at their lock.
std::unique_ptr<Work> Stream::next() {
  if (!taken_) taken_ = take_all();
  std::unique_ptr<Work> work = std::move(taken_);
  if (work) taken_ = std::move(work->next_);
  if (taken_) prefetch(*taken_);
  return work;
}

std::unique_ptr<Work> Stream::take_all() {
  const std::uint64_t done = completed_.load(std::memory_order_relaxed);
  spin_until([&] { return submitted_.load(std::memory_order_acquire) > done; }, spin_for_work);
  std::unique_lock lock(mutex_);
  while (first_ == nullptr && !closed_) {
    parked_ = true;
    work_ready_.wait(lock);
    keep_fault_handlers();
  }
  parked_ = false;
  last_ = nullptr;
  return std::move(first_);
}

void Stream::wait_until(const Ticket& ticket) {
  const auto over = [&] { return completed_.load() >= ticket.position_ || ticket.is_early() || context_->lost(); };
  if (shuffle_) shuffle_->somebody_waits();
  if (!spin_until(over, spin_for_an_end)) {
    waiters_.fetch_add(1);
    std::unique_lock lock(mutex_);
    progress_.wait(lock, over);
    waiters_.fetch_sub(1);
  }
  if (shuffle_) shuffle_->nobody_waits();
}

bool Stream::drain(std::chrono::milliseconds patience) {
  waiters_.fetch_add(1);
  std::unique_lock lock(mutex_);
  const bool drained = progress_.wait_for(lock, patience, [&] { return own_work_has_ended(); });
  waiters_.fetch_sub(1);
  return drained;
}

void Stream::tell_progress() {
  if (waiters_.load() > 0) wake_waiters();
}

void Stream::wake_waiters() {
  const std::lock_guard lock(mutex_);
  progress_.notify_all();
}

Ticket Stream::tail() {
  if (!lane_) return {shared_from_this(), submitted_.load(std::memory_order_acquire), {}};
  const std::lock_guard lock(mutex_);
  std::vector<checking::Point> points = after_;
  if (last_point_) points.push_back(last_point_);
  return {shared_from_this(), submitted_.load(std::memory_order_relaxed), std::move(points)};
}

bool Stream::query() {
  if (shuffle_) shuffle_->somebody_asks();
  if (lane_ && kind_ == Kind::legacy_default) wait_for_others();
  // Looks only at work that was submitted before the question: more may come while it is answered.
  const Ticket asked = lane_ ? tail() : Ticket();
  if (!idle() || injection::strikes(injection::Kind::not_ready, context_->device())) return false;
  asked.observe();
  return true;
}

bool Stream::idle() const {
  if (!own_work_has_ended()) return false;
  if (kind_ != Kind::legacy_default) return true;
  for (const auto& other : context_->streams()) {
    if (other->is_blocking() && !other->own_work_has_ended()) return false;
  }
  return true;
}

CUresult Stream::synchronise() {
  if (kind_ == Kind::legacy_default) wait_for_others();
  return tail().wait();
}

void Stream::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    parked_ = false;
  }
  work_ready_.notify_all();
}

CUresult Stream::set_attribute(CUstreamAttrID attribute, const CUstreamAttrValue& value) {
  const std::lock_guard lock(attributes_mutex_);
  switch (static_cast<int>(attribute)) {
    case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      if (value.accessPolicyWindow.num_bytes != 0) return CUDA_ERROR_INVALID_VALUE;  // the limit is 0
      access_policy_window_ = value;
      return CUDA_SUCCESS;
    case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      if (value.syncPolicy < CU_SYNC_POLICY_AUTO || value.syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      synchronisation_policy_ = value;
      return CUDA_SUCCESS;
    case CU_STREAM_ATTRIBUTE_PRIORITY:
      if (value.priority < greatest_stream_priority || value.priority > least_stream_priority) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      set_priority(value.priority);
      return CUDA_SUCCESS;
    case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      memory_sync_domain_map_ = value;
      return CUDA_SUCCESS;
    case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN:
      memory_sync_domain_ = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Stream::get_attribute(CUstreamAttrID attribute, CUstreamAttrValue& value) const {
  const std::lock_guard lock(attributes_mutex_);
  switch (static_cast<int>(attribute)) {
    case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      value = access_policy_window_;
      return CUDA_SUCCESS;
    case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      value = synchronisation_policy_;
      return CUDA_SUCCESS;
    case CU_STREAM_ATTRIBUTE_PRIORITY:
      value.priority = priority();
      return CUDA_SUCCESS;
    case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      value = memory_sync_domain_map_;
      return CUDA_SUCCESS;
    case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN:
      value = memory_sync_domain_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

std::shared_ptr<Stream> Context::legacy_stream() {
  const std::lock_guard lock(mutex_);
  if (!legacy_) {
    legacy_ = std::make_shared<Stream>(shared_from_this(), CU_STREAM_DEFAULT, least_stream_priority,
                                       Stream::Kind::legacy_default);
    streams_.push_back(legacy_);
    if (ended()) legacy_->close();
    legacy_used_.store(legacy_.get(), std::memory_order_release);
  }
  return legacy_;
}

std::shared_ptr<Stream> Context::per_thread_stream() {
  std::shared_ptr<Stream>& stream = per_thread_streams().by_context[id_];
  if (!stream) {
    stream = std::make_shared<Stream>(shared_from_this(), CU_STREAM_DEFAULT, least_stream_priority,
                                      Stream::Kind::per_thread_default);
    add_stream(stream);
  }
  return stream;
}

CUresult resolve_stream(CUstream handle, std::shared_ptr<Stream>& stream) {
  if (handle == nullptr) handle = PerThreadDefaultStream::active() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    const Entry entry = enter();
    if (!entry) return entry.error();
    Context& context = entry.context();
    stream = handle == CU_STREAM_LEGACY ? context.legacy_stream() : context.per_thread_stream();
    return CUDA_SUCCESS;
  }
  if (const CUresult error = check_initialised()) return error;
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  stream = streams().find(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (const auto green = green_context_of(*stream); green && green->ended()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return stream->context().error();
}

CUresult resolve_default_stream(std::shared_ptr<Stream>& stream) { return resolve_stream(nullptr, stream); }

}  // namespace aiocuda::emulator
