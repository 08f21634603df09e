// The fault handler; see fault.hpp. It runs on a signal stack, reads one thread-local pointer, and
// either jumps back into run_guarded or behaves as if it were not there.
#include "fault.hpp"

#include <sched.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

#include "abi/thread_memory.hpp"

namespace aiocuda::emulator {
namespace {

// The state of one run_guarded. The signal handler of the same thread writes it.
struct Guard {
  sigjmp_buf back;
  int signal = 0;
  int code = 0;
  void* address = nullptr;
  std::int32_t cuda_error = 0;    // of fail_kernel
  const char* message = nullptr;  // of fail_kernel
  const std::atomic<bool>* others_failed = nullptr;
};

// initial-exec: reading it in a signal handler must never allocate.
[[gnu::tls_model("initial-exec")]] thread_local Guard* current_guard = nullptr;

constexpr std::array fault_signals{SIGSEGV, SIGBUS, SIGFPE, SIGILL};
// By signal: what was there before this library, and what another library has put in this one's place since, if it has.
struct sigaction before[NSIG];
std::array<std::atomic<const struct sigaction*>, NSIG> since{};

// Another library's handler may end by calling the one that it found: this one.
[[gnu::tls_model("initial-exec")]] thread_local bool is_chaining = false;

void call(const struct sigaction& action, int signal, siginfo_t* info, void* context) {
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else if (action.sa_handler == SIG_IGN && info->si_code <= 0) {
    // Sent by somebody, and ignored before us: still ignored.
  } else if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
    // The default action: of a fault by executing it again, of a signal somebody sent by sending it.
    sigaction(signal, &action, nullptr);
    if (info->si_code <= 0) raise(signal);
  } else {
    action.sa_handler(signal);
  }
}

void chain(int signal, siginfo_t* info, void* context) {
  const struct sigaction* const later = is_chaining ? nullptr : since[static_cast<std::size_t>(signal)].load();
  const bool was_chaining = std::exchange(is_chaining, true);
  call(later != nullptr ? *later : before[signal], signal, info, context);
  is_chaining = was_chaining;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  Guard* const guard = current_guard;
  const bool is_own_fault = info->si_code > 0;  // not sent by kill() or raise()
  if (guard == nullptr || !is_own_fault) {
    const int saved_errno = errno;
    chain(signal, info, context);
    errno = saved_errno;
    return;
  }
  guard->signal = signal;
  guard->code = info->si_code;
  guard->address = info->si_addr;
  // The handler is left without returning: what the system (or a sanitizer that wraps handlers) blocks
  // while one runs must be opened again by hand.
  pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
  siglongjmp(guard->back, 1);
}

Fault describe(const Guard& guard) {
  if (guard.cuda_error != 0) {
    return {static_cast<CUresult>(guard.cuda_error), guard.message != nullptr ? guard.message : "failed"};
  }
  char text[96];
  switch (guard.signal) {
    case SIGFPE:
      return {CUDA_ERROR_LAUNCH_FAILED,
              "an arithmetic fault (an integer division by zero, or of the least integer by -1)"};
    case SIGILL:
      return {CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction"};
    case SIGBUS:
      if (guard.code == BUS_ADRALN) {
        std::snprintf(text, sizeof text, "a misaligned access to address %p", guard.address);
        return {CUDA_ERROR_MISALIGNED_ADDRESS, text};
      }
      [[fallthrough]];
    default:
      if (abi::memory_of_this_thread().is_unrequested_shared(guard.address)) {
        return {CUDA_ERROR_ILLEGAL_ADDRESS, "an access to dynamic shared memory, of which the launch asked for none"};
      }
      std::snprintf(text, sizeof text, "an access to address %p, which is outside every allocation", guard.address);
      return {CUDA_ERROR_ILLEGAL_ADDRESS, text};
  }
}

constexpr std::size_t signal_stack_bytes = 64 * 1024;

}  // namespace

Fault run_guarded(void (*function)(void*), void* argument, const std::atomic<bool>* others_failed) {
  Guard guard;
  guard.others_failed = others_failed;
  Guard* const outer = current_guard;
  // The signal mask is not saved here: that would cost each launch a system call, and the handler
  // restores it on the rare way back.
  if (sigsetjmp(guard.back, 0) == 0) {
    current_guard = &guard;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    function(argument);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    current_guard = outer;
    return {};
  }
  current_guard = outer;
  return describe(guard);
}

void fail_kernel(std::int32_t cuda_error, const char* message) {
  Guard* const guard = current_guard;
  if (guard == nullptr) {
    std::fprintf(stderr, "emulated CUDA driver: device code failed outside a launch: %s\n", message);
    std::abort();
  }
  guard->cuda_error = cuda_error != 0 ? cuda_error : CUDA_ERROR_LAUNCH_FAILED;
  guard->message = message;
  siglongjmp(guard->back, 1);
}

void poll_others() {
  const Guard* const guard = current_guard;
  if (guard != nullptr && guard->others_failed != nullptr && guard->others_failed->load(std::memory_order_acquire))
    fail_kernel(CUDA_ERROR_LAUNCH_FAILED, "another block of the launch has failed");
  ::sched_yield();
}

namespace {

struct sigaction own_action() {
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  return action;
}

bool is_own(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &on_fault;
}

bool is_default(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

// Handlers read it at any time, so it stays where it is.
const struct sigaction* kept(const struct sigaction& action) {
  static auto* const all = new std::deque<struct sigaction>;
  for (const struct sigaction& each : *all)
    if (each.sa_flags == action.sa_flags && each.sa_sigaction == action.sa_sigaction) return &each;
  return &all->emplace_back(action);
}

}  // namespace

void install_fault_handlers() {
  const struct sigaction own = own_action();
  for (const int signal : fault_signals) sigaction(signal, &own, &before[signal]);
}

void keep_fault_handlers() {
  static std::mutex one_at_a_time;
  struct sigaction found{};
  for (const int signal : fault_signals) {
    sigaction(signal, nullptr, &found);
    if (is_own(found)) [[likely]]
      continue;
    const std::lock_guard lock(one_at_a_time);
    sigaction(signal, nullptr, &found);
    if (is_own(found)) continue;
    // A library that has ended leaves the default action. Its handler is not called any more.
    since[static_cast<std::size_t>(signal)] = is_default(found) ? nullptr : kept(found);
    const struct sigaction own = own_action();
    sigaction(signal, &own, nullptr);
  }
}

SignalStack::SignalStack() {
  memory_ = mmap(nullptr, signal_stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  stack_t stack{};
  stack.ss_sp = memory_;
  stack.ss_size = signal_stack_bytes;
  sigaltstack(&stack, nullptr);
}

SignalStack::~SignalStack() {
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
  munmap(memory_, signal_stack_bytes);
}

}  // namespace aiocuda::emulator
