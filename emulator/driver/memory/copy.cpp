// When a copy is staged, when the call waits, and the work it puts into the stream.
#include "memory/copy.hpp"

#include <memory>
#include <new>
#include <thread>

#include "capture/capture.hpp"
#include "context.hpp"
#include "fault.hpp"
#include "graph/node_parameters.hpp"
#include "injection.hpp"
#include "memory/allocation.hpp"
#include "memory/copy_pieces.hpp"
#include "memory/physical_memory.hpp"
#include "memory/virtual_memory.hpp"
#include "stream.hpp"

namespace aiocuda::emulator::memory {
namespace {

// A synchronous copy of up to this much pageable memory to a device returns once it is staged.
constexpr std::size_t staged_by_synchronous_bytes = std::size_t{64} << 10;
// An asynchronous one of up to this much is staged, so the call never waits for the stream; beyond
// it the call waits instead of copying everything twice, as CUDA allows.
constexpr std::size_t staged_by_asynchronous_bytes = std::size_t{8} << 20;

using Staging = std::unique_ptr<std::byte[]>;

std::size_t bytes_of(const Extent& extent) noexcept { return extent.width_bytes * extent.height * extent.depth; }

class CopyWork final : public Work {
 public:
  CopyWork(Context& context, int priority, const Operand& destination, const Operand& source, const Extent& extent,
           Staging staging)
      : context_(context),
        priority_(priority),
        destination_(destination),
        source_(source),
        extent_(extent),
        staging_(std::move(staging)) {}

  void run() override {
    if (injection::strikes(injection::Kind::slow_copy, context_.device())) {
      std::this_thread::sleep_for(injection::slow_copy_time);
    }
    const Fault fault = move_region(destination_, source_, extent_, priority_);
    if (fault) context_.fail(fault.error, "a copy: " + fault.message);
  }
  void set_priority(int priority) noexcept override { priority_ = priority; }
  std::string text() const override { return "a copy of " + checking::count_of(bytes_of(extent_), "byte"); }
  checking::Accesses accesses() override {
    checking::Accesses accesses;
    append_accesses(accesses, source_, extent_, abi::access_read);
    append_accesses(accesses, destination_, extent_, abi::access_write);
    return accesses;
  }

