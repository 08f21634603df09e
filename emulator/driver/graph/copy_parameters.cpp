// Memcpy and memset nodes; see node_parameters.hpp. The driver looks up the memory behind an address when the
// parameters are made. It reads and writes the bytes of host memory, pageable or not, when the node runs.
#include "graph/node_parameters.hpp"
#include "hexadecimal.hpp"

namespace aiocuda::emulator::graph {
namespace {

constexpr int no_priority = 0;  // until a launch sets that of its stream

std::string name_of(CUmemorytype type) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      return "HOST";
    case CU_MEMORYTYPE_DEVICE:
      return "DEVICE";
    case CU_MEMORYTYPE_UNIFIED:
      return "UNIFIED";
    default:
      return "ARRAY";
  }
}

std::string name_of(memory::Memory memory) {
  switch (memory) {
    case memory::Memory::pageable:
      return "Pageable";
    case memory::Memory::page_locked:
      return "Host";
    default:
      return "Device";
  }
}

// The memory at an address may have been freed meanwhile.
CUresult check_again(memory::Operand operand, const memory::Extent& extent) {
  return memory::resolve(operand, extent, memory::Expected::any);
}

}  // namespace

CUresult CopyParameters::make(const CUDA_MEMCPY3D& copy, std::shared_ptr<Context> context, ParametersPointer& made) {
  memory::Operand destination, source;
  memory::Extent extent;
  if (const CUresult error = memory::resolve(copy, context->device(), destination, source, extent)) return error;
  if (extent.empty()) return CUDA_ERROR_INVALID_VALUE;
  made = std::make_shared<CopyParameters>(std::move(context), copy, destination, source, extent);
  return CUDA_SUCCESS;
}

CUresult CopyParameters::check() const {
  if (const CUresult error = check_again(destination_, extent_)) return error;
  return check_again(source_, extent_);
}

void CopyParameters::append_work(Works& works) const {
  works.push_back(memory::make_copy_work(*context_, no_priority, destination_, source_, extent_));
}

CUgraphExecUpdateResult CopyParameters::check_update(const NodeParameters& next) const {
  const auto& other = dynamic_cast<const CopyParameters&>(next);
  const bool is_same = other.context_ == context_ && other.copy_.dstMemoryType == copy_.dstMemoryType &&
                       other.copy_.srcMemoryType == copy_.srcMemoryType && is_linear() && other.is_linear() &&
                       other.destination_.is_of_pool == destination_.is_of_pool &&
                       other.source_.is_of_pool == source_.is_of_pool;
  return is_same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

std::string CopyParameters::title() const {
  return "MEMCPY (" + name_of(source_.memory) + " to " + name_of(destination_.memory) + ")";
}

void CopyParameters::describe(unsigned flags, Details& details) const {
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS) == 0) return;
  details.push_back({"srcMemoryType", name_of(copy_.srcMemoryType)});
  details.push_back({"src", hexadecimal(source_.address)});
  details.push_back({"dstMemoryType", name_of(copy_.dstMemoryType)});
  details.push_back({"dst", hexadecimal(destination_.address)});
  details.push_back({"WidthInBytes", std::to_string(extent_.width_bytes)});
  details.push_back({"Height", std::to_string(extent_.height)});
  details.push_back({"Depth", std::to_string(extent_.depth)});
}

CUresult FillParameters::make(const CUDA_MEMSET_NODE_PARAMS& fill, std::shared_ptr<Context> context,
                              ParametersPointer& made) {
  if (fill.elementSize != 1 && fill.elementSize != 2 && fill.elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
  memory::Operand destination;
  memory::Extent extent;
  const memory::Fill described{fill.dst, fill.pitch, {fill.value, fill.elementSize}, fill.width, fill.height};
  if (const CUresult error = memory::resolve(described, context->device(), destination, extent)) return error;
  if (extent.empty()) return CUDA_ERROR_INVALID_VALUE;
  made = ParametersPointer(new FillParameters(std::move(context), fill, destination, extent));
  return CUDA_SUCCESS;
}

CUresult FillParameters::check() const { return check_again(destination_, extent_); }

void FillParameters::append_work(Works& works) const {
  works.push_back(
      memory::make_fill_work(*context_, no_priority, destination_, {fill_.value, fill_.elementSize}, extent_));
}

CUgraphExecUpdateResult FillParameters::check_update(const NodeParameters& next) const {
  const auto& other = dynamic_cast<const FillParameters&>(next);
  const bool both_linear = fill_.height == 1 && other.fill_.height == 1;
  const bool is_same_shape = other.fill_.width == fill_.width && other.fill_.height == fill_.height &&
                             other.fill_.elementSize == fill_.elementSize && other.fill_.pitch == fill_.pitch;
  const bool is_same = other.context_ == context_ && (both_linear || is_same_shape);
  return is_same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

std::string FillParameters::title() const { return "MEMSET"; }

void FillParameters::describe(unsigned flags, Details& details) const {
  if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS) == 0) return;
  details.push_back({"dst", hexadecimal(fill_.dst)});
  details.push_back({"pitch", std::to_string(fill_.pitch)});
  details.push_back({"value", std::to_string(fill_.value)});
  details.push_back({"elementSize", std::to_string(fill_.elementSize)});
  details.push_back({"width", std::to_string(fill_.width)});
  details.push_back({"height", std::to_string(fill_.height)});
}

}  // namespace aiocuda::emulator::graph
