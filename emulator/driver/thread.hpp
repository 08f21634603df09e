// Threads of the driver: detached (they may outlive everything but the process), named, deaf to all
// signals but the faults of their own code, and with a stack for their signal handlers.
#pragma once
#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

#include "fault.hpp"

namespace aiocuda::emulator {

template <typename Body>
void start_thread(const char* name, Body body) {
  sigset_t all_but_faults, before;
  sigfillset(&all_but_faults);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all_but_faults, fault);
  pthread_sigmask(SIG_SETMASK, &all_but_faults, &before);  // inherited by the new thread
  struct RestoreMask {
    const sigset_t& mask;
    ~RestoreMask() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } const restore{before};
  std::thread([name, body = std::move(body)]() mutable {
    pthread_setname_np(pthread_self(), name);
    const SignalStack signal_stack;
    body();
  }).detach();
}

}  // namespace aiocuda::emulator
