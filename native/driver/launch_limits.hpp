// The device's limits for a launch, checked before the driver gets it.
//
// Always true: an error says what was asked, what the limit is, and what to do; a launch within the limits costs a few
// compares, and driver calls only where its blocks must run at once.
#pragma once
#include <array>
#include <string>

#include "../dataflow/shape.hpp"
#include "table.hpp"

namespace aiocuda::driver {

inline std::string describe(const dataflow::Dim3& extents) {
  return dataflow::describe(dataflow::Extents{{extents.x, extents.y, extents.z}, 3});
}

// A launch as the driver is asked for it; it refers to itself.
struct LaunchConfig {
  explicit LaunchConfig(const dataflow::LaunchShape& shape) {
    config.gridDimX = shape.grid.x, config.gridDimY = shape.grid.y, config.gridDimZ = shape.grid.z;
    config.blockDimX = shape.block.x, config.blockDimY = shape.block.y, config.blockDimZ = shape.block.z;
    config.sharedMemBytes = shape.shared_bytes;
    config.attrs = attributes.data();
    if (shape.cooperative) {
      attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
      attributes[config.numAttrs++].value.cooperative = 1;
    }
    if (shape.cluster.x) {
      attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attributes[config.numAttrs++].value.clusterDim = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
    }
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

  CUlaunchConfig config{};
  std::array<CUlaunchAttribute, 2> attributes{};
};

inline void check_limits(const dataflow::LaunchOp& op, const dataflow::Signature::Loaded& loaded, std::int32_t device) {
  const dataflow::LaunchShape& shape = op.shape;
  const std::uint32_t threads = shape.block.x * shape.block.y * shape.block.z;
  auto reject = [&](const std::string& asked, const std::string& found) {
    dataflow::raise(dataflow::error_types.launch,
                    op.signature.kernel + ": " + asked + "; on device " + std::to_string(device) + " " + found);
  };
  if (threads > loaded.max_threads)
    reject("block=" + describe(shape.block) + " is " + std::to_string(threads) + " threads",
           "this kernel takes at most " + std::to_string(loaded.max_threads) +
               " in a block, by its registers or its __launch_bounds__: give a smaller block=, or compile it with "
               "fewer registers (max_registers=)");
  if (shape.shared_bytes > loaded.shared_most_bytes)
    reject("shared_memory=" + std::to_string(shape.shared_bytes) + " bytes",
           "a block of this kernel can have at most " + std::to_string(loaded.shared_most_bytes) +
               " beside its static shared memory: give each block less to do");
  if (shape.cooperative && !loaded.is_cooperative)
    reject("cooperative=True",
           "the blocks of a grid cannot run all at once: leave cooperative= out, and launch a kernel for each step");
  if (!shape.cluster.x) return;
  const std::uint64_t blocks = std::uint64_t{shape.cluster.x} * shape.cluster.y * shape.cluster.z;
  if (!loaded.has_clusters && blocks > 1)
    reject("cluster=" + describe(shape.cluster),
           "there are no clusters (GPUs of compute capability 9.0 and more have them): leave cluster= out");
  // The portable limit: CUDA C++ Programming Guide, "Thread Block Clusters".
  if (blocks > 8)
    reject("cluster=" + describe(shape.cluster) + " is " + std::to_string(blocks) + " blocks",
           "a cluster has at most 8: give a smaller one");
}

// Of a launch whose blocks must run at once, all of them or those of a cluster: do they fit? Its context is current.
inline void check_residency(const Table& table, const dataflow::LaunchOp& op, const dataflow::Signature::Loaded& loaded,
                            std::int32_t device) {
  const dataflow::LaunchShape& shape = op.shape;
  const auto function = static_cast<CUfunction>(loaded.function);
  const std::string block =
      "block=" + describe(shape.block) + " and " + std::to_string(shape.shared_bytes) + " bytes of shared memory";
  // If the driver does not answer here, it answers when it gets the launch.
  if (shape.cooperative) {
    int each = 0;
    const auto threads = static_cast<int>(shape.block.x * shape.block.y * shape.block.z);
    if (table.cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, function, threads, shape.shared_bytes) != CUDA_SUCCESS)
      return;
    const std::uint64_t blocks = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z,
                        fit = static_cast<std::uint64_t>(each) * loaded.multiprocessors;
    if (blocks > fit)
      dataflow::raise(dataflow::error_types.launch,
                      op.signature.kernel + ": cooperative=True needs all " + std::to_string(blocks) +
                          " blocks at once; on device " + std::to_string(device) + " " + std::to_string(fit) +
                          " of them fit (" + std::to_string(each) + " on each of " +
                          std::to_string(loaded.multiprocessors) + " multiprocessors), with " + block +
                          ": give fewer blocks, and let each do more");
  }
  if (shape.cluster.x && loaded.has_clusters) {
    int clusters = 0;
    LaunchConfig asked(shape);
    if (table.cuOccupancyMaxActiveClusters(&clusters, function, &asked.config) == CUDA_SUCCESS && clusters == 0)
      dataflow::raise(dataflow::error_types.launch, op.signature.kernel + ": cluster=" + describe(shape.cluster) +
                                                        "; on device " + std::to_string(device) +
                                                        " no such cluster fits, with " + block +
                                                        ": give a smaller cluster or block, or less shared memory");
  }
}

}  // namespace aiocuda::driver
