// Kernel nodes: the function, shape, arguments and attributes of a launch; see node_parameters.hpp.
#include <algorithm>
#include <cstring>

#include "graph/node_parameters.hpp"
#include "hexadecimal.hpp"

namespace aiocuda::emulator::graph {
namespace {

// The API gets a function, or a kernel in a context. Launches take a kernel for a function, nodes do not.
CUresult resolve(const CUDA_KERNEL_NODE_PARAMS& given, std::shared_ptr<Function>& function) {
  if (given.func != nullptr) {
    function = functions().find(given.func);
    return function ? function->context().error() : CUDA_ERROR_INVALID_HANDLE;
  }
  const std::shared_ptr<Kernel> kernel = kernels().find(given.kern);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Context> context;
  if (const CUresult error = resolve_context(given.ctx, context)) return error;
  return kernel->function_in(*context, function);
}

// As in a launch: "4", or "{4, 2, 1}" where there is more than one dimension.
std::string text_of(const abi::Dim3& shape) {
  if (shape.y == 1 && shape.z == 1) return std::to_string(shape.x);
  return "{" + std::to_string(shape.x) + ", " + std::to_string(shape.y) + ", " + std::to_string(shape.z) + "}";
}

}  // namespace

CUresult resolve_context(CUcontext handle, std::shared_ptr<Context>& context) {
  if (handle == nullptr) {
    const Entry entry = enter();
    if (!entry) return entry.error();
    context = entry.context().shared_from_this();
    return CUDA_SUCCESS;
  }
  context = contexts().find(handle);
  return context ? context->error() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

KernelAttributes::KernelAttributes() { memory_sync_domain_map.memSyncDomainMap.remote = 1; }

CUresult KernelAttributes::set(CUlaunchAttributeID attribute, const CUlaunchAttributeValue& value) {
  switch (static_cast<int>(attribute)) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      priority = value.priority;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      cooperative = value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      abi::Dim3 extents{};
      if (const CUresult error = read_cluster(value, extents)) return error;
      cluster.clusterDim = value.clusterDim;
      return CUDA_SUCCESS;
    }
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      access_policy_window = value;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      cluster_scheduling = value;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      memory_sync_domain_map = value;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      memory_sync_domain = value;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      shared_carveout = value;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult KernelAttributes::get(CUlaunchAttributeID attribute, CUlaunchAttributeValue& value) const {
  value = {};
  switch (static_cast<int>(attribute)) {
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value.priority = std::clamp(priority, greatest_stream_priority, least_stream_priority);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      value.cooperative = cooperative ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      value = cluster;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      value = access_policy_window;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      value = cluster_scheduling;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      value = memory_sync_domain_map;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      value = memory_sync_domain;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      value = shared_carveout;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return CUDA_SUCCESS;  // never asked for
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

KernelParameters::KernelParameters(std::shared_ptr<Function> function, const LaunchShape& shape,
                                   const KernelAttributes& attributes)
    : function_(std::move(function)),
      shape_(shape),
      attributes_(attributes),
      arguments_(function_->description()),
      argument_bytes_(function_->description().parameter_bytes),
      extra_{CU_LAUNCH_PARAM_BUFFER_POINTER, arguments_.values(), CU_LAUNCH_PARAM_BUFFER_SIZE, &argument_bytes_,
             CU_LAUNCH_PARAM_END} {}

CUresult KernelParameters::make(std::shared_ptr<Function> function, LaunchShape shape,
                                const KernelAttributes& attributes, void** parameters, void** extra,
                                std::shared_ptr<const KernelParameters>& made) {
  shape.cooperative = attributes.cooperative;
  const auto& [x, y, z] = attributes.cluster.clusterDim;
  shape.cluster = {x, y, z};
  if (const CUresult error = check_shape(*function, shape)) return error;
  if (shape.cooperative && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<KernelParameters> copy(new KernelParameters(std::move(function), shape, attributes));
  copy->was_given_extra_ = extra != nullptr;
  const KernelDescription& kernel = copy->function_->description();
  if (const CUresult error = copy_arguments(kernel, parameters, extra, copy->arguments_.values())) return error;
  made = copy;
  return CUDA_SUCCESS;
}

CUresult KernelParameters::make(const CUDA_KERNEL_NODE_PARAMS& given, const KernelAttributes& attributes,
                                std::shared_ptr<const KernelParameters>& made) {
  std::shared_ptr<Function> function;
  if (const CUresult error = resolve(given, function)) return error;
  const LaunchShape shape{{given.gridDimX, given.gridDimY, given.gridDimZ},
                          {given.blockDimX, given.blockDimY, given.blockDimZ},
                          given.sharedMemBytes};
  return make(std::move(function), shape, attributes, given.kernelParams, given.extra, made);
}

CUresult KernelParameters::with(const KernelAttributes& attributes,
                                std::shared_ptr<const KernelParameters>& made) const {
  const CUDA_KERNEL_NODE_PARAMS same = given();
  return make(function_, shape_, attributes, same.kernelParams, same.extra, made);
}

void KernelParameters::append_work(Works& works) const {
  auto work = std::make_unique<LaunchWork>(function_, shape_, attributes_.priority);
  std::memcpy(work->arguments().values(), arguments_.values(), argument_bytes_);
  works.push_back(std::move(work));
}

CUgraphExecUpdateResult KernelParameters::check_update(const NodeParameters& next) const {
  const auto& other = dynamic_cast<const KernelParameters&>(next);
  if (&other.function_->context() != &function_->context()) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
  }
  return other.attributes_.cooperative == attributes_.cooperative ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                                  : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
}

CUDA_KERNEL_NODE_PARAMS KernelParameters::given() const {
  CUDA_KERNEL_NODE_PARAMS given{};
  given.func = HandleTable<Function, CUfunction>::handle_of(*function_);
  const auto same = kernels().find_if([&](const Kernel& kernel) { return kernel.stands_for(*function_); });
  if (!same.empty()) given.kern = same.front()->handle();
  given.ctx = function_->context().handle();
  given.gridDimX = shape_.grid.x;
  given.gridDimY = shape_.grid.y;
  given.gridDimZ = shape_.grid.z;
  given.blockDimX = shape_.block.x;
  given.blockDimY = shape_.block.y;
  given.blockDimZ = shape_.block.z;
  given.sharedMemBytes = static_cast<unsigned>(shape_.dynamic_shared_bytes);
  // The API takes no const where it only reads.
  if (was_given_extra_) {
    given.extra = const_cast<void**>(extra_.data());
  } else if (!function_->description().parameters.empty()) {
    given.kernelParams = const_cast<void**>(arguments_.pointers());
  }
  return given;
}

std::string KernelParameters::title() const { return function_->description().name; }

void KernelParameters::describe(unsigned flags, Details& details) const {
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS) != 0) {
    details.push_back({"launch", "<<<" + text_of(shape_.grid) + "," + text_of(shape_.block) + "," +
                                     std::to_string(shape_.dynamic_shared_bytes) + ">>>"});
  }
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES) != 0) {
    details.push_back({"cooperative", std::to_string(attributes_.cooperative ? 1 : 0)});
    details.push_back({"priority", std::to_string(attributes_.priority)});
  }
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES) != 0) {
    details.push_back({"func", hexadecimal(reinterpret_cast<std::uintptr_t>(function_.get()))});
  }
}

}  // namespace aiocuda::emulator::graph
