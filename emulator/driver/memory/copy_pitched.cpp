// The copies of two and three dimensions of the driver API, and those of CUDA arrays. All their descriptions become
// one, so the rules for pitches and heights are written once.
#include "capture/capture.hpp"
#include "context.hpp"
#include "memory/copy.hpp"
#include "stream.hpp"
#include "texture/array.hpp"

using namespace aiocuda::emulator;
using memory::Between;
using memory::Expected;
using memory::Extent;
using memory::Operand;
using memory::Returning;

namespace {

struct PitchedSide {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  std::size_t x_bytes, y, z;
  std::size_t level_of_detail;
  std::size_t pitch_bytes;
  std::size_t height;  // rows from slice to slice
};

struct Description {
  PitchedSide destination, source;
  Extent extent;
  bool reserved_is_null = true;
};

Description describe(const CUDA_MEMCPY2D& copy) {
  Description description;
  description.destination = {copy.dstMemoryType,
                             copy.dstHost,
                             copy.dstDevice,
                             copy.dstArray,
                             copy.dstXInBytes,
                             copy.dstY,
                             0,
                             0,
                             copy.dstPitch,
                             0};
  description.source = {copy.srcMemoryType,
                        copy.srcHost,
                        copy.srcDevice,
                        copy.srcArray,
                        copy.srcXInBytes,
                        copy.srcY,
                        0,
                        0,
                        copy.srcPitch,
                        0};
  description.extent = {copy.WidthInBytes, copy.Height, 1};
  return description;
}

template <typename Copy>
Description describe_3d(const Copy& copy) {
  Description description;
  description.destination = {copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, copy.dstXInBytes,
                             copy.dstY,          copy.dstZ,    copy.dstLOD,    copy.dstPitch, copy.dstHeight};
  description.source = {copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray, copy.srcXInBytes,
                        copy.srcY,          copy.srcZ,    copy.srcLOD,    copy.srcPitch, copy.srcHeight};
  description.extent = {copy.WidthInBytes, copy.Height, copy.Depth};
  return description;
}

Description describe(const CUDA_MEMCPY3D& copy) {
  Description description = describe_3d(copy);
  description.reserved_is_null = copy.reserved0 == nullptr && copy.reserved1 == nullptr;
  return description;
}

Description describe(const CUDA_MEMCPY3D_PEER& copy) { return describe_3d(copy); }

// A side that is an array has its pitch, its height and its bounds from there.
CUresult resolve_array(const PitchedSide& side, const Extent& extent, Operand& operand) {
  const auto array = texture::arrays().find(side.array);
  if (!array) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t texel_bytes = array->format().texel_bytes();
  const auto is_within = [](std::size_t from, std::size_t size, std::size_t all) {
    return from <= all && size <= all - from;
  };
  const bool is_valid = side.x_bytes % texel_bytes == 0 && extent.width_bytes % texel_bytes == 0 &&
                        is_within(side.x_bytes, extent.width_bytes, array->row_bytes()) &&
                        is_within(side.y, extent.height, array->rows()) &&
                        is_within(side.z, extent.depth, array->slices());
  if (!is_valid) return CUDA_ERROR_INVALID_VALUE;
  operand = Operand{};
  operand.pitch_bytes = array->row_bytes();
  operand.slice_bytes = array->row_bytes() * array->rows();
  operand.address = array->address() + side.z * operand.slice_bytes + side.y * operand.pitch_bytes + side.x_bytes;
  if (const CUresult error = memory::resolve(operand, extent, Expected::device)) return error;
  operand.array = side.array;
  operand.array_x_bytes = side.x_bytes;
  operand.array_y = side.y;
  operand.array_z = side.z;
  return CUDA_SUCCESS;
}

CUresult resolve_side(const PitchedSide& side, const Extent& extent, Operand& operand) {
  if (side.level_of_detail != 0) return CUDA_ERROR_INVALID_VALUE;
  Expected expected = Expected::any;
  std::uintptr_t base = side.device;
  switch (side.type) {
    case CU_MEMORYTYPE_HOST:
      base = reinterpret_cast<std::uintptr_t>(side.host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      expected = Expected::device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      break;
    case CU_MEMORYTYPE_ARRAY:
      return resolve_array(side, extent, operand);
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

// Between an array and memory, a pitch of 0 means rows without gaps: seen on an H100.
PitchedSide with_pitch(PitchedSide side, const PitchedSide& other, const Extent& extent) {
  if (other.type == CU_MEMORYTYPE_ARRAY && side.pitch_bytes == 0) side.pitch_bytes = side.x_bytes + extent.width_bytes;
  return side;
}

CUresult resolve_sides(const Description& description, CUdevice device, Between between, Operand& to, Operand& from) {
  const PitchedSide destination = with_pitch(description.destination, description.source, description.extent);
  const PitchedSide source = with_pitch(description.source, description.destination, description.extent);
  if (const CUresult error = resolve_side(destination, description.extent, to)) {
    return error;
  }
  if (const CUresult error = resolve_side(source, description.extent, from)) {
    return error;
  }
  const bool is_accessible = to.is_accessible_from(device) && from.is_readable_from(device);
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

// The copies of a row of a one-dimensional array. An offset is in bytes.
namespace {

PitchedSide row_of(CUarray array, std::size_t offset) {
  return {CU_MEMORYTYPE_ARRAY, nullptr, 0, array, offset, 0, 0, 0, 0, 0};
}
PitchedSide on_device(CUdeviceptr address) {
  return {CU_MEMORYTYPE_DEVICE, nullptr, address, nullptr, 0, 0, 0, 0, 0, 0};
}
PitchedSide on_host(const void* address) { return {CU_MEMORYTYPE_HOST, address, 0, nullptr, 0, 0, 0, 0, 0, 0}; }

CUresult copy_row_now(const PitchedSide& destination, const PitchedSide& source, std::size_t bytes) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_default_stream(stream)) return error;
  if (const CUresult error = capture::check_not_captured(*stream)) return error;
  return copy_in(*stream, {destination, source, {bytes, 1, 1}}, Returning::synchronous);
}

CUresult copy_row_later(const PitchedSide& destination, const PitchedSide& source, std::size_t bytes, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  return copy_in(*stream, {destination, source, {bytes, 1, 1}}, Returning::asynchronous);
}

}  // namespace

CUresult cuMemcpyHtoA(CUarray destination, std::size_t offset, const void* source, std::size_t bytes) {
  return copy_row_now(row_of(destination, offset), on_host(source), bytes);
}

CUresult cuMemcpyAtoH(void* destination, CUarray source, std::size_t offset, std::size_t bytes) {
  return copy_row_now(on_host(destination), row_of(source, offset), bytes);
}

CUresult cuMemcpyDtoA(CUarray destination, std::size_t offset, CUdeviceptr source, std::size_t bytes) {
  return copy_row_now(row_of(destination, offset), on_device(source), bytes);
}

CUresult cuMemcpyAtoD(CUdeviceptr destination, CUarray source, std::size_t offset, std::size_t bytes) {
  return copy_row_now(on_device(destination), row_of(source, offset), bytes);
}

CUresult cuMemcpyAtoA(CUarray destination, std::size_t destination_offset, CUarray source, std::size_t source_offset,
                      std::size_t bytes) {
  return copy_row_now(row_of(destination, destination_offset), row_of(source, source_offset), bytes);
}

CUresult cuMemcpyHtoAAsync(CUarray destination, std::size_t offset, const void* source, std::size_t bytes,
                           CUstream stream) {
  return copy_row_later(row_of(destination, offset), on_host(source), bytes, stream);
}

CUresult cuMemcpyAtoHAsync(void* destination, CUarray source, std::size_t offset, std::size_t bytes, CUstream stream) {
  return copy_row_later(on_host(destination), row_of(source, offset), bytes, stream);
}
