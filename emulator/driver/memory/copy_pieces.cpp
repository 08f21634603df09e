// The loops over rows and pieces. Always: pieces are disjoint and together are the whole extent.
#include "memory/copy_pieces.hpp"

#include <algorithm>
#include <cstring>

#include "block_pool.hpp"

namespace aiocuda::emulator::memory {
namespace {

// Below it, waking other threads costs more than they save.
constexpr std::size_t shared_from_bytes = std::size_t{4} << 20;
constexpr std::size_t piece_bytes = std::size_t{1} << 20;

std::uintptr_t row_address(const Operand& operand, const Extent& extent, std::size_t row) noexcept {
  return operand.address + row / extent.height * operand.slice_bytes + row % extent.height * operand.pitch_bytes;
}

bool is_dense(const Operand& operand, const Extent& extent) noexcept {
  const bool rows_touch = extent.height == 1 || operand.pitch_bytes == extent.width_bytes;
  const bool slices_touch = extent.depth == 1 || operand.slice_bytes == extent.width_bytes * extent.height;
  return rows_touch && slices_touch;
}

void fill(std::uintptr_t address, const Pattern& pattern, std::size_t bytes) noexcept {
  void* const start = reinterpret_cast<void*>(address);
  switch (pattern.bytes) {
    case 1:
      std::memset(start, static_cast<int>(pattern.value), bytes);
      break;
    case 2:
      std::fill_n(static_cast<std::uint16_t*>(start), bytes / 2, static_cast<std::uint16_t>(pattern.value));
      break;
    default:
      std::fill_n(static_cast<std::uint32_t*>(start), bytes / 4, pattern.value);
      break;
  }
}

// Rows of at most a piece's size are grouped, longer ones are cut. `do_row(row, offset, bytes)`.
template <typename DoRow>
class RegionPieces final : public Pieces {
 public:
  RegionPieces(const Extent& extent, DoRow do_row)
      : rows_(extent.height * extent.depth),
        width_(extent.width_bytes),
        pieces_per_row_((width_ + piece_bytes - 1) / piece_bytes),
        rows_per_piece_(pieces_per_row_ > 1 ? 1 : std::max<std::size_t>(1, piece_bytes / width_)),
        do_row_(do_row) {}

  std::uint64_t count() const noexcept { return (rows_ + rows_per_piece_ - 1) / rows_per_piece_ * pieces_per_row_; }

  void run(std::uint64_t first, std::uint64_t last) override {
    for (std::uint64_t piece = first; piece < last; ++piece) {
      const std::size_t row = piece / pieces_per_row_ * rows_per_piece_;
      const std::size_t offset = piece % pieces_per_row_ * piece_bytes;
      const std::size_t bytes = std::min(width_ - offset, piece_bytes);
      const std::size_t end = std::min(rows_, row + rows_per_piece_);
      for (std::size_t each = row; each < end; ++each) do_row_(each, offset, bytes);
    }
  }

 private:
  const std::size_t rows_, width_, pieces_per_row_, rows_per_piece_;
  DoRow do_row_;
};

template <typename DoRow>
Fault for_each_row(const Extent& extent, int priority, DoRow do_row) {
  if (extent.empty()) return {};
  RegionPieces<DoRow> pieces(extent, do_row);
  if (extent.width_bytes * extent.height * extent.depth >= shared_from_bytes) {
    return run_pieces(pieces, pieces.count(), priority);
  }
  auto all = [&] { pieces.run(0, pieces.count()); };
  return run_guarded(all);
}

}  // namespace

void append_accesses(checking::Accesses& accesses, const Operand& operand, const Extent& extent,
                     checking::AccessKind kind) {
  if (operand.memory == Memory::pageable) return;
  if (is_dense(operand, extent)) {
    accesses.push_back({operand.address, operand.address + extent.width_bytes * extent.height * extent.depth, kind});
    return;
  }
  for (std::size_t row = 0; row < extent.height * extent.depth; ++row) {
    const std::uintptr_t begin = row_address(operand, extent, row);
    accesses.push_back({begin, begin + extent.width_bytes, kind});
  }
}

Operand dense(std::uintptr_t address, const Extent& extent) noexcept {
  Operand operand;
  operand.address = address;
  operand.pitch_bytes = extent.width_bytes;
  operand.slice_bytes = extent.width_bytes * extent.height;
  return operand;
}

Fault move_region(const Operand& destination, const Operand& source, const Extent& extent, int priority) {
  Extent rows = extent;
  if (is_dense(destination, extent) && is_dense(source, extent)) {
    rows = Extent{extent.width_bytes * extent.height * extent.depth, 1, 1};
  }
  return for_each_row(rows, priority, [&](std::size_t row, std::size_t offset, std::size_t bytes) {
    std::memmove(reinterpret_cast<void*>(row_address(destination, rows, row) + offset),
                 reinterpret_cast<const void*>(row_address(source, rows, row) + offset), bytes);
  });
}

Fault fill_region(const Operand& destination, const Pattern& pattern, const Extent& extent, int priority) {
  Extent rows = extent;
  if (is_dense(destination, extent)) {
    rows = Extent{extent.width_bytes * extent.height * extent.depth, 1, 1};
  }
  return for_each_row(rows, priority, [&](std::size_t row, std::size_t offset, std::size_t bytes) {
    fill(row_address(destination, rows, row) + offset, pattern, bytes);
  });
}

}  // namespace aiocuda::emulator::memory
