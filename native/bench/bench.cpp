#include "bench.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../python/process.hpp"
#include "floor.hpp"

namespace aiocuda {
namespace {
using floor::check;
using floor::Clock;
using floor::is_ready;
using floor::seconds_since;
using Handles = std::vector<std::uintptr_t>;  // of streams

class Event {
 public:
  Event() {
    CUevent event = nullptr;
    check(process_engine().table.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    event_.reset(event);
  }
  void record(CUstream stream) { check(process_engine().table.cuEventRecord(event_.get(), stream), "cuEventRecord"); }
  void hold_back(CUstream stream) {
    check(process_engine().table.cuStreamWaitEvent(stream, event_.get(), 0), "cuStreamWaitEvent");
  }
  bool has_passed() const { return is_ready(process_engine().table.cuEventQuery(event_.get()), "cuEventQuery"); }

 private:
  struct Destroy {
    void operator()(CUevent event) const { process_engine().table.cuEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

// One launch, in a loop of the driver's own calls. The engine knows nothing of its streams' work; when a loop
// returns, all of that has passed.
class Floor {
 public:
  Floor(std::int32_t device, std::uintptr_t function, std::uint32_t grid, std::uint32_t block,
        const std::vector<nb::bytes>& values)
      : device_(device),
        function_(reinterpret_cast<CUfunction>(function)),
        grid_(grid),
        block_(block),
        flag_(process_engine().memory.allocate_host(sizeof(std::uint32_t))),
        arguments_(values) {}
  Floor(const Floor&) = delete;
  Floor& operator=(const Floor&) = delete;

  // Launches on the streams in turn; ordered: each behind the one before it, by an event. Returns the seconds until all
  // were submitted, and until all had passed.
  std::pair<double, double> launches(const Handles& handles, std::uint32_t number, bool is_ordered) {
    if (handles.empty()) throw nb::value_error("launches need a stream");
    return floor::on_device(device_, [&] {
      std::vector<Event> events(is_ordered ? handles.size() : 0);
      const auto start = Clock::now();
      for (std::uint32_t i = 0; i < number; ++i) {
        const std::size_t lane = i % handles.size();
        launch(stream_of(handles[lane]));
        if (!is_ordered) continue;
        events[lane].record(stream_of(handles[lane]));
        events[lane].hold_back(stream_of(handles[(lane + 1) % handles.size()]));
      }
      const double submitted = seconds_since(start);
      for (const std::uintptr_t handle : handles) floor::spin_on(stream_of(handle));
      return std::pair(submitted, seconds_since(start));
    });
  }

  // Launches, and waits for each by spinning; `how`: what it looks at. Returns the seconds that each took.
  std::vector<double> waits(std::uintptr_t handle, const std::string& how, std::uint32_t number) {
    const CUstream stream = stream_of(handle);
    const driver::Table& table = process_engine().table;
    auto flag = std::atomic_ref(*reinterpret_cast<std::uint32_t*>(flag_->address));
    flag.store(0);
    auto is_written = [flag](std::uint32_t i) { return flag.load(std::memory_order_acquire) == i + 1; };
    if (how == "stream")
      return waits_by(
          stream, number, [](std::uint32_t) {}, [stream](std::uint32_t) { return floor::has_passed(stream); });
    if (how == "flag") {
      auto write = [&](std::uint32_t i) {
        check(table.cuStreamWriteValue32(stream, flag_->address, i + 1, CU_STREAM_WRITE_VALUE_DEFAULT),
              "cuStreamWriteValue32");
      };
      return waits_by(stream, number, write, is_written);
    }
    if (how == "host function") {
      auto tell = [&](std::uint32_t) {
        check(table.cuLaunchHostFunc(stream, write_next, reinterpret_cast<void*>(flag_->address)), "cuLaunchHostFunc");
      };
      return waits_by(stream, number, tell, is_written);
    }
    throw nb::value_error("a floor waits for \"stream\", \"flag\" or \"host function\"");
  }

 private:
  static CUstream stream_of(std::uintptr_t handle) { return reinterpret_cast<CUstream>(handle); }

  static void CUDA_CB write_next(void* flag) {
    std::atomic_ref(*static_cast<std::uint32_t*>(flag)).fetch_add(1, std::memory_order_release);
  }

  void launch(CUstream stream) {
    check(process_engine().table.cuLaunchKernel(function_, grid_, 1, 1, block_, 1, 1, 0, stream, arguments_.words(),
                                                nullptr),
          "cuLaunchKernel");
  }

  template <class Tell, class HasCome>
  std::vector<double> waits_by(CUstream stream, std::uint32_t number, Tell&& tell, HasCome&& has_come) {
    return floor::on_device(device_, [&] {
      std::vector<double> times;
      times.reserve(number);
      for (std::uint32_t i = 0; i < number; ++i) {
        const auto start = Clock::now();
        launch(stream);
        tell(i);
        floor::spin_until(stream, [&] { return has_come(i); });
        times.push_back(seconds_since(start));
      }
      return times;
    });
  }

  const std::int32_t device_;
  const CUfunction function_;
  const std::uint32_t grid_, block_;
  const dataflow::BufferRef flag_;
  floor::Arguments arguments_;
};

}  // namespace

void bind_bench(nb::module_& module) {
  nb::class_<Floor>(module, "Floor")
      .def(nb::init<std::int32_t, std::uintptr_t, std::uint32_t, std::uint32_t, const std::vector<nb::bytes>&>())
      .def("launches",
           [](Floor& floor, const Handles& streams, std::uint32_t number, bool is_ordered) {
             const auto [submitted, passed] = floor.launches(streams, number, is_ordered);
             return nb::make_tuple(submitted, passed);
           })
      .def("waits", &Floor::waits);
}

}  // namespace aiocuda
