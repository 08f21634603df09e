// A policy: which of its streams an operation goes to. Knows neither Python nor CUDA.
//
// Always true: a policy chooses for speed alone. Waits are placed afterwards, so that every choice gives the
// same results.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tick.hpp"

namespace aiocuda::dataflow {

// A policy's streams on one device, and where it stands.
struct PolicyStreams {
  std::vector<StreamIndex> streams;
  std::uint32_t next = 0;

  bool contain(StreamIndex stream) const { return std::find(streams.begin(), streams.end(), stream) != streams.end(); }
  StreamIndex take_turn() { return streams[next++ % streams.size()]; }
};

class Policy {
 public:
  Policy(std::uint32_t stream_count, int stream_priority) : streams(stream_count), priority(stream_priority) {}
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  virtual ~Policy() = default;

  // `needs`: what the operation must be ordered after, in the order of its arguments.
  virtual StreamIndex choose(const Timeline& timeline, const std::vector<Tick>& needs,
                             PolicyStreams& policy_streams) const = 0;

  // Is the device's default stream the first of its streams of a priority?
  virtual bool uses_default_stream(int /*stream_priority*/) const { return false; }
  virtual bool looks_at_progress() const { return false; }  // the device is to be asked how far its streams are
  virtual bool asks() const { return false; }               // somebody else chooses
  virtual bool goes_on() const { return false; }  // where the first of `needs` is the last work of one of its streams

  const std::uint32_t streams;  // on each device
  const int priority;
  // By device; the owner of the streams makes them.
  mutable std::vector<PolicyStreams> placed;
  mutable std::map<std::pair<std::int32_t, int>, PolicyStreams> placed_elsewhere;  // of the device's other priorities
};

}  // namespace aiocuda::dataflow
