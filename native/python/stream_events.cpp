// Events that order streams outside of the engine's books: see stream_events.hpp.
#include "stream_events.hpp"

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../driver/captures.hpp"
#include "../driver/refused.hpp"
#include "../interpreter.hpp"
#include "process.hpp"

namespace nb = nanobind;

namespace aiocuda {
namespace {
using namespace nb::literals;

using Handle = std::uintptr_t;
using driver::without_gil;

const driver::Table& table() { return process_engine().table; }
CUstream as_stream(Handle handle) { return reinterpret_cast<CUstream>(handle); }
CUevent as_event(Handle handle) { return reinterpret_cast<CUevent>(handle); }

// Raises the driver's refusals as Python's errors.
template <class F>
auto ordering(std::int32_t device, F&& f) {
  interpreter::guard_thread();
  return driver::doing(
      process_engine(), [&] { return "ordering streams of device " + std::to_string(device); }, device, f);
}

// Has a stream wait until 4 bytes of page-locked memory hold a number, or one up to 2^31 beyond it.
void wait_for_word(std::int32_t device, Handle stream, std::uint64_t address, std::uint32_t number) {
  ordering(device, [&] {
    constexpr unsigned reached = CU_STREAM_WAIT_VALUE_GEQ;
    driver::check(without_gil([&] { return table().cuStreamWaitValue32(as_stream(stream), address, number, reached); }),
                  "cuStreamWaitValue32");
  });
}

// Those of one device, which are used again. Guarded by the GIL, which the driver is asked without: it may keep a
// thread waiting for one that needs the GIL.
class StreamEvents {
 public:
  explicit StreamEvents(std::int32_t device) : device_(device) {}
  StreamEvents(const StreamEvents&) = delete;
  StreamEvents& operator=(const StreamEvents&) = delete;
  ~StreamEvents() {
    if (process_engine().is_over() || forked_from()) return;
    const driver::RelaxedCaptures relaxed(table());
    without_gil([&] {
      for (const CUevent each : spare_) table().cuEventDestroy(each);
    });
  }

  std::int32_t device() const { return device_; }
  // An event behind what a stream holds.
  Handle record(Handle stream) {
    return ordering(device_, [&] {
      const CUevent event = take();
      if (const CUresult refused = without_gil([&] { return table().cuEventRecord(event, as_stream(stream)); })) {
        spare_.push_back(event);
        driver::check(refused, "cuEventRecord");
      }
      return reinterpret_cast<Handle>(event);
    });
  }
  // Has one stream wait for what another one holds.
  void order(Handle after, Handle before) {
    const Handle event = record(before);
    const CUresult refused = without_gil(
        [&] { return table().cuStreamWaitEvent(as_stream(after), as_event(event), CU_EVENT_WAIT_DEFAULT); });
    put_back(event);
    ordering(device_, [&] { driver::check(refused, "cuStreamWaitEvent"); });
  }
  // Nothing: the device is lost.
  std::optional<bool> has_passed(Handle event) {
    interpreter::guard_thread();
    const driver::RelaxedCaptures relaxed(table());
    switch (without_gil([&] { return table().cuEventQuery(as_event(event)); })) {
      case CUDA_SUCCESS:
        return true;
      case CUDA_ERROR_NOT_READY:
        return false;
      default:
        return std::nullopt;
    }
  }
  void put_back(Handle event) { spare_.push_back(as_event(event)); }

 private:
  CUevent take() {
    if (!spare_.empty()) {
      const CUevent event = spare_.back();
      spare_.pop_back();
      return event;
    }
    driver::ContextScope scope(process_engine().devices);
    scope.bind(device_);
    CUevent made = nullptr;
    driver::check(without_gil([&] { return table().cuEventCreate(&made, CU_EVENT_DISABLE_TIMING); }), "cuEventCreate");
    return made;
  }

  const std::int32_t device_;
  std::vector<CUevent> spare_;
};

}  // namespace

void bind_stream_events(nb::module_& module) {
  nb::class_<StreamEvents>(module, "StreamEvents")
      .def(nb::init<std::int32_t>(), "device"_a)
      .def_prop_ro("device", &StreamEvents::device)
      .def("record", &StreamEvents::record)
      .def("order", &StreamEvents::order)
      .def("has_passed", &StreamEvents::has_passed)
      .def("put_back", &StreamEvents::put_back);
  module.def("wait_for_word", wait_for_word, "device"_a, "stream"_a, "address"_a, "number"_a);
}

}  // namespace aiocuda
