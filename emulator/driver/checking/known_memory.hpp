// The memory that the driver has given out, for the checks within kernels. What a piece of work may use is what was
// listed when it was submitted: memory that is freed in stream order is off the list at once, and earlier work may
// still use it. So each submission holds the list of that moment. Thread-safe.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checking/access.hpp"

namespace aiocuda::emulator::checking {

// Memory that was given out, from then on until it is freed, and which of its bytes anybody has written.
class GivenMemory {
 public:
  GivenMemory(std::uintptr_t begin_, std::size_t bytes, std::string text_, bool tracks_writes);

  const std::uintptr_t begin;
  const std::uintptr_t end;
  const std::string text;  // what it is, in words

  // Of [first, last) within it.
  void note_write(std::uintptr_t first, std::uintptr_t last) noexcept;
  bool is_written(std::uintptr_t first, std::uintptr_t last) const noexcept;
  void forget_writes() noexcept;

 private:
  std::size_t word_count_ = 0;
  std::unique_ptr<std::atomic<std::uint64_t>[]> written_;  // a bit for each byte; null where nobody asks
};

class MemoryList {
 public:
  explicit MemoryList(std::vector<std::shared_ptr<GivenMemory>> listed) : listed_(std::move(listed)) {}

  // The one that the address is in; null where there is none.
  GivenMemory* find(std::uintptr_t address) const noexcept;
  // The last one that begins at or before the address, and the first one behind it; null where there is none.
  const GivenMemory* before(std::uintptr_t address) const noexcept;
  const GivenMemory* behind(std::uintptr_t address) const noexcept;

 private:
  std::size_t count_up_to(std::uintptr_t address) const noexcept;

  const std::vector<std::shared_ptr<GivenMemory>> listed_;  // ascending
};

class KnownMemory {
 public:
  void add(std::uintptr_t begin, std::size_t bytes, const std::string& text, bool tracks_writes);
  void remove(std::uintptr_t begin);
  // As it is now.
  std::shared_ptr<const MemoryList> list();
  // Its bytes count as never written.
  void forget_writes(std::uintptr_t begin);

  // Where the program made what lies at an address. Kept for the addresses that were told last.
  void describe(std::uintptr_t begin, std::string maker);
  std::string maker(std::uintptr_t begin);

  // What lay at an address before it was freed, in words; empty where that is not known.
  std::string freed_at(std::uintptr_t address);

 private:
  static constexpr std::size_t most_freed = 4096;
  static constexpr std::size_t most_makers = 65536;

  std::mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<GivenMemory>> listed_;
  std::shared_ptr<const MemoryList> list_;  // null after a change
  std::deque<std::shared_ptr<GivenMemory>> freed_;
  std::map<std::uintptr_t, std::string> makers_;
};

// Null where no check asks for it. Never goes away.
KnownMemory* known_memory() noexcept;

// The list that the work holds which the calling thread of a stream runs; null where nothing is checked.
const std::shared_ptr<const MemoryList>& list_in_force() noexcept;

class ListInForce {
 public:
  explicit ListInForce(std::shared_ptr<const MemoryList> list);
  ~ListInForce();
  ListInForce(const ListInForce&) = delete;
  ListInForce& operator=(const ListInForce&) = delete;

 private:
  std::shared_ptr<const MemoryList> outer_;
};

// Work other than a kernel has touched these bytes. Those that it wrote are written from now on.
void note_writes(const Accesses& accesses);

}  // namespace aiocuda::emulator::checking

// Who wants to tell where the program made memory asks for the function that takes it: the address where the memory
// begins, and a line of text. Null where nothing is checked.
using AiocudaDescribeMemory = void (*)(std::uintptr_t address, const char* maker);
extern "C" [[gnu::visibility("default")]] AiocudaDescribeMemory aiocuda_emulator_memory_describer();
