// Events around work, which say when a device did it.
//
// Always true: the host waits for no device here, unless `await_passed` is asked for. An event that was recorded is
// kept until it was read, or given up. Times are on the host's clock. Now and then an event is recorded on an
// idle stream, and counts as passed at once. Without that, a device's clock would be seconds off after a day. Guarded
// by the GIL.
#pragma once
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "../trace/recorder.hpp"
#include "devices.hpp"
#include "streams.hpp"

namespace aiocuda::driver {

class Timing {
 public:
  struct Events {
    CUevent before = nullptr, behind = nullptr;
  };

  // `clock_holds`: so long is a device's clock taken for as fast as the host's.
  Timing(trace::Recorder& recorder, Devices& devices, Streams& streams, trace::Nanoseconds clock_holds = 10'000'000'000)
      : recorder_(recorder), devices_(devices), streams_(streams), clock_holds_(clock_holds) {}
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;
  ~Timing();

  // For a piece of work on a device, in its context. Both are null where the driver has none.
  Events begin(trace::Number work, std::int32_t device);
  // Its events, if it has any, tell nothing.
  void give_up(trace::Number work) {
    if (recorder_.work(work).is_timed) given_up_.push_back(work);
  }
  // Reads the events that have passed.
  void read();
  // Is there nothing left to read?
  bool has_read_all() const { return pending_.empty(); }

 private:
  struct Pending {
    trace::Number work;
    std::int32_t device;
    Events events;
  };
  // The event from which times are counted, and its time. Seconds later another one takes its place: the driver gives
  // milliseconds in 24 bits.
  struct Base {
    CUevent event = nullptr;
    trace::Nanoseconds at = 0;
    trace::Nanoseconds compared = 0;  // when the device's clock was compared with the host's
    // The event that replaces `event` once it has passed, and the host's time of that.
    CUevent next = nullptr;
    trace::Nanoseconds next_at = 0;
  };

  CUevent take(std::int32_t device);
  // Records an event on a stream without work. None: the driver has none, or refuses.
  CUevent record_aside(std::int32_t device);
  void compare_clocks();
  void drop(std::int32_t device, CUevent event) { spare_[device].push_back(event); }
  // False: the work has not passed yet.
  bool read(const Pending& pending);

  trace::Recorder& recorder_;
  Devices& devices_;
  Streams& streams_;
  const trace::Nanoseconds clock_holds_;
  std::deque<Pending> pending_;
  std::size_t read_at_ = 0;  // so many are pending when the next are read
  std::vector<trace::Number> given_up_;
  std::map<std::int32_t, Base> bases_;
  std::map<std::int32_t, std::vector<CUevent>> spare_;
};

}  // namespace aiocuda::driver
