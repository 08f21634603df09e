// Launches: what is checked at the call, and the work that runs a kernel's blocks. The arguments are
// copied at the call; the function, and so its code, is held until the launch has ended.
#include <array>
#include <cstring>
#include <optional>

#include "block_pool.hpp"
#include "checking/checking.hpp"
#include "checking/recorder.hpp"
#include "device.hpp"
#include "event.hpp"
#include "injection.hpp"
#include "module.hpp"
#include "occupancy.hpp"
#include "stream.hpp"

namespace aiocuda::emulator {
namespace {

struct LaunchShape {
  abi::Dim3 grid;
  abi::Dim3 block;
  std::size_t dynamic_shared_bytes;
  bool cooperative = false;
};

std::uint64_t volume(const abi::Dim3& shape) { return std::uint64_t{shape.x} * shape.y * shape.z; }

// The packed arguments of a launch and the pointers to them. Small ones, nearly all, need no memory
// of their own.
class Arguments {
 public:
  explicit Arguments(const KernelDescription& kernel) {
    const std::size_t pointers = kernel.parameters.size() * sizeof(void*);
    const std::size_t needed = kernel.parameter_bytes + pointers;
    std::byte* memory = small_.data();
    if (needed > small_.size() - alignment) {
      large_ = std::make_unique<std::byte[]>(needed + alignment);
      memory = large_.get();
    }
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    values_ = memory + (alignment - address % alignment) % alignment;
    pointers_ = reinterpret_cast<void**>(values_ + (kernel.parameter_bytes + sizeof(void*) - 1) / sizeof(void*) * sizeof(void*));
    for (std::size_t each = 0; each < kernel.parameters.size(); ++each) {
      pointers_[each] = values_ + kernel.parameters[each].offset_bytes;
    }
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  std::byte* values() noexcept { return values_; }
  void* const* pointers() const noexcept { return pointers_; }

 private:
  static constexpr std::size_t alignment = 64;  // of the vector types a parameter may hold
  std::array<std::byte, 384> small_;
  std::unique_ptr<std::byte[]> large_;
  std::byte* values_;
  void** pointers_;
};

class LaunchWork final : public Work, private Pieces {
 public:
  LaunchWork(std::shared_ptr<Function> function, const LaunchShape& shape, int priority)
      : function_(std::move(function)), shape_(shape), priority_(priority), arguments_(function_->description()),
        recording_(checking::checker() != nullptr ? std::make_unique<checking::Recording>() : nullptr) {}

  Arguments& arguments() noexcept { return arguments_; }

  void run() override {
    Context& context = function_->context();
    if (injection::strikes(injection::Kind::illegal, context.device())) {
      return context.fail(CUDA_ERROR_ILLEGAL_ADDRESS, text() + ": an illegal access that was planned (AIOCUDA_EMULATOR_FAULTS)");
    }
    launch_ = {shape_.grid, shape_.block, shape_.dynamic_shared_bytes, arguments_.pointers()};
    if (const Fault fault = run_pieces(*this, volume(shape_.grid), priority_)) {
      context.fail(fault.error, text() + ": " + fault.message);
    }
  }

  std::string text() const override { return "kernel " + function_->description().name; }
  checking::Accesses accesses() override { return recording_->take(); }

 private:
  void run(std::uint64_t first, std::uint64_t last) override {
    if (recording_) recording_->begin();
    function_->code().run(&launch_, first, last);
    if (recording_) recording_->end();
  }

  const std::shared_ptr<Function> function_;
  const LaunchShape shape_;
  const int priority_;
  Arguments arguments_;
  abi::Launch launch_{};
  const std::unique_ptr<checking::Recording> recording_;  // null where nothing is checked
};

CUresult check_shape(const Function& function, const LaunchShape& shape) {
  const auto [grid_x, grid_y, grid_z] = shape.grid;
  const auto [block_x, block_y, block_z] = shape.block;
  if (grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y == 0 || block_z == 0) return CUDA_ERROR_INVALID_VALUE;
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
  if (shape.cooperative) {
    const auto resident = static_cast<std::uint64_t>(active_blocks_per_multiprocessor(
                              kernel, static_cast<int>(threads), shape.dynamic_shared_bytes)) *
                          static_cast<std::uint64_t>(multiprocessor_count());
    if (volume(shape.grid) > resident) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

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

// What the attributes of a launch ask for beyond its shape.
struct LaunchRequests {
  std::optional<int> priority;
  std::array<std::shared_ptr<Event>, 2> events;  // to be recorded when the launch has ended, at the latest
};

CUresult read_event(CUevent handle, const Stream& stream, std::shared_ptr<Event>& event) {
  event = events().find(handle);
  return event && &event->context() == &stream.context() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult read_attribute(const CUlaunchAttribute& attribute, const Stream& stream, LaunchShape& shape, LaunchRequests& requests) {
  const CUlaunchAttributeValue& value = attribute.value;
  switch (static_cast<int>(attribute.id)) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: shape.cooperative = value.cooperative != 0; return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: requests.priority = value.priority; return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT: return read_event(value.programmaticEvent.event, stream, requests.events[0]);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return read_event(value.launchCompletionEvent.event, stream, requests.events[1]);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      if (value.clusterDim.x == 0 || value.clusterDim.y == 0 || value.clusterDim.z == 0) return CUDA_ERROR_INVALID_VALUE;
      return value.clusterDim.x == 1 && value.clusterDim.y == 1 && value.clusterDim.z == 1 ? CUDA_SUCCESS
                                                                                         : CUDA_ERROR_NOT_SUPPORTED;
    // Hints and permissions: a launch that takes no notice of them does what they allow.
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult launch(CUfunction handle, CUstream stream_handle, LaunchShape shape, const CUlaunchAttribute* attributes,
                unsigned attribute_count, void** parameters, void** extra) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  std::shared_ptr<Function> function;
  if (const CUresult error = resolve_function(handle, entry.context(), function)) return error;
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(stream_handle, stream)) return error;
  if (&function->context() != &stream->context()) return CUDA_ERROR_INVALID_HANDLE;
  LaunchRequests requests;
  for (unsigned each = 0; each < attribute_count; ++each) {
    if (const CUresult error = read_attribute(attributes[each], *stream, shape, requests)) return error;
  }
  if (const CUresult error = check_shape(*function, shape)) return error;
  auto work = std::make_unique<LaunchWork>(function, shape, requests.priority.value_or(stream->priority()));
  if (const CUresult error = copy_arguments(function->description(), parameters, extra, work->arguments().values())) return error;
  if (injection::strikes(injection::Kind::launch, stream->context().device())) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  stream->enqueue(std::move(work));
  for (const auto& event : requests.events) {
    if (event) event->record(*stream);
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
                        void** extra) {
  const LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  return launch(function, stream, shape, nullptr, 0, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ},
                          config->sharedMemBytes};
  return launch(function, config->hStream, shape, config->attrs, config->numAttrs, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                   CUstream stream, void** parameters) {
  const LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, true};
  return launch(function, stream, shape, nullptr, 0, parameters, nullptr);
}
