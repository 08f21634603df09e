// Memory of objects of one class that one thread makes and another one ends, used again. The C library would give the
// memory of a long queue back to the system whenever it has run, and have it faulted in anew. That took half the time
// of a launch (docs/measurements/2026-11-26-emulator-speed.md).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace aiocuda::emulator {

template <typename Object>
class Recycled {
 public:
  static void* take() {
    Own& own = own_list();
    if (own.first == nullptr) own.first = returned.exchange(nullptr, std::memory_order_acquire);
    if (own.first == nullptr) return ::operator new(sizeof(Object), alignment);
    own.count_one();
    Block* const block = own.first;
    own.first = block->next;
    return block;
  }

  static void give(void* memory) noexcept {
    if (given.load(std::memory_order_relaxed) - taken.load(std::memory_order_relaxed) >= most) {
      ::operator delete(memory, alignment);
      return;
    }
    given.fetch_add(1, std::memory_order_relaxed);
    give_back(::new (memory) Block);
  }

 private:
  static constexpr std::align_val_t alignment{alignof(Object)};
  struct Block {
    Block* next = nullptr;
  };
  static_assert(sizeof(Object) >= sizeof(Block));

  // What a thread has taken over and not used yet. Others get it when the thread ends.
  struct Own {
    Block* first = nullptr;
    int used = 0;  // and not yet told
    void count_one() noexcept {
      if (++used == told_at_once) tell();
    }
    void tell() noexcept { taken.fetch_add(std::exchange(used, 0), std::memory_order_relaxed); }
    ~Own() {
      tell();
      while (first != nullptr) {
        Block* const block = first;
        first = block->next;
        give_back(block);
      }
    }
  };

  static Own& own_list() {
    thread_local Own own;
    return own;
  }

  // Only whole lists are taken off, so a block cannot come back between the look at it and its exchange.
  static void give_back(Block* block) noexcept {
    block->next = returned.load(std::memory_order_relaxed);
    while (!returned.compare_exchange_weak(block->next, block, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr std::int64_t most = 0;  // a sanitizer must see what is freed
#else
  static constexpr std::int64_t most = 1 << 15;
#endif
  // How many are kept is known to so many for each thread: threads that take tell of it seldom, so that those who give
  // find what they read in their own cache.
  static constexpr int told_at_once = 64;
  static inline std::atomic<Block*> returned{nullptr};
  alignas(64) static inline std::atomic<std::int64_t> given{0};
  alignas(64) static inline std::atomic<std::int64_t> taken{0};
};

}  // namespace aiocuda::emulator
