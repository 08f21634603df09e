// An event: remembers its last record. A wait binds the record there is when it is asked for, so an
// event may be recorded again while waits on the earlier record are pending.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "shared_event.hpp"
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
  std::uint64_t shared_number = 0;            // of an event that processes share
};

// A record of another process, as a ticket has it.
class ForeignRecord {
 public:
  // Waits of the host end when that context is lost.
  ForeignRecord(std::shared_ptr<const Context> context, std::shared_ptr<const SharedEvent> event, std::uint64_t number)
      : context_(std::move(context)), event_(std::move(event)), number_(number) {}
  bool passed() const noexcept { return event_->passed(number_); }
  CUresult wait() const {
    wait_in_stream(*context_);
    return context_->error();
  }
  void wait_in_stream(const Context& context) const {
    event_->wait(number_, [&] { return context.lost(); });
  }

 private:
  const std::shared_ptr<const Context> context_;
  const std::shared_ptr<const SharedEvent> event_;
  const std::uint64_t number_;
};

class Event {
 public:
  // Other processes may open it where it has a part that they share.
  Event(std::shared_ptr<Context> context, unsigned flags, std::shared_ptr<SharedEvent> shared = nullptr)
      : context_(std::move(context)), flags_(flags), shared_(std::move(shared)) {}
  // Another process's.
  Event(std::shared_ptr<Context> context, std::shared_ptr<SharedEvent> shared)
      : context_(std::move(context)),
        flags_(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS),
        shared_(std::move(shared)),
        is_foreign_(true) {}

  Context& context() const noexcept { return *context_; }
  unsigned flags() const noexcept { return flags_; }
  const SharedEvent* shared() const noexcept { return shared_.get(); }
  bool is_foreign() const noexcept { return is_foreign_; }
  bool has_timing() const noexcept { return (flags_ & CU_EVENT_DISABLE_TIMING) == 0; }

  void record(Stream& stream);
  // It stands for captured work from now on.
  void record(std::shared_ptr<const capture::Fork> fork);
  // It was recorded by somebody who passes the record on his own: a graph that is launched.
  void set_record(std::shared_ptr<EventRecord> record);
  // What other processes know of a record that begins now, for who passes it; null where they know nothing.
  std::shared_ptr<const SharedRecord> begin_shared(EventRecord& record) const;
  // Null while it was never recorded.
  std::shared_ptr<const EventRecord> last_record() const;

 private:
  const std::shared_ptr<Context> context_;
  const unsigned flags_;
  const std::shared_ptr<SharedEvent> shared_;
  const bool is_foreign_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<EventRecord> record_;
};

using EventTable = HandleTable<Event, CUevent>;
EventTable& events();

// Records it in a stream of its context, which may be captured.
CUresult record(const std::shared_ptr<Event>& event, Stream& stream);

}  // namespace aiocuda::emulator
