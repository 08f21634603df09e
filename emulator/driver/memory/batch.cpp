// Batches of copies of the driver API. Everything is checked before anything is submitted, so a batch
// is copied as a whole or not at all.
#include <vector>

#include "capture/capture.hpp"
#include "context.hpp"
#include "memory/copy.hpp"
#include "newer_api.hpp"
#include "stream.hpp"

using namespace aiocuda::emulator;
using memory::Expected;
using memory::Extent;
using memory::Operand;
using memory::Returning;

namespace {

struct Copy {
  Operand destination, source;
  Extent extent;
  Returning returning;
};

// A batch goes into a stream that the caller has made, or into the thread's own default stream. NVIDIA's
// driver refuses it in a captured one, too, and does not hold that against the capture.
CUresult resolve_batch_stream(CUstream handle, std::shared_ptr<Stream>& stream) {
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (stream->kind() == Stream::Kind::legacy_default) return CUDA_ERROR_INVALID_VALUE;
  return capture::check_not_captured(*stream, capture::Consequence::none);
}

bool is_source_order(CUmemcpySrcAccessOrder order, Returning& returning) {
  switch (order) {
    case CU_MEMCPY_SRC_ACCESS_ORDER_STREAM:
    case CU_MEMCPY_SRC_ACCESS_ORDER_ANY:
      returning = Returning::in_stream_order;
      return true;
    case CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL:
      returning = Returning::after_source_read;
      return true;
    default:
      return false;
  }
}

bool are_flags(unsigned flags) {
  return (flags & ~static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) == 0;
}

CUresult submit(Stream& stream, const std::vector<Copy>& copies) {
  const CUdevice device = stream.context().device();
  for (const Copy& each : copies) {
    if (!each.destination.is_accessible_from(device) || !each.source.is_readable_from(device)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (const Copy& each : copies) {
    const CUresult error = memory::copy(stream, each.destination, each.source, each.extent, each.returning);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

CUresult resolve_copy(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes,
                      const CUmemcpyAttributes& attributes, Copy& copy) {
  if (bytes == 0 || !are_flags(attributes.flags) || !is_source_order(attributes.srcAccessOrder, copy.returning))
    return CUDA_ERROR_INVALID_VALUE;
  copy.extent = Extent{bytes, 1, 1};
  if (const CUresult error = memory::resolve(destination, bytes, Expected::any, copy.destination)) return error;
  return memory::resolve(source, bytes, Expected::any, copy.source);
}

CUresult resolve_operand(const CUmemcpy3DOperand& described, const Extent& extent, Operand& operand) {
  if (described.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (described.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return CUDA_ERROR_INVALID_VALUE;
  const auto& [address, row_length, layer_height, hint] = described.op.ptr;
  const std::size_t row = row_length == 0 ? extent.width_bytes : row_length;
  const std::size_t height = layer_height == 0 ? extent.height : layer_height;
  if (row < extent.width_bytes || height < extent.height) return CUDA_ERROR_INVALID_VALUE;
  operand = Operand{};
  operand.address = address;
  operand.pitch_bytes = row;
  if (__builtin_mul_overflow(row, height, &operand.slice_bytes)) return CUDA_ERROR_INVALID_VALUE;
  return memory::resolve(operand, extent, Expected::any);
}

}  // namespace

CUresult cuMemcpyBatchAsync(CUdeviceptr* destinations, CUdeviceptr* sources, std::size_t* sizes, std::size_t count,
                            CUmemcpyAttributes* attributes, std::size_t* attribute_starts, std::size_t attribute_count,
                            CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_batch_stream(handle, stream)) return error;
  if (destinations == nullptr || sources == nullptr || sizes == nullptr || attributes == nullptr ||
      attribute_starts == nullptr || count == 0 || attribute_count == 0 || attribute_count > count ||
      attribute_starts[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<Copy> copies(count);
  for (std::size_t which = 0; which < attribute_count; ++which) {
    const std::size_t first = attribute_starts[which];
    const std::size_t last = which + 1 < attribute_count ? attribute_starts[which + 1] : count;
    if (last > count || first >= last) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = first; i < last; ++i) {
      const CUresult error = resolve_copy(destinations[i], sources[i], sizes[i], attributes[which], copies[i]);
      if (error != CUDA_SUCCESS) return error;
    }
  }
  return submit(*stream, copies);
}

// NVIDIA's driver refuses the same streams for one copy with attributes as for a batch.
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes,
                                     CUmemcpyAttributes* attributes, CUstream handle) {
  std::size_t first = 0;
  return cuMemcpyBatchAsync(&destination, &source, &bytes, 1, attributes, &first, 1, handle);
}

CUresult cuMemcpy3DBatchAsync(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, unsigned long long flags,
                              CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_batch_stream(handle, stream)) return error;
  if (count == 0 || operations == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Copy> copies(count);
  for (std::size_t i = 0; i < count; ++i) {
    const CUDA_MEMCPY3D_BATCH_OP& operation = operations[i];
    Copy& copy = copies[i];
    copy.extent = Extent{operation.extent.width, operation.extent.height, operation.extent.depth};
    if (copy.extent.empty() || !are_flags(operation.flags) ||
        !is_source_order(operation.srcAccessOrder, copy.returning)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult error = resolve_operand(operation.dst, copy.extent, copy.destination)) {
      return error;
    }
    if (const CUresult error = resolve_operand(operation.src, copy.extent, copy.source)) {
      return error;
    }
  }
  return submit(*stream, copies);
}

CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* operation, unsigned long long flags, CUstream handle) {
  return cuMemcpy3DBatchAsync(1, operation, flags, handle);
}
