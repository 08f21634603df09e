// The occupancy model and its part of the API.
#include "occupancy.hpp"

#include <algorithm>
#include <span>

#include "cluster.hpp"
#include "device.hpp"
#include "launch_work.hpp"

namespace aiocuda::emulator {
namespace {

constexpr int round_up(int value, int step) { return (value + step - 1) / step * step; }

std::size_t shared_bytes_per_block(const KernelDescription& kernel, std::size_t dynamic_shared_bytes) {
  return kernel.static_shared_bytes + dynamic_shared_bytes + limits::shared_reserved_per_block;
}

}  // namespace

int active_blocks_per_multiprocessor(const KernelDescription& kernel, int threads_per_block,
                                     std::size_t dynamic_shared_bytes) {
  if (threads_per_block > kernel.max_threads_per_block) return 0;
  if (kernel.static_shared_bytes + dynamic_shared_bytes > limits::shared_per_block_optin) return 0;
  const int by_threads = limits::max_threads_per_multiprocessor / round_up(threads_per_block, limits::warp_size);
  const auto by_shared =
      static_cast<int>(limits::shared_per_multiprocessor / shared_bytes_per_block(kernel, dynamic_shared_bytes));
  return std::min({limits::max_blocks_per_multiprocessor, by_threads, by_shared});
}

int largest_cluster(const Function& function) {
  return function.attributes().allows_non_portable_cluster ? static_cast<int>(most_blocks_of_cluster)
                                                           : limits::portable_blocks_per_cluster;
}

}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int threads_per_block,
                                                              std::size_t dynamic_shared_bytes, unsigned flags) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  if (blocks == nullptr || threads_per_block <= 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) != 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = active_blocks_per_multiprocessor(function->description(), threads_per_block, dynamic_shared_bytes);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads_per_block,
                                                     std::size_t dynamic_shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads_per_block, dynamic_shared_bytes,
                                                              0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* least_grid, int* block, CUfunction handle,
                                                   CUoccupancyB2DSize dynamic_shared_of_block,
                                                   std::size_t dynamic_shared_bytes, int block_limit, unsigned flags) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  if (least_grid == nullptr || block == nullptr || block_limit < 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) != 0) return CUDA_ERROR_INVALID_VALUE;
  const KernelDescription& kernel = function->description();
  const int most =
      block_limit == 0 ? kernel.max_threads_per_block : std::min(block_limit, kernel.max_threads_per_block);
  int best_block = 0, best_blocks = 0;
  // From the largest block down by whole warps; the first with the most threads resident wins.
  for (int rounded = round_up(most, limits::warp_size); rounded > 0; rounded -= limits::warp_size) {
    const int threads = std::min(rounded, most);
    const std::size_t dynamic =
        dynamic_shared_of_block != nullptr ? dynamic_shared_of_block(threads) : dynamic_shared_bytes;
    const int blocks = active_blocks_per_multiprocessor(kernel, threads, dynamic);
    if (blocks * threads > best_blocks * best_block) {
      best_block = threads;
      best_blocks = blocks;
    }
  }
  if (best_block == 0) return CUDA_ERROR_INVALID_VALUE;
  *block = best_block;
  *least_grid = best_blocks * multiprocessor_count();
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* least_grid, int* block, CUfunction handle,
                                          CUoccupancyB2DSize dynamic_shared_of_block, std::size_t dynamic_shared_bytes,
                                          int block_limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(least_grid, block, handle, dynamic_shared_of_block,
                                                   dynamic_shared_bytes, block_limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, CUfunction handle, int blocks,
                                                 int threads_per_block) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  if (bytes == nullptr || blocks <= 0 || threads_per_block <= 0) return CUDA_ERROR_INVALID_VALUE;
  const KernelDescription& kernel = function->description();
  if (active_blocks_per_multiprocessor(kernel, threads_per_block, 0) < blocks) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t share = limits::shared_per_multiprocessor / static_cast<std::size_t>(blocks);
  // No more than a launch may ask for before the function has opted in to more.
  const auto allowed = static_cast<std::size_t>(function->attributes().max_dynamic_shared_bytes.load());
  *bytes = std::min(share - shared_bytes_per_block(kernel, 0), allowed);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int* blocks, CUfunction handle, const CUlaunchConfig* config) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  if (blocks == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *blocks = largest_cluster(*function);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle, const CUlaunchConfig* config) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  if (clusters == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (config->numAttrs > 0 && config->attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t threads = std::uint64_t{config->blockDimX} * config->blockDimY * config->blockDimZ;
  if (threads == 0 || threads > limits::max_threads_per_block) return CUDA_ERROR_INVALID_VALUE;
  abi::Dim3 asked{};
  for (const CUlaunchAttribute& attribute : std::span(config->attrs, config->numAttrs)) {
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    if (const CUresult error = read_cluster(attribute.value, asked)) return error;
  }
  if (const CUresult error = check_cluster(*function, asked)) return error;
  const int blocks =
      multiprocessor_count() *
      active_blocks_per_multiprocessor(function->description(), static_cast<int>(threads), config->sharedMemBytes);
  const abi::Dim3 cluster = cluster_of(*function, asked);
  const int size = cluster.x != 0 ? static_cast<int>(cluster.x * cluster.y * cluster.z) : 1;
  // Each block of a cluster has a thread of its own: one cluster fits where a block does.
  *clusters = blocks == 0 ? 0 : std::max(1, blocks / size);
  return CUDA_SUCCESS;
}
