// What the memory tests share beside support.hpp: free memory, memory pools, and reading memory back.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support.hpp"

namespace memory_test {

using driver_test::Gate;

struct Device : driver_test::Device {
  using driver_test::Device::Device;
  std::size_t free_bytes() const {
    std::size_t free = 0, total = 0;
    REQUIRE_OK(cuMemGetInfo(&free, &total));
    return free;
  }
};

struct Stream : driver_test::Stream {
  using driver_test::Stream::Stream;
  void synchronise() const { REQUIRE_OK(cuStreamSynchronize(*this)); }
};

inline CUmemPoolProps device_pool_properties(CUdevice device) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

struct Pool {
  explicit Pool(const CUmemPoolProps& properties) { REQUIRE_OK(cuMemPoolCreate(&handle, &properties)); }
  explicit Pool(CUdevice device = 0) : Pool(device_pool_properties(device)) {}
  ~Pool() { cuMemPoolDestroy(handle); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  operator CUmemoryPool() const { return handle; }

  std::uint64_t get(CUmemPool_attribute attribute) const {
    cuuint64_t value = 0;
    REQUIRE_OK(cuMemPoolGetAttribute(handle, attribute, &value));
    return value;
  }
  void set(CUmemPool_attribute attribute, cuuint64_t value) const {
    REQUIRE_OK(cuMemPoolSetAttribute(handle, attribute, &value));
  }
  CUdeviceptr allocate(std::size_t bytes, CUstream stream) const {
    CUdeviceptr pointer = 0;
    REQUIRE_OK(cuMemAllocFromPoolAsync(&pointer, bytes, handle, stream));
    return pointer;
  }
  CUmemoryPool handle = nullptr;
};

inline std::vector<std::uint8_t> read_device(CUdeviceptr pointer, std::size_t bytes) {
  std::vector<std::uint8_t> host(bytes);
  REQUIRE_OK(cuMemcpyDtoH(host.data(), pointer, bytes));
  return host;
}

}  // namespace memory_test
