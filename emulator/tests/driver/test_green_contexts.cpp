// Splits of a device's multiprocessors, and green contexts of them, as an H100 answers (but for the numbers).
#include <algorithm>
#include <vector>

#include "support.hpp"

using namespace driver_test;

namespace {

CUdevResource of_device(CUdevice device = 0) {
  CUdevResource resource;
  REQUIRE_OK(cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM));
  return resource;
}

CUdevResourceDesc described(CUdevResource resource) {
  CUdevResourceDesc description = nullptr;
  REQUIRE_OK(cuDevResourceGenerateDesc(&description, &resource, 1));
  return description;
}

class GreenContext {
 public:
  explicit GreenContext(const CUdevResource& resource = of_device()) {
    REQUIRE_OK(cuGreenCtxCreate(&handle_, described(resource), 0, CU_GREEN_CTX_DEFAULT_STREAM));
    REQUIRE_OK(cuCtxFromGreenCtx(&context_, handle_));
  }
  ~GreenContext() {
    if (handle_ != nullptr) cuGreenCtxDestroy(handle_);
  }
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;
  operator CUgreenCtx() const { return handle_; }
  CUcontext context() const { return context_; }
  CUresult destroy() { return cuGreenCtxDestroy(std::exchange(handle_, nullptr)); }
  CUstream stream() const {
    CUstream stream = nullptr;
    REQUIRE_OK(cuGreenCtxStreamCreate(&stream, handle_, CU_STREAM_NON_BLOCKING, 0));
    return stream;
  }

 private:
  CUgreenCtx handle_ = nullptr;
  CUcontext context_ = nullptr;
};

}  // namespace

