// A call of the driver that has been decided, with all that it needs.
//
// Always true: the words of a launch are copied. Memory, events and functions that it names end behind it: the driver
// is given all earlier calls before something else ends them (submission_thread.hpp).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "../dataflow/copy_block.hpp"
#include "../dataflow/fills.hpp"
#include "../dataflow/tick.hpp"
#include "table.hpp"

namespace aiocuda::driver {

// A stream, as calls are made on it.
struct On {
  CUstream stream;
  CUcontext context;
  bool is_shown = false;  // others have the handle: calls on it are made at once
};

// Bytes that a piece of work reads or writes, by address.
struct MemoryRange {
  std::uint64_t begin, end;
  bool writes;

  bool meets(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
};

// Whose work a call is, or what it orders.
struct WorkOf {
  const void* op = nullptr;  // is kept by whoever gave the call; none: it is nobody's
  dataflow::Tick tick{};     // the submission that it is, or is part of
  std::int32_t device = 0;
};

struct Launch {
  static constexpr std::size_t most_arguments = 16, most_words = 32;

  CUfunction function;
  std::array<std::uint32_t, 3> grid, block;
  std::uint32_t shared_bytes, count;
  std::array<std::uint8_t, most_arguments> starts;  // where each argument's words begin
  std::array<std::uint64_t, most_words> words;
};

struct Word {
  CUdeviceptr address;
  std::uint64_t value;  // to write; of memory to free, its size in bytes
};

struct Command {
  static constexpr std::size_t most_ranges = 12;
  // Work, whose operation ends with an error where it is refused; then order, which others count on.
  enum class Kind : std::uint8_t { launch, fill, copy, record, wait, write, free };

  Kind kind = Kind::record;
  std::uint8_t range_count = 0;
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  WorkOf of{};  // of work, and of a wait that work needs
  union {
    CUevent event = nullptr;  // to record, or to wait for
    Launch launch;
    dataflow::FillBlock fill;  // its offset is an address
    dataflow::CopyBlock copy;
    Word memory;
  };
  std::array<MemoryRange, most_ranges> ranges;  // of that work

  Command() {}  // NOLINT(modernize-use-equals-default): the union has members with constructors
  void note(const WorkOf& work, std::span<const MemoryRange> touched_bytes) {
    of = work;
    range_count = static_cast<std::uint8_t>(touched_bytes.size());
    std::copy(touched_bytes.begin(), touched_bytes.end(), ranges.begin());
  }
  bool is_work() const { return kind <= Kind::copy; }
  std::span<const MemoryRange> touched() const { return {ranges.data(), range_count}; }
};

}  // namespace aiocuda::driver
