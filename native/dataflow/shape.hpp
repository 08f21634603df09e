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

inline std::string describe(const Extents& extents) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (axis) text += ", ";
    text += std::to_string(extents.of[axis]);
  }
  text += ')';
  return text;
}

struct ShapeRequest {
  Extents threads, grid, block, cluster;
  std::uint64_t shared_bytes = 0;
  bool cooperative = false;
};

inline Dim3 to_dim3(const Extents& extents) {
  return {static_cast<std::uint32_t>(extents.of[0]), static_cast<std::uint32_t>(extents.of[1]),
          static_cast<std::uint32_t>(extents.of[2])};
}

inline void check_grid(const Signature& signature, const Extents& grid) {
  static constexpr std::array<std::uint64_t, 3> limit{2147483647, 65535, 65535};
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (grid.of[axis] > limit[axis])
      raise(error_types.launch, signature.kernel + ": a grid of " + describe(grid) +
                                    " blocks is too large; (2147483647, 65535, 65535) is the most");
}

inline void check_cluster(const Signature& signature, const Dim3& cluster, const Extents& grid) {
  const std::array<std::uint32_t, 3> of{cluster.x, cluster.y, cluster.z};
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (of[axis] == 0 || grid.of[axis] % of[axis])
      raise(error_types.launch, signature.kernel + ": cluster=" + describe(Extents{{of[0], of[1], of[2]}, 3}) +
                                    " does not divide the grid of " + describe(grid) + " blocks");
}

// A block for each tile: the last axis along x, the one before it along y, all that are before these along z
// (aiocuda/tile.cuh finds a block's tile in the same way).
inline Extents grid_of(const Array& partition, std::size_t axes) {
  Extents grid;
  grid.rank = 3;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const auto extent = static_cast<std::uint64_t>(partition.shape[axis]),
               tile = static_cast<std::uint64_t>(partition.tile[axis]);
    grid.of[std::min<std::size_t>(axes - 1 - axis, 2)] *= extent / tile + (extent % tile != 0);
  }
  return grid;
}

// A thread for each item of a tile, along the same axes; a tile that is larger than the whole array is clipped to it.
inline Extents block_of(const Array& partition, std::size_t axes) {
  Extents block;
  block.rank = 3;
  for (std::size_t axis = 0; axis < axes; ++axis)
    block.of[std::min<std::size_t>(axes - 1 - axis, 2)] *=
        static_cast<std::uint64_t>(std::min(partition.shape[axis], partition.tile[axis]));
  return block;
}

inline constexpr std::array<std::uint64_t, 3> block_limit{1024, 1024, 64};

inline void fit_block_to_tile(const Signature& signature, std::size_t i, const Array& partition, LaunchShape& shape) {
  const Extents block = block_of(partition, signature.params[i].rank);
  auto reject = [&](const std::string& what) {
    raise(error_types.launch, signature.where(i) + " has tiles of " + describe(block) + " items, " + what +
                                  "; give block=..., and let each thread look at several items where a tile has more "
                                  "than the block has threads");
  };
  bool is_possible = block.of[0] * block.of[1] * block.of[2] <= signature.max_threads;
  for (std::size_t axis = 0; axis < 3; ++axis) is_possible = is_possible && block.of[axis] <= block_limit[axis];
  if (!is_possible)
    reject("more than a block of this kernel may have threads (" + std::to_string(signature.max_threads) +
           ", and (1024, 1024, 64) along its axes)");
  const Dim3 mine = to_dim3(block), other = shape.block;
  if (other.x && (mine.x != other.x || mine.y != other.y || mine.z != other.z))
    reject("and another partition has tiles of " + describe(Extents{{other.x, other.y, other.z}, 3}) +
           ", so the block cannot follow both");
  shape.block = mine;
}

