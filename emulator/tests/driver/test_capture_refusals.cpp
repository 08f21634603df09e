// Stream capture: what cannot be done with a captured stream or event, or beside one, and what becomes of the capture.
#include "test_capture_support.hpp"

using namespace capture_test;

namespace {

constexpr CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                         CU_STREAM_CAPTURE_MODE_RELAXED};

// The call is refused in every mode, and the capture comes to nothing.
template <typename Call>
void check_refused(CUresult refusal, Call&& call, unsigned stream_flags = CU_STREAM_NON_BLOCKING) {
  for (const CUstreamCaptureMode mode : modes) {
    CAPTURE(static_cast<int>(mode));
    const Stream stream(stream_flags);
    begin(stream, mode);
    CHECK(call(CUstream{stream}) == refusal);
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK(end_in_vain(stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK_OK(cuStreamSynchronize(stream));
  }
}

}  // namespace

TEST_CASE("a captured stream cannot be asked or waited for") {
  const Device device;
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [](CUstream stream) { return cuStreamSynchronize(stream); });
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [](CUstream stream) { return cuStreamQuery(stream); });
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [](CUstream stream) {
    unsigned long long id = 0;
    return cuStreamGetId(stream, &id);
  });
}

TEST_CASE("nor can its context, by any thread, while others can") {
  const Device device;
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [](CUstream) { return cuCtxSynchronize(); });
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&](CUstream) { return cuCtxSynchronize_v2(device.context()); });
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&](CUstream) {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      device.make_current();
      result = cuCtxSynchronize();
    }).join();
    return result;
  });
  const Device peer(1);
  device.make_current();
  const Stream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(cuCtxSynchronize_v2(peer.context()));
  CHECK(end(stream).nodes().empty());
}

TEST_CASE("a captured event is no point in time") {
  const Device device;
  check_refused(CUDA_ERROR_CAPTURED_EVENT, [](CUstream stream) {
    const Event event;
    REQUIRE_OK(cuEventRecord(event, stream));
    return cuEventSynchronize(event);
  });
  check_refused(CUDA_ERROR_CAPTURED_EVENT, [](CUstream stream) {
    const Event event;
    REQUIRE_OK(cuEventRecord(event, stream));
    return cuEventQuery(event);
  });
}

TEST_CASE("there is no time to a captured event, which harms no capture") {
  const Device device;
  const Stream stream, outside;
  const Event first, second;
  float elapsed_ms = 0;
  REQUIRE_OK(cuEventRecord(first, outside));
  begin(stream);
  REQUIRE_OK(cuEventRecord(second, stream));
  CHECK(cuEventElapsedTime(&elapsed_ms, first, second) == CUDA_ERROR_CAPTURED_EVENT);
  CHECK(cuEventElapsedTime(&elapsed_ms, second, first) == CUDA_ERROR_CAPTURED_EVENT);
  CHECK(end(stream).nodes().empty());
}

TEST_CASE("a captured event that is recorded elsewhere is an event again") {
  const Device device;
  const Stream stream, outside;
  const Event event;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  REQUIRE_OK(cuEventRecord(event, stream));
  REQUIRE_OK(cuEventRecord(event, outside));
  CHECK_OK(cuEventSynchronize(event));
  CHECK(end(stream).nodes().empty());
}

TEST_CASE("work that no node stands for is refused in a captured stream") {
  const Device device;
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [](CUstream stream) {
    return cuStreamAddCallback(stream, [](CUstream, CUresult, void*) {}, nullptr, 0);
  });
  CUdeviceptr managed = 0;
  REQUIRE_OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                [&](CUstream stream) { return cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_GLOBAL); });
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                [&](CUstream stream) { return cuMemPrefetchAsync(managed, 4096, here, 0, stream); });
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&](CUstream stream) {
    std::size_t bytes = 4096;
    return cuMemDiscardBatchAsync(&managed, &bytes, 1, 0, stream);
  });
  CHECK_OK(cuMemFree(managed));
  CUgraph handle = nullptr;
  REQUIRE_OK(cuGraphCreate(&handle, 0));
  const Graph graph(handle);
  CUgraphExec executable = nullptr;
  REQUIRE_OK(cuGraphInstantiate(&executable, graph, 0));
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&](CUstream to) { return cuGraphUpload(executable, to); });
  check_refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&](CUstream to) { return cuGraphLaunch(executable, to); });
  CHECK_OK(cuGraphExecDestroy(executable));
}

