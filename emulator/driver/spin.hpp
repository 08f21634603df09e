// A short wait before a thread parks. Waking a parked thread costs tens of microseconds, so a bounded
// spin pays where the next event is near; beyond the bound an idle process uses no CPU.
#pragma once
#include <chrono>
#include <thread>

#include "settings.hpp"

namespace aiocuda::emulator {

// A thread that waits for work to come gives up soon; one that waits for work that is under way spins
// for as long as it takes to wake a parked stream and run something small.
inline constexpr std::chrono::microseconds spin_for_work{20};
inline constexpr std::chrono::microseconds spin_for_an_end{60};

inline void relax_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `ready()` or until the time is up; answers whether it was ready. On one core a spin only
// keeps the other thread from running, so there it is skipped.
template <typename Ready>
bool spin_until(Ready&& ready, std::chrono::microseconds at_most) {
  if (ready()) return true;
  if (settings().threads == 1) return false;
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  do {
    for (int round = 0; round < 32; ++round) {
      if (ready()) return true;
      relax_cpu();
    }
    std::this_thread::yield();  // to the thread that is waited for, where it shares this core
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace aiocuda::emulator
