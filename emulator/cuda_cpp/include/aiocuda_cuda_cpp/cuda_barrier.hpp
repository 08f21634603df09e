// cuda/barrier: cuda::barrier, and copies that a barrier tells the end of. Copies are done at once, by the threads that
// ask for them, before they arrive.
#pragma once

#include "block.hpp"
#include "thread_scope.hpp"

namespace cuda {

// A count of threads that are still to come, how many there are, and the phase: in one word, so that threads of several
// blocks can use it.
class AIOCUDA_VISIBLE barrier_word {
 public:
  void set(unsigned expected) {
    __atomic_store_n(&word_, (unsigned long long)expected << 16 | expected, __ATOMIC_SEQ_CST);
  }
  unsigned phase() const { return (unsigned)(__atomic_load_n(&word_, __ATOMIC_SEQ_CST) >> 32); }
  // The phase in which the threads arrived.
  unsigned arrive(unsigned count, bool drops) {
    unsigned long long before = __atomic_load_n(&word_, __ATOMIC_SEQ_CST);
    for (;;) {
      const unsigned expected = (unsigned)(before >> 16 & 0xffff) - (drops ? count : 0);
      const unsigned missing = (unsigned)(before & 0xffff);
      if (count > missing) ::aiocuda_fail(719, "more threads arrive at a cuda::barrier than it was initialised for");
      const bool completes = missing == count;
      const unsigned long long phase = (before >> 32) + (completes ? 1 : 0);
      const unsigned long long after =
          (phase & 0xffffffffull) << 32 | (unsigned long long)expected << 16 | (completes ? expected : missing - count);
      if (__atomic_compare_exchange_n(&word_, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return (unsigned)(before >> 32);
    }
  }
  void wait_while(unsigned phase_) const {
    while (phase() == phase_) ::aiocuda_yield();
  }

 private:
  unsigned long long word_;
};

template <thread_scope scope = thread_scope_system, class Completion = void>
class AIOCUDA_VISIBLE barrier {
 public:
  struct AIOCUDA_VISIBLE arrival_token {
    unsigned phase;
  };
  barrier() = default;
  explicit barrier(unsigned expected) { word_.set(expected); }
  static constexpr long max() { return 0xffff; }

  arrival_token arrive(long count = 1) { return {word_.arrive((unsigned)count, false)}; }
  void wait(arrival_token token) const { word_.wait_while(token.phase); }
  void arrive_and_wait() { wait(arrive()); }
  void arrive_and_drop() { word_.arrive(1, true); }
  bool try_wait(arrival_token token) const {
    ::aiocuda_yield();
    return word_.phase() != token.phase;
  }
  void wait_parity(bool parity) const {
    while ((word_.phase() & 1u) == (unsigned)parity) ::aiocuda_yield();
  }
  bool try_wait_parity(bool parity) const {
    ::aiocuda_yield();
    return (word_.phase() & 1u) != (unsigned)parity;
  }
  friend void init(barrier* self, long expected) { self->word_.set((unsigned)expected); }

 private:
  barrier_word word_;
};

template <size_t alignment>
struct AIOCUDA_VISIBLE aligned_size_t {
  static constexpr size_t align = alignment;
  size_t value;
  constexpr explicit aligned_size_t(size_t size) : value(size) {}
  constexpr operator size_t() const { return value; }
};

template <class T, class Size, thread_scope scope, class Completion>
inline void memcpy_async(T* to, const T* from, Size size, barrier<scope, Completion>&) {
  __builtin_memcpy(static_cast<void*>(to), from, (size_t)size);
}
template <class Group, class T, class Size, thread_scope scope, class Completion>
inline void memcpy_async(const Group& group, T* to, const T* from, Size size, barrier<scope, Completion>&) {
  for (size_t i = group.thread_rank(); i < (size_t)size; i += group.size()) ((char*)to)[i] = ((const char*)from)[i];
}

}  // namespace cuda
