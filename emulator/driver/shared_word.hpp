// The system's waits for a word of memory that processes share.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace aiocuda::emulator {

// Between two looks at whether another process still lives. Nobody is told of its end.
inline constexpr std::timespec between_looks{0, 20'000'000};

// Returns when the word is no longer that value, after `longest` (null: no limit), and now and then for no reason.
inline void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                        const std::timespec* longest) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, longest, nullptr, 0);
}

inline void wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace aiocuda::emulator
