// The memsets of the driver API, of elements of 1, 2 and 4 bytes, in one and two dimensions.
#include <cstdint>

#include "context.hpp"
#include "memory/copy.hpp"
#include "memory/copy_pieces.hpp"
#include "stream.hpp"

using namespace aiocuda::emulator;
using memory::Expected;
using memory::Extent;
using memory::Operand;
using memory::Pattern;

namespace {

class FillWork final : public Work {
 public:
  FillWork(Stream& stream, const Operand& destination, const Pattern& pattern, const Extent& extent)
      : context_(stream.context()), priority_(stream.priority()), destination_(destination),
        pattern_(pattern), extent_(extent) {}

  void run() override {
    const Fault fault = memory::fill_region(destination_, pattern_, extent_, priority_);
    if (fault) context_.fail(fault.error, "a memset: " + fault.message);
  }
  std::string text() const override {
    return "a memset of " + checking::count_of(extent_.width_bytes * extent_.height, "byte");
  }
  checking::Accesses accesses() override {
    checking::Accesses accesses;
    memory::append_accesses(accesses, destination_, extent_, abi::access_write);
    return accesses;
  }

 private:
  Context& context_;  // kept alive by the stream, which runs this
  const int priority_;
  const Operand destination_;
  const Pattern pattern_;
  const Extent extent_;
};

struct Fill {
  CUdeviceptr address;
  std::size_t pitch_bytes;  // ignored with one row
  Pattern pattern;
  std::size_t width;  // in elements
  std::size_t height;
};

CUresult fill_in(Stream& stream, const Fill& fill, bool synchronous) {
  const std::size_t element = fill.pattern.bytes;
  Extent extent{0, fill.height, 1};
  if (__builtin_mul_overflow(fill.width, element, &extent.width_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (extent.empty()) return CUDA_SUCCESS;
  Operand destination;
  destination.address = fill.address;
  if (fill.height > 1) destination.pitch_bytes = fill.pitch_bytes;
  const bool pitch_is_valid = fill.height == 1 || (fill.pitch_bytes >= extent.width_bytes &&
                                                   fill.pitch_bytes % element == 0);
  if (fill.address % element != 0 || !pitch_is_valid) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = resolve(destination, extent, Expected::device)) return error;
  if (!destination.is_accessible_from(stream.context().device())) return CUDA_ERROR_INVALID_VALUE;
  const Ticket ticket =
      stream.enqueue(std::make_unique<FillWork>(stream, destination, fill.pattern, extent));
  const bool waits = synchronous && (destination.memory != memory::Memory::device ||
                                     destination.always_synchronous);
  return waits ? ticket.wait() : CUDA_SUCCESS;
}

CUresult fill_now(const Fill& fill) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_default_stream(stream)) return error;
  return fill_in(*stream, fill, true);
}

CUresult fill_later(const Fill& fill, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  return fill_in(*stream, fill, false);
}

}  // namespace

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, std::size_t count) {
  return fill_now({address, 0, {value, 1}, count, 1});
}

CUresult cuMemsetD16(CUdeviceptr address, unsigned short value, std::size_t count) {
  return fill_now({address, 0, {value, 2}, count, 1});
}

CUresult cuMemsetD32(CUdeviceptr address, unsigned value, std::size_t count) {
  return fill_now({address, 0, {value, 4}, count, 1});
}

CUresult cuMemsetD2D8(CUdeviceptr address, std::size_t pitch, unsigned char value,
                      std::size_t width, std::size_t height) {
  return fill_now({address, pitch, {value, 1}, width, height});
}

CUresult cuMemsetD2D16(CUdeviceptr address, std::size_t pitch, unsigned short value,
                       std::size_t width, std::size_t height) {
  return fill_now({address, pitch, {value, 2}, width, height});
}

CUresult cuMemsetD2D32(CUdeviceptr address, std::size_t pitch, unsigned value, std::size_t width,
                       std::size_t height) {
  return fill_now({address, pitch, {value, 4}, width, height});
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, std::size_t count,
                         CUstream stream) {
  return fill_later({address, 0, {value, 1}, count, 1}, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, std::size_t count,
                          CUstream stream) {
  return fill_later({address, 0, {value, 2}, count, 1}, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, std::size_t count,
                          CUstream stream) {
  return fill_later({address, 0, {value, 4}, count, 1}, stream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr address, std::size_t pitch, unsigned char value,
                           std::size_t width, std::size_t height, CUstream stream) {
  return fill_later({address, pitch, {value, 1}, width, height}, stream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr address, std::size_t pitch, unsigned short value,
                            std::size_t width, std::size_t height, CUstream stream) {
  return fill_later({address, pitch, {value, 2}, width, height}, stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr address, std::size_t pitch, unsigned value,
                            std::size_t width, std::size_t height, CUstream stream) {
  return fill_later({address, pitch, {value, 4}, width, height}, stream);
}
