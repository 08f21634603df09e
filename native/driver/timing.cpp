// Events around work: see timing.hpp.
#include "timing.hpp"

#include <cmath>

#include "retained.hpp"

namespace aiocuda::driver {
namespace {

// So many pieces of work are read together. An event takes some 500 bytes in NVIDIA's driver, and reading a pair a
// microsecond or two of the thread that submits.
constexpr std::size_t read_together = 1 << 10;
constexpr trace::Nanoseconds longest_from_base = 1'000'000'000;

}  // namespace

// A broken context has destroyed them already, so the answers tell nothing.
Timing::~Timing() {
  if (devices_.is_over() || bases_.empty()) return;  // without a base there was no event, and maybe no driver
  const RelaxedCaptures relaxed(devices_.table());
  devices_.now().drain();
  for (const Pending& each : pending_) {
    devices_.now().destroy(each.events.before);
    devices_.now().destroy(each.events.behind);
  }
  for (const auto& [device, base] : bases_)
    for (CUevent event : {base.event, base.next})
      if (event) devices_.now().destroy(event);
  for (const auto& [device, events] : spare_)
    for (CUevent event : events) devices_.now().destroy(event);
}

CUevent Timing::take(std::int32_t device) {
  std::vector<CUevent>& spare = spare_[device];
  CUevent event = nullptr;
  if (!spare.empty()) {
    event = spare.back();
    spare.pop_back();
  } else if (devices_.table().cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    event = nullptr;
  }
  return event;
}

CUevent Timing::record_aside(std::int32_t device) {
  CUevent event = nullptr;
  try {
    const StreamIndex aside = streams_.aside(device);
    event = take(device);
    if (event && devices_.now().record(event, streams_.at(aside).on()) != CUDA_SUCCESS)
      drop(device, std::exchange(event, nullptr));
  } catch (const Refusal&) {  // there are no times of this device
  }
  return event;
}

void Timing::compare_clocks() {
  for (auto& [device, base] : bases_) {
    if (!base.next || devices_.now().query(base.next, devices_.at(device).context) != CUDA_SUCCESS) continue;
    drop(device, std::exchange(base.event, std::exchange(base.next, nullptr)));
    base.at = base.next_at;
  }
}

Timing::Events Timing::begin(trace::Number work, std::int32_t device) {
  const trace::Nanoseconds now = trace::now_ns();
  const auto [found, is_first] = bases_.try_emplace(device);
  Base& base = found->second;
  if (is_first) {
    base = {.event = record_aside(device), .at = now, .compared = now};
  } else if (base.event && !base.next && now - base.compared >= clock_holds_) {
    base.next = record_aside(device);
    base.next_at = base.compared = now;
  }
  if (!base.event) return {};
  if (pending_.size() >= read_at_) read();
  Events events{take(device), take(device)};
  if (events.before && events.behind) {
    pending_.push_back({work, device, events});
    recorder_.work(work).is_timed = true;
    return events;
  }
  if (events.before) drop(device, events.before);
  if (events.behind) drop(device, events.behind);
  return {};
}

void Timing::read() {
  read_at_ = pending_.size() + read_together;
  if (bases_.empty()) return;  // there may be no driver yet
  const RelaxedCaptures relaxed(devices_.table());
  devices_.now().drain();
  std::deque<Pending> left;
  for (const Pending& each : std::exchange(pending_, {}))
    if (!read(each)) left.push_back(each);
  pending_ = std::move(left);
  compare_clocks();
  read_at_ = pending_.size() + read_together;  // of those that have not passed, none is asked about each time
}

bool Timing::read(const Pending& pending) {
  const Table& table = devices_.table();
  const auto given_up = std::find(given_up_.begin(), given_up_.end(), pending.work);
  const bool is_given_up = given_up != given_up_.end();
  // Work may be held back in a walk: an event that nobody has recorded yet counts as passed.
  const trace::Work& begun = recorder_.work(pending.work);
  if (!is_given_up && begun.state == trace::WorkState::submitted && !begun.returned) return false;
  const CUresult answer = is_given_up
                              ? CUDA_ERROR_INVALID_HANDLE
                              : devices_.now().query(pending.events.behind, devices_.at(pending.device).context);
  if (answer == CUDA_ERROR_NOT_READY) return false;
  Base& base = bases_[pending.device];
  float before_ms = 0, behind_ms = 0;
  auto elapsed = [&](CUevent from, CUevent to, float& ms) { return table.cuEventElapsedTime(&ms, from, to); };
  // The base lies on a stream of its own, which may come to it later than another stream to this.
  const CUresult since = answer ? answer : elapsed(base.event, pending.events.before, before_ms);
  if (since == CUDA_ERROR_NOT_READY) return false;
  const bool is_known = !since && !elapsed(pending.events.before, pending.events.behind, behind_ms);
  trace::Work& work = recorder_.work(pending.work);
  work.is_timed = false;
  if (is_given_up) given_up_.erase(given_up);
  if (!is_known) {
    drop(pending.device, pending.events.before);
    drop(pending.device, pending.events.behind);
    return true;
  }
  work.started = base.at + std::llround(static_cast<double>(before_ms) * 1e6);
  work.ended = work.started + std::llround(static_cast<double>(behind_ms) * 1e6);
  work.state = trace::WorkState::measured;
  if (work.started - base.at > longest_from_base) {
    drop(pending.device, std::exchange(base.event, pending.events.before));
    base.at = work.started;
  } else {
    drop(pending.device, pending.events.before);
  }
  drop(pending.device, pending.events.behind);
  return true;
}

}  // namespace aiocuda::driver
