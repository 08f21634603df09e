// Which bytes the threads of a launch touch, as its instrumented code tells. One bit a byte and kind of
// access, on pages that may hold memory of the driver; everything else (stacks, shared memory) is dropped at the
// first look. Cheap enough for every load and store, and it needs no more memory however often a loop runs.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "checking/access.hpp"

namespace aiocuda::emulator::checking {

inline constexpr std::uintptr_t page_bytes = 4096;

// The bits of one page.
class PageAccesses {
 public:
  // [first, last) are bytes of the page.
  void add(AccessKind kind, std::size_t first, std::size_t last);
  void add(const PageAccesses& other);
  // Appends the ranges of the page at `base`; what a stronger kind of access stands for is left out.
  void append_to(Accesses& accesses, std::uintptr_t base) const;

 private:
  static constexpr std::size_t words = page_bytes / 64;
  using Bits = std::array<std::uint64_t, words>;
  std::array<std::unique_ptr<Bits>, access_kinds> bits_;
};

using Pages = std::unordered_map<std::uintptr_t, std::unique_ptr<PageAccesses>>;

// The accesses of one launch, from all threads that run its blocks.
class Recording {
 public:
  // Around a range of blocks, on the thread that runs them. Left out after a fault, whose launch nobody checks.
  void begin();
  void end();
  // Ascending by address within a kind. Called when no blocks run any more.
  Accesses take();

 private:
  std::mutex mutex_;
  Pages pages_;
};

// The function behind Services::record_access.
void record_access(const void* address, std::uint64_t bytes, abi::AccessKind kind);

}  // namespace aiocuda::emulator::checking
