// Code that is compiled with -fsanitize=thread calls these functions for each access to memory. They are not
// ThreadSanitizer: they tell the driver which bytes a launch touches. They are linked into modules that are compiled
// for checking, in place of the sanitizer's library. This file is compiled without builtins: the copies below must not
// call themselves.
#include <strings.h>

#include <cstddef>
#include <cstdint>

#include "block.hpp"

namespace abi = aiocuda::emulator::abi;
using aiocuda::emulator::runtime::services;

namespace {

inline void record_from(const void* code, const volatile void* address, std::size_t bytes, abi::AccessKind kind) {
  if (services != nullptr && services->record_access != nullptr) {
    services->record_access(const_cast<const void*>(address), bytes, kind, code);
  }
}

inline void record_aligned_from(const void* code, const volatile void* address, std::size_t bytes,
                                abi::AccessKind kind) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0 && services != nullptr &&
      services->report_misaligned != nullptr) {
    services->report_misaligned(const_cast<const void*>(address), bytes, kind, code);
  }
  record_from(code, address, bytes, kind);
}

inline void fence() {
  if (services != nullptr && services->met != nullptr) services->met(abi::meeting_fence, 0, 0);
}

// An atomic operation that itself orders what its thread did before.
inline void fence_if_releases(int order) {
  if (order >= __ATOMIC_RELEASE) fence();
}

}  // namespace

// The instruction behind the call of the hook.
#define record(...) record_from(__builtin_extract_return_addr(__builtin_return_address(0)), __VA_ARGS__)

#define record_aligned(...) record_aligned_from(__builtin_extract_return_addr(__builtin_return_address(0)), __VA_ARGS__)

#define HOOK extern "C" [[gnu::visibility("hidden")]]

#define HOOKS_OF_SIZE(size)                                                                                     \
  HOOK void __tsan_read##size(void* at) { record_aligned(at, size, abi::access_read); }                         \
  HOOK void __tsan_write##size(void* at) { record_aligned(at, size, abi::access_write); }                       \
  HOOK void __tsan_unaligned_read##size(const void* at) { record(at, size, abi::access_read); }                 \
  HOOK void __tsan_unaligned_write##size(void* at) { record(at, size, abi::access_write); }                     \
  HOOK void __tsan_volatile_read##size(void* at) { record_aligned(at, size, abi::access_atomic_read); }         \
  HOOK void __tsan_volatile_write##size(void* at) { record_aligned(at, size, abi::access_atomic_write); }       \
  HOOK void __tsan_unaligned_volatile_read##size(const void* at) { record(at, size, abi::access_atomic_read); } \
  HOOK void __tsan_unaligned_volatile_write##size(void* at) { record(at, size, abi::access_atomic_write); }     \
  HOOK void __tsan_read_write##size(void* at) { record(at, size, abi::access_write); }                          \
  HOOK void __tsan_unaligned_read_write##size(void* at) { record(at, size, abi::access_write); }
HOOKS_OF_SIZE(1)
HOOKS_OF_SIZE(2)
HOOKS_OF_SIZE(4)
HOOKS_OF_SIZE(8)
HOOKS_OF_SIZE(16)

HOOK void __tsan_read_range(void* at, unsigned long bytes) { record(at, bytes, abi::access_read); }
HOOK void __tsan_write_range(void* at, unsigned long bytes) { record(at, bytes, abi::access_write); }
HOOK void __tsan_vptr_read(void** at) { record(at, sizeof(void*), abi::access_read); }
HOOK void __tsan_vptr_update(void** at, void*) { record(at, sizeof(void*), abi::access_write); }

HOOK void __tsan_init() {}
HOOK void __tsan_func_entry(void*) {}
HOOK void __tsan_func_exit() {}
HOOK void __tsan_ignore_thread_begin() {}
HOOK void __tsan_ignore_thread_end() {}
HOOK void __tsan_atomic_thread_fence(int) {
  fence();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
HOOK void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

// The strongest order is right for every one that was asked for.
#define ATOMIC_FETCH(bits, operation)                                                                      \
  HOOK Atomic##bits __tsan_atomic##bits##_fetch_##operation(volatile Atomic##bits* at, Atomic##bits value, \
                                                            int order) {                                   \
    fence_if_releases(order);                                                                              \
    record(at, sizeof *at, abi::access_atomic_read);                                                       \
    record(at, sizeof *at, abi::access_atomic_write);                                                      \
    return __atomic_fetch_##operation(at, value, __ATOMIC_SEQ_CST);                                        \
  }
