// Faults of device code: the error is CUDA's and sticky, every waiter is released, other devices and
// the process go on, and a reset heals.
#include <csignal>
#include <memory>

#include "support.hpp"

using namespace driver_test;

namespace {

constexpr std::uintptr_t inaccessible = 0x1000;

void heals_after_reset(CUdevice device) {
  REQUIRE_OK(cuDevicePrimaryCtxReset(device));
  CUcontext context = nullptr;
  REQUIRE_OK(cuDevicePrimaryCtxRetain(&context, device));
  REQUIRE_OK(cuCtxSetCurrent(context));
  {
    const Module module;
    const SharedInts<4> out;
    REQUIRE_OK(launch(module.function("add"), nullptr, 4, out.data(), 1));
    CHECK_OK(cuCtxSynchronize());
    CHECK(out[3] == 1);
  }
  REQUIRE_OK(cuDevicePrimaryCtxRelease(device));
}

}  // namespace

TEST_CASE("an access outside every allocation loses the context, and only a reset brings it back") {
  const Device device;
  Module module;
  const Stream stream;
  const Event event;
  const CUfunction nothing = module.function("nothing");
  Gate gate(stream);
  REQUIRE_OK(launch(module.function("store"), stream, 1, inaccessible, 1));
  REQUIRE_OK(cuEventRecord(event, stream));
  gate.open();
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuEventQuery(event) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuEventSynchronize(event) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 1024) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(launch(nothing, stream, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdevice ordinal = -1;
  CHECK_OK(cuCtxGetDevice(&ordinal));
  heals_after_reset(0);
}

TEST_CASE("a fault in any block, and on any stack, is caught") {
  const Device device;
  SUBCASE("on a stack of the kernel's own") {
    const Module module;
    REQUIRE_OK(launch(module.function("store_on_fiber"), nullptr, 1, inaccessible));
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  SUBCASE("past the end of device memory") {
    const Module module;
    CUdeviceptr memory = 0;
    REQUIRE_OK(cuMemAlloc(&memory, 4096));
    REQUIRE_OK(launch(module.function("add"), nullptr, 2000, memory, 1));
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  SUBCASE("in many streams at once") {
    const Module module;
    std::vector<std::unique_ptr<Stream>> streams;
    for (int each = 0; each < 8; ++each) streams.push_back(std::make_unique<Stream>());
    const CUfunction add = module.function("add");
    for (const auto& stream : streams) {
      const CUresult result = launch(add, *stream, 64, inaccessible, 1);
      CHECK((result == CUDA_SUCCESS || result == CUDA_ERROR_ILLEGAL_ADDRESS));
    }
    for (const auto& stream : streams) CHECK(cuStreamSynchronize(*stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  heals_after_reset(0);
}

TEST_CASE("compiled code ends its launch with the error it names") {
  const Device device;
  {
    const Module module;
    SUBCASE("a failed assert") {
      REQUIRE_OK(launch(module.function("fail"), nullptr, 16, static_cast<int>(CUDA_ERROR_ASSERT)));
      CHECK(cuCtxSynchronize() == CUDA_ERROR_ASSERT);
    }
    SUBCASE("a trap") {
      REQUIRE_OK(launch(module.function("fail"), nullptr, 1, static_cast<int>(CUDA_ERROR_LAUNCH_FAILED)));
      CHECK(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
    }
    SUBCASE("a division by zero") {
      const SharedInts<1> out;
      REQUIRE_OK(launch(module.function("divide"), nullptr, 1, out.data(), 1, 0));
      CHECK(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
    }
  }
  heals_after_reset(0);
}

TEST_CASE("work behind a fault is dropped, and its host functions do not run") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<2> flags;
  bool ran = false;
  CUresult told = CUDA_SUCCESS;
  REQUIRE_OK(launch(module.function("wait_for"), stream, 1, flags.data(), flags.data() + 1));
  REQUIRE_OK(launch(module.function("store"), stream, 1, inaccessible, 1));
  REQUIRE_OK(cuLaunchHostFunc(stream, [](void* ran) { *static_cast<bool*>(ran) = true; }, &ran));
  REQUIRE_OK(cuStreamAddCallback(
      stream, [](CUstream, CUresult status, void* told) { *static_cast<CUresult*>(told) = status; }, &told, 0));
  flags.set(0, 1);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  REQUIRE_OK(cuDevicePrimaryCtxReset(0));  // which waits until the stream is empty
  CHECK(!ran);
  CHECK(told == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a fault releases every thread that waits for the context") {
  const Device device;
  const Module module;
  const Stream spinning, faulting;
  const Event event;
  const SharedInts<2> flags;
  REQUIRE_OK(launch(module.function("wait_for"), spinning, 1, flags.data(), flags.data() + 1));
  REQUIRE_OK(cuEventRecord(event, spinning));
  REQUIRE_OK(cuStreamWaitValue32(faulting, flags.address(1), 1, CU_STREAM_WAIT_VALUE_EQ));
  std::vector<std::thread> waiting;
  std::atomic<int> released{0};
  const auto wait_with = [&](auto wait) {
    waiting.emplace_back([&, wait] {
      device.make_current();
      CHECK(wait() == CUDA_ERROR_ILLEGAL_ADDRESS);
      ++released;
    });
  };
  wait_with([&] { return cuStreamSynchronize(spinning); });
  wait_with([&] { return cuEventSynchronize(event); });
  wait_with([&] { return cuCtxSynchronize(); });
  REQUIRE_OK(launch(module.function("store"), faulting, 1, inaccessible, 1));
  for (std::thread& thread : waiting) thread.join();  // though the kernel still spins
  CHECK(released == 3);
  flags.set(0, 1);
  REQUIRE_OK(cuDevicePrimaryCtxReset(0));
}

TEST_CASE("a fault on one device leaves another at work") {
  const Device second(1);
  const Module module_on_second;
  const Stream on_second;
  const SharedInts<1> out;
  const Device first(0);
  {
    const Module module_on_first;
    REQUIRE_OK(launch(module_on_first.function("store"), nullptr, 1, inaccessible, 1));
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  second.make_current();
  for (int each = 0; each < 100; ++each)
    REQUIRE_OK(launch(module_on_second.function("add"), on_second, 1, out.data(), 1));
  CHECK_OK(cuStreamSynchronize(on_second));
  CHECK(out[0] == 100);
  first.make_current();
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  second.make_current();
}

TEST_CASE("a stream that waits for a lost device's event goes on") {
  const Device second(1);
  const Stream on_second;
  const Device first(0);
  const Module module;
  const Stream on_first;
  const Event event;
  const SharedInts<2> flags;
  const CUfunction store = module.function("store");
  REQUIRE_OK(launch(module.function("wait_for"), on_first, 1, flags.data(), flags.data() + 1));
  REQUIRE_OK(launch(store, on_first, 1, inaccessible, 1));
  REQUIRE_OK(cuEventRecord(event, on_first));
  REQUIRE_OK(cuStreamWaitEvent(on_second, event, 0));
  flags.set(0, 1);
  CHECK_OK(cuStreamSynchronize(on_second));
  CHECK(cuStreamSynchronize(on_first) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("signals that are nobody's fault reach the handler that was there") {
  const Device device;
  static volatile std::sig_atomic_t seen;
  seen = 0;
  struct sigaction action{}, before{};
  action.sa_handler = [](int) { seen = seen + 1; };
  REQUIRE(sigaction(SIGFPE, &action, &before) == 0);
  raise(SIGFPE);
  CHECK(seen == 1);
  REQUIRE(sigaction(SIGFPE, &before, nullptr) == 0);
}
