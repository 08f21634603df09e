// Code that the benchmarks' floors share: the driver's own calls, made and timed as a C++ program would.
//
// Always true: they are made without the GIL, with the device's context current; what the driver refuses is Python's
// error.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "../driver/engine.hpp"
#include "../driver/refused.hpp"
#include "../python/process.hpp"

namespace aiocuda::floor {
using driver::check;
using driver::Engine;
using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline bool is_ready(CUresult result, const char* function) {
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, function);
  return true;
}
inline bool has_passed(CUstream stream) {
  return is_ready(process_engine().table.cuStreamQuery(stream), "cuStreamQuery");
}

// Looks until it is so, and now and then at the stream: a broken context never makes it so. If that takes longer than a
// launch does on a GPU, the device may be emulated on few cores, and gets this one.
template <class Done>
void spin_until(CUstream stream, Done&& is_done) {
  const auto patient_until = Clock::now() + std::chrono::microseconds(10);
  for (std::uint32_t looks = 1; !is_done(); ++looks) {
    if (Clock::now() < patient_until) continue;
    std::this_thread::yield();
    if (looks % 1024 == 0) has_passed(stream);
  }
}
inline void spin_on(CUstream stream) {
  spin_until(stream, [stream] { return has_passed(stream); });
}

// Values of a launch's parameters, and where each of them is, as the driver takes them.
class Arguments {
 public:
  explicit Arguments(const std::vector<nb::bytes>& values) {
    for (const nb::bytes& value : values) values_.emplace_back(value.c_str(), value.c_str() + value.size());
    for (std::vector<char>& value : values_) words_.push_back(value.data());
  }
  Arguments(Arguments&&) = default;
  Arguments& operator=(Arguments&&) = default;
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  void** words() { return words_.data(); }

 private:
  std::vector<std::vector<char>> values_;
  std::vector<void*> words_;  // each points to a value
};

template <class F>
std::invoke_result_t<F> on_device(std::int32_t device, F&& f) {
  return driver::doing(
      process_engine(), [&] { return "measuring the floor of device " + std::to_string(device); }, device,
      [&] {
        driver::ContextScope scope(process_engine());
        scope.bind(device);
        nb::gil_scoped_release release;
        return f();
      });
}

// The seconds that each of `number` rounds took, until the stream had passed what `submit(i)` gave it; on a device.
template <class F>
std::vector<double> rounds(CUstream stream, std::uint32_t number, F&& submit) {
  std::vector<double> times;
  times.reserve(number);
  for (std::uint32_t i = 0; i < number; ++i) {
    const auto start = Clock::now();
    submit(i);
    spin_on(stream);
    times.push_back(seconds_since(start));
  }
  return times;
}

}  // namespace aiocuda::floor
