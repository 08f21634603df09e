#include "copy_bench.hpp"

#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "../python/process.hpp"
#include "floor.hpp"

namespace aiocuda {
namespace {

// The seconds that each of `number` copies took, from its call until the stream had passed it.
std::vector<double> copies(std::int32_t device, std::uintptr_t handle, std::uint64_t to, std::uint64_t from,
                           std::uint64_t size_bytes, std::uint32_t number) {
  const auto stream = reinterpret_cast<CUstream>(handle);
  return floor::on_device(device, [&] {
    return floor::rounds(stream, number, [&](std::uint32_t) {
      floor::check(process_engine().table.cuMemcpyAsync(to, from, size_bytes, stream), "cuMemcpyAsync");
    });
  });
}

}  // namespace

void bind_copy_bench(nb::module_& module) {
  using namespace nb::literals;
  module.def("copy_floor", copies, "device"_a, "stream"_a, "to"_a, "source"_a, "size_bytes"_a, "number"_a);
}

}  // namespace aiocuda
