// The checks and the work of launch_work.hpp.
#include "launch_work.hpp"

#include <cstring>
#include <optional>

#include "checking/checking.hpp"
#include "device.hpp"
#include "graph/device_launch.hpp"
#include "grid.hpp"
#include "injection.hpp"
#include "monitoring.hpp"
#include "occupancy.hpp"
#include "recycled.hpp"

namespace aiocuda::emulator {
namespace {

std::uint64_t volume(const abi::Dim3& shape) { return std::uint64_t{shape.x} * shape.y * shape.z; }

// The packed buffer among the `extra` options of a launch.
CUresult read_extra(void** extra, const void*& buffer, std::size_t& bytes) {
  bool has_buffer = false, has_size = false;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
      has_buffer = true;
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = *static_cast<const std::size_t*>(extra[1]);
      has_size = true;
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return has_buffer == has_size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult read_cluster(const CUlaunchAttributeValue& value, abi::Dim3& cluster) {
  const auto& [x, y, z] = value.clusterDim;
  if (x == 0 || y == 0 || z == 0) return CUDA_ERROR_INVALID_VALUE;
  cluster = {x, y, z};
  return CUDA_SUCCESS;
}

CUresult check_cluster(const Function& function, const abi::Dim3& asked) {
  const abi::Dim3 required = function.attributes().required_cluster();
  const bool differs = asked.x != required.x || asked.y != required.y || asked.z != required.z;
  if (required.x != 0 && asked.x != 0 && differs) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const abi::Dim3 cluster = cluster_of(function, asked);
  const auto most = static_cast<std::uint64_t>(largest_cluster(function));
  // One extent alone may be as large as a number can be.
  const bool fits = cluster.x <= most && cluster.y <= most && cluster.z <= most && volume(cluster) <= most;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

CUresult check_shape(const Function& function, const LaunchShape& shape) {
  const auto [grid_x, grid_y, grid_z] = shape.grid;
  const auto [block_x, block_y, block_z] = shape.block;
  if (grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y == 0 || block_z == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (grid_x > limits::max_grid_dim_x || grid_y > limits::max_grid_dim_y || grid_z > limits::max_grid_dim_z) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (block_x > limits::max_block_dim_x || block_y > limits::max_block_dim_y || block_z > limits::max_block_dim_z) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t threads = volume(shape.block);
  if (threads > limits::max_threads_per_block) return CUDA_ERROR_INVALID_VALUE;
  const KernelDescription& kernel = function.description();
  if (threads > static_cast<std::uint64_t>(kernel.max_threads_per_block)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (kernel.static_shared_bytes + shape.dynamic_shared_bytes > limits::shared_per_block_optin) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  const auto allowed = static_cast<std::size_t>(function.attributes().max_dynamic_shared_bytes.load());
  if (shape.dynamic_shared_bytes > allowed) return CUDA_ERROR_INVALID_VALUE;
  if (const abi::Dim3 cluster = cluster_of(function, shape.cluster); cluster.x != 0) {
    if (const CUresult error = check_cluster(function, shape.cluster)) return error;
    if (grid_x % cluster.x != 0 || grid_y % cluster.y != 0 || grid_z % cluster.z != 0)
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  if (shape.cooperative) {
    const auto resident = static_cast<std::uint64_t>(active_blocks_per_multiprocessor(kernel, static_cast<int>(threads),
                                                                                      shape.dynamic_shared_bytes)) *
                          static_cast<std::uint64_t>(multiprocessor_count());
    if (volume(shape.grid) > resident) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

Arguments::Arguments(const KernelDescription& kernel) {
  const std::size_t pointers = kernel.parameters.size() * sizeof(void*);
  const std::size_t needed = kernel.parameter_bytes + pointers;
  std::byte* memory = small_.data();
  if (needed > small_.size() - alignment) {
    large_ = std::make_unique<std::byte[]>(needed + alignment);
    memory = large_.get();
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  values_ = memory + (alignment - address % alignment) % alignment;
  pointers_ =
      reinterpret_cast<void**>(values_ + (kernel.parameter_bytes + sizeof(void*) - 1) / sizeof(void*) * sizeof(void*));
  for (std::size_t each = 0; each < kernel.parameters.size(); ++each) {
    pointers_[each] = values_ + kernel.parameters[each].offset_bytes;
  }
}

CUresult copy_arguments(const KernelDescription& kernel, void** parameters, void** extra, std::byte* values) {
  if (parameters != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel.parameters.empty()) return CUDA_SUCCESS;
  if (parameters != nullptr) {
    for (std::size_t each = 0; each < kernel.parameters.size(); ++each) {
      if (parameters[each] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(values + kernel.parameters[each].offset_bytes, parameters[each], kernel.parameters[each].size_bytes);
    }
    return CUDA_SUCCESS;
  }
  if (extra == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const void* buffer = nullptr;
  std::size_t bytes = 0;
  if (const CUresult error = read_extra(extra, buffer, bytes)) return error;
  if (buffer == nullptr || bytes < kernel.parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(values, buffer, kernel.parameter_bytes);
  return CUDA_SUCCESS;
}

LaunchWork::LaunchWork(std::shared_ptr<Function> function, const LaunchShape& shape, int priority)
    : function_(std::move(function)),
      priority_(priority),
      cooperative_(shape.cooperative),
      launch_{shape.grid, shape.block, shape.dynamic_shared_bytes, nullptr, cluster_of(*function_, shape.cluster)},
      recording_(checking::checker() != nullptr ? std::make_unique<checking::Recording>() : nullptr),
      arguments_(function_->description()) {
  launch_.arguments = arguments_.pointers();
}

void* LaunchWork::operator new(std::size_t) { return Recycled<LaunchWork>::take(); }
void LaunchWork::operator delete(void* memory) noexcept { Recycled<LaunchWork>::give(memory); }

void LaunchWork::run() {
  Context& context = function_->context();
  if (injection::strikes(injection::Kind::illegal, context.device())) {
    return context.fail(CUDA_ERROR_ILLEGAL_ADDRESS,
                        text() + ": an illegal access that was planned (AIOCUDA_EMULATOR_FAULTS)");
  }
  environment_ = graph::Environment::current();
  const monitoring::RunningKernel running(context.device());
  if (const auto& memory = checking::list_in_force()) {
    checker_ = std::make_unique<checking::LaunchChecker>(function_->description().name, function_->image().facts(),
                                                         function_->image().base(), memory);
  }
  if (const Fault fault = run_blocks()) {
    context.fail(fault.error, text() + ": " + fault.message);
  }
  checker_.reset();
}

Fault LaunchWork::run_blocks() {
  const std::uint64_t blocks = volume(launch_.grid);
  std::optional<ClusterShape> clusters;
  if (volume(launch_.cluster) > 1) clusters.emplace(launch_.grid, launch_.cluster);
  if (cooperative_) return run_together(*this, blocks, clusters);
  return clusters ? run_in_clusters(*this, *clusters) : run_pieces(*this, blocks, priority_);
}

void LaunchWork::run(std::uint64_t first, std::uint64_t last) {
  graph::Environment::set_current(environment_);
  if (recording_) recording_->begin();
  if (checker_) checker_->enter();
  function_->code().run(&launch_, first, last);
  if (checker_) checking::LaunchChecker::leave();
  if (recording_) recording_->end();
}

}  // namespace aiocuda::emulator
