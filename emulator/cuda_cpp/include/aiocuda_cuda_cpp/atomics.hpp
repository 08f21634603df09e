// Atomic functions, real ones: the blocks of a launch run on several threads at once. The forms with
// _block and _system are the same. A compare-and-swap or an exchange that changed nothing is how a thread
// waits for another, so it lets the other threads of the block go on.
#pragma once

#include "block.hpp"

namespace aiocuda_device {

template <size_t size>
struct Word;
template <>
struct Word<2> {
  using type = unsigned short;
};
template <>
struct Word<4> {
  using type = unsigned;
};
template <>
struct Word<8> {
  using type = unsigned long long;
};

// `*address = change(*address)` in one step; the value before. Compares bits, so not-a-number and the
// two zeros are values like others.
template <class T, class F>
inline T atomic_update(T* address, F change) {
  using W = typename Word<sizeof(T)>::type;
  W* word = reinterpret_cast<W*>(address);
  W before = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &before, bits<W>(change(bits<T>(before))), true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return bits<T>(before);
}

template <class T>
inline T atomic_add(T* address, T value) {
  if constexpr (is_integral<T>) {
    if (value == 0) aiocuda_yield();  // a read
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
  } else {
    return atomic_update(address, [=](T before) { return (T)(before + value); });
  }
}
template <class T>
inline T atomic_exchange(T* address, T value) {
  using W = typename Word<sizeof(T)>::type;
  const W before = __atomic_exchange_n(reinterpret_cast<W*>(address), bits<W>(value), __ATOMIC_SEQ_CST);
  if (before == bits<W>(value)) aiocuda_yield();
  return bits<T>(before);
}
template <class T>
inline T atomic_compare_and_swap(T* address, T compare, T value) {
  T before = compare;
  if (!__atomic_compare_exchange_n(address, &before, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) aiocuda_yield();
  return before;
}

}  // namespace aiocuda_device

#define AIOCUDA_ATOMIC(scope, T)                                                                           \
  inline T atomicAdd##scope(T* address, T value) { return aiocuda_device::atomic_add<T>(address, value); } \
  inline T atomicExch##scope(T* address, T value) { return aiocuda_device::atomic_exchange<T>(address, value); }
#define AIOCUDA_ATOMIC_INTEGER(scope, T)                                                                          \
  AIOCUDA_ATOMIC(scope, T)                                                                                        \
  inline T atomicSub##scope(T* address, T value) { return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED); } \
  inline T atomicAnd##scope(T* address, T value) { return __atomic_fetch_and(address, value, __ATOMIC_RELAXED); } \
  inline T atomicOr##scope(T* address, T value) {                                                                 \
    if (value == 0) aiocuda_yield();                                                                              \
    return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);                                                   \
  }                                                                                                               \
  inline T atomicXor##scope(T* address, T value) { return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED); } \
  inline T atomicMin##scope(T* address, T value) {                                                                \
    return aiocuda_device::atomic_update(address, [=](T before) { return value < before ? value : before; });     \
  }                                                                                                               \
  inline T atomicMax##scope(T* address, T value) {                                                                \
    return aiocuda_device::atomic_update(address, [=](T before) { return before < value ? value : before; });     \
  }                                                                                                               \
  inline T atomicCAS##scope(T* address, T compare, T value) {                                                     \
    return aiocuda_device::atomic_compare_and_swap<T>(address, compare, value);                                   \
  }
#define AIOCUDA_ATOMICS(scope)                                                                                         \
  AIOCUDA_ATOMIC_INTEGER(scope, int)                                                                                   \
  AIOCUDA_ATOMIC_INTEGER(scope, unsigned)                                                                              \
  AIOCUDA_ATOMIC_INTEGER(scope, long long)                                                                             \
  AIOCUDA_ATOMIC_INTEGER(scope, unsigned long long)                                                                    \
  AIOCUDA_ATOMIC(scope, float)                                                                                         \
  AIOCUDA_ATOMIC(scope, double)                                                                                        \
  inline unsigned short atomicCAS##scope(unsigned short* address, unsigned short compare, unsigned short value) {      \
    return aiocuda_device::atomic_compare_and_swap<unsigned short>(address, compare, value);                           \
  }                                                                                                                    \
  inline unsigned atomicInc##scope(unsigned* address, unsigned last) {                                                 \
    return aiocuda_device::atomic_update(address, [=](unsigned before) { return before >= last ? 0u : before + 1u; }); \
  }                                                                                                                    \
  inline unsigned atomicDec##scope(unsigned* address, unsigned last) {                                                 \
    return aiocuda_device::atomic_update(                                                                              \
        address, [=](unsigned before) { return before == 0u || before > last ? last : before - 1u; });                 \
  }
AIOCUDA_ATOMICS()
AIOCUDA_ATOMICS(_block)
AIOCUDA_ATOMICS(_system)
#undef AIOCUDA_ATOMICS
#undef AIOCUDA_ATOMIC_INTEGER
#undef AIOCUDA_ATOMIC

inline float2 atomicAdd(float2* address, float2 value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};
}
inline float4 atomicAdd(float4* address, float4 value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y), atomicAdd(&address->z, value.z),
          atomicAdd(&address->w, value.w)};
}

// Loads and stores with a cache hint: plain ones here.
template <class T>
inline T __ldg(const T* address) {
  return *address;
}
#define AIOCUDA_LOAD(name)          \
  template <class T>                \
  inline T name(const T* address) { \
    return *address;                \
  }
AIOCUDA_LOAD(__ldcg)
AIOCUDA_LOAD(__ldca)
AIOCUDA_LOAD(__ldcs)
AIOCUDA_LOAD(__ldlu)
#undef AIOCUDA_LOAD
// __ldcv must read memory each time, and is how some kernels wait for others.
template <class T>
inline T __ldcv(const T* address) {
  aiocuda_yield();
  __asm__ __volatile__("" ::: "memory");
  return *address;
}
#define AIOCUDA_STORE(name)                                                                \
  template <class T>                                                                       \
  inline void name(T* address, typename aiocuda_device::remove_reference<T>::type value) { \
    *address = value;                                                                      \
  }
AIOCUDA_STORE(__stwb)
AIOCUDA_STORE(__stcg)
AIOCUDA_STORE(__stcs)
AIOCUDA_STORE(__stwt)
#undef AIOCUDA_STORE
