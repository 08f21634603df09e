// Launch shapes: from what the caller asked to grid and block, checked against CUDA's limits.
//
// The limits are those of every device of compute capability 5.0 and up ("Technical Specifications
// per Compute Capability", CUDA C++ Programming Guide); what differs from device to device, such as
// shared memory, the driver checks.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "launch.hpp"

namespace aiocuda::dataflow {

struct Extents {
  std::array<std::uint64_t, 3> of{1, 1, 1};
  int rank = 0;  // 0: not given
};

inline std::string describe(const Extents& extents) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (axis) text += ", ";
    text += std::to_string(extents.of[axis]);
  }
  text += ")";
  return text;
}

struct ShapeRequest {
  Extents threads, grid, block, cluster;
  std::uint64_t shared_bytes = 0;
  bool cooperative = false;
};

inline Dim3 to_dim3(const Extents& extents) {
  return {static_cast<std::uint32_t>(extents.of[0]), static_cast<std::uint32_t>(extents.of[1]), static_cast<std::uint32_t>(extents.of[2])};
}

inline void check_grid(const Signature& signature, const Extents& grid) {
  static constexpr std::array<std::uint64_t, 3> limit{2147483647, 65535, 65535};
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (grid.of[axis] > limit[axis])
      raise(error_types.launch, signature.kernel + ": a grid of " + describe(grid) + " blocks is too large; (2147483647, 65535, 65535) is the most");
}

inline void check_cluster(const Signature& signature, const Dim3& cluster, const Extents& grid) {
  const std::array<std::uint32_t, 3> of{cluster.x, cluster.y, cluster.z};
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (of[axis] == 0 || grid.of[axis] % of[axis])
      raise(error_types.launch, signature.kernel + ": cluster=" + describe(Extents{{of[0], of[1], of[2]}, 3}) + " does not divide the grid of " +
                                    describe(grid) + " blocks");
}

// A block for each tile: the last axis along x, the one before it along y, all that are before these along z
// (aiocuda/tile.cuh finds a block's tile in the same way).
inline Extents grid_of(const Array& partition, std::size_t axes) {
  Extents grid;
  grid.rank = 3;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const auto extent = static_cast<std::uint64_t>(partition.shape[axis]), tile = static_cast<std::uint64_t>(partition.tile[axis]);
    grid.of[std::min<std::size_t>(axes - 1 - axis, 2)] *= extent / tile + (extent % tile != 0);
  }
  return grid;
}

// Gives the launch a partition's grid, or checks that the grid is the partition's.
inline void fit_partition(const Signature& signature, std::size_t i, const Array& partition, LaunchShape& shape) {
  const Extents tiles = grid_of(partition, signature.params[i].rank);
  const Dim3 asked = shape.grid;
  const bool is_first = std::exchange(shape.by_partition, false);
  if (!is_first && (asked.x != tiles.of[0] || asked.y != tiles.of[1] || asked.z != tiles.of[2]) && !shape.empty)
    raise(error_types.launch, signature.where(i) + " has " + describe(tiles) + " tiles, the grid, or another partition, " +
                                  describe(Extents{{asked.x, asked.y, asked.z}, 3}) + " blocks; a partition needs a block for each tile: "
                                  "leave grid=... out, and partition all arrays into as many tiles");
  if (!is_first) return;
  check_grid(signature, tiles);
  shape.grid = to_dim3(tiles);
  shape.empty = tiles.of[0] * tiles.of[1] * tiles.of[2] == 0;
  if (shape.cluster.x) check_cluster(signature, shape.cluster, tiles);
}

inline LaunchShape resolve_shape(const Signature& signature, const ShapeRequest& request) {
  auto reject = [&](const std::string& what) { raise(error_types.launch, signature.kernel + ": " + what); };
  const bool by_partition = signature.has_partition && !request.grid.rank;
  if (signature.has_partition && request.threads.rank)
    reject("threads=... was given; a partition has a block for each of its tiles: leave it out, and give block=...");
  if (!request.threads.rank && !request.grid.rank && !by_partition)
    reject("no launch shape; give threads=... (one for each element), or grid=... with block=...");
  if (request.threads.rank && request.grid.rank)
    reject("threads=... and grid=... were both given; threads=... already says how large the grid is");

  Extents block = request.block;
  if (!block.rank) {
    const int rank = request.threads.rank ? request.threads.rank : 1;
    block.rank = rank;
    // 256 threads suit most kernels; a square for two dimensions, because neighbours share cache lines
    // both ways; fewer where the kernel was compiled for fewer.
    block.of = rank == 1 ? std::array<std::uint64_t, 3>{256, 1, 1}
               : rank == 2 ? std::array<std::uint64_t, 3>{16, 16, 1} : std::array<std::uint64_t, 3>{8, 8, 4};
    for (int axis = 2; block.of[0] * block.of[1] * block.of[2] > signature.max_threads;) {
      if (block.of[static_cast<std::size_t>(axis)] > 1) block.of[static_cast<std::size_t>(axis)] /= 2;
      axis = axis ? axis - 1 : 2;
    }
  }
  static constexpr std::array<std::uint64_t, 3> block_limit{1024, 1024, 64};
  std::uint64_t block_threads = 1;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (block.of[axis] == 0 || block.of[axis] > block_limit[axis])
      reject("block=" + describe(block) + " is not possible; 1 to (1024, 1024, 64) threads are");
    block_threads *= block.of[axis];
  }
  if (block_threads > signature.max_threads)
    reject("block=" + describe(block) + " is " + std::to_string(block_threads) + " threads; this kernel takes at most " +
           std::to_string(signature.max_threads) + " in a block");

  LaunchShape shape;
  Extents grid = request.grid;
  if (request.threads.rank) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::uint64_t threads = request.threads.of[axis];
      if (threads == 0) shape.empty = true;
      grid.of[axis] = threads / block.of[axis] + (threads % block.of[axis] != 0);
    }
  } else {
    for (const std::uint64_t extent : grid.of)
      if (extent == 0) reject("grid=" + describe(grid) + " has no blocks; leave the launch out, or give threads=...");
  }
  check_grid(signature, grid);
  if (request.shared_bytes > 0x7fffffff) reject("shared_memory=" + std::to_string(request.shared_bytes) + " bytes is too much");
  if (request.cluster.rank) {
    shape.cluster = to_dim3(request.cluster);
    if (!by_partition) check_cluster(signature, shape.cluster, grid);
  }

  shape.grid = to_dim3(grid);
  shape.block = to_dim3(block);
  shape.by_partition = by_partition;
  shape.shared_bytes = static_cast<std::uint32_t>(request.shared_bytes);
  shape.cooperative = request.cooperative;
  return shape;
}

}  // namespace aiocuda::dataflow
