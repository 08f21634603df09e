// The engine of this process: see process.hpp.
#include "process.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace aiocuda {
namespace {

std::int64_t starter = 0;  // the process that started the driver
// How long a fork waits for calls that the driver has not been given.
constexpr std::chrono::seconds longest_drain{1};

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
  auto end = [] { process_engine().shut_down(); };
  if (Py_AtExit(end) != 0) std::atexit(end);
}

std::int64_t forked_from() { return process_engine().is_forked() ? starter : 0; }

}  // namespace aiocuda
