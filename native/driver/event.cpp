// Events of the program's: see event.hpp.
#include "event.hpp"

#include <atomic>

namespace aiocuda::driver {
namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// Streams' own points have lower ones (waits.cpp).
constexpr std::uint64_t series_of_streams = std::uint64_t{1} << 40, series_of_opened = std::uint64_t{1} << 41;

}  // namespace

Event::Event(const Devices& devices, std::int32_t device, CUcontext context, CUevent event, Kind kind,
             std::uint64_t series)
    : devices_(devices),
      device_(device),
      context_(context),
      event_(event),
      kind_(kind),
      number_(next_number()),
      series_(series == series_of_opened ? series + number_ : series) {}

// The answer tells nothing: a broken context has destroyed it already.
Event::~Event() {
  if (devices_.is_over()) return;
  const RelaxedCaptures relaxed(devices_.table());
  devices_.now().destroy(event_);
}

std::shared_ptr<const Event> Event::record(Devices& devices, const Streams& streams, StreamIndex stream, Kind kind) {
  const StreamState& state = streams.at(stream);
  ContextScope scope(devices);
  scope.bind(state.device);
  unsigned flags = kind.has_timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  if (kind.is_interprocess) flags |= CU_EVENT_INTERPROCESS;
  CUevent event = nullptr;
  check(devices.table().cuEventCreate(&event, flags), "cuEventCreate");
  auto made = std::make_shared<const Event>(devices, state.device, state.context, event, kind,
                                            series_of_streams + stream);  // ends the event where it is not recorded
  check(devices.now().record(event, state.handle), "cuEventRecord");
  return made;
}

std::shared_ptr<const Event> Event::open(Devices& devices, std::int32_t device, const CUipcEventHandle& handle) {
  ContextScope scope(devices);
  scope.bind(device);
  CUevent event = nullptr;
  check(devices.table().cuIpcOpenEventHandle(&event, handle), "cuIpcOpenEventHandle");
  return std::make_shared<const Event>(devices, device, devices.at(device).context, event, Kind{}, series_of_opened);
}

bool Event::has_passed() const {
  const RelaxedCaptures relaxed(devices_.table());
  const CUresult result = devices_.now().query(event_, context_);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) throw Refusal(result, "cuEventQuery", device_);
  return result == CUDA_SUCCESS;
}

CUipcEventHandle Event::lend() const {
  CUipcEventHandle handle{};
  check(devices_.table().cuIpcGetEventHandle(&handle, event_), "cuIpcGetEventHandle");
  return handle;
}

float Event::milliseconds_to(const Event& later) const {
  float milliseconds = 0;
  const RelaxedCaptures relaxed(devices_.table());
  check(devices_.table().cuEventElapsedTime(&milliseconds, event_, later.event_), "cuEventElapsedTime");
  return milliseconds;
}

}  // namespace aiocuda::driver
