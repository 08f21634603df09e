// Moves or fills a pitched region, piece by piece, so that big ones are spread over the threads that
// run kernels' blocks. A fault in it is answered and harms nobody.
#pragma once
#include <cstddef>
#include <cstdint>

#include "checking/access.hpp"
#include "fault.hpp"
#include "memory/copy.hpp"

namespace aiocuda::emulator::memory {

// Overlapping regions are copied as CUDA leaves them: with undefined bytes, but safely.
Fault move_region(const Operand& destination, const Operand& source, const Extent& extent, int priority);

// The bytes of every row are filled with a value of 1, 2 or 4 bytes.
struct Pattern {
  std::uint32_t value = 0;
  std::size_t bytes = 1;
};
Fault fill_region(const Operand& destination, const Pattern& pattern, const Extent& extent, int priority);

// The bytes of a region that lie in memory the driver knows; none of pageable memory.
void append_accesses(checking::Accesses& accesses, const Operand& operand, const Extent& extent,
                     checking::AccessKind kind);

// Rows without gaps between them, as they lie in a staging buffer.
Operand dense(std::uintptr_t address, const Extent& extent) noexcept;

}  // namespace aiocuda::emulator::memory
