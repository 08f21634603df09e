// Room: how full streams and devices' memory are, as those see it who wait in line for them.
//
// Always true: when somebody takes a place in a line, or its turn, the next in that line is called once there is room:
// a wait for the stream is under way, or the reactor looks at the line. Guarded by the GIL, except the lines, which
// have a lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "../completion/line.hpp"
#include "memory.hpp"
#include "waits.hpp"

namespace aiocuda::driver {

class Room {
 public:
  Room(Devices& devices, Streams& streams, dataflow::Timeline& timeline, Waits& waits, Memory& memory,
       completion::Lines& lines)
      : devices_(devices), streams_(streams), timeline_(timeline), waits_(waits), memory_(memory), lines_(lines) {
    devices_.guests().tell_of_room([&lines](StreamIndex first_stream) {
      if (!lines.is_empty()) lines.has_room(first_stream | completion::memory_bit);
    });
  }

  // The line of those who wait for memory of a device.
  completion::LineId memory_line(std::int32_t device) {
    return devices_.at(device).default_stream | completion::memory_bit;
  }
  // How many submissions a stream holds; of a device, how much memory arrays and guests hold.
  completion::Level level(completion::LineId line);
  // Has the next of a line called when there is room for them. Throws Refusal.
  void keep_moving(completion::LineId line);
  // Arrays hold less of a device's memory.
  void note_freed(std::int32_t device) {
    if (!lines_.is_empty()) keep_moving(memory_line(device));
  }

 private:
  Devices& devices_;
  Streams& streams_;
  dataflow::Timeline& timeline_;
  Waits& waits_;
  Memory& memory_;
  completion::Lines& lines_;
};

}  // namespace aiocuda::driver
