// Copies and memsets: their bytes against plain loops, when their calls return, what is refused, and
// that a fault in one loses the context and not the process.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "test_memory_support.hpp"

using namespace memory_test;

namespace {

constexpr std::size_t small = 4096;
constexpr std::size_t large = std::size_t{24} << 20;  // is not staged, and is shared by threads

std::vector<std::uint8_t> numbered(std::size_t bytes, unsigned seed = 1) {
  std::vector<std::uint8_t> data(bytes);
  std::uint32_t state = seed * 2654435761u + 1;
  for (auto& each : data) {
    state = state * 1664525u + 1013904223u;
    each = static_cast<std::uint8_t>(state >> 24);
  }
  return data;
}

struct Buffer {
  explicit Buffer(std::size_t bytes) { REQUIRE_OK(cuMemAlloc(&pointer, bytes)); }
  ~Buffer() { cuMemFree(pointer); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  operator CUdeviceptr() const { return pointer; }
  CUdeviceptr pointer = 0;
};

struct PageLocked {
  explicit PageLocked(std::size_t bytes) {
    void* memory = nullptr;
    REQUIRE_OK(cuMemHostAlloc(&memory, bytes, 0));
    data = static_cast<std::uint8_t*>(memory);
  }
  ~PageLocked() { cuMemFreeHost(data); }
  PageLocked(const PageLocked&) = delete;
  PageLocked& operator=(const PageLocked&) = delete;
  std::uint8_t* data = nullptr;
};

}  // namespace

TEST_CASE("linear copies keep every byte, small and large, by every path") {
  const Device device;
  const Stream stream;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{777}, std::size_t{65536}, std::size_t{65537}, large, large + 13}) {
    CAPTURE(bytes);
    const auto source = numbered(bytes);
    std::vector<std::uint8_t> result(bytes);
    const Buffer one(bytes), two(bytes);
    REQUIRE_OK(cuMemcpyHtoD(one, source.data(), bytes));
    REQUIRE_OK(cuMemcpyDtoD(two, one, bytes));
    REQUIRE_OK(cuMemcpyDtoH(result.data(), two, bytes));
    CHECK(result == source);
    const auto second = numbered(bytes, 2);
    REQUIRE_OK(cuMemcpyHtoDAsync(one, second.data(), bytes, stream));
    REQUIRE_OK(cuMemcpyDtoDAsync(two, one, bytes, stream));
    REQUIRE_OK(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(result.data()), two, bytes, stream));
    CHECK(result == second);
  }
}

TEST_CASE("an asynchronous copy from pageable memory lets go of its source when it returns") {
  const Device device;
  const Stream stream;
  const Buffer buffer(small);
  auto source = numbered(small);
  const auto expected = source;
  Gate gate(stream);
  REQUIRE_OK(cuMemcpyHtoDAsync(buffer, source.data(), small, stream));
  std::fill(source.begin(), source.end(), 0);
  gate.open();
  stream.synchronise();
  CHECK(read_device(buffer, small) == expected);
}

TEST_CASE("an asynchronous copy from page-locked memory reads it in stream order") {
  const Device device;
  const Stream stream;
  const Buffer buffer(small);
  const PageLocked source(small);
  std::memset(source.data, 1, small);
  Gate gate(stream);
  REQUIRE_OK(cuMemcpyHtoDAsync(buffer, source.data, small, stream));
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  std::memset(source.data, 2, small);
  gate.open();
  stream.synchronise();
  CHECK(read_device(buffer, small) == std::vector<std::uint8_t>(small, 2));
}

TEST_CASE("registered memory is copied like page-locked memory") {
  const Device device;
  const Stream stream;
  const Buffer buffer(small);
  std::vector<std::uint8_t> source(small, 1);
  REQUIRE_OK(cuMemHostRegister(source.data(), small, 0));
  {
    Gate gate(stream);
    REQUIRE_OK(cuMemcpyHtoDAsync(buffer, source.data(), small, stream));
    source.assign(small, 2);
    gate.open();
    stream.synchronise();
  }
  REQUIRE_OK(cuMemHostUnregister(source.data()));
  CHECK(read_device(buffer, small) == std::vector<std::uint8_t>(small, 2));
}

TEST_CASE("a copy to pageable memory is complete when the call returns") {
  const Device device;
  const Stream stream;
  const Buffer buffer(small);
  REQUIRE_OK(cuMemsetD8Async(buffer, 9, small, stream));
  std::vector<std::uint8_t> result(small);
  REQUIRE_OK(cuMemcpyDtoHAsync(result.data(), buffer, small, stream));
  CHECK(result == std::vector<std::uint8_t>(small, 9));
}

