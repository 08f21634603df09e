// Waits for streams: numbers that a stream writes when it is so far, events that are asked about where there are none,
// and the reactor, which looks and asks.
//
// Always true: a stream writes the numbers of a slot in their order, and a slot has one stream at a time. A refused
// call leaves no wait behind that never ends. Guarded by the GIL, except `has_passed` and what the reactor calls.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "../completion/completion.hpp"
#include "../completion/reactor.hpp"
#include "event.hpp"
#include "streams.hpp"

namespace aiocuda::driver {

class Waits final : public StreamFollower {
 public:
  // `look`: called on the reactor's thread for each stream that somebody waits for, now and then.
  Waits(Devices& devices, Streams& streams, dataflow::Timeline& timeline, completion::Pending& pending,
        Surroundings& around, std::function<void(StreamIndex)> look);
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  // Makes the flags, in a device's context, and starts the reactor, once. Other threads go on while the driver gives
  // memory. Throws Refusal.
  void start(CUcontext context);
  // Ends the reactor. A thread that has stopped inside the driver stays there.
  void shut_down();
  const completion::ReactorCounts* reactor_counts() const { return reactor_ ? &reactor_->counts() : nullptr; }

  // A wait for streams: what the device will write, and what has passed once it has.
  struct Armed {
    struct Part {
      StreamIndex stream;
      std::optional<completion::Ticket> ticket;  // none: the reactor will have to ask
      dataflow::Snapshot complete{};             // where it is not what is kept with the stream's ticket
      CUevent event = nullptr;                   // of the mark, where there is one

      bool is_at_end() const { return ticket && !event; }  // of the stream: its ticket is one of the stream's
    };
    Few<Part> parts;
    bool has_tickets() const {
      return std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.ticket.has_value(); });
    }
  };
  // For the marks, or where a tick's stream has none, for all that the stream holds so far; `whoever`: also what others
  // submitted to it. Throws Refusal.
  Armed arm(std::span<const Tick> ticks, std::span<const Streams::Mark> marks, bool whoever = false);
  Armed arm(std::initializer_list<Tick> ticks, std::span<const Streams::Mark> marks, bool whoever = false) {
    return arm(std::span(ticks.begin(), ticks.size()), marks, whoever);
  }
  // Has the device written it all? Needs neither the GIL nor the driver.
  bool has_passed(const Armed& armed) const;
  void learn(const Armed& armed);
  // From here on the reactor looks, or asks; `then` is called on its thread, when all is learnt. Throws Refusal.
  std::shared_ptr<completion::Completion> watch(const Armed& armed, const std::function<void()>& then = {});

  // The same for an event of the program's.
  std::shared_ptr<completion::Completion> watch(const std::shared_ptr<const Event>& event);

  // So that it is known how far a long stream is: to be called after each submission. Throws Refusal.
  void note_progress(StreamIndex stream);
  // Does a stream hold so many submissions that have not passed? The driver's queue must not fill: it would keep
  // the GIL while it waits.
  bool is_full(StreamIndex stream, std::uint64_t most);

  // How long recent waits took, in microseconds: a moving average.
  std::atomic<float> recent_wait_us{0};
  void note_wait(completion::Pending::Clock::duration time);
  std::atomic<std::uint64_t> spins{0}, spins_that_paid{0}, without_flag{0};

  bool has_left(StreamIndex stream) override;
  void leave(StreamIndex stream) override;

 private:
  struct Ticketed {
    completion::Ticket ticket;
    dataflow::Snapshot complete;  // what has passed once it is written
  };
  // Of a stream.
  struct Flags {
    CUstream side = nullptr;                              // where a point in the middle of the stream is waited for
    std::optional<completion::Slot> slot{}, side_slot{};  // whose flags the stream, and the side stream, write
    std::deque<Ticketed> tickets{};  // that the stream was given to write, and that are not known to be written
    std::uint64_t noted = 0;         // how much it held when its progress was last noted
  };
  // Events that are not in use; the reactor gives them back.
  class SpareEvents {
   public:
    CUevent take();  // null: there is none
    void give_back(CUevent event) {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
    }

   private:
    std::mutex mutex_;
    std::vector<CUevent> events_;
  };
  // An event that the reactor asks about.
  struct Asked {
    CUcontext context;
    CUevent event;
  };
  // An event for one record of it.
  class PointEvent {
   public:
    PointEvent(const Streams& streams, SpareEvents& spare, CUcontext context);
    PointEvent(const PointEvent&) = delete;
    PointEvent& operator=(const PointEvent&) = delete;
    ~PointEvent() { spare_.give_back(asked.event); }

    Asked asked;

   private:
    SpareEvents& spare_;
  };
  struct WatchedStreams;
  // An event of the program's, for as long as somebody waits for it.
  struct WatchedEvent {
    Asked asked;
    std::shared_ptr<const Event> event;
  };

  Flags& flags_of(StreamIndex stream) {
    if (stream >= flags_.size()) [[unlikely]]
      make_flags(stream);
    return *flags_[stream];
  }
  void make_flags(StreamIndex stream);
  bool has_passed(const Asked& asked) const;
  void watch_point(const Armed::Part& part, std::uint64_t number);
  CUstream side_stream(Flags& flags);
  void learn_written(Flags& flags);
  const Ticketed* ticket_behind(const Flags& flags, std::uint64_t count) const;
  dataflow::Snapshot complete_with(const Armed::Part& part);
  std::optional<Armed::Part> arm_mark(Tick tick, const StreamState& stream, std::span<const Streams::Mark> marks);
  std::optional<completion::Ticket> write_ticket(std::int32_t device, On on, std::optional<completion::Slot>& slot);

  Devices& devices_;
  Streams& streams_;
  dataflow::Timeline& timeline_;
  completion::Pending& pending_;
  Surroundings& around_;
  const std::function<void(StreamIndex)> look_;
  const Table& table_;
  const DriverNow& now_;
  std::vector<std::unique_ptr<Flags>> flags_;         // by stream
  std::map<std::int32_t, SpareEvents> spare_events_;  // by device
  std::optional<completion::FlagTable> slots_;
  completion::Points points_;
  std::unique_ptr<completion::Reactor> reactor_;
};

}  // namespace aiocuda::driver
