// Objects that are freed, and kept for those that come next: to ask an allocator for each takes longer than to fill it.
//
// Always true: a build under a sanitizer keeps none. Its allocator must know what is freed, or it takes the use of what
// has been freed for the use of what came next.
#pragma once
#include <array>
#include <cstddef>
#include <new>

namespace aiocuda {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool keeps_spares = false;
#else
inline constexpr bool keeps_spares = true;
#endif

// What a place that would keep so many may keep.
inline constexpr std::size_t spares_of(std::size_t most) { return keeps_spares ? most : 0; }

// Pointers to what is kept, the last one first. Who takes one owns it.
template <class T, std::size_t most>
class Spares {
 public:
  // Null: there is none.
  T* take() { return count_ ? kept_[--count_] : nullptr; }
  // False: there is no room, and it is the caller's still.
  bool put(T* freed) {
    if (count_ == spares_of(most)) return false;
    kept_[count_++] = freed;
    return true;
  }
  bool is_full() const { return count_ == spares_of(most); }

 private:
  std::array<T*, most> kept_{};
  std::size_t count_ = 0;
};

// A class derives from this to have the memory of its objects used again. Guarded by the GIL.
template <class T, std::size_t most = 64>
class SpareMemory {
 public:
  static void* operator new(std::size_t size_bytes) {
    void* const kept = spares.take();
    return kept ? kept : ::operator new(size_bytes);
  }
  static void operator delete(void* memory) noexcept {
    if (!spares.put(memory)) ::operator delete(memory);
  }

 private:
  friend T;
  SpareMemory() = default;

  static inline Spares<void, most> spares;
};

}  // namespace aiocuda
