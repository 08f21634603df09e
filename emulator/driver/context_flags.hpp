// Which flags a context may be created with.
#pragma once
#include "api.hpp"

namespace aiocuda::emulator {

// How the host waits is at most one of several ways; the rest are independent bits.
inline bool are_context_flags(unsigned flags) noexcept {
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return false;
  const unsigned schedule = flags & CU_CTX_SCHED_MASK;
  return (schedule & (schedule - 1)) == 0;
}

}  // namespace aiocuda::emulator
