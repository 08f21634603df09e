// Streams: order inside one, concurrency among several, the default streams, host functions, waits for
// values in memory, and handles that are no longer any.
#include <future>
#include <mutex>

#include "support.hpp"

using namespace driver_test;

namespace {

// The order in which host functions ran.
struct Log {
  std::mutex mutex;
  std::vector<int> entries;
  void add(int entry) {
    const std::lock_guard lock(mutex);
    entries.push_back(entry);
  }
};

struct Entry {
  Log& log;
  int number;
};

void append(CUstream stream, Entry& entry) {
  REQUIRE_OK(cuLaunchHostFunc(
      stream,
      [](void* self) {
        auto& entry = *static_cast<Entry*>(self);
        entry.log.add(entry.number);
      },
      &entry));
}

}  // namespace

TEST_CASE("a stream runs its work in order") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<1024> log;
  const CUfunction append = module.function("append");
  for (int each = 0; each < 1000; ++each) REQUIRE_OK(launch(append, stream, 1, log.data(), each));
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK(log[0] == 1000);
  bool in_order = true;
  for (int each = 0; each < 1000; ++each) in_order &= log[each + 1] == each;
  CHECK(in_order);
}

TEST_CASE("streams run at the same time, even with more spinning kernels than threads") {
  const Device device;
  const Module module;
  const SharedInts<2> flags;
  const CUfunction wait_for = module.function("wait_for");
  std::vector<std::unique_ptr<Stream>> spinning;
  for (int each = 0; each < 6; ++each) {
    spinning.push_back(std::make_unique<Stream>());
    REQUIRE_OK(launch(wait_for, *spinning.back(), 4, flags.data(), flags.data() + 1));
  }
  const Stream free;
  const SharedInts<8> out;
  REQUIRE_OK(launch(module.function("add"), free, 8, out.data(), 3));
  CHECK_OK(cuStreamSynchronize(free));
  CHECK(out[7] == 3);
  CHECK(cuStreamQuery(*spinning[0]) == CUDA_ERROR_NOT_READY);
  flags.set(0, 1);
  CHECK_OK(cuCtxSynchronize());
  for (const auto& stream : spinning) CHECK_OK(cuStreamQuery(*stream));
}

TEST_CASE("the legacy default stream waits for blocking streams, and they for it") {
  const Device device;
  const Stream blocking(CU_STREAM_DEFAULT), other(CU_STREAM_DEFAULT), independent(CU_STREAM_NON_BLOCKING);
  Log log;
  Entry entries[] = {{log, 0}, {log, 1}, {log, 2}, {log, 3}};
  {
    Gate gate(blocking);
    append(blocking, entries[0]);
    append(CU_STREAM_LEGACY, entries[1]);
    append(other, entries[2]);
    append(independent, entries[3]);
    CHECK_OK(cuStreamSynchronize(independent));  // is not held up
    CHECK(cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY);
    CHECK(cuStreamQuery(other) == CUDA_ERROR_NOT_READY);
    gate.open();
    CHECK_OK(cuStreamSynchronize(other));
  }
  CHECK(log.entries == std::vector{3, 0, 1, 2});
}

