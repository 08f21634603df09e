// The memsets of the driver API, of elements of 1, 2 and 4 bytes, in one and two dimensions.
#include <cstdint>

#include "capture/capture.hpp"
#include "context.hpp"
#include "graph/node_parameters.hpp"
#include "memory/copy_pieces.hpp"
#include "memory/fill.hpp"
#include "stream.hpp"

using namespace aiocuda::emulator;
using memory::Expected;
using memory::Extent;
using memory::Fill;
using memory::Operand;
using memory::Pattern;

namespace {

class FillWork final : public Work {
 public:
  FillWork(Context& context, int priority, const Operand& destination, const Pattern& pattern, const Extent& extent)
      : context_(context), priority_(priority), destination_(destination), pattern_(pattern), extent_(extent) {}

  void run() override {
    const Fault fault = memory::fill_region(destination_, pattern_, extent_, priority_);
    if (fault) context_.fail(fault.error, "a memset: " + fault.message);
  }
  void set_priority(int priority) noexcept override { priority_ = priority; }
  std::string text() const override {
    return "a memset of " + checking::count_of(extent_.width_bytes * extent_.height, "byte");
  }
  checking::Accesses accesses() override {
    checking::Accesses accesses;
    memory::append_accesses(accesses, destination_, extent_, abi::access_write);
    return accesses;
  }

 private:
  Context& context_;  // kept alive by whoever runs this
  int priority_;
  const Operand destination_;
  const Pattern pattern_;
  const Extent extent_;
};

CUresult fill_in(Stream& stream, const Fill& fill, bool synchronous) {
  Operand destination;
  Extent extent;
  if (const CUresult error = resolve(fill, stream.context().device(), destination, extent)) return error;
  if (extent.empty()) return CUDA_SUCCESS;
  if (!synchronous) {
    const auto captured = capture::instead_of_work(stream, [&](graph::ParametersPointer& made) {
      const CUDA_MEMSET_NODE_PARAMS node{fill.address,       fill.pitch_bytes,
                                         fill.pattern.value, static_cast<unsigned>(fill.pattern.bytes),
                                         fill.width,         fill.height};
      return graph::FillParameters::make(node, stream.context().shared_from_this(), made);
    });
    if (captured) return *captured;
  }
  if (const CUresult error = stream.context().pass_gate()) return error;
  auto work = std::make_unique<FillWork>(stream.context(), stream.priority(), destination, fill.pattern, extent);
  if (synchronous && (destination.memory != memory::Memory::device || destination.always_synchronous)) {
    return stream.enqueue_with_ticket(std::move(work)).wait();
  }
  stream.enqueue(std::move(work));
  return CUDA_SUCCESS;
}

CUresult fill_now(const Fill& fill) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_default_stream(stream)) return error;
  if (const CUresult error = capture::check_not_captured(*stream)) return error;
  return fill_in(*stream, fill, true);
}

CUresult fill_later(const Fill& fill, CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  return fill_in(*stream, fill, false);
}

}  // namespace

namespace aiocuda::emulator::memory {

CUresult resolve(const Fill& fill, CUdevice device, Operand& destination, Extent& extent) {
  const std::size_t element = fill.pattern.bytes;
  extent = Extent{0, fill.height, 1};
  if (__builtin_mul_overflow(fill.width, element, &extent.width_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (extent.empty()) return CUDA_SUCCESS;
  destination = Operand{};
  destination.address = fill.address;
  if (fill.height > 1) destination.pitch_bytes = fill.pitch_bytes;
  const bool pitch_is_valid =
      fill.height == 1 || (fill.pitch_bytes >= extent.width_bytes && fill.pitch_bytes % element == 0);
  if (fill.address % element != 0 || !pitch_is_valid) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = resolve(destination, extent, Expected::fillable)) return error;
  return destination.is_accessible_from(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

std::unique_ptr<Work> make_fill_work(Context& context, int priority, const Operand& destination, const Pattern& pattern,
                                     const Extent& extent) {
  return std::make_unique<FillWork>(context, priority, destination, pattern, extent);
}

}  // namespace aiocuda::emulator::memory

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, std::size_t count) {
  return fill_now({address, 0, {value, 1}, count, 1});
}

CUresult cuMemsetD16(CUdeviceptr address, unsigned short value, std::size_t count) {
  return fill_now({address, 0, {value, 2}, count, 1});
}

CUresult cuMemsetD32(CUdeviceptr address, unsigned value, std::size_t count) {
  return fill_now({address, 0, {value, 4}, count, 1});
}

CUresult cuMemsetD2D8(CUdeviceptr address, std::size_t pitch, unsigned char value, std::size_t width,
                      std::size_t height) {
  return fill_now({address, pitch, {value, 1}, width, height});
}

CUresult cuMemsetD2D16(CUdeviceptr address, std::size_t pitch, unsigned short value, std::size_t width,
                       std::size_t height) {
  return fill_now({address, pitch, {value, 2}, width, height});
}

CUresult cuMemsetD2D32(CUdeviceptr address, std::size_t pitch, unsigned value, std::size_t width, std::size_t height) {
  return fill_now({address, pitch, {value, 4}, width, height});
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, std::size_t count, CUstream stream) {
  return fill_later({address, 0, {value, 1}, count, 1}, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, std::size_t count, CUstream stream) {
  return fill_later({address, 0, {value, 2}, count, 1}, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, std::size_t count, CUstream stream) {
  return fill_later({address, 0, {value, 4}, count, 1}, stream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr address, std::size_t pitch, unsigned char value, std::size_t width,
                           std::size_t height, CUstream stream) {
  return fill_later({address, pitch, {value, 1}, width, height}, stream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr address, std::size_t pitch, unsigned short value, std::size_t width,
                            std::size_t height, CUstream stream) {
  return fill_later({address, pitch, {value, 2}, width, height}, stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr address, std::size_t pitch, unsigned value, std::size_t width,
                            std::size_t height, CUstream stream) {
  return fill_later({address, pitch, {value, 4}, width, height}, stream);
}
