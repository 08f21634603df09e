#include "copy_bench.hpp"

#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "driver/submit.hpp"

namespace aiocuda {
namespace {
using driver::Engine;
using Clock = std::chrono::steady_clock;

// The seconds that each of `number` copies took, from its call until the stream had passed it.
std::vector<double> copies(std::int32_t device, std::uintptr_t stream, std::uint64_t to, std::uint64_t from, std::uint64_t size_bytes, std::uint32_t number) {
  Engine& engine = Engine::get();
  const auto handle = reinterpret_cast<CUstream>(stream);
  try {
    driver::ContextScope scope(engine);
    scope.bind(device);
    nb::gil_scoped_release release;
    std::vector<double> times;
    times.reserve(number);
    for (std::uint32_t i = 0; i < number; ++i) {
      const auto start = Clock::now();
      driver::check(engine.table.cuMemcpyAsync(to, from, size_bytes, handle), "cuMemcpyAsync");
      for (CUresult result; (result = engine.table.cuStreamQuery(handle)) != CUDA_SUCCESS;) {
        if (result != CUDA_ERROR_NOT_READY) driver::check(result, "cuStreamQuery");
        std::this_thread::yield();  // where cores are few, the device may be one of them
      }
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    return times;
  } catch (const driver::Refusal& refusal) {
    driver::raise_refused(engine, refusal.result, refusal.function, "copying as fast as the driver does", 0, device);
  }
}

}  // namespace

void bind_copy_bench(nb::module_& module) {
  using namespace nb::literals;
  module.def("copy_floor", copies, "device"_a, "stream"_a, "to"_a, "source"_a, "size_bytes"_a, "number"_a);
}

}  // namespace aiocuda
