// Contexts: primary and made ones, the stack of a thread, limits, peers, and what their end does.
#include "support.hpp"

using namespace driver_test;

TEST_CASE("a call without a current context says so") {
  REQUIRE_OK(cuInit(0));
  REQUIRE_OK(cuCtxSetCurrent(nullptr));
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, 0) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuStreamSynchronize(nullptr) == CUDA_ERROR_INVALID_CONTEXT);
  CUcontext none = reinterpret_cast<CUcontext>(1);
  CHECK_OK(cuCtxGetCurrent(&none));
  CHECK(none == nullptr);
  CHECK(cuCtxPopCurrent(&none) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxPushCurrent(reinterpret_cast<CUcontext>(0x1234)) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a primary context is active while it is retained and keeps its handle") {
  REQUIRE_OK(cuInit(0));
  CUcontext first = nullptr, second = nullptr;
  unsigned flags = 0;
  int active = 1;
  CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK_OK(cuDevicePrimaryCtxRetain(&first, 0));
  CHECK_OK(cuDevicePrimaryCtxRetain(&second, 0));
  CHECK(first == second);
  CHECK_OK(cuDevicePrimaryCtxRelease(0));
  CHECK_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  CHECK(active == 1);
  CHECK_OK(cuDevicePrimaryCtxRelease(0));
  CHECK_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  CHECK(active == 0);
  CHECK(cuCtxSetCurrent(first) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK_OK(cuDevicePrimaryCtxRetain(&second, 0));
  CHECK(first == second);
  CHECK_OK(cuDevicePrimaryCtxRelease(0));
}

TEST_CASE("the primary context's handle works again after reset and retain, its old streams do not") {
  const Device device;
  CUstream stream = nullptr;
  REQUIRE_OK(cuStreamCreate(&stream, 0));
  CUevent event = nullptr;
  REQUIRE_OK(cuEventCreate(&event, 0));
  REQUIRE_OK(cuDevicePrimaryCtxReset(0));
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventQuery(event) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUcontext again = nullptr;
  REQUIRE_OK(cuDevicePrimaryCtxRetain(&again, 0));
  CHECK(again == device.context());
  CHECK_OK(cuCtxSynchronize());
  CHECK_OK(cuDevicePrimaryCtxRelease(0));
}

TEST_CASE("each thread has its own stack of contexts") {
  const Device device;
  CUcontext made = nullptr, current = nullptr;
  REQUIRE_OK(cuCtxCreate(&made, nullptr, CU_CTX_SCHED_SPIN, 1));
  CHECK_OK(cuCtxGetCurrent(&current));
  CHECK(current == made);
  CUdevice ordinal = -1;
  CHECK_OK(cuCtxGetDevice(&ordinal));
  CHECK(ordinal == 1);
  unsigned flags = 0;
  CHECK_OK(cuCtxGetFlags(&flags));
  CHECK(flags == CU_CTX_SCHED_SPIN);
  std::thread([] {
    CUcontext none = reinterpret_cast<CUcontext>(1);
    CHECK_OK(cuCtxGetCurrent(&none));
    CHECK(none == nullptr);
  }).join();
  CHECK_OK(cuCtxPopCurrent(&current));
  CHECK(current == made);
  CHECK_OK(cuCtxGetCurrent(&current));
  CHECK(current == device.context());
  unsigned long long made_id = 0, primary_id = 0;
  CHECK_OK(cuCtxGetId(made, &made_id));
  CHECK_OK(cuCtxGetId(nullptr, &primary_id));
  CHECK(made_id != primary_id);
  CHECK_OK(cuCtxDestroy(made));
  CHECK(cuCtxDestroy(made) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxPushCurrent(made) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a destroyed context that is still current is found out") {
  REQUIRE_OK(cuInit(0));
  CUcontext made = nullptr;
  REQUIRE_OK(cuCtxCreate(&made, nullptr, 0, 0));
  std::thread([made] { CHECK_OK(cuCtxDestroy(made)); }).join();
  CHECK(cuCtxSynchronize() == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK_OK(cuCtxPopCurrent(nullptr));
}

TEST_CASE("limits and configurations are kept by each context") {
  const Device device;
  std::size_t value = 0;
  CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  CHECK_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  CHECK(value == 4096);
  CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, (512 << 10) + 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  CHECK(value == 4096);
  CHECK(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 4) == CUDA_ERROR_UNSUPPORTED_LIMIT);
  CHECK(cuCtxGetLimit(&value, CU_LIMIT_PERSISTING_L2_CACHE_SIZE) == CUDA_ERROR_UNSUPPORTED_LIMIT);
  CHECK(cuCtxSetLimit(static_cast<CUlimit>(1000), 4) == CUDA_ERROR_INVALID_VALUE);
  CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
  CHECK_OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  CHECK_OK(cuCtxGetCacheConfig(&config));
  CHECK(config == CU_FUNC_CACHE_PREFER_L1);
  CHECK(cuCtxCreate(nullptr, nullptr, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CUcontext made = nullptr;
  CHECK(cuCtxCreate(&made, nullptr, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("peer access is enabled once and disabled once") {
  const Device second(1);
  const Device first(0);
  CHECK_OK(cuCtxEnablePeerAccess(second.context(), 0));
  CHECK(cuCtxEnablePeerAccess(second.context(), 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CHECK(cuCtxEnablePeerAccess(second.context(), 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuCtxEnablePeerAccess(first.context(), 0) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK_OK(cuCtxDisablePeerAccess(second.context()));
  CHECK(cuCtxDisablePeerAccess(second.context()) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}
