// Stream capture: which calls CUDA holds for potentially unsafe beside a capture, and which threads may make them.
#include <latch>

#include "test_capture_support.hpp"

using namespace capture_test;

namespace {

// In a thread of its own with the device current, in a mode.
template <typename Call>
CUresult in_other_thread(const Device& device, CUstreamCaptureMode mode, Call&& call) {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    device.make_current();
    REQUIRE_OK(cuThreadExchangeStreamCaptureMode(&mode));
    result = call();
  }).join();
  return result;
}

CUresult allocate() {
  CUdeviceptr address = 0;
  const CUresult result = cuMemAlloc(&address, 16);
  if (result == CUDA_SUCCESS) REQUIRE_OK(cuMemFree(address));
  return result;
}

constexpr CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr CUstreamCaptureMode thread_local_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

struct ModeOfThread {
  explicit ModeOfThread(CUstreamCaptureMode mode) : mode_(mode) {
    REQUIRE_OK(cuThreadExchangeStreamCaptureMode(&mode_));
  }
  ~ModeOfThread() { cuThreadExchangeStreamCaptureMode(&mode_); }

 private:
  CUstreamCaptureMode mode_;
};

}  // namespace

TEST_CASE("a thread's mode is exchanged for another, and begins as the global one") {
  const Device device;
  CUstreamCaptureMode mode = relaxed;
  CHECK_OK(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == global);
  CHECK_OK(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == relaxed);
  mode = static_cast<CUstreamCaptureMode>(3);
  CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuThreadExchangeStreamCaptureMode(nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the thread that captures is prohibited from unsafe calls unless one of the two modes is relaxed") {
  const Device device;
  const Stream stream;
  for (const CUstreamCaptureMode capture : {global, thread_local_mode, relaxed}) {
    for (const CUstreamCaptureMode own : {global, thread_local_mode, relaxed}) {
      CAPTURE(static_cast<int>(capture));
      CAPTURE(static_cast<int>(own));
      const ModeOfThread mode(own);
      begin(stream, capture);
      if (capture == relaxed || own == relaxed) {
        CHECK_OK(allocate());
        CHECK(end(stream).nodes().empty());
      } else {
        CHECK(allocate() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(end_in_vain(stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      }
    }
  }
}

TEST_CASE("other threads are prohibited where both modes are the global one") {
  const Device device;
  const Stream stream;
  for (const CUstreamCaptureMode capture : {global, thread_local_mode, relaxed}) {
    for (const CUstreamCaptureMode theirs : {global, thread_local_mode, relaxed}) {
      CAPTURE(static_cast<int>(capture));
      CAPTURE(static_cast<int>(theirs));
      begin(stream, capture);
      const CUresult result = in_other_thread(device, theirs, allocate);
      if (capture == global && theirs == global) {
        CHECK(result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(end_in_vain(stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      } else {
        CHECK_OK(result);
        CHECK(end(stream).nodes().empty());
      }
    }
  }
}

TEST_CASE("an unsafe call invalidates the captures that prohibit it, and no others") {
  const Device device;
  const Stream strict, local, loose;
  begin(strict, global);
  begin(local, thread_local_mode);
  begin(loose, relaxed);
  CHECK(in_other_thread(device, global, allocate) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(status_of(strict) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CHECK(status_of(local) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(allocate() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(status_of(local) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CHECK(status_of(loose) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(end_in_vain(strict) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(end_in_vain(local) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(end(loose).nodes().empty());
  CHECK_OK(allocate());
}

TEST_CASE("calls that allocate, free, wait, load or instantiate are unsafe") {
  const Device device;
  const Stream stream, outside;
  const Event event, unrecorded;
  const SharedInts<2> values;
  const DeviceMemory memory(64);
  CUdeviceptr of_pool = 0;
  REQUIRE_OK(cuMemAllocAsync(&of_pool, 16, outside));
  REQUIRE_OK(cuEventRecord(event, outside));
  const auto check_unsafe = [&](const char* name, auto&& call) {
    CAPTURE(name);
    begin(stream, thread_local_mode);
    CHECK(call() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(end_in_vain(stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  };
  CUdeviceptr address = 0;
  void* pointer = nullptr;
  std::size_t pitch = 0;
  std::vector<int> host(4096);
  CUmodule module = nullptr;
  const Module loaded;
  const std::vector<char> image = read_file(TEST_MODULE_PATH);
  std::vector<int> registered(4096);
  REQUIRE_OK(cuMemHostRegister(registered.data(), registered.size() * sizeof(int), 0));
  check_unsafe("cuMemAlloc", [&] { return cuMemAlloc(&address, 16); });
  check_unsafe("cuMemAllocPitch", [&] { return cuMemAllocPitch(&address, &pitch, 16, 2, 4); });
  check_unsafe("cuMemAllocManaged", [&] { return cuMemAllocManaged(&address, 16, CU_MEM_ATTACH_GLOBAL); });
  check_unsafe("cuMemHostAlloc", [&] { return cuMemHostAlloc(&pointer, 16, 0); });
  check_unsafe("cuMemFree", [&] { return cuMemFree(memory); });
  check_unsafe("cuMemFreeHost", [&] { return cuMemFreeHost(values.data()); });
  check_unsafe("cuMemHostRegister", [&] { return cuMemHostRegister(host.data(), host.size() * sizeof(int), 0); });
  check_unsafe("cuMemHostUnregister", [&] { return cuMemHostUnregister(registered.data()); });
  check_unsafe("cuMemAllocAsync", [&] { return cuMemAllocAsync(&address, 16, outside); });
  check_unsafe("cuMemFreeAsync", [&] { return cuMemFreeAsync(of_pool, outside); });
  check_unsafe("cuStreamSynchronize", [&] { return cuStreamSynchronize(outside); });
  check_unsafe("cuStreamQuery", [&] { return cuStreamQuery(outside); });
  check_unsafe("cuEventSynchronize", [&] { return cuEventSynchronize(event); });
  check_unsafe("cuEventQuery", [&] { return cuEventQuery(event); });
  check_unsafe("cuEventSynchronize", [&] { return cuEventSynchronize(unrecorded); });
  check_unsafe("cuEventQuery", [&] { return cuEventQuery(unrecorded); });
  check_unsafe("cuModuleLoad", [&] { return cuModuleLoad(&module, TEST_MODULE_PATH); });
  check_unsafe("cuModuleLoadData", [&] { return cuModuleLoadData(&module, image.data()); });
  check_unsafe("cuModuleUnload", [&] { return cuModuleUnload(loaded); });
  CHECK_OK(cuMemHostUnregister(registered.data()));
  CUgraph handle = nullptr;
  REQUIRE_OK(cuGraphCreate(&handle, 0));
  const Graph graph(handle);
  CUgraphExec executable = nullptr;
  check_unsafe("cuGraphInstantiate", [&] { return cuGraphInstantiate(&executable, graph, 0); });
  REQUIRE_OK(cuGraphInstantiate(&executable, graph, 0));
  check_unsafe("cuGraphExecDestroy", [&] { return cuGraphExecDestroy(executable); });
  CHECK_OK(cuGraphExecDestroy(executable));
  CHECK_OK(cuMemFreeAsync(of_pool, outside));
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemoryPool pool = nullptr;
  std::uint64_t used_bytes = 0;
  check_unsafe("cuMemPoolCreate", [&] { return cuMemPoolCreate(&pool, &properties); });
  REQUIRE_OK(cuMemPoolCreate(&pool, &properties));
  check_unsafe("cuMemPoolGetAttribute",
               [&] { return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used_bytes); });
  check_unsafe("cuMemPoolTrimTo", [&] { return cuMemPoolTrimTo(pool, 0); });
  check_unsafe("cuMemPoolDestroy", [&] { return cuMemPoolDestroy(pool); });
  CHECK_OK(cuMemPoolDestroy(pool));
  REQUIRE_OK(cuMemAllocManaged(&address, 16, CU_MEM_ATTACH_GLOBAL));
  check_unsafe("cuMemAdvise", [&] {
    return cuMemAdvise(address, 16, CU_MEM_ADVISE_SET_READ_MOSTLY, {CU_MEM_LOCATION_TYPE_DEVICE, {0}});
  });
  CHECK_OK(cuMemFree(address));
  check_unsafe("cuCtxSetLimit", [&] { return cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20); });
  CUlibrary library = nullptr;
  REQUIRE_OK(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  check_unsafe("cuLibraryUnload", [&] { return cuLibraryUnload(library); });
  CHECK_OK(cuLibraryUnload(library));
}

TEST_CASE("to wait for a context in which nothing is captured is unsafe like other waits") {
  const Device peer(1);
  const Device device(0);
  const Stream stream;
  begin(stream, thread_local_mode);
  CHECK(cuCtxSynchronize_v2(peer.context()) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(end_in_vain(stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("calls that submit elsewhere are safe, synchronous copies beside a stream that does not block, too") {
  const Device device;
  const Module module;
  const Stream stream, outside;
  const SharedInts<2> values;
  const DeviceMemory memory(16);
  CUDA_MEMCPY2D plane{};
  plane.srcMemoryType = plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  plane.srcDevice = memory;
  plane.dstDevice = memory + 8;
  plane.srcPitch = plane.dstPitch = plane.WidthInBytes = 4;
  plane.Height = 2;
  begin(stream, global);
  CUstream made = nullptr;
  CHECK_OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
  CHECK_OK(cuStreamDestroy(made));
  CHECK_OK(launch(module.function("add"), outside, 1, values.data(), 1));
  CHECK_OK(cuMemsetD32(memory, 9, 2));
  CHECK_OK(cuMemcpyHtoD(memory, values.data(), 4));
  CHECK_OK(cuMemcpy2D(&plane));
  CHECK_OK(cuMemcpyPeer(memory, device.context(), memory + 8, device.context(), 8));
  CHECK_OK(cuMemcpyDtoH(values.data(), memory, 8));
  CHECK(values[1] == 9);
  std::size_t free = 0, total = 0;
  CHECK_OK(cuMemGetInfo(&free, &total));
  int priority = 0;
  CHECK_OK(cuStreamGetPriority(stream, &priority));
  CHECK(end(stream).nodes().empty());
  CHECK_OK(cuStreamSynchronize(outside));
}

TEST_CASE("in the relaxed mode other streams work on beside a capture, and can be waited for") {
  const Device device;
  const Stream stream, outside;
  CUdeviceptr address = 0;
  begin(stream, relaxed);
  CHECK_OK(cuMemAllocAsync(&address, 16, outside));
  CHECK_OK(cuMemsetD8Async(address, 1, 16, outside));
  CHECK_OK(cuMemFreeAsync(address, outside));
  CHECK_OK(cuStreamSynchronize(outside));
  CHECK(end(stream).nodes().empty());
}

TEST_CASE("only the thread that began a capture ends it well, unless it is a relaxed one") {
  const Device device;
  const Stream stream;
  for (const CUstreamCaptureMode mode : {global, thread_local_mode}) {
    begin(stream, mode);
    const auto end_here = [&] { return end_in_vain(stream); };
    CHECK(in_other_thread(device, global, end_here) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  }
  begin(stream, relaxed);
  CUgraph handle = nullptr;
  CHECK_OK(in_other_thread(device, global, [&] { return cuStreamEndCapture(stream, &handle); }));
  REQUIRE(handle != nullptr);
  const Graph graph(handle);
  CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_CASE("threads capture in streams of their own at the same time") {
  const Device device;
  const Module module;
  constexpr int threads = 4, launches = 50;
  const SharedInts<threads> out;
  const CUfunction add = module.function("add");
  std::latch all_capture(threads);
  std::vector<std::thread> capturing;
  for (int each = 0; each < threads; ++each) {
    capturing.emplace_back([&, each] {
      device.make_current();
      const Stream stream;
      begin(stream, thread_local_mode);
      all_capture.arrive_and_wait();
      for (int count = 0; count < launches; ++count) REQUIRE_OK(launch(add, stream, 1, out.data() + each, 1));
      const Graph graph = end(stream);
      CHECK(graph.nodes().size() == launches);
      CHECK(graph.edge_count() == launches - 1);
      graph.run(stream);
    });
  }
  for (std::thread& thread : capturing) thread.join();
  for (std::size_t each = 0; each < threads; ++each) CHECK(out[each] == launches);
}

TEST_CASE("threads capture in the streams of one capture at the same time") {
  const Device device;
  const Module module;
  constexpr int threads = 4, launches = 50;
  const SharedInts<threads> out;
  const CUfunction add = module.function("add");
  const Stream origin;
  begin(origin, relaxed);
  std::vector<Stream> branches(threads);
  for (const Stream& branch : branches) join(origin, branch);
  std::vector<std::thread> capturing;
  for (std::size_t each = 0; each < threads; ++each) {
    capturing.emplace_back([&, each] {
      device.make_current();
      for (int count = 0; count < launches; ++count) REQUIRE_OK(launch(add, branches[each], 1, out.data() + each, 1));
    });
  }
  for (std::thread& thread : capturing) thread.join();
  for (const Stream& branch : branches) join(branch, origin);
  const Graph graph = end(origin);
  CHECK(graph.nodes().size() == threads * launches);
  CHECK(graph.edge_count() == threads * (launches - 1));
  graph.run(origin);
  for (std::size_t each = 0; each < threads; ++each) CHECK(out[each] == launches);
}
