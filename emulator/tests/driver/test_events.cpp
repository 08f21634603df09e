// Events: what they wait for, when they have passed, and the time between two of them.
#include "support.hpp"

using namespace driver_test;

TEST_CASE("an event that was never recorded has passed and orders nothing") {
  const Device device;
  const Event event;
  const Stream stream;
  CHECK_OK(cuEventQuery(event));
  CHECK_OK(cuEventSynchronize(event));
  CHECK_OK(cuStreamWaitEvent(stream, event, 0));
  CHECK_OK(cuStreamSynchronize(stream));
}

TEST_CASE("an event passes when the work before it has ended") {
  const Device device;
  const Stream stream, waiting;
  const Event event;
  Gate gate(stream);
  REQUIRE_OK(cuEventRecord(event, stream));
  REQUIRE_OK(cuStreamWaitEvent(waiting, event, CU_EVENT_WAIT_DEFAULT));
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  std::atomic<bool> ran{false};
  REQUIRE_OK(cuLaunchHostFunc(waiting, [](void* ran) { *static_cast<std::atomic<bool>*>(ran) = true; }, &ran));
  CHECK(!ran);
  gate.open();
  CHECK_OK(cuEventSynchronize(event));
  CHECK_OK(cuStreamSynchronize(waiting));
  CHECK(ran);
}

TEST_CASE("a wait keeps the record it was asked for when the event is recorded again") {
  const Device device;
  const Stream stream, waiting;
  const Event event;
  REQUIRE_OK(cuEventRecord(event, stream));
  REQUIRE_OK(cuStreamWaitEvent(waiting, event, 0));
  Gate gate(stream);
  REQUIRE_OK(cuEventRecord(event, stream));  // held back, and not waited for
  CHECK_OK(cuStreamSynchronize(waiting));
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
}

TEST_CASE("an event destroyed while a wait is pending still orders it") {
  const Device device;
  const Stream stream, waiting;
  CUevent event = nullptr;
  REQUIRE_OK(cuEventCreate(&event, 0));
  Gate gate(stream);
  REQUIRE_OK(cuEventRecord(event, stream));
  REQUIRE_OK(cuStreamWaitEvent(waiting, event, 0));
  CHECK_OK(cuEventDestroy(event));
  CHECK(cuEventDestroy(event) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventRecord(event, stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuStreamQuery(waiting) == CUDA_ERROR_NOT_READY);
  gate.open();
  CHECK_OK(cuStreamSynchronize(waiting));
}

TEST_CASE("elapsed time is that between the records, and its errors are CUDA's") {
  const Device device;
  const Stream stream;
  const Event start, end, unrecorded, untimed(CU_EVENT_DISABLE_TIMING);
  float elapsed_ms = -1;
  REQUIRE_OK(cuEventRecord(start, stream));
  CHECK(cuEventElapsedTime(&elapsed_ms, start, unrecorded) == CUDA_ERROR_INVALID_HANDLE);
  REQUIRE_OK(cuEventRecord(untimed, stream));
  CHECK(cuEventElapsedTime(&elapsed_ms, start, untimed) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventElapsedTime(nullptr, start, start) == CUDA_ERROR_INVALID_VALUE);
  {
    Gate gate(stream);
    REQUIRE_OK(cuEventRecord(end, stream));
    CHECK(cuEventElapsedTime(&elapsed_ms, start, end) == CUDA_ERROR_NOT_READY);
  }
  REQUIRE_OK(cuStreamSynchronize(stream));
  CHECK_OK(cuEventElapsedTime(&elapsed_ms, start, end));
  CHECK(elapsed_ms > 0);
  float backwards_ms = 1;
  CHECK_OK(cuEventElapsedTime(&backwards_ms, end, start));
  CHECK(backwards_ms == -elapsed_ms);
}

TEST_CASE("events belong to their context, and waits reach across devices") {
  const Device second(1);
  const Stream on_second;
  const Device first(0);
  const Stream on_first;
  const Event event;
  CHECK(cuEventRecord(event, on_second) == CUDA_ERROR_INVALID_HANDLE);
  Gate gate(on_first);
  REQUIRE_OK(cuEventRecord(event, on_first));
  REQUIRE_OK(cuStreamWaitEvent(on_second, event, 0));
  CHECK(cuStreamQuery(on_second) == CUDA_ERROR_NOT_READY);
  gate.open();
  CHECK_OK(cuStreamSynchronize(on_second));
}

TEST_CASE("flags that events do not have are refused") {
  const Device device;
  CUevent event = nullptr;
  CHECK(cuEventCreate(&event, 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS) == CUDA_ERROR_INVALID_VALUE);
  const Event good(CU_EVENT_BLOCKING_SYNC);
  const Stream stream;
  CHECK(cuEventRecordWithFlags(good, stream, 8) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamWaitEvent(stream, good, 8) == CUDA_ERROR_INVALID_VALUE);
}
