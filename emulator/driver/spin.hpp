// A short wait before a thread parks. Waking a parked thread costs tens of microseconds, so a bounded
// spin pays where the next event is near; beyond the bound an idle process uses no CPU.
#pragma once
#include <chrono>
#include <thread>

#include "settings.hpp"

namespace aiocuda::emulator {

inline constexpr std::chrono::microseconds spin_time{20};

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
bool spin_until(Ready&& ready) {
  if (ready()) return true;
  if (settings().threads == 1) return false;
  const auto deadline = std::chrono::steady_clock::now() + spin_time;
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