 private:
  Context& context_;  // kept alive by whoever runs this
  int priority_;
  const Operand destination_, source_;
  const Extent extent_;
  const Staging staging_;  // holds the source's bytes, or nothing
};

// The bytes from the first to the last; false where that does not fit into the address space.
bool span_of(const Operand& operand, const Extent& extent, std::size_t& span) noexcept {
  std::size_t slices = 0, rows = 0, total = 0;
  return !__builtin_mul_overflow(operand.slice_bytes, extent.depth - 1, &slices) &&
         !__builtin_mul_overflow(operand.pitch_bytes, extent.height - 1, &rows) &&
         !__builtin_add_overflow(slices, rows, &span) && !__builtin_add_overflow(span, extent.width_bytes, &span) &&
         !__builtin_mul_overflow(extent.width_bytes, extent.height, &total) &&
         !__builtin_mul_overflow(total, extent.depth, &total) && !__builtin_add_overflow(operand.address, span, &total);
}

// As cuMemcpy3D would be given it.
CUDA_MEMCPY3D as_memcpy3d(const Operand& destination, const Operand& source, const Extent& extent) {
  const auto rows = [](const Operand& operand) {
    return operand.pitch_bytes == 0 ? 0 : operand.slice_bytes / operand.pitch_bytes;
  };
  CUDA_MEMCPY3D copy{};
  copy.dstMemoryType = destination.memory == Memory::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.srcMemoryType = source.memory == Memory::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.WidthInBytes = extent.width_bytes;
  copy.Height = extent.height;
  copy.Depth = extent.depth;
  if (destination.array != nullptr) {
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = destination.array;
    copy.dstXInBytes = destination.array_x_bytes;
    copy.dstY = destination.array_y;
    copy.dstZ = destination.array_z;
  } else if (copy.dstMemoryType == CU_MEMORYTYPE_DEVICE) {
    copy.dstDevice = destination.address;
  } else {
    copy.dstHost = reinterpret_cast<void*>(destination.address);
  }
  if (source.array != nullptr) {
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = source.array;
    copy.srcXInBytes = source.array_x_bytes;
    copy.srcY = source.array_y;
    copy.srcZ = source.array_z;
  } else if (copy.srcMemoryType == CU_MEMORYTYPE_DEVICE) {
    copy.srcDevice = source.address;
  } else {
    copy.srcHost = reinterpret_cast<const void*>(source.address);
  }
  copy.dstPitch = destination.pitch_bytes;
  copy.srcPitch = source.pitch_bytes;
  copy.dstHeight = rows(destination);
  copy.srcHeight = rows(source);
  return copy;
}

enum class Plan { enqueue, enqueue_and_wait, stage };

Plan plan(const Operand& destination, const Operand& source, const Extent& extent, Returning returning) {
  const std::size_t bytes = bytes_of(extent);
  const bool can_stage = bytes <= staged_by_asynchronous_bytes;
  const bool from_pageable = source.memory == Memory::pageable;
  switch (returning) {
    case Returning::in_stream_order:
      return Plan::enqueue;
    case Returning::after_source_read:
      // Nobody may read what earlier work of the stream writes before that work has run.
      return from_pageable && can_stage ? Plan::stage : Plan::enqueue_and_wait;
    case Returning::synchronous:
      if (destination.always_synchronous || source.always_synchronous) break;
      if (destination.memory != Memory::device) break;
      if (source.memory == Memory::device) return Plan::enqueue;
      if (from_pageable && bytes <= staged_by_synchronous_bytes) return Plan::stage;
      break;
    case Returning::asynchronous:
      if (destination.memory == Memory::pageable) break;
      if (destination.memory == Memory::page_locked && source.memory != Memory::device) break;
      if (!from_pageable) return Plan::enqueue;
      if (can_stage) return Plan::stage;
      break;
  }
  return Plan::enqueue_and_wait;
}

}  // namespace

CUresult resolve(Operand& operand, const Extent& extent, Expected expected) {
  std::size_t span = 0;
  if (!span_of(operand, extent, span)) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = find(operand.address);
  if (!allocation) {
    // Memory of a device that was freed, or never allocated, is nobody's host memory.
    if (expected != Expected::any || operand.address == 0 || is_in_an_arena(operand.address)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    operand.memory = Memory::pageable;
    return CUDA_SUCCESS;
  }
  if (allocation->kind == Allocation::Kind::mapped) {
    MappingAccess access;
    const bool is_mapped = reaches_over_mappings(operand.address, span, access);
    if (!is_mapped || access.reads == 0) return CUDA_ERROR_INVALID_VALUE;
    operand.devices_with_access = access.writes;
    operand.devices_that_read = access.reads;
    operand.memory = Memory::device;
    return CUDA_SUCCESS;
  }
  const bool is_host = allocation->is_page_locked();
  if (!allocation->reaches(operand.address, span)) {
    // Only a part of the range was registered: the whole is pageable, as for CUDA.
    if (allocation->kind != Allocation::Kind::registered || expected != Expected::any) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    operand.memory = Memory::pageable;
    return CUDA_SUCCESS;
  }
  const MemoryPool* const pool = allocation->pool.get();
  const bool is_of_host_pool = is_host && pool != nullptr;
  if (is_of_host_pool && expected == Expected::device) return CUDA_ERROR_INVALID_VALUE;
  operand.memory = is_host ? Memory::page_locked : Memory::device;
  operand.always_synchronous = allocation->sync_memops.load(std::memory_order_relaxed);
  operand.is_of_pool = pool != nullptr && pool->is_on_device();
  if (operand.is_of_pool || (is_of_host_pool && expected == Expected::fillable)) {
    operand.devices_with_access = operand.devices_that_read = pool->devices_with_access();
  }
  return CUDA_SUCCESS;
}

CUresult resolve(std::uintptr_t address, std::size_t bytes, Expected expected, Operand& operand) {
  operand = Operand{};
  operand.address = address;
  operand.pitch_bytes = operand.slice_bytes = bytes;
  return resolve(operand, Extent{bytes, 1, 1}, expected);
}

CUresult copy(Stream& stream, const Operand& destination, const Operand& source, const Extent& extent,
              Returning returning) {
  if (extent.empty()) return CUDA_SUCCESS;
  if (returning == Returning::asynchronous) {
    const auto captured = capture::instead_of_work(stream, [&](graph::ParametersPointer& made) {
      made = std::make_shared<graph::CopyParameters>(
          stream.context().shared_from_this(), as_memcpy3d(destination, source, extent), destination, source, extent);
      return CUDA_SUCCESS;
    });
    if (captured) return *captured;
  }
  if (const CUresult error = stream.context().pass_gate()) return error;
  Plan how = plan(destination, source, extent, returning);
  Staging staging;
  Operand read_from = source;
  if (how == Plan::stage) {
    staging.reset(new (std::nothrow) std::byte[bytes_of(extent)]);
    if (staging) {
      read_from = dense(reinterpret_cast<std::uintptr_t>(staging.get()), extent);
      // On the calling thread, where an address that cannot be read is a caller's mistake and not
      // a fault of the device.
      if (move_region(read_from, source, extent, stream.priority())) return CUDA_ERROR_INVALID_VALUE;
    } else {
      how = Plan::enqueue_and_wait;
    }
  }
  auto work = std::make_unique<CopyWork>(stream.context(), stream.priority(), destination, read_from, extent,
                                         std::move(staging));
  if (how == Plan::enqueue_and_wait) return stream.enqueue_with_ticket(std::move(work)).wait();
  stream.enqueue(std::move(work));
  return CUDA_SUCCESS;
}

std::unique_ptr<Work> make_copy_work(Context& context, int priority, const Operand& destination, const Operand& source,
                                     const Extent& extent) {
  return std::make_unique<CopyWork>(context, priority, destination, source, extent, nullptr);
}

CUresult check_contexts(CUcontext destination, CUcontext source) {
  for (const CUcontext handle : {destination, source}) {
    const auto context = contexts().find(handle);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->lost()) return context->error();
  }
  return CUDA_SUCCESS;
}

CUresult join_contexts(CUcontext destination, CUcontext source) {
  for (const CUcontext handle : {destination, source}) {
    const auto context = contexts().find(handle);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult error = context->synchronise()) return error;
  }
  return CUDA_SUCCESS;
}

}  // namespace aiocuda::emulator::memory