// Gives the launch a partition's grid, or checks that the grid is the partition's. If no block was given, there is a
// thread for each item of a tile.
inline void fit_partition(const Signature& signature, std::size_t i, const Array& partition, LaunchShape& shape) {
  const Extents tiles = grid_of(partition, signature.params[i].rank);
  const Dim3 asked = shape.grid;
  const bool is_first = std::exchange(shape.by_partition, false);
  if (!is_first && (asked.x != tiles.of[0] || asked.y != tiles.of[1] || asked.z != tiles.of[2]) && !shape.empty)
    raise(error_types.launch, signature.where(i) + " has " + describe(tiles) +
                                  " tiles, the grid, or another partition, " +
                                  describe(Extents{{asked.x, asked.y, asked.z}, 3}) +
                                  " blocks; a partition needs a block for each tile: "
                                  "leave grid=... out, and partition all arrays into as many tiles");
  if (is_first) {
    check_grid(signature, tiles);
    shape.grid = to_dim3(tiles);
    shape.empty = tiles.of[0] * tiles.of[1] * tiles.of[2] == 0;
    if (shape.cluster.x) check_cluster(signature, shape.cluster, tiles);
  }
  if (shape.block_by_partition && !shape.empty) fit_block_to_tile(signature, i, partition, shape);
}

// The block for `threads=`, where the caller gives none: up to 256 threads, which suit most kernels; a square for two
// dimensions, because neighbours share cache lines both ways. It is fewer where the kernel was compiled for fewer, and
// no larger than the elements need, in whole warps: threads beyond the last element do nothing but look at their index.
inline constexpr std::uint64_t warp = 32;
inline std::uint64_t default_block_along_x(std::uint64_t threads) {  // of a kernel that takes 256
  return (std::clamp<std::uint64_t>(threads, 1, 256) + warp - 1) / warp * warp;
}
inline Extents default_block(const Signature& signature, const Extents& threads) {
  Extents block;
  block.rank = threads.rank;
  if (threads.rank == 1 && signature.max_threads >= 256) {  // what is most likely, in few steps
    block.of[0] = default_block_along_x(threads.of[0]);
    return block;
  }
  block.of = threads.rank == 1   ? std::array<std::uint64_t, 3>{256, 1, 1}
             : threads.rank == 2 ? std::array<std::uint64_t, 3>{16, 16, 1}
                                 : std::array<std::uint64_t, 3>{8, 8, 4};
  auto& of = block.of;
  for (std::size_t axis = 2; of[0] * of[1] * of[2] > signature.max_threads;) {
    if (of[axis] > 1) of[axis] /= 2;
    axis = axis ? axis - 1 : 2;
  }
  if (threads.of[0] >= of[0] && threads.of[1] >= of[1] && threads.of[2] >= of[2]) return block;

  // Threads that one axis does not need go to the next one, first of all to x.
  const std::uint64_t most = of[0] * of[1] * of[2];
  for (std::size_t axis = 0; axis < 3; ++axis) of[axis] = std::clamp<std::uint64_t>(threads.of[axis], 1, of[axis]);
  for (std::size_t axis = 0; axis < 3;) {
    const std::uint64_t others = of[0] * of[1] * of[2] / of[axis];
    const std::uint64_t wider = std::min({2 * of[axis], threads.of[axis], block_limit[axis]});
    if (wider > of[axis] && wider * others <= most)
      of[axis] = wider;
    else
      ++axis;
  }
  // The fewest threads that are whole warps; of several such blocks the one that is longest along x. If no such block
  // is small enough, as around (3, 3, 17), the longest axis is halved.
  std::uint64_t fewest = most + 1;
  for (std::array<std::uint64_t, 3> least = of; most >= warp && fewest > most;) {
    for (std::uint64_t z = least[2]; z <= block_limit[2] && least[0] * least[1] * z < fewest; ++z)
      for (std::uint64_t y = least[1]; least[0] * y * z < fewest; ++y) {
        const std::uint64_t step = warp / std::min(warp, (y * z) & (~(y * z) + 1));  // x must be a multiple of it
        const std::uint64_t x = (least[0] + step - 1) / step * step;
        if (x * y * z >= fewest) continue;
        fewest = x * y * z;
        of = {x, y, z};
      }
    std::uint64_t& longest = *std::max_element(least.begin(), least.end());
    longest = (longest + 1) / 2;
  }
  return block;
}

// How many threads a launch has beyond those that `threads=` asked for.
inline std::uint64_t surplus_threads(const LaunchShape& shape) {
  const Dim3 &grid = shape.grid, &block = shape.block;
  const std::array<std::uint64_t, 3>& asked = shape.threads.of;
  return std::uint64_t{grid.x} * grid.y * grid.z * block.x * block.y * block.z - asked[0] * asked[1] * asked[2];
}

