// The functions that launch kernels, and the attributes that a launch may have.
#include <array>
#include <optional>
#include <span>

#include "capture/capture.hpp"
#include "event.hpp"
#include "graph/node_parameters.hpp"
#include "injection.hpp"
#include "launch_work.hpp"

namespace aiocuda::emulator {
namespace {

// The wishes of a launch's attributes, beyond its shape.
struct LaunchRequests {
  std::optional<int> priority;
  std::array<std::shared_ptr<Event>, 2> events;  // to be recorded when the launch has ended, at the latest
};

CUresult read_event(CUevent handle, const Stream& stream, std::shared_ptr<Event>& event) {
  event = events().find(handle);
  return event && &event->context() == &stream.context() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult read_attribute(const CUlaunchAttribute& attribute, const Stream& stream, LaunchShape& shape,
                        LaunchRequests& requests) {
  const CUlaunchAttributeValue& value = attribute.value;
  switch (static_cast<int>(attribute.id)) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      shape.cooperative = value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      requests.priority = value.priority;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return read_event(value.programmaticEvent.event, stream, requests.events[0]);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return read_event(value.launchCompletionEvent.event, stream, requests.events[1]);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      return read_cluster(value, shape.cluster);
    // Hints and permissions: a launch that takes no notice of them does what they allow.
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// The node of a captured launch. Its priority is the stream's unless the launch asks for another.
CUresult make_node(const std::shared_ptr<Function>& function, const LaunchShape& shape, int priority,
                   std::span<const CUlaunchAttribute> attributes, void** parameters, void** extra,
                   graph::ParametersPointer& made) {
  graph::KernelAttributes kept;
  // All are good for a launch; those that a node has no use for are refused here, and left out.
  for (const CUlaunchAttribute& each : attributes) static_cast<void>(kept.set(each.id, each.value));
  kept.priority = priority;
  kept.cooperative = shape.cooperative;
  std::shared_ptr<const graph::KernelParameters> kernel;
  if (const CUresult error = graph::KernelParameters::make(function, shape, kept, parameters, extra, kernel))
    return error;
  made = std::move(kernel);
  return CUDA_SUCCESS;
}

CUresult record(const LaunchRequests& requests, Stream& stream) {
  for (const auto& event : requests.events) {
    if (!event) continue;
    if (const CUresult error = record(event, stream)) return error;
  }
  return CUDA_SUCCESS;
}

CUresult launch_in(Stream& stream, std::shared_ptr<Function>&& function, LaunchShape shape,
                   std::span<const CUlaunchAttribute> attributes, void** parameters, void** extra) {
  LaunchRequests requests;
  for (const CUlaunchAttribute& each : attributes) {
    if (const CUresult error = read_attribute(each, stream, shape, requests)) return error;
  }
  if (const CUresult error = check_shape(*function, shape)) return error;
  const int priority = requests.priority.value_or(stream.priority());
  const auto captured = capture::instead_of_work(stream, [&](graph::ParametersPointer& made) {
    return make_node(function, shape, priority, attributes, parameters, extra, made);
  });
  if (captured) return *captured == CUDA_SUCCESS ? record(requests, stream) : *captured;
  if (const CUresult error = stream.context().pass_gate()) return error;
  const KernelDescription& kernel = function->description();
  auto work = std::make_unique<LaunchWork>(std::move(function), shape, priority);
  if (const CUresult error = copy_arguments(kernel, parameters, extra, work->arguments().values())) return error;
  if (injection::strikes(injection::Kind::launch, stream.context().device())) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  stream.enqueue(std::move(work));
  return record(requests, stream);
}

CUresult launch(CUfunction handle, CUstream stream_handle, const LaunchShape& shape,
                const CUlaunchAttribute* attributes, unsigned attribute_count, void** parameters, void** extra) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  std::shared_ptr<Function> function;
  if (const CUresult error = resolve_function(handle, entry.context(), function)) return error;
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(stream_handle, stream)) return error;
  if (&function->context() != &stream->context()) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result =
      launch_in(*stream, std::move(function), shape, {attributes, attribute_count}, parameters, extra);
  if (result != CUDA_SUCCESS) capture::spoil(*stream);
  return result;
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
