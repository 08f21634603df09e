// Launch shapes: from what the caller asked to grid and block, checked against CUDA's limits.
//
// The limits are those of every device of compute capability 5.0 and up ("Technical Specifications
// per Compute Capability", CUDA C++ Programming Guide); what differs from device to device, such as
// shared memory, the driver checks.
#pragma once
#include <array>
#include <cstdint>
#include <string>

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

inline LaunchShape resolve_shape(const Signature& signature, const ShapeRequest& request) {
  auto reject = [&](const std::string& what) { raise(error_types.launch, signature.kernel + ": " + what); };
  if (!request.threads.rank && !request.grid.rank)
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
  static constexpr std::array<std::uint64_t, 3> block_limit{1024, 1024, 64}, grid_limit{2147483647, 65535, 65535};
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
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (grid.of[axis] > grid_limit[axis])
      reject("a grid of " + describe(grid) + " blocks is too large; (2147483647, 65535, 65535) is the most");
  if (request.shared_bytes > 0x7fffffff) reject("shared_memory=" + std::to_string(request.shared_bytes) + " bytes is too much");
  if (request.cluster.rank)
    for (std::size_t axis = 0; axis < 3; ++axis)
      if (request.cluster.of[axis] == 0 || grid.of[axis] % request.cluster.of[axis])
        reject("cluster=" + describe(request.cluster) + " does not divide the grid of " + describe(grid) + " blocks");

  auto dim3 = [](const Extents& extents) {
    return Dim3{static_cast<std::uint32_t>(extents.of[0]), static_cast<std::uint32_t>(extents.of[1]), static_cast<std::uint32_t>(extents.of[2])};
  };
  shape.grid = dim3(grid);
  shape.block = dim3(block);
  if (request.cluster.rank) shape.cluster = dim3(request.cluster);
  shape.shared_bytes = static_cast<std::uint32_t>(request.shared_bytes);
  shape.cooperative = request.cooperative;
  return shape;
}

}  // namespace aiocuda::dataflow