TEST_CASE("multiprocessors are split into groups and what remains") {
  const Device device;
  const CUdevResource all = of_device();
  int count = 0;
  REQUIRE_OK(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  CHECK(all.sm.smCount == static_cast<unsigned>(count));
  CUdevResource wrong;
  CHECK(cuDeviceGetDevResource(0, &wrong, CU_DEV_RESOURCE_TYPE_INVALID) == CUDA_ERROR_INVALID_RESOURCE_TYPE);
  for (unsigned least = 0; least <= all.sm.smCount; ++least) {
    CAPTURE(least);
    unsigned most = 0;
    REQUIRE_OK(cuDevSmResourceSplitByCount(nullptr, &most, &all, nullptr, 0, least));
    REQUIRE(most >= 1);
    std::vector<CUdevResource> groups(most);
    CUdevResource rest;
    unsigned made = most;
    REQUIRE_OK(cuDevSmResourceSplitByCount(groups.data(), &made, &all, &rest, 0, least));
    CHECK(made == most);
    unsigned sum = rest.sm.smCount;
    for (const CUdevResource& each : groups) {
      CHECK(each.sm.smCount >= least);
      CHECK(each.sm.smCount == groups.front().sm.smCount);
      sum += each.sm.smCount;
    }
    CHECK(sum == all.sm.smCount);
    CHECK(rest.type == (rest.sm.smCount == 0 ? CU_DEV_RESOURCE_TYPE_INVALID : CU_DEV_RESOURCE_TYPE_SM));
  }
}

TEST_CASE("splits that cannot be are refused") {
  const Device device;
  const CUdevResource all = of_device();
  CUdevResource group, again;
  unsigned groups = 1;
  CHECK(cuDevSmResourceSplitByCount(&group, &groups, &all, nullptr, 0, all.sm.smCount + 1) ==
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  groups = 0;
  CHECK(cuDevSmResourceSplitByCount(&group, &groups, &all, nullptr, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDevSmResourceSplitByCount(&group, nullptr, &all, nullptr, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  groups = 1;
  REQUIRE_OK(cuDevSmResourceSplitByCount(&group, &groups, &all, nullptr, 0, 1));
  CHECK(cuDevSmResourceSplitByCount(&again, &groups, &group, nullptr, 0, 1) ==
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  CUdevResource nothing{};
  CUdevResourceDesc description = nullptr;
  CHECK(cuDevResourceGenerateDesc(&description, &nothing, 1) == CUDA_ERROR_INVALID_RESOURCE_TYPE);
  CUgreenCtx green = nullptr;
  CHECK(cuGreenCtxCreate(&green, described(group), 0, 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGreenCtxCreate(&green, nullptr, 0, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a green context has what it was made of, and its resource is split again") {
  const Device device;
  const CUdevResource all = of_device();
  CUdevResource group, told;
  unsigned groups = 1;
  REQUIRE_OK(cuDevSmResourceSplitByCount(&group, &groups, &all, nullptr, 0, 1));
  const GreenContext green(group);
  REQUIRE_OK(cuGreenCtxGetDevResource(green, &told, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(told.sm.smCount == group.sm.smCount);
  CHECK_OK(cuDevSmResourceSplitByCount(&group, &groups, &told, nullptr, 0, 1));
  REQUIRE_OK(cuCtxGetDevResource(green.context(), &told, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(told.sm.smCount == group.sm.smCount);
  REQUIRE_OK(cuCtxGetDevResource(device.context(), &told, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(told.sm.smCount == all.sm.smCount);
}

TEST_CASE("streams know the green context that they were made in, and work there as elsewhere") {
  const Device device;
  const GreenContext green;
  CHECK(green.context() != device.context());
  CUstream refused = nullptr;
  CHECK(cuGreenCtxStreamCreate(&refused, green, CU_STREAM_DEFAULT, 0) == CUDA_ERROR_INVALID_VALUE);
  const CUstream stream = green.stream();
  const Stream plain;
  CUgreenCtx found = nullptr;
  CUcontext context = nullptr;
  CHECK_OK(cuStreamGetGreenCtx(stream, &found));
  CHECK(found == green);
  CHECK_OK(cuStreamGetCtx(stream, &context));
  CHECK(context == green.context());
  CHECK_OK(cuStreamGetGreenCtx(plain, &found));
  CHECK(found == nullptr);
  const Module module;
  const SharedInts<2> memory;
  const Event event;
  REQUIRE_OK(launch(module.function("store"), stream, 1, memory.address(), 5));
  CHECK_OK(cuEventRecord(event, stream));
  CHECK_OK(cuStreamWaitEvent(plain, event, 0));
  CHECK_OK(cuStreamSynchronize(plain));
  CHECK(memory.get(0) == 5);
}

TEST_CASE("a green context is current under its own name") {
  const Device device;
  const GreenContext green;
  CUcontext current = nullptr;
  REQUIRE_OK(cuCtxPushCurrent(green.context()));
  CHECK_OK(cuCtxGetCurrent(&current));
  CHECK(current == green.context());
  unsigned long long id = 0, own = 0, primary = 0;
  CHECK_OK(cuCtxGetId(nullptr, &id));
  CHECK_OK(cuGreenCtxGetId(green, &own));
  CHECK_OK(cuCtxGetId(device.context(), &primary));
  CHECK(id == own);
  CHECK(id != primary);
  const Stream stream;
  CUgreenCtx found = nullptr;
  CHECK_OK(cuStreamGetGreenCtx(stream, &found));
  CHECK(found == green);
  CHECK(cuCtxDestroy(green.context()) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK_OK(cuCtxPopCurrent(&current));
  CHECK(current == green.context());
  CHECK_OK(cuCtxGetCurrent(&current));
  CHECK(current == device.context());
}

TEST_CASE("events of a green context come behind all of its streams, and before what they get next") {
  const Device device;
  const GreenContext green;
  const CUstream one = green.stream(), two = green.stream();
  const Event event, other;
  const SharedInts<1> memory;
  {
    Gate gate(two);
    REQUIRE_OK(cuGreenCtxRecordEvent(green, event));
    // Time enough for a record that waits for nobody.
    for (int round = 0; round < 200; ++round) {
      REQUIRE_OK(cuMemsetD32Async(memory.address(), 1, 1, one));
      REQUIRE_OK(cuStreamSynchronize(one));
    }
    CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  }
  CHECK_OK(cuEventSynchronize(event));
  const Stream plain;
  {
    Gate gate(plain);
    REQUIRE_OK(cuEventRecord(other, plain));
    REQUIRE_OK(cuGreenCtxWaitEvent(green, other));
    CHECK(cuStreamQuery(one) == CUDA_ERROR_NOT_READY);
    CHECK(cuStreamQuery(two) == CUDA_ERROR_NOT_READY);
  }
  CHECK_OK(cuStreamSynchronize(one));
  CHECK_OK(cuStreamSynchronize(two));
}

TEST_CASE("what a green context had ends with it") {
  const Device device;
  GreenContext green;
  const CUstream stream = green.stream();
  REQUIRE_OK(cuCtxPushCurrent(green.context()));
  REQUIRE_OK(green.destroy());
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 64) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(cuCtxSetCurrent(green.context()) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuGreenCtxDestroy(green) == CUDA_ERROR_INVALID_CONTEXT);
  CUcontext popped = nullptr;
  CHECK_OK(cuCtxPopCurrent(&popped));
  CHECK_OK(cuMemAlloc(&memory, 64));
  CHECK_OK(cuMemFree(memory));
}
