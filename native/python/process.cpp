// The engine of this process: see process.hpp.
#include "process.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace aiocuda {
namespace {

std::int64_t starter = 0;  // the process that started the driver
// How long a fork waits for calls that the driver has not been given.
constexpr std::chrono::seconds longest_drain{1};

std::atomic<int> threads_in_cuda{0};

#if defined(__GLIBC__)
// Handlers run in the opposite order of their registration. This one is registered when the interpreter has ended, so
// it comes before those of CUDA and of all else that Python has loaded. Only such a handler is told the exit status.
void end_if_in_cuda() {
  const auto end = [](int status, void*) {
    if (process_engine().is_forked()) return;  // a child of such a process has none of its threads
    std::fflush(nullptr);
    _exit(status);
  };
  if (threads_in_cuda.load() > 0) on_exit(end, nullptr);
}
#else
void end_if_in_cuda() {}  // there is no NVIDIA driver for other C libraries
#endif

}  // namespace

driver::Engine& process_engine() {
  static auto& engine = *new driver::Engine;
  return engine;
}

void load_driver(const std::string& use) {
  process_engine().load(driver::load_table());
  process_engine().submission.set(use == "always" ? driver::ThreadUse::always
                                  : use == "auto" ? driver::ThreadUse::automatic
                                                  : driver::ThreadUse::never);
  if (std::exchange(starter, getpid()) != 0) return;
  // A child has none of the calls that are on their way, and no thread that makes them: so the parent has made them.
  auto before = [] { process_engine().submission.drain_within(longest_drain); };
  if (pthread_atfork(before, nullptr, [] { process_engine().note_forked(); }) != 0)
    throw std::runtime_error("no memory to register a function that is called after fork");
  // Until the interpreter has ended, other threads may wait for what the reactor tells, also in functions of `atexit`.
  auto end = [] {
    process_engine().shut_down();
    end_if_in_cuda();
  };
  if (Py_AtExit(end) != 0) std::atexit(end);
}

InCuda::InCuda() {
  interpreter::guard_thread();
  threads_in_cuda.fetch_add(1);
}

InCuda::~InCuda() { threads_in_cuda.fetch_sub(1); }

std::int64_t forked_from() { return process_engine().is_forked() ? starter : 0; }

}  // namespace aiocuda