#define ATOMICS_OF_SIZE(bits)                                                                                    \
  using Atomic##bits = std::uint##bits##_t;                                                                      \
  HOOK Atomic##bits __tsan_atomic##bits##_load(const volatile Atomic##bits* at, int) {                           \
    record(at, sizeof *at, abi::access_atomic_read);                                                             \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                \
  }                                                                                                              \
  HOOK void __tsan_atomic##bits##_store(volatile Atomic##bits* at, Atomic##bits value, int order) {              \
    fence_if_releases(order);                                                                                    \
    record(at, sizeof *at, abi::access_atomic_write);                                                            \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                               \
  }                                                                                                              \
  HOOK Atomic##bits __tsan_atomic##bits##_exchange(volatile Atomic##bits* at, Atomic##bits value, int order) {   \
    fence_if_releases(order);                                                                                    \
    record(at, sizeof *at, abi::access_atomic_read);                                                             \
    record(at, sizeof *at, abi::access_atomic_write);                                                            \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                                              \
  ATOMIC_FETCH(bits, add)                                                                                        \
  ATOMIC_FETCH(bits, sub)                                                                                        \
  ATOMIC_FETCH(bits, and)                                                                                        \
  ATOMIC_FETCH(bits, or)                                                                                         \
  ATOMIC_FETCH(bits, xor)                                                                                        \
  ATOMIC_FETCH(bits, nand)                                                                                       \
  HOOK int __tsan_atomic##bits##_compare_exchange_strong(volatile Atomic##bits* at, Atomic##bits* expected,      \
                                                         Atomic##bits value, int order, int) {                   \
    fence_if_releases(order);                                                                                    \
    record(at, sizeof *at, abi::access_atomic_read);                                                             \
    record(at, sizeof *at, abi::access_atomic_write);                                                            \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);          \
  }                                                                                                              \
  HOOK int __tsan_atomic##bits##_compare_exchange_weak(volatile Atomic##bits* at, Atomic##bits* expected,        \
                                                       Atomic##bits value, int order, int) {                     \
    fence_if_releases(order);                                                                                    \
    record(at, sizeof *at, abi::access_atomic_read);                                                             \
    record(at, sizeof *at, abi::access_atomic_write);                                                            \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);          \
  }                                                                                                              \
  HOOK Atomic##bits __tsan_atomic##bits##_compare_exchange_val(volatile Atomic##bits* at, Atomic##bits expected, \
                                                               Atomic##bits value, int order, int) {             \
    fence_if_releases(order);                                                                                    \
    record(at, sizeof *at, abi::access_atomic_read);                                                             \
    record(at, sizeof *at, abi::access_atomic_write);                                                            \
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                \
    return expected;                                                                                             \
  }
ATOMICS_OF_SIZE(8)
ATOMICS_OF_SIZE(16)
ATOMICS_OF_SIZE(32)
ATOMICS_OF_SIZE(64)

// Copies and fills, under the sanitizer's names and, for compilers that leave these calls alone, under their own.
#define COPY_HOOK(name)                                                     \
  HOOK void* name(void* to, const void* from, std::size_t bytes) noexcept { \
    record(from, bytes, abi::access_read);                                  \
    record(to, bytes, abi::access_write);                                   \
    ::bcopy(from, to, bytes);                                               \
    return to;                                                              \
  }
COPY_HOOK(__tsan_memmove)
COPY_HOOK(__tsan_memcpy)
COPY_HOOK(memmove)
COPY_HOOK(memcpy)
#define FILL_HOOK(name)                                                                               \
  HOOK void* name(void* to, int value, std::size_t bytes) noexcept {                                  \
    record(to, bytes, abi::access_write);                                                             \
    auto* const first = static_cast<unsigned char*>(to);                                              \
    for (std::size_t each = 0; each < bytes; ++each) first[each] = static_cast<unsigned char>(value); \
    return to;                                                                                        \
  }
FILL_HOOK(__tsan_memset)
FILL_HOOK(memset)