TEST_CASE("a batch of copies is refused, and the capture goes on without it") {
  const Device device;
  const Stream stream;
  const SharedInts<2> values;
  CUdeviceptr destination = values.address(0), source = values.address(1);
  std::size_t bytes = 4, start = 0;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  begin(stream);
  CHECK(cuMemcpyBatchAsync(&destination, &source, &bytes, 1, &attributes, &start, 1, stream) ==
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(end(stream).nodes().empty());
}

TEST_CASE("the legacy default stream cannot be used while a stream is captured that it orders itself with") {
  const Device device;
  const Module module;
  const CUfunction nothing = module.function("nothing");
  const Event event;
  const SharedInts<2> values;
  const DeviceMemory memory(8);
  CUDA_MEMCPY2D plane{};
  plane.srcMemoryType = plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  plane.srcDevice = plane.dstDevice = memory;
  plane.srcPitch = plane.dstPitch = plane.WidthInBytes = 4;
  plane.Height = 2;
  const auto check_implicit = [](auto&& call) {
    check_refused(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, [&](CUstream) { return call(); }, CU_STREAM_DEFAULT);
  };
  check_implicit([&] { return launch(nothing, nullptr, 1); });
  check_implicit([&] { return launch(nothing, CU_STREAM_LEGACY, 1); });
  check_implicit([&] { return cuStreamSynchronize(nullptr); });
  check_implicit([&] { return cuStreamQuery(nullptr); });
  check_implicit([&] { return cuEventRecord(event, nullptr); });
  check_implicit([&] { return cuStreamWaitEvent(nullptr, event, 0); });
  check_implicit([&] { return cuMemcpyAsync(values.address(0), values.address(1), 4, nullptr); });
  check_implicit([&] { return cuMemcpyHtoD(memory, values.data(), 8); });
  check_implicit([&] { return cuMemcpyDtoH(values.data(), memory, 8); });
  check_implicit([&] { return cuMemcpy2D(&plane); });
  check_implicit([&] { return cuMemsetD8(memory, 0, 8); });
  check_implicit([&] { return cuLaunchHostFunc(nullptr, [](void*) {}, nullptr); });
}

TEST_CASE("asking whether the legacy default stream is captured harms no capture") {
  const Device device;
  const Stream blocking(CU_STREAM_DEFAULT), apart;
  CUstreamCaptureStatus status{};
  begin(blocking);
  CHECK(cuStreamIsCapturing(nullptr, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(cuStreamGetCaptureInfo_v3(nullptr, &status, nullptr, nullptr, nullptr, nullptr, nullptr) ==
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(end(blocking).nodes().empty());
  begin(apart);
  CHECK_OK(cuStreamIsCapturing(nullptr, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(end(apart).nodes().empty());
}

TEST_CASE("beside a captured stream that does not block, the legacy default stream works on") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<1> out;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  REQUIRE_OK(launch(module.function("add"), nullptr, 1, out.data(), 3));
  CHECK_OK(cuStreamSynchronize(nullptr));
  CHECK(out[0] == 3);
  CHECK(end(stream).nodes().empty());
}

TEST_CASE("and so does that of another context") {
  const Device peer(1);
  const Stream blocking(CU_STREAM_DEFAULT);
  begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
  const Device device(0);
  const DeviceMemory memory(8);
  CHECK_OK(cuMemsetD8(memory, 0, 8));
  CHECK_OK(cuStreamSynchronize(nullptr));
  CHECK(end(blocking).nodes().empty());
}

TEST_CASE("the legacy default stream takes part in no capture") {
  const Device device;
  check_refused(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, [](CUstream stream) {
    const Event event;
    REQUIRE_OK(cuEventRecord(event, stream));
    return cuStreamWaitEvent(nullptr, event, 0);
  });
}

TEST_CASE("a thread's own default stream is captured like any other") {
  const Device device;
  const Module module;
  const SharedInts<1> out;
  begin(CU_STREAM_PER_THREAD);
  REQUIRE_OK(launch(module.function("add"), CU_STREAM_PER_THREAD, 1, out.data(), 3));
  const Graph graph = end(CU_STREAM_PER_THREAD);
  CHECK(out[0] == 0);
  graph.run(CU_STREAM_PER_THREAD);
  CHECK(out[0] == 3);
}

TEST_CASE("a capture begun in a thread's own default stream goes with the thread") {
  const Device device;
  std::thread([&] {
    device.make_current();
    begin(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }).join();
  const DeviceMemory memory(16);  // which a capture in this mode prohibits
  CHECK_OK(cuStreamSynchronize(nullptr));
}

TEST_CASE("a capture in a context that is lost ends, and prohibits nothing any more") {
  const Device device;
  const Module module;
  const Stream stream, outside;
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  REQUIRE_OK(cuThreadExchangeStreamCaptureMode(&mode));
  REQUIRE_OK(launch(module.function("fail"), outside, 1, static_cast<int>(CUDA_ERROR_ASSERT)));
  CHECK(cuStreamSynchronize(outside) == CUDA_ERROR_ASSERT);
  REQUIRE_OK(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK(end_in_vain(stream) == CUDA_ERROR_ASSERT);
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ASSERT);
  const Device peer(1);
  const DeviceMemory memory(16);
}

TEST_CASE("in an invalidated capture every call says so until its end") {
  const Device device;
  const Module module;
  const Stream origin, branch, outside;
  const Event event;
  const SharedInts<2> values;
  CUdeviceptr address = 0;
  begin(origin, CU_STREAM_CAPTURE_MODE_RELAXED);
  join(origin, branch);
  REQUIRE_OK(cuEventRecord(event, branch));
  CHECK(cuStreamQuery(branch) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  for (const CUstream stream : {CUstream{origin}, CUstream{branch}}) {
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK(launch(module.function("nothing"), stream, 1) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuMemcpyAsync(values.address(0), values.address(1), 4, stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuMemAllocAsync(&address, 16, stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuLaunchHostFunc(stream, [](void*) {}, nullptr) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuEventRecord(event, stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamWaitEvent(stream, event, 0) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(cuStreamUpdateCaptureDependencies_v2(stream, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES) ==
          CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_ERROR_ILLEGAL_STATE);
  }
  CHECK(cuStreamWaitEvent(outside, event, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(end_in_vain(origin) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  REQUIRE_OK(cuEventRecord(event, branch));
  CHECK_OK(cuStreamWaitEvent(outside, event, 0));
  CHECK_OK(cuStreamSynchronize(outside));
}

TEST_CASE("a launch that cannot be ends a capture") {
  const Device device;
  const Module module;
  const CUfunction nothing = module.function("nothing");
  check_refused(CUDA_ERROR_INVALID_VALUE, [&](CUstream stream) { return launch(nothing, stream, 0); });
}

TEST_CASE("other calls that are wrong anyway harm no capture") {
  const Device device;
  const Stream stream;
  const SharedInts<1> value;
  begin(stream);
  CHECK(cuLaunchHostFunc(stream, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamWriteValue32(stream, value.address() + 1, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFreeAsync(value.address(), stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(end(stream).nodes().empty());
}