TEST_CASE("copies beyond an allocation and to freed memory are refused") {
  const Device device;
  const Stream stream;
  std::vector<std::uint8_t> host(2 * small);
  CUdeviceptr freed = 0;
  REQUIRE_OK(cuMemAlloc(&freed, small));
  REQUIRE_OK(cuMemFree(freed));
  const Buffer buffer(small);
  CHECK(cuMemcpyHtoD(buffer, host.data(), small + 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(buffer + 1, host.data(), small) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoHAsync(host.data(), buffer, 2 * small, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(freed, host.data(), 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpy(freed, buffer, 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(buffer, nullptr, 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoD(buffer, reinterpret_cast<CUdeviceptr>(host.data()), 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD8(buffer, 0, small + 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD8(reinterpret_cast<CUdeviceptr>(host.data()), 0, 1) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuMemcpyHtoD(buffer, host.data(), 0));
  REQUIRE_OK(cuCtxSynchronize());
}

TEST_CASE("memsets fill whole elements") {
  const Device device;
  const Stream stream;
  const Buffer buffer(small);
  REQUIRE_OK(cuMemsetD8Async(buffer, 0, small, stream));
  REQUIRE_OK(cuMemsetD16Async(buffer + 2, 0x1234, 3, stream));
  REQUIRE_OK(cuMemsetD32Async(buffer + 16, 0xa1b2c3d4, 2, stream));
  stream.synchronise();
  std::vector<std::uint8_t> expected(small);
  for (int i = 0; i < 3; ++i) {
    expected[2 + 2 * i] = 0x34;
    expected[3 + 2 * i] = 0x12;
  }
  for (int i = 0; i < 2; ++i) {
    expected[16 + 4 * i] = 0xd4;
    expected[17 + 4 * i] = 0xc3;
    expected[18 + 4 * i] = 0xb2;
    expected[19 + 4 * i] = 0xa1;
  }
  CHECK(read_device(buffer, small) == expected);
  CHECK(cuMemsetD16(buffer + 1, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD32(buffer + 2, 0, 1) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a large memset reaches every element") {
  const Device device;
  const Buffer buffer(large);
  REQUIRE_OK(cuMemsetD32(buffer, 0x01010101, large / 4));
  const auto bytes = read_device(buffer, large);
  const bool all_ones = std::all_of(bytes.begin(), bytes.end(), [](auto each) { return each == 1; });
  CHECK(all_ones);
}

TEST_CASE("memsets of two dimensions leave what is between the rows") {
  const Device device;
  const Buffer buffer(small);
  REQUIRE_OK(cuMemsetD8(buffer, 0xee, small));
  REQUIRE_OK(cuMemsetD2D16(buffer + 4, 100, 0x0505, 7, 9));
  std::vector<std::uint8_t> expected(small, 0xee);
  for (std::size_t row = 0; row < 9; ++row) std::memset(&expected[4 + row * 100], 5, 14);
  CHECK(read_device(buffer, small) == expected);
  CHECK(cuMemsetD2D16(buffer, 13, 0, 7, 9) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD2D32(buffer, 30, 0, 7, 9) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD2D8(buffer, 1000, 0, 100, 9) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("copies of three dimensions are those of three nested loops") {
  const Device device;
  const Stream stream;
  std::mt19937 random(20240607);
  const auto pick = [&](std::size_t most) { return static_cast<std::size_t>(random() % (most + 1)); };
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = 1 + pick(60);
    copy.Height = 1 + pick(6);
    copy.Depth = 1 + pick(4);
    copy.srcXInBytes = pick(9);
    copy.srcY = pick(3);
    copy.srcZ = pick(2);
    copy.dstXInBytes = pick(9);
    copy.dstY = pick(3);
    copy.dstZ = pick(2);
    copy.srcPitch = copy.srcXInBytes + copy.WidthInBytes + pick(20);
    copy.dstPitch = copy.dstXInBytes + copy.WidthInBytes + pick(20);
    copy.srcHeight = copy.srcY + copy.Height + pick(3);
    copy.dstHeight = copy.dstY + copy.Height + pick(3);
    const std::size_t source_bytes = copy.srcPitch * copy.srcHeight * (copy.srcZ + copy.Depth);
    const std::size_t destination_bytes = copy.dstPitch * copy.dstHeight * (copy.dstZ + copy.Depth);
    const auto source = numbered(source_bytes, static_cast<unsigned>(round));
    const auto before = numbered(destination_bytes, static_cast<unsigned>(round) + 1000);
    auto expected = before;
    for (std::size_t z = 0; z < copy.Depth; ++z) {
      for (std::size_t y = 0; y < copy.Height; ++y) {
        const std::size_t from = ((copy.srcZ + z) * copy.srcHeight + copy.srcY + y) * copy.srcPitch;
        const std::size_t to = ((copy.dstZ + z) * copy.dstHeight + copy.dstY + y) * copy.dstPitch;
        std::copy_n(&source[from + copy.srcXInBytes], copy.WidthInBytes, &expected[to + copy.dstXInBytes]);
      }
    }
    const Buffer on_device(source_bytes), result(destination_bytes);
    REQUIRE_OK(cuMemcpyHtoD(on_device, source.data(), source_bytes));
    REQUIRE_OK(cuMemcpyHtoD(result, before.data(), destination_bytes));
    const bool from_host = round % 2 == 0;
    copy.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.srcHost = source.data();
    copy.srcDevice = on_device;
    copy.dstMemoryType = round % 3 == 0 ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = result;
    REQUIRE_OK(cuCtxSynchronize());
    if (round % 4 < 2) {
      REQUIRE_OK(cuMemcpy3D(&copy));
    } else {
      REQUIRE_OK(cuMemcpy3DAsync(&copy, stream));
      stream.synchronise();
    }
    CHECK(read_device(result, destination_bytes) == expected);
  }
}

TEST_CASE("copies of two dimensions go both ways, and bad pitches are refused") {
  const Device device;
  CUDA_MEMCPY2D copy{};
  const auto source = numbered(1000);
  const Buffer buffer(1000);
  REQUIRE_OK(cuMemsetD8(buffer, 0, 1000));
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source.data();
  copy.srcPitch = 50;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = buffer;
  copy.dstPitch = 100;
  copy.WidthInBytes = 40;
  copy.Height = 10;
  REQUIRE_OK(cuMemcpy2D(&copy));
  std::vector<std::uint8_t> expected(1000);
  for (int row = 0; row < 10; ++row) std::copy_n(&source[row * 50], 40, &expected[row * 100]);
  CHECK(read_device(buffer, 1000) == expected);
  copy.srcPitch = 39;
  CHECK(cuMemcpy2D(&copy) == CUDA_ERROR_INVALID_VALUE);
  copy.srcPitch = 50;
  copy.Height = 11;
  CHECK(cuMemcpy2D(&copy) == CUDA_ERROR_INVALID_VALUE);
  copy.Height = 10;
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  CHECK(cuMemcpy2D(&copy) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a batch is copied as a whole or not at all") {
  const Device device;
  const Stream stream;
  const auto source = numbered(3 * small);
  const Buffer buffer(3 * small);
  REQUIRE_OK(cuMemsetD8(buffer, 0, 3 * small));
  REQUIRE_OK(cuCtxSynchronize());
  CUdeviceptr from[3], to[3];
  std::size_t sizes[3];
  for (std::size_t i = 0; i < 3; ++i) {
    from[i] = reinterpret_cast<CUdeviceptr>(source.data()) + i * small;
    to[i] = buffer + i * small;
    sizes[i] = small;
  }
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  std::size_t first = 0;
  sizes[2] = small + 1;
  CHECK(cuMemcpyBatchAsync(to, from, sizes, 3, &attributes, &first, 1, stream) == CUDA_ERROR_INVALID_VALUE);
  stream.synchronise();
  CHECK(read_device(buffer, small) == std::vector<std::uint8_t>(small, 0));
  sizes[2] = small;
  CHECK(cuMemcpyBatchAsync(to, from, sizes, 3, &attributes, &first, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuMemcpyBatchAsync(to, from, sizes, 3, &attributes, &first, 1, stream));
  stream.synchronise();
  CHECK(read_device(buffer, 3 * small) == source);
}

TEST_CASE("peer copies go between the devices, behind the work of both") {
  REQUIRE_OK(cuInit(0));
  int devices = 0;
  REQUIRE_OK(cuDeviceGetCount(&devices));
  if (devices < 2) return;
  const Device other(1);
  CUdeviceptr there = 0;
  REQUIRE_OK(cuMemAlloc(&there, small));
  REQUIRE_OK(cuMemsetD8(there, 3, small));
  const Device device(0);
  const Buffer here(small);
  REQUIRE_OK(cuMemcpyPeer(here, device.context(), there, other.context(), small));
  CHECK(read_device(here, small) == std::vector<std::uint8_t>(small, 3));
  CHECK(cuMemcpyPeer(here, device.context(), there, nullptr, small) == CUDA_ERROR_INVALID_CONTEXT);
  const Stream stream;
  REQUIRE_OK(cuMemsetD8Async(here, 4, small, stream));
  REQUIRE_OK(cuMemcpyPeerAsync(there, other.context(), here, device.context(), small, stream));
  stream.synchronise();
  CHECK(read_device(there, small) == std::vector<std::uint8_t>(small, 4));
}

TEST_CASE("a copy that faults on the stream loses the context, and the process lives") {
  const Device device;
  const Stream stream;
  const Buffer buffer(large);
  void* const closed = mmap(nullptr, large, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(closed != MAP_FAILED);
  CHECK(cuMemcpyHtoDAsync(buffer, closed, large, stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuMemFree(buffer) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuMemFreeAsync(buffer, stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr more = 0;
  CHECK(cuMemAlloc(&more, 16) == CUDA_ERROR_ILLEGAL_ADDRESS);
  REQUIRE_OK(cuDevicePrimaryCtxReset(device.ordinal()));
  {
    const Device renewed;
    REQUIRE_OK(cuMemAlloc(&more, 16));
    REQUIRE_OK(cuMemFree(more));
  }
  munmap(closed, large);
}

TEST_CASE("an unreadable source of a staged copy is the caller's mistake, not the device's fault") {
  const Device device;
  const Stream stream;
  const Buffer buffer(small);
  void* const closed = mmap(nullptr, small, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(closed != MAP_FAILED);
  CHECK(cuMemcpyHtoDAsync(buffer, closed, small, stream) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_OK(cuCtxSynchronize());
  munmap(closed, small);
}
