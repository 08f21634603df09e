// Stream memory operations: a stream that writes a value to memory, or waits until one is there. A
// wait watches the memory from the stream's own thread and ends when the context is lost.
#include "stream_memory_ops.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <thread>

#include "capture/capture.hpp"
#include "fault.hpp"
#include "graph/node_parameters.hpp"
#include "injection.hpp"
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
  WriteValue(Context& context, CUdeviceptr address, Value value)
      : context_(context), address_(address), value_(value) {}
  void run() override {
    auto write = [this] {
      std::atomic_ref<Value>(*reinterpret_cast<Value*>(address_)).store(value_, std::memory_order_release);
    };
    if (const Fault fault = run_guarded(write))
      context_.fail(fault.error, "a stream's write of a value: " + fault.message);
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
    auto spin = [&] {
      spin_until(
          [&] {
            look();
            return met;
          },
          spin_for_work);
    };
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
      case CU_STREAM_WAIT_VALUE_GEQ:
        return static_cast<std::make_signed_t<Value>>(found - value_) >= 0;
      case CU_STREAM_WAIT_VALUE_EQ:
        return found == value_;
      case CU_STREAM_WAIT_VALUE_AND:
        return (found & value_) != 0;
      default:
        return static_cast<Value>(~(found | value_)) != 0;  // NOR
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

CUresult check_write(const CUstreamBatchMemOpParams& operation, std::size_t bytes) {
  constexpr unsigned known = CU_STREAM_WRITE_VALUE_DEFAULT | CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
  if ((operation.writeValue.flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  return check_address(operation.writeValue.address, bytes);
}

CUresult check_wait(const CUstreamBatchMemOpParams& operation, std::size_t bytes) {
  constexpr unsigned conditions = 0x3;
  if ((operation.waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if ((operation.waitValue.flags & ~conditions) != 0) return CUDA_ERROR_INVALID_VALUE;
  return check_address(operation.waitValue.address, bytes);
}

}  // namespace

CUresult check_operation(const CUstreamBatchMemOpParams& operation) {
  switch (static_cast<int>(operation.operation)) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return check_write(operation, sizeof(std::uint32_t));
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return check_write(operation, sizeof(std::uint64_t));
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return check_wait(operation, sizeof(std::uint32_t));
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return check_wait(operation, sizeof(std::uint64_t));
    case CU_STREAM_MEM_OP_BARRIER:
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

std::unique_ptr<Work> make_operation(Context& context, const CUstreamBatchMemOpParams& operation) {
  const auto& write = operation.writeValue;
  const auto& wait = operation.waitValue;
  switch (static_cast<int>(operation.operation)) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return std::make_unique<WriteValue<std::uint32_t>>(context, write.address, write.value);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return std::make_unique<WriteValue<std::uint64_t>>(context, write.address, write.value64);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return std::make_unique<WaitValue<std::uint32_t>>(context, wait.address, wait.value, wait.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return std::make_unique<WaitValue<std::uint64_t>>(context, wait.address, wait.value64, wait.flags);
    default:
      return nullptr;  // a barrier: work is in order anyway
  }
}

namespace {

CUstreamBatchMemOpParams write_of(CUstreamBatchMemOpType type, CUdeviceptr address, std::uint64_t value,
                                  unsigned flags) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = type;
  operation.writeValue.address = address;
  operation.writeValue.value64 = value;
  operation.writeValue.flags = flags;
  return operation;
}

CUstreamBatchMemOpParams wait_of(CUstreamBatchMemOpType type, CUdeviceptr address, std::uint64_t value,
                                 unsigned flags) {
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = type;
  operation.waitValue.address = address;
  operation.waitValue.value64 = value;
  operation.waitValue.flags = flags;
  return operation;
}

CUresult make_node(const Context& context, std::span<const CUstreamBatchMemOpParams> operations,
                   graph::ParametersPointer& made) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS given{};
  given.ctx = context.handle();
  given.count = static_cast<unsigned>(operations.size());
  given.paramArray = const_cast<CUstreamBatchMemOpParams*>(operations.data());  // it is only read
  std::shared_ptr<const graph::BatchParameters> batch;
  if (const CUresult error = graph::BatchParameters::make(given, batch)) return error;
  made = std::move(batch);
  return CUDA_SUCCESS;
}

CUresult submit(CUstream handle, std::span<const CUstreamBatchMemOpParams> operations) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (injection::strikes(injection::Kind::no_memory_op, stream->context().device())) return CUDA_ERROR_NOT_SUPPORTED;
  // All are checked before the first is submitted.
  for (const auto& each : operations) {
    if (const CUresult error = check_operation(each)) return error;
  }
  const auto captured = capture::instead_of_work(
      *stream, [&](graph::ParametersPointer& made) { return make_node(stream->context(), operations, made); });
  if (captured) return *captured;
  for (const auto& each : operations) {
    if (auto work = make_operation(stream->context(), each)) stream->enqueue(std::move(work));
  }
  return CUDA_SUCCESS;
}

CUresult submit(CUstream handle, const CUstreamBatchMemOpParams& operation) { return submit(handle, {&operation, 1}); }

}  // namespace
}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return submit(stream, write_of(CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags));
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return submit(stream, write_of(CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags));
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return submit(stream, wait_of(CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags));
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return submit(stream, wait_of(CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags));
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags) {
  const bool is_batch = count <= most_operations_of_batch && (operations != nullptr || count == 0);
  if (flags == 0 && is_batch) return submit(stream, {operations, count});
  std::shared_ptr<Stream> resolved;
  if (const CUresult error = resolve_stream(stream, resolved)) return error;
  return CUDA_ERROR_INVALID_VALUE;
}
