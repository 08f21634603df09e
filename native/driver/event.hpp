// An event of the program's: a point in a stream that it recorded, or that another process lent.
//
// Always true: it is recorded once. It is destroyed when nobody holds it any more. Python holds it, and so does the
// reactor while somebody waits for it. Any thread may let go of it, and ask whether it has passed.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "devices.hpp"
#include "streams.hpp"

namespace aiocuda::driver {

class Event {
 public:
  struct Kind {
    bool has_timing = false;
    bool is_interprocess = false;
  };
  // Behind all that a stream holds now. Throws Refusal.
  static std::shared_ptr<const Event> record(Devices& devices, const Streams& streams, StreamIndex stream, Kind kind);
  // Another process' own. Throws Refusal.
  static std::shared_ptr<const Event> open(Devices& devices, std::int32_t device, const CUipcEventHandle& handle);

  Event(const Devices& devices, std::int32_t device, CUcontext context, CUevent event, Kind kind, std::uint64_t series);
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  std::int32_t device() const { return device_; }
  const Kind& kind() const { return kind_; }
  // Events of one series pass in the order of their numbers.
  std::uint64_t series() const { return series_; }
  std::uint64_t number() const { return number_; }
  CUcontext context() const { return context_; }
  CUevent handle() const { return event_; }

  // Throws Refusal on a broken context, and where the event is part of a capture.
  bool has_passed() const;
  // The handle with which another process opens it. Throws Refusal.
  CUipcEventHandle lend() const;
  // The device's time between two events that have passed. Throws Refusal.
  float milliseconds_to(const Event& later) const;

 private:
  const Devices& devices_;  // outlive every event
  const std::int32_t device_;
  const CUcontext context_;
  const CUevent event_;
  const Kind kind_;
  const std::uint64_t number_, series_;
};

}  // namespace aiocuda::driver
