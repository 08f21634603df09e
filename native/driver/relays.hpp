// Relays: streams of ours that wait for streams of other libraries, and do nothing else. So what those have been given
// to do becomes a tick, which our streams and awaits wait for like any other.
//
// Always true: another library's stream is used in the calls below alone, and never later: it may be destroyed then. A
// relay waits for one stream of another library's at a time, so waiting for it is waiting for nobody else. Guarded by
// the GIL.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "streams.hpp"

namespace aiocuda::driver {

class Relays {
 public:
  Relays(Devices& devices, Streams& streams, dataflow::Timeline& timeline)
      : devices_(devices), streams_(streams), timeline_(timeline), table_(devices.table()), now_(devices.now()) {}
  Relays(const Relays&) = delete;
  Relays& operator=(const Relays&) = delete;

  // A tick that passes when all has that the stream holds now. Throws Refusal, also where somebody captures the stream.
  Tick behind(CUstream theirs, std::int32_t device);
  // A tick that passes when an event has. Throws Refusal, also where the event is one of a capture.
  Tick behind(CUevent event, std::int32_t device);
  // A relay for an owner who orders it himself, after a stream that he does not name. Throws Refusal.
  StreamIndex unnamed(std::int32_t device);

  // Handles are used again, numbers are not.
  static unsigned long long number_of(const Table& table, CUstream stream);
  // Is the stream of this number still there? In the context of its device. Throws Refusal.
  static bool is_there(const Table& table, CUstream stream, unsigned long long number);

 private:
  struct Relay {
    StreamIndex stream;
    CUstream theirs;  // null: one that nobody named
    unsigned long long number;
  };
  Relay& idle(std::int32_t device, bool may_wait);

  Devices& devices_;
  Streams& streams_;
  dataflow::Timeline& timeline_;
  const Table& table_;
  const DriverNow& now_;
  std::map<std::int32_t, std::vector<Relay>> relays_;  // by device
  std::size_t next_ = 0;
};

}  // namespace aiocuda::driver
