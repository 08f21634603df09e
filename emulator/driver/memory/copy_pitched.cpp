// The copies of two and three dimensions of the driver API. All their descriptions become one, so
// the rules for pitches and heights are written once. CUDA arrays are not supported.
#include "capture/capture.hpp"
#include "context.hpp"
#include "memory/copy.hpp"
#include "stream.hpp"

using namespace aiocuda::emulator;
using memory::Expected;
using memory::Extent;
using memory::Operand;
using memory::Returning;

namespace {

struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  std::size_t x_bytes, y, z;
  std::size_t level_of_detail;
  std::size_t pitch_bytes;
  std::size_t height;  // rows from slice to slice
};

struct Description {
  Side destination, source;
  Extent extent;
  bool reserved_is_null = true;
};

Description describe(const CUDA_MEMCPY2D& copy) {
  Description description;
  description.destination = {
      copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstXInBytes, copy.dstY, 0, 0, copy.dstPitch, 0};
  description.source = {
      copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes, copy.srcY, 0, 0, copy.srcPitch, 0};
  description.extent = {copy.WidthInBytes, copy.Height, 1};
  return description;
}

template <typename Copy>
Description describe_3d(const Copy& copy) {
  Description description;
  description.destination = {copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstXInBytes, copy.dstY,
                             copy.dstZ,          copy.dstLOD,  copy.dstPitch,  copy.dstHeight};
  description.source = {copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes, copy.srcY,
                        copy.srcZ,          copy.srcLOD,  copy.srcPitch,  copy.srcHeight};
  description.extent = {copy.WidthInBytes, copy.Height, copy.Depth};
  return description;
}

Description describe(const CUDA_MEMCPY3D& copy) {
  Description description = describe_3d(copy);
  description.reserved_is_null = copy.reserved0 == nullptr && copy.reserved1 == nullptr;
  return description;
}

Description describe(const CUDA_MEMCPY3D_PEER& copy) { return describe_3d(copy); }

CUresult resolve_side(const Side& side, const Extent& extent, Operand& operand) {
  if (side.level_of_detail != 0) return CUDA_ERROR_INVALID_VALUE;
  Expected expected = Expected::any;
  std::uintptr_t base = side.device;
  switch (side.type) {
    case CU_MEMORYTYPE_HOST:
      expected = Expected::host;
      base = reinterpret_cast<std::uintptr_t>(side.host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      expected = Expected::device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      break;
    case CU_MEMORYTYPE_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::size_t row_end = 0, slice_end = 0;
  if (__builtin_add_overflow(side.x_bytes, extent.width_bytes, &row_end) ||
      __builtin_add_overflow(side.y, extent.height, &slice_end)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A single row needs no pitch, a single slice no height.
  const bool is_single_row = extent.height == 1 && extent.depth == 1 && side.y == 0 && side.z == 0;
  const bool is_single_slice = extent.depth == 1 && side.z == 0;
  if (side.pitch_bytes < row_end && !(is_single_row && side.pitch_bytes == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (side.height < slice_end && !is_single_slice) return CUDA_ERROR_INVALID_VALUE;
  operand = Operand{};
  operand.pitch_bytes = side.pitch_bytes;
  std::size_t offset = 0, row_offset = 0;
  if (__builtin_mul_overflow(side.pitch_bytes, side.height, &operand.slice_bytes) ||
      __builtin_mul_overflow(operand.slice_bytes, side.z, &offset) ||
      __builtin_mul_overflow(side.pitch_bytes, side.y, &row_offset) ||
      __builtin_add_overflow(offset, row_offset, &offset) || __builtin_add_overflow(offset, side.x_bytes, &offset) ||
      __builtin_add_overflow(base, offset, &operand.address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return memory::resolve(operand, extent, expected);
}

enum class Between { what_the_device_can_access, peers };

CUresult resolve_sides(const Description& description, CUdevice device, Between between, Operand& to, Operand& from) {
  if (const CUresult error = resolve_side(description.destination, description.extent, to)) {
    return error;
  }
  if (const CUresult error = resolve_side(description.source, description.extent, from)) {
    return error;
  }
  const bool is_accessible = to.is_accessible_from(device) && from.is_accessible_from(device);
  return between == Between::peers || is_accessible ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_in(Stream& stream, const Description& description, Returning returning,
                 Between between = Between::what_the_device_can_access) {
  if (!description.reserved_is_null) return CUDA_ERROR_INVALID_VALUE;
  if (description.extent.empty()) return CUDA_SUCCESS;
  Operand to, from;
  const CUdevice device = stream.context().device();
  if (const CUresult error = resolve_sides(description, device, between, to, from)) return error;
  return memory::copy(stream, to, from, description.extent, returning);
}

template <typename Copy>
CUresult copy_now(const Copy* copy) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_default_stream(stream)) return error;
  if (const CUresult error = capture::check_not_captured(*stream)) return error;
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_in(*stream, describe(*copy), Returning::synchronous);
}

template <typename Copy>
CUresult copy_later(const Copy* copy, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_in(*stream, describe(*copy), Returning::asynchronous);
}

}  // namespace

CUresult memory::resolve(const CUDA_MEMCPY3D& copy, CUdevice device, Operand& destination, Operand& source,
                         Extent& extent) {
  const Description description = describe(copy);
  extent = description.extent;
  if (!description.reserved_is_null) return CUDA_ERROR_INVALID_VALUE;
  if (extent.empty()) return CUDA_SUCCESS;
  return resolve_sides(description, device, Between::what_the_device_can_access, destination, source);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D* copy) { return copy_now(copy); }

// Pitches of any alignment are fine here, so there is no difference to the plain one.
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* copy) { return copy_now(copy); }

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) { return copy_later(copy, stream); }

CUresult cuMemcpy3D(const CUDA_MEMCPY3D* copy) { return copy_now(copy); }

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* copy, CUstream stream) { return copy_later(copy, stream); }

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_default_stream(stream)) return error;
  if (const CUresult error = capture::check_not_captured(*stream)) return error;
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = memory::join_contexts(copy->dstContext, copy->srcContext)) {
    return error;
  }
  return copy_in(*stream, describe(*copy), Returning::after_source_read, Between::peers);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = memory::check_contexts(copy->dstContext, copy->srcContext)) {
    return error;
  }
  return copy_in(*stream, describe(*copy), Returning::asynchronous, Between::peers);
}
