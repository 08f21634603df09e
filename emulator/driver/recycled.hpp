// Memory of objects of one class that one thread makes and another one ends, used again. The C library would give the
// memory of a long queue back to the system whenever it has run, and have it faulted in anew. That took half the time
// of a launch (docs/measurements/2026-11-26-emulator-speed.md).
#pragma once
#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

namespace aiocuda::emulator {

// Blocks go from thread to thread in bundles. A word that both sides write for each block would cost more than the
// rest.
template <std::size_t bytes>
class Recycled {
 public:
  static void* take() {
    Own& own = own_list();
    if (own.taken == nullptr && !take_bundle(own)) return ::operator new(bytes);
    Block* const block = own.taken;
    own.taken = block->next;
    return block;
  }

  static void give(void* memory) noexcept {
    if (most == 0) return ::operator delete(memory);
    Own& own = own_list();
    Block* const block = ::new (memory) Block{own.given};
    own.given = block;
    if (++own.given_count == bundle_size) give_bundle(own);
  }

 private:
  static constexpr int bundle_size = 32;

  struct Block {
    Block* next = nullptr;         // of its bundle
    Block* next_bundle = nullptr;  // of the first block of a bundle
  };
  static_assert(bytes >= sizeof(Block));

  // A thread's blocks: of a bundle that it uses, of bundles that it will use, and of one that it fills.
  struct Own {
    Block* taken = nullptr;
    Block* bundles = nullptr;
    Block* given = nullptr;
    int given_count = 0;
    ~Own() {
      free_all(std::exchange(taken, nullptr));
      free_all(std::exchange(given, nullptr));
      while (bundles != nullptr) free_all(std::exchange(bundles, bundles->next_bundle));
    }
  };

  static Own& own_list() {
    thread_local Own own;
    return own;
  }

  static void free_all(Block* block) noexcept {
    while (block != nullptr) ::operator delete(std::exchange(block, block->next));
  }

  // Only whole lists are taken off, so a bundle cannot come back between the look at it and its exchange.
  static bool take_bundle(Own& own) noexcept {
    if (own.bundles == nullptr) own.bundles = returned.exchange(nullptr, std::memory_order_acquire);
    if (own.bundles == nullptr) return false;
    own.taken = std::exchange(own.bundles, own.bundles->next_bundle);
    kept.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

  static void give_bundle(Own& own) noexcept {
    Block* const bundle = std::exchange(own.given, nullptr);
    own.given_count = 0;
    if (kept.fetch_add(1, std::memory_order_relaxed) >= most) {
      kept.fetch_sub(1, std::memory_order_relaxed);
      return free_all(bundle);
    }
    bundle->next_bundle = returned.load(std::memory_order_relaxed);
    while (!returned.compare_exchange_weak(bundle->next_bundle, bundle, std::memory_order_release,
                                           std::memory_order_relaxed)) {
    }
  }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr int most = 0;  // a sanitizer must see what is freed
#else
  static constexpr int most = 1 << 10;  // bundles
#endif
  static inline std::atomic<Block*> returned{nullptr};
  static inline std::atomic<int> kept{0};
};

}  // namespace aiocuda::emulator
