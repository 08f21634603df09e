// Stream memory operations: a stream that writes a value to memory, or waits until one is there. A
// wait watches the memory from the stream's own thread and ends when the context is lost.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "fault.hpp"
#include "memory/memory.hpp"
#include "spin.hpp"
#include "stream.hpp"

namespace aiocuda::emulator {
namespace {

// Between two looks at memory that stayed as it was: long enough to leave the core to others.
constexpr std::chrono::microseconds shortest_pause{10};
constexpr std::chrono::microseconds longest_pause{200};

template <typename Value>
class WriteValue final : public Work {
 public:
  WriteValue(Context& context, CUdeviceptr address, Value value) : context_(context), address_(address), value_(value) {}
  void run() override {
    auto write = [this] {
      std::atomic_ref<Value>(*reinterpret_cast<Value*>(address_)).store(value_, std::memory_order_release);
    };
    if (const Fault fault = run_guarded(write)) context_.fail(fault.error, "a stream's write of a value: " + fault.message);
  }
  std::string text() const override { return "a write of a value of " + checking::count_of(sizeof(Value), "byte"); }
  // The host may watch the memory, where it can.
  checking::Ordering ordering() const override {
    return {.tells_host = memory::is_host_accessible(address_), .releases = address_};
  }
  checking::Accesses accesses() override { return {{address_, address_ + sizeof(Value), abi::access_atomic_write}}; }

 private:
  Context& context_;
  const CUdeviceptr address_;
  const Value value_;
};

template <typename Value>
class WaitValue final : public Work {
 public:
  WaitValue(Context& context, CUdeviceptr address, Value value, unsigned condition)
      : context_(context), address_(address), value_(value), condition_(condition) {}

  void run() override {
    bool met = false;
    auto look = [&] {
      met = is_met(std::atomic_ref<Value>(*reinterpret_cast<Value*>(address_)).load(std::memory_order_acquire));
    };
    auto spin = [&] { spin_until([&] { look(); return met; }, spin_for_work); };
    Fault fault = run_guarded(spin);
    for (auto pause = shortest_pause; !met && !fault && !context_.lost(); pause = std::min(pause * 2, longest_pause)) {
      std::this_thread::sleep_for(pause);
      fault = run_guarded(look);
    }
    if (fault) context_.fail(fault.error, "a stream's wait for a value: " + fault.message);
  }
  std::string text() const override { return "a wait for a value of " + checking::count_of(sizeof(Value), "byte"); }
  checking::Ordering ordering() const override { return {.acquires = address_}; }
  checking::Accesses accesses() override { return {{address_, address_ + sizeof(Value), abi::access_atomic_read}}; }

 private:
  bool is_met(Value found) const noexcept {
    switch (condition_) {
      case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<std::make_signed_t<Value>>(found - value_) >= 0;
      case CU_STREAM_WAIT_VALUE_EQ: return found == value_;
      case CU_STREAM_WAIT_VALUE_AND: return (found & value_) != 0;
      default: return static_cast<Value>(~(found | value_)) != 0;  // NOR
    }
  }

  Context& context_;
  const CUdeviceptr address_;
  const Value value_;
  const unsigned condition_;
};

CUresult check_address(CUdeviceptr address, std::size_t bytes) {
  if (address == 0 || address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  return memory::is_device_accessible(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <typename Value>
CUresult make_write(Context& context, CUdeviceptr address, Value value, unsigned flags, std::unique_ptr<Work>& work) {
  constexpr unsigned known = CU_STREAM_WRITE_VALUE_DEFAULT | CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
  if ((flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_address(address, sizeof(Value))) return error;
  work = std::make_unique<WriteValue<Value>>(context, address, value);
  return CUDA_SUCCESS;
}

template <typename Value>
CUresult make_wait(Context& context, CUdeviceptr address, Value value, unsigned flags, std::unique_ptr<Work>& work) {
  constexpr unsigned conditions = 0x3;
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if ((flags & ~conditions) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_address(address, sizeof(Value))) return error;
  work = std::make_unique<WaitValue<Value>>(context, address, value, flags);
  return CUDA_SUCCESS;
}

CUresult make_operation(Context& context, const CUstreamBatchMemOpParams& operation, std::unique_ptr<Work>& work) {
  switch (static_cast<int>(operation.operation)) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return make_write<std::uint32_t>(context, operation.writeValue.address, operation.writeValue.value,
                                       operation.writeValue.flags, work);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return make_write<std::uint64_t>(context, operation.writeValue.address, operation.writeValue.value64,
                                       operation.writeValue.flags, work);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return make_wait<std::uint32_t>(context, operation.waitValue.address, operation.waitValue.value,
                                      operation.waitValue.flags, work);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return make_wait<std::uint64_t>(context, operation.waitValue.address, operation.waitValue.value64,
                                      operation.waitValue.flags, work);
    case CU_STREAM_MEM_OP_BARRIER: return CUDA_SUCCESS;  // the stream is in order anyway
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

template <typename Make>
CUresult submit(CUstream handle, Make&& make) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  std::unique_ptr<Work> work;
  if (const CUresult error = make(stream->context(), work)) return error;
  stream->enqueue(std::move(work));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return submit(stream, [&](Context& context, auto& work) { return make_write<std::uint32_t>(context, address, value, flags, work); });
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return submit(stream, [&](Context& context, auto& work) { return make_write<std::uint64_t>(context, address, value, flags, work); });
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return submit(stream, [&](Context& context, auto& work) { return make_wait<std::uint32_t>(context, address, value, flags, work); });
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return submit(stream, [&](Context& context, auto& work) { return make_wait<std::uint64_t>(context, address, value, flags, work); });
}

CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags) {
  constexpr unsigned most_operations = 256;
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (flags != 0 || count > most_operations || (operations == nullptr && count > 0)) return CUDA_ERROR_INVALID_VALUE;
  // All are checked before the first is submitted.
  std::vector<std::unique_ptr<Work>> works(count);
  for (unsigned each = 0; each < count; ++each) {
    if (const CUresult error = make_operation(stream->context(), operations[each], works[each])) return error;
  }
  for (auto& work : works) {
    if (work) stream->enqueue(std::move(work));
  }
  return CUDA_SUCCESS;
}
