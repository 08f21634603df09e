// Relays: see relays.hpp.
#include "relays.hpp"

#include <algorithm>

#include "../dataflow/timeline.hpp"

namespace aiocuda::driver {
namespace {

// Owners that do not name their streams share relays, where so many are at work. Then an import may wait for another
// owner.
constexpr std::size_t most_unnamed = 32;

}  // namespace

unsigned long long Relays::number_of(const Table& table, CUstream stream) {
  unsigned long long number = 0;
  check(table.cuStreamGetId(stream, &number), "cuStreamGetId");
  return number;
}

bool Relays::is_there(const Table& table, CUstream stream, unsigned long long number) {
  unsigned long long found = 0;
  const CUresult answer = table.cuStreamGetId(stream, &found);
  if (answer == CUDA_ERROR_INVALID_HANDLE || answer == CUDA_ERROR_CONTEXT_IS_DESTROYED) return false;
  check(answer, "cuStreamGetId");
  return found == number;
}

// One that waits for nothing any more; a new one if there is none, and they are few or must not share.
Relays::Relay& Relays::idle(std::int32_t device, bool may_share) {
  std::vector<Relay>& relays = relays_[device];
  for (Relay& each : relays)
    if (streams_.is_complete({each.stream, timeline_.submitted(each.stream)})) return each;
  const auto unnamed = std::count_if(relays.begin(), relays.end(), [](const Relay& each) { return !each.theirs; });
  if (may_share && static_cast<std::size_t>(unnamed) >= most_unnamed) {
    do {
      next_ = (next_ + 1) % relays.size();
    } while (relays[next_].theirs);
    return relays[next_];
  }
  return relays.emplace_back(Relay{streams_.create(device, 0), nullptr, 0});
}

Tick Relays::behind(CUstream theirs, std::int32_t device) {
  ContextScope scope(devices_);
  scope.bind(device);
  if (streams_.is_captured(theirs)) throw Refusal(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuEventRecord", device);
  const unsigned long long number = number_of(table_, theirs);
  std::vector<Relay>& relays = relays_[device];
  const auto known = std::find_if(relays.begin(), relays.end(),
                                  [&](const Relay& each) { return each.theirs == theirs && each.number == number; });
  Relay& relay = known == relays.end() ? idle(device, false) : *known;
  relay.theirs = theirs;
  relay.number = number;
  return streams_.pass_behind(relay.stream, theirs);
}

Tick Relays::behind(CUevent event, std::int32_t device) {
  ContextScope scope(devices_);
  scope.bind(device);
  // A wait for an event that was recorded in a capture would make the relay a part of it. Nothing tells of such an
  // event but this question, which ends their capture, as the wait would.
  const CUresult state = now_.query(event, devices_.at(device).context);
  if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) throw Refusal(state, "cuEventQuery", device);
  const StreamIndex relay = unnamed(device);
  check(now_.wait(streams_.at(relay).handle, event), "cuStreamWaitEvent");
  return streams_.pass(relay);
}

StreamIndex Relays::unnamed(std::int32_t device) {
  Relay& relay = idle(device, true);
  relay.theirs = nullptr;
  streams_.enter(relay.stream);
  return relay.stream;
}

}  // namespace aiocuda::driver
