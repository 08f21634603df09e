// Memory of objects of one class that one thread makes and another one ends, used again. The C library would give the
// memory of a long queue back to the system whenever it has run, and have it faulted in anew. That took half the time
// of a launch (docs/measurements/2026-11-26-emulator-speed.md).
#pragma once
#include <atomic>
#include <cstddef>
#include <new>

namespace aiocuda::emulator {

template <std::size_t bytes>
class Recycled {
 public:
  static void* take() {
    Own& own = own_list();
    if (own.first == nullptr) own.first = returned.exchange(nullptr, std::memory_order_acquire);
    if (own.first == nullptr) return ::operator new(bytes);
    kept.fetch_sub(1, std::memory_order_relaxed);
    Block* const block = own.first;
    own.first = block->next;
    return block;
  }

  static void give(void* memory) noexcept {
    if (kept.fetch_add(1, std::memory_order_relaxed) >= most) {
      kept.fetch_sub(1, std::memory_order_relaxed);
      ::operator delete(memory);
      return;
    }
    give_back(::new (memory) Block);
  }

 private:
  struct Block {
    Block* next = nullptr;
  };
  static_assert(bytes >= sizeof(Block));

  // What a thread has taken over and not used yet. Others get it when the thread ends.
  struct Own {
    Block* first = nullptr;
    ~Own() {
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
  static constexpr int most = 0;  // a sanitizer must see what is freed
#else
  static constexpr int most = 1 << 15;
#endif
  static inline std::atomic<Block*> returned{nullptr};
  static inline std::atomic<int> kept{0};
};

}  // namespace aiocuda::emulator