TEST_CASE("stream 0 means the legacy stream or the thread's own, by the function that is called") {
  const Device device;
  unsigned long long legacy = 0, per_thread = 0, by_zero = 0, by_zero_per_thread = 0, elsewhere = 0;
  CHECK_OK(cuStreamGetId(CU_STREAM_LEGACY, &legacy));
  CHECK_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &per_thread));
  CHECK_OK(cuStreamGetId(nullptr, &by_zero));
  void* address = nullptr;
  REQUIRE_OK(
      cuGetProcAddress("cuStreamGetId", &address, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
  CHECK_OK(reinterpret_cast<decltype(&cuStreamGetId)>(address)(nullptr, &by_zero_per_thread));
  CHECK(by_zero == legacy);
  CHECK(by_zero_per_thread == per_thread);
  CHECK(legacy != per_thread);
  std::thread([&] {
    device.make_current();
    CHECK_OK(cuStreamGetId(CU_STREAM_PER_THREAD, &elsewhere));
  }).join();
  CHECK(elsewhere != per_thread);
}

TEST_CASE("the per-thread default stream is ordered with the legacy one") {
  const Device device;
  Log log;
  Entry entries[] = {{log, 0}, {log, 1}};
  Gate gate(CU_STREAM_PER_THREAD);
  append(CU_STREAM_PER_THREAD, entries[0]);
  append(CU_STREAM_LEGACY, entries[1]);
  gate.open();
  CHECK_OK(cuStreamSynchronize(CU_STREAM_LEGACY));
  CHECK(log.entries == std::vector{0, 1});
}

TEST_CASE("a destroyed stream finishes its work first") {
  const Device device;
  const Module module;
  const SharedInts<1> out;
  CUstream stream = nullptr;
  REQUIRE_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  {
    Gate gate(stream);
    for (int each = 0; each < 50; ++each) REQUIRE_OK(launch(module.function("add"), stream, 1, out.data(), 1));
    CHECK_OK(cuStreamDestroy(stream));
    CHECK(cuStreamDestroy(stream) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuStreamQuery(stream) == CUDA_ERROR_INVALID_HANDLE);
  }
  CHECK_OK(cuCtxSynchronize());
  CHECK(out[0] == 50);
}

TEST_CASE("made-up stream handles are refused everywhere") {
  const Device device;
  const Module module;
  const auto made_up = reinterpret_cast<CUstream>(0xdeadbeef0);
  CHECK(cuStreamSynchronize(made_up) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuStreamDestroy(made_up) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuLaunchHostFunc(made_up, [](void*) {}, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(launch(module.function("nothing"), made_up, 1) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuStreamDestroy(CU_STREAM_LEGACY) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a host function that calls the API is told that it must not, and does not hang") {
  const Device device;
  const Stream stream;
  CUresult results[3] = {};
  REQUIRE_OK(cuLaunchHostFunc(
      stream,
      [](void* results) {
        auto* const result = static_cast<CUresult*>(results);
        CUstream made = nullptr;
        result[0] = cuCtxSynchronize();
        result[1] = cuStreamSynchronize(CU_STREAM_LEGACY);
        result[2] = cuStreamCreate(&made, 0);
      },
      results));
  CHECK_OK(cuStreamSynchronize(stream));
  for (const CUresult result : results) CHECK(result == CUDA_ERROR_NOT_PERMITTED);
}

TEST_CASE("a stream callback is given its stream and status") {
  const Device device;
  const Stream stream;
  struct Seen {
    CUstream stream = nullptr;
    CUresult status = CUDA_ERROR_UNKNOWN;
  } seen;
  REQUIRE_OK(cuStreamAddCallback(
      stream, [](CUstream stream, CUresult status, void* seen) { *static_cast<Seen*>(seen) = {stream, status}; }, &seen,
      0));
  CHECK_OK(cuStreamSynchronize(stream));
  CHECK(seen.stream == static_cast<CUstream>(stream));
  CHECK(seen.status == CUDA_SUCCESS);
}

TEST_CASE("streams write values and wait for values") {
  const Device device;
  const Stream first, second;
  const SharedInts<16> memory;
  REQUIRE_OK(cuStreamWaitValue32(first, memory.address(0), 5, CU_STREAM_WAIT_VALUE_GEQ));
  REQUIRE_OK(cuStreamWriteValue64(first, memory.address(2), 0x100000002, 0));
  CHECK(cuStreamQuery(first) == CUDA_ERROR_NOT_READY);
  REQUIRE_OK(cuStreamWriteValue32(second, memory.address(0), 6, 0));
  CHECK_OK(cuStreamSynchronize(first));
  CHECK(memory[2] == 2);
  CHECK(memory[3] == 1);
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, memory.address(2), {}, CU_STREAM_WAIT_VALUE_EQ, 0};
  operations[0].waitValue.value64 = 0x100000002;
  operations[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, memory.address(4), {}, 0, 0};
  operations[1].writeValue.value = 9;
  CHECK_OK(cuStreamBatchMemOp(first, 2, operations, 0));
  CHECK_OK(cuStreamWaitValue32(first, memory.address(4), 8, CU_STREAM_WAIT_VALUE_AND));
  CHECK_OK(cuStreamWaitValue32(first, memory.address(4), 1, CU_STREAM_WAIT_VALUE_NOR));
  CHECK_OK(cuStreamSynchronize(first));
  CHECK(memory[4] == 9);
  CHECK(cuStreamWriteValue32(first, memory.address(0) + 2, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamWriteValue32(first, 0, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamWriteValue32(first, 0x1234560, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamWaitValue32(first, memory.address(0), 1, CU_STREAM_WAIT_VALUE_FLUSH) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("a stream's properties are what it was made with") {
  const Device device;
  CUstream stream = nullptr;
  REQUIRE_OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
  int least = 1, greatest = 1, priority = 1;
  unsigned flags = 0;
  CUdevice ordinal = -1;
  CUcontext context = nullptr;
  CUstreamCaptureStatus capture;
  CHECK_OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  CHECK(greatest < least);
  CHECK_OK(cuStreamGetPriority(stream, &priority));
  CHECK(priority == greatest);
  CHECK_OK(cuStreamGetFlags(stream, &flags));
  CHECK(flags == CU_STREAM_NON_BLOCKING);
  CHECK_OK(cuStreamGetDevice(stream, &ordinal));
  CHECK(ordinal == 0);
  CHECK_OK(cuStreamGetCtx(stream, &context));
  CHECK(context == device.context());
  CHECK_OK(cuStreamIsCapturing(stream, &capture));
  CHECK(capture == CU_STREAM_CAPTURE_STATUS_NONE);
  CUstreamAttrValue value{}, read{};
  value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
  CHECK_OK(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  CUstream copy = nullptr;
  REQUIRE_OK(cuStreamCreate(&copy, 0));
  CHECK_OK(cuStreamCopyAttributes(copy, stream));
  CHECK_OK(cuStreamGetAttribute(copy, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &read));
  CHECK(read.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC);
  CHECK(cuStreamCreate(&copy, 8) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuStreamDestroy(stream));
}

TEST_CASE("many threads submit to one stream, and nothing is lost") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<1> out;
  const CUfunction add = module.function("add");
  std::vector<std::thread> threads;
  for (int each = 0; each < 4; ++each) {
    threads.emplace_back([&] {
      device.make_current();
      for (int count = 0; count < 250; ++count) REQUIRE_OK(launch(add, stream, 1, out.data(), 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_OK(cuStreamSynchronize(stream));
  CHECK(out[0] == 1000);
}
