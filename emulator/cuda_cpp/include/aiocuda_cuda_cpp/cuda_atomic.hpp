// cuda/atomic: libcu++'s cuda::atomic, cuda::atomic_ref and cuda::atomic_thread_fence. Every scope is the
// whole process, which is never too little. A load, and a compare-and-swap that fails, are how a thread
// waits for another, so they let the other threads of the block go on. The host's <atomic> comes before it.
#pragma once

#include "block.hpp"
#include "cuda_std.hpp"
#include "thread_scope.hpp"

namespace cuda {

using ::std::memory_order;
using ::std::memory_order_acq_rel;
using ::std::memory_order_acquire;
using ::std::memory_order_consume;
using ::std::memory_order_relaxed;
using ::std::memory_order_release;
using ::std::memory_order_seq_cst;

inline void atomic_thread_fence(memory_order order, thread_scope = thread_scope_system) {
  ::std::atomic_thread_fence(order);
}

// The members of both classes; `Self` says where the value is.
template <class T, class Self>
class atomic_operations {
 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = sizeof(T) <= 8;

  bool is_lock_free() const { return is_always_lock_free; }

  T load(memory_order order = memory_order_seq_cst) const {
    aiocuda_yield();
    T value;
    __atomic_load(at(), &value, static_cast<int>(order));
    return value;
  }
  void store(T value, memory_order order = memory_order_seq_cst) const {
    __atomic_store(at(), &value, static_cast<int>(order));
  }
  T exchange(T value, memory_order order = memory_order_seq_cst) const {
    T before;
    __atomic_exchange(at(), &value, &before, static_cast<int>(order));
    return before;
  }
  bool compare_exchange_strong(T& expected, T value, memory_order success, memory_order failure) const {
    const bool done =
        __atomic_compare_exchange(at(), &expected, &value, false, static_cast<int>(success), static_cast<int>(failure));
    if (!done) aiocuda_yield();
    return done;
  }
  bool compare_exchange_strong(T& expected, T value, memory_order order = memory_order_seq_cst) const {
    return compare_exchange_strong(expected, value, order, on_failure(order));
  }
  bool compare_exchange_weak(T& expected, T value, memory_order success, memory_order failure) const {
    return compare_exchange_strong(expected, value, success, failure);
  }
  bool compare_exchange_weak(T& expected, T value, memory_order order = memory_order_seq_cst) const {
    return compare_exchange_strong(expected, value, order);
  }

  T fetch_add(T by, memory_order order = memory_order_seq_cst) const {
    return update([by](T before) { return static_cast<T>(before + by); }, order);
  }
  T fetch_sub(T by, memory_order order = memory_order_seq_cst) const {
    return update([by](T before) { return static_cast<T>(before - by); }, order);
  }
  T fetch_and(T by, memory_order order = memory_order_seq_cst) const {
    return update([by](T before) { return static_cast<T>(before & by); }, order);
  }
  T fetch_or(T by, memory_order order = memory_order_seq_cst) const {
    return update([by](T before) { return static_cast<T>(before | by); }, order);
  }
  T fetch_xor(T by, memory_order order = memory_order_seq_cst) const {
    return update([by](T before) { return static_cast<T>(before ^ by); }, order);
  }
  T fetch_min(T by, memory_order order = memory_order_seq_cst) const {
    return update([by](T before) { return by < before ? by : before; }, order);
  }
  T fetch_max(T by, memory_order order = memory_order_seq_cst) const {
    return update([by](T before) { return before < by ? by : before; }, order);
  }

  operator T() const { return load(); }
  T operator++() const { return static_cast<T>(fetch_add(1) + 1); }
  T operator++(int) const { return fetch_add(1); }
  T operator--() const { return static_cast<T>(fetch_sub(1) - 1); }
  T operator--(int) const { return fetch_sub(1); }
  T operator+=(T by) const { return static_cast<T>(fetch_add(by) + by); }
  T operator-=(T by) const { return static_cast<T>(fetch_sub(by) - by); }
  T operator&=(T by) const { return static_cast<T>(fetch_and(by) & by); }
  T operator|=(T by) const { return static_cast<T>(fetch_or(by) | by); }
  T operator^=(T by) const { return static_cast<T>(fetch_xor(by) ^ by); }

 private:
  // The memory order of a failed exchange: one that a load can have.
  static memory_order on_failure(memory_order order) {
    return order == memory_order_acq_rel   ? memory_order_acquire
           : order == memory_order_release ? memory_order_relaxed
                                           : order;
  }

  template <class F>
  T update(F change, memory_order order) const {
    T before;
    __atomic_load(at(), &before, __ATOMIC_RELAXED);
    for (;;) {
      T after = change(before);
      if (__atomic_compare_exchange(at(), &before, &after, true, static_cast<int>(order),
                                    static_cast<int>(on_failure(order))))
        return before;
    }
  }

  T* at() const { return static_cast<const Self*>(this)->address(); }
};

template <class T, thread_scope scope = thread_scope_system>
class atomic_ref : public atomic_operations<T, atomic_ref<T, scope>> {
 public:
  static constexpr size_t required_alignment = alignof(T);

  explicit atomic_ref(T& value) : address_(&value) {}
  atomic_ref(const atomic_ref&) = default;
  atomic_ref& operator=(const atomic_ref&) = delete;
  T operator=(T value) const {
    this->store(value);
    return value;
  }
  T* address() const { return address_; }

 private:
  T* address_;
};

// Trivial where T is: shared memory holds it without a constructor.
template <class T, thread_scope scope = thread_scope_system>
class atomic : public atomic_operations<T, atomic<T, scope>> {
 public:
  atomic() = default;
  constexpr atomic(T value) : value_(value) {}
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;
  T operator=(T value) {
    this->store(value);
    return value;
  }
  T* address() const { return &value_; }

 private:
  alignas(sizeof(T) <= 8 ? sizeof(T) : alignof(T)) mutable T value_;
};

}  // namespace cuda