// How `threads=` became blocks, for the message of a fault; empty where the caller gave the grid.
inline std::string describe_blocks(const LaunchShape& shape) {
  if (!shape.threads.rank || shape.empty) return "";
  std::string asked;
  for (int axis = 0; axis < shape.threads.rank; ++axis)
    asked += (axis ? ", " : "") + std::to_string(shape.threads.of[static_cast<std::size_t>(axis)]);
  if (shape.threads.rank > 1) asked = "(" + asked + ")";
  const std::array<std::uint64_t, 3> grid{shape.grid.x, shape.grid.y, shape.grid.z};
  const std::array<std::uint64_t, 3> block{shape.block.x, shape.block.y, shape.block.z};
  std::string text = "threads=" + asked + " was launched as a grid of " + describe(Extents{grid, 3}) + " blocks of " +
                     describe(Extents{block, 3}) + " threads";
  if (const std::uint64_t surplus = surplus_threads(shape))
    text += ", " + std::to_string(surplus) +
            " threads more than asked for: the kernel must check its index before it uses it";
  return text;
}

[[gnu::noinline]] inline LaunchShape resolve_any_shape(const Signature& signature, const ShapeRequest& request) {
  auto reject = [&](const std::string& what) { raise(error_types.launch, signature.kernel + ": " + what); };
  const bool by_partition = signature.has_partition && !request.grid.rank;
  if (signature.has_partition && request.threads.rank)
    reject(
        "threads=... was given; a partition has a block for each of its tiles: "
        "leave it out, and give block=... or nothing");
  if (!request.threads.rank && !request.grid.rank && !by_partition)
    reject("no launch shape; give threads=... (one for each element), or grid=... with block=...");
  if (request.threads.rank && request.grid.rank)
    reject("threads=... and grid=... were both given; threads=... already says how large the grid is");
  const bool block_by_partition = signature.has_partition && !request.block.rank;
  if (request.grid.rank && !request.block.rank && !block_by_partition)
    reject("grid=" + describe(request.grid) +
           " was given without block=...; say how many threads each block has, or give threads=... alone");

  const bool is_chosen = !request.block.rank && !block_by_partition;
  const Extents block = is_chosen ? default_block(signature, request.threads) : request.block;
  std::uint64_t block_threads = 1;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (block.of[axis] == 0 || block.of[axis] > block_limit[axis])
      reject("block=" + describe(block) + " is not possible; 1 to (1024, 1024, 64) threads are");
    block_threads *= block.of[axis];
  }
  if (block_threads > signature.max_threads)
    reject("block=" + describe(block) + " is " + std::to_string(block_threads) +
           " threads; this kernel takes at most " + std::to_string(signature.max_threads) + " in a block");

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
  if (request.shared_bytes > 0x7fffffff)
    reject("shared_memory=" + std::to_string(request.shared_bytes) + " bytes is too much");
  if (request.cluster.rank) {
    shape.cluster = to_dim3(request.cluster);
    if (!by_partition) check_cluster(signature, shape.cluster, grid);
  }

  shape.grid = to_dim3(grid);
  shape.block = block_by_partition ? Dim3{0, 0, 0} : to_dim3(block);
  shape.by_partition = by_partition;
  shape.block_by_partition = block_by_partition;
  shape.threads = request.threads;
  shape.shared_bytes = static_cast<std::uint32_t>(request.shared_bytes);
  shape.cooperative = request.cooperative;
  return shape;
}

inline LaunchShape resolve_shape(const Signature& signature, const ShapeRequest& request) {
  // One number of threads, and nothing else, is what is most likely; it needs few steps.
  constexpr std::uint64_t most_blocks = 2147483647;
  const std::uint64_t threads = request.threads.of[0];
  const bool is_plain = request.threads.rank == 1 && !request.grid.rank && !request.block.rank &&
                        !request.cluster.rank && !request.shared_bytes && !request.cooperative &&
                        !signature.has_partition && signature.max_threads >= 256 && threads && threads <= most_blocks;
  if (!is_plain) return resolve_any_shape(signature, request);
  LaunchShape shape;
  shape.block.x = static_cast<std::uint32_t>(default_block_along_x(threads));
  shape.grid.x = static_cast<std::uint32_t>((threads + shape.block.x - 1) / shape.block.x);
  shape.threads = request.threads;
  return shape;
}

}  // namespace aiocuda::dataflow
