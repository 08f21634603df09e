// The linear copies of the driver API.
#include "capture/capture.hpp"
#include "context.hpp"
#include "memory/copy.hpp"
#include "stream.hpp"

using namespace aiocuda::emulator;
using memory::Between;
using memory::Expected;
using memory::Extent;
using memory::Operand;
using memory::Returning;

namespace {

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

struct LinearSide {
  std::uintptr_t address;
  Expected expected;
};

CUresult copy_in(Stream& stream, LinearSide destination, LinearSide source, std::size_t bytes, Returning returning,
                 Between between = Between::what_the_device_can_access) {
  if (bytes == 0) return CUDA_SUCCESS;
  Operand to, from;
  if (const CUresult error = resolve(destination.address, bytes, destination.expected, to)) {
    return error;
  }
  if (const CUresult error = resolve(source.address, bytes, source.expected, from)) return error;
  if (between != Between::peers) {
    const CUdevice device = stream.context().device();
    if (!to.is_accessible_from(device) || !from.is_readable_from(device)) return CUDA_ERROR_INVALID_VALUE;
  }
  return memory::copy(stream, to, from, Extent{bytes, 1, 1}, returning);
}

CUresult copy_now(LinearSide destination, LinearSide source, std::size_t bytes) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_default_stream(stream)) return error;
  if (const CUresult error = capture::check_not_captured(*stream)) return error;
  return copy_in(*stream, destination, source, bytes, Returning::synchronous);
}

CUresult copy_later(LinearSide destination, LinearSide source, std::size_t bytes, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  return copy_in(*stream, destination, source, bytes, Returning::asynchronous);
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes) {
  return copy_now({destination, Expected::any}, {source, Expected::any}, bytes);
}

CUresult cuMemcpyHtoD(CUdeviceptr destination, const void* source, std::size_t bytes) {
  return copy_now({destination, Expected::device}, {address_of(source), Expected::any}, bytes);
}

CUresult cuMemcpyDtoH(void* destination, CUdeviceptr source, std::size_t bytes) {
  return copy_now({address_of(destination), Expected::any}, {source, Expected::device}, bytes);
}

CUresult cuMemcpyDtoD(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes) {
  return copy_now({destination, Expected::device}, {source, Expected::device}, bytes);
}

CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  return copy_later({destination, Expected::any}, {source, Expected::any}, bytes, stream);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr destination, const void* source, std::size_t bytes, CUstream stream) {
  return copy_later({destination, Expected::device}, {address_of(source), Expected::any}, bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void* destination, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  return copy_later({address_of(destination), Expected::any}, {source, Expected::device}, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  return copy_later({destination, Expected::device}, {source, Expected::device}, bytes, stream);
}

CUresult cuMemcpyPeer(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                      CUcontext source_context, std::size_t bytes) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_default_stream(stream)) return error;
  if (const CUresult error = capture::check_not_captured(*stream)) return error;
  if (const CUresult error = memory::join_contexts(destination_context, source_context)) {
    return error;
  }
  return copy_in(*stream, {destination, Expected::device}, {source, Expected::device}, bytes,
                 Returning::after_source_read, Between::peers);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                           CUcontext source_context, std::size_t bytes, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (const CUresult error = memory::check_contexts(destination_context, source_context)) {
    return error;
  }
  return copy_in(*stream, {destination, Expected::device}, {source, Expected::device}, bytes, Returning::asynchronous,
                 Between::peers);
}
