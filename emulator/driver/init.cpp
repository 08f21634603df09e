// The life of the driver in a process: not initialised, ready, and (in a child forked after that)
// never usable again. Global state is leaked on purpose: threads may run until the process is gone.
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include "api.hpp"
#include "checkpoint/checkpoints.hpp"
#include "context.hpp"
#include "device.hpp"
#include "fault.hpp"
#include "green_context.hpp"
#include "host_function.hpp"
#include "settings.hpp"

namespace aiocuda::emulator {
namespace {

enum class State { fresh, ready, forked };
std::atomic<State> state{State::fresh};

void on_fork_in_child() { state.store(State::forked, std::memory_order_release); }

CUresult initialise() {
  if (!settings().error.empty()) {
    std::fprintf(stderr, "emulated CUDA driver: %s\n", settings().error.c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (settings().devices == 0) return CUDA_ERROR_NO_DEVICE;
  if (pthread_atfork(nullptr, nullptr, &on_fork_in_child) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  install_fault_handlers();
  checkpoint::begin_service();
  state.store(State::ready, std::memory_order_release);
  return CUDA_SUCCESS;
}

thread_local bool per_thread_default_stream = false;

}  // namespace

CUresult check_initialised() noexcept {
  if (state.load(std::memory_order_acquire) != State::ready) return CUDA_ERROR_NOT_INITIALIZED;
  // A lock of the process waits for its host functions, so they must not wait for the lock.
  if (checkpoint::gate.is_closed() && !in_host_function()) [[unlikely]]
    checkpoint::gate.pass();
  return CUDA_SUCCESS;
}

CUresult check_device(CUdevice device) noexcept {
  if (const CUresult error = check_initialised()) return error;
  return device >= 0 && device < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

Entry enter_even_if_lost() noexcept {
  if (const CUresult error = check_initialised()) return Entry(error);
  if (in_host_function()) return Entry(CUDA_ERROR_NOT_PERMITTED);
  auto& stack = context_stack();
  if (stack.empty()) return Entry(CUDA_ERROR_INVALID_CONTEXT);
  if (const auto& green = green_context_stack().back(); green && green->ended())
    return Entry(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  if (stack.back()->ended()) {
    // A primary context keeps its handle when it is reset and retained again.
    std::shared_ptr<Context> renewed = contexts().find(stack.back()->handle());
    if (!renewed) return Entry(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    stack.back() = std::move(renewed);
  }
  return Entry(*stack.back());
}

CUresult check_may_wait() noexcept { return in_host_function() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS; }

Entry enter() noexcept {
  const Entry entry = enter_even_if_lost();
  if (entry && entry.context().lost()) return Entry(entry.context().error());
  return entry;
}

PerThreadDefaultStream::PerThreadDefaultStream() noexcept : previous_(per_thread_default_stream) {
  per_thread_default_stream = true;
}
PerThreadDefaultStream::~PerThreadDefaultStream() { per_thread_default_stream = previous_; }
bool PerThreadDefaultStream::active() noexcept { return per_thread_default_stream; }

}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

CUresult cuInit(unsigned flags) {
  if (state.load(std::memory_order_acquire) == State::forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (state.load(std::memory_order_acquire) == State::ready) return CUDA_SUCCESS;
  static std::mutex* const once = new std::mutex;
  const std::lock_guard lock(*once);
  if (state.load(std::memory_order_acquire) == State::ready) return CUDA_SUCCESS;
  return initialise();
}

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = driver_version;
  return CUDA_SUCCESS;
}

// The emulator has nothing to profile; the calls are allowed and have no effect.
extern "C" [[gnu::visibility("default")]] CUresult cuProfilerStart() { return enter().error(); }
extern "C" [[gnu::visibility("default")]] CUresult cuProfilerStop() { return enter().error(); }
