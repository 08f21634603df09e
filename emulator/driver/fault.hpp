// Faults of device code: a signal handler that acts only on a thread which is inside run_guarded,
// and hands every other signal to the handler that was there before. The process lives on.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "api.hpp"

namespace aiocuda::emulator {

struct Fault {
  CUresult error = CUDA_SUCCESS;
  std::string message;  // what happened and at which address; empty on success
  explicit operator bool() const noexcept { return error != CUDA_SUCCESS; }
};

// Calls function(argument) on this thread. A memory fault, an illegal instruction, a division fault
// or Services::fail in it ends it (its frames are left without destructors) and is answered. May be
// used on any thread; not nested. `others_failed`, if not null, is true once another part of the same launch has
// failed.
Fault run_guarded(void (*function)(void*), void* argument, const std::atomic<bool>* others_failed = nullptr);

template <typename Callable>
Fault run_guarded(Callable& callable, const std::atomic<bool>* others_failed = nullptr) {
  return run_guarded([](void* argument) { (*static_cast<Callable*>(argument))(); }, &callable, others_failed);
}

// Ends the innermost run_guarded of this thread. The function behind Services::fail.
[[noreturn]] void fail_kernel(std::int32_t cuda_error, const char* message);

// Device code waits for what another block writes: lets that one run, and fails where it may never come because a block
// of the launch has failed. The function behind Services::poll.
void poll_others();

// Installs the handlers (once). Called by cuInit.
void install_fault_handlers();

// Installs them again if another library has put its own there, as Ray and Python's faulthandler do when they start.
// Four system calls if not. Called by streams that begin, or have slept.
void keep_fault_handlers();

// Gives the calling thread a stack for its signal handlers while it lives: a kernel may have left no
// room on its own. For the threads this library starts.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  void* memory_;
};

}  // namespace aiocuda::emulator
