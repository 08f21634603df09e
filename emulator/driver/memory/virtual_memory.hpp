// Virtual memory management: addresses that are reserved, memory that is made, and the mappings that bring them
// together. Always: a mapping is on the list of allocations, and whoever has no access to it faults.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "handle_table.hpp"
#include "memory/physical_memory.hpp"

namespace aiocuda::emulator::memory {

inline constexpr std::size_t mapping_granularity = std::size_t{2} << 20;

// What an allocation handle stands for. Its memory ends with the last handle and the last mapping.
class MappableMemory {
 public:
  // OUT_OF_MEMORY where the device has no more.
  static CUresult make(const CUmemAllocationProp& properties, std::size_t bytes, std::shared_ptr<MappableMemory>& made);
  // Of the descriptor of what another process, or this one, has exported; INVALID_VALUE where it is something else.
  static CUresult import(int descriptor, std::shared_ptr<MappableMemory>& made);
  ~MappableMemory();
  MappableMemory(const MappableMemory&) = delete;
  MappableMemory& operator=(const MappableMemory&) = delete;

  const CUmemAllocationProp& properties() const noexcept { return properties_; }
  std::size_t bytes() const noexcept { return bytes_; }
  int descriptor() const noexcept { return file_.number(); }
  CUmemGenericAllocationHandle handle() const noexcept { return reinterpret_cast<std::uintptr_t>(this); }

  int references = 1;  // of the program, to its handle; under the table's lock

 private:
  MappableMemory(const CUmemAllocationProp& properties, std::size_t bytes, Descriptor file, bool is_counted)
      : properties_(properties), bytes_(bytes), file_(std::move(file)), is_counted_(is_counted) {}

  const CUmemAllocationProp properties_;
  const std::size_t bytes_;
  const Descriptor file_;
  const bool is_counted_;  // memory of another process is on its account
};

// The devices that may write, and read, all of something: a bit for each.
struct MappingAccess {
  std::uint64_t writes = 0, reads = 0;
};
// Whether [address, address + bytes) is all mapped, perhaps by several mappings; and who may use all of it.
bool reaches_over_mappings(std::uintptr_t address, std::size_t bytes, MappingAccess& access);

}  // namespace aiocuda::emulator::memory
