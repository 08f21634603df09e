// An event: remembers its last record. A wait binds the record there is when it is asked for, so an
// event may be recorded again while waits on the earlier record are pending.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "stream.hpp"

namespace aiocuda::emulator {
namespace capture {
struct Fork;
}

std::int64_t now_ns();  // of the steady clock

// One record of an event in a stream: where it is, and when the stream passed it.
struct EventRecord {
  std::shared_ptr<const capture::Fork>
      fork;  // null, except for a record in a captured stream, whose other members are empty
  Ticket ticket;
  std::atomic<std::int64_t> passed_at_ns{0};  // steady clock; 0 until passed
};

class Event {
 public:
  Event(std::shared_ptr<Context> context, unsigned flags) : context_(std::move(context)), flags_(flags) {}

  Context& context() const noexcept { return *context_; }
  unsigned flags() const noexcept { return flags_; }
  bool has_timing() const noexcept { return (flags_ & CU_EVENT_DISABLE_TIMING) == 0; }

  void record(Stream& stream);
  // It stands for captured work from now on.
  void record(std::shared_ptr<const capture::Fork> fork);
  // It was recorded by somebody who passes the record on his own: a graph that is launched.
  void set_record(std::shared_ptr<EventRecord> record);
  // Null while it was never recorded.
  std::shared_ptr<const EventRecord> last_record() const;

 private:
  const std::shared_ptr<Context> context_;
  const unsigned flags_;
  mutable std::mutex mutex_;
  std::shared_ptr<EventRecord> record_;
};

using EventTable = HandleTable<Event, CUevent>;
EventTable& events();

// Records it in a stream of its context, which may be captured.
CUresult record(const std::shared_ptr<Event>& event, Stream& stream);

}  // namespace aiocuda::emulator
