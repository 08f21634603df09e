// Copies of up to three dimensions between any two places. The API functions only describe what is
// copied; here it is decided when the call returns and in which stream's order the bytes are read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "api.hpp"

namespace aiocuda::emulator {
class Stream;
class Work;
}  // namespace aiocuda::emulator

namespace aiocuda::emulator::memory {

// The extent of a copy: depth slices of height rows of width bytes.
struct Extent {
  std::size_t width_bytes = 0;
  std::size_t height = 1;
  std::size_t depth = 1;
  bool empty() const noexcept { return width_bytes == 0 || height == 0 || depth == 0; }
};

enum class Memory {
  pageable,     // host memory the driver knows nothing of
  page_locked,  // host memory device work may use directly
  device,       // device and managed memory, module variables
};

// One side of a copy.
struct Operand {
  std::uintptr_t address = 0;
  std::size_t pitch_bytes = 0;                              // from row to row
  std::size_t slice_bytes = 0;                              // from slice to slice
  CUarray array = nullptr;                                  // whose texels they are; null for memory with an address
  std::size_t array_x_bytes = 0, array_y = 0, array_z = 0;  // where in the array it begins
  Memory memory = Memory::pageable;
  bool is_of_pool = false;                                // on a device
  bool always_synchronous = false;                        // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  std::uint64_t devices_with_access = ~std::uint64_t{0};  // a bit for each: a pool on a device limits them
  std::uint64_t devices_that_read = ~std::uint64_t{0};    // at least: mappings may be for reading only
  // Work of another device asks this before it uses the memory of a pool. Peer copies need not ask: they name the
  // contexts of both sides.
  bool is_accessible_from(CUdevice device) const noexcept { return (devices_with_access >> device & 1) != 0; }
  bool is_readable_from(CUdevice device) const noexcept { return (devices_that_read >> device & 1) != 0; }
};

// The kind of memory that the API says an address is. An address that it calls the host's may be any: an H100 copies
// from memory of a device there, too.
enum class Expected {
  any,
  device,    // of a copy: all that the driver knows but memory of a pool on the host, as on an H100
  fillable,  // the same, and memory of a pool on the host that the device was given access to
};

// Finds out what is at the operand's address. INVALID_VALUE where it is not what the API says, or
// where the extent reaches beyond the allocation.
CUresult resolve(Operand& operand, const Extent& extent, Expected expected);
// The same for `bytes` bytes in a row.
CUresult resolve(std::uintptr_t address, std::size_t bytes, Expected expected, Operand& operand);

// What a copy may reach.
enum class Between { what_the_device_can_access, peers };

// When the call returns, and when the source is read. The first two are those of CUDA's page "API
// synchronization behavior".
enum class Returning {
  synchronous,        // a plain function: cuMemcpy
  asynchronous,       // an Async function
  in_stream_order,    // at once; the source is read in stream order whatever it is
  after_source_read,  // once the source may be overwritten
};

// In a captured stream an asynchronous copy is captured; a caller of another kind has asked whether
// the stream may be used (capture/capture.hpp).
CUresult copy(Stream& stream, const Operand& destination, const Operand& source, const Extent& extent,
              Returning returning);

// The work of a copy that reads its source when it runs. The context lives as long as the work.
std::unique_ptr<Work> make_copy_work(Context& context, int priority, const Operand& destination, const Operand& source,
                                     const Extent& extent);

// A copy as cuMemcpy3D describes it, for work of a device. An empty one is resolved no further.
CUresult resolve(const CUDA_MEMCPY3D& copy, CUdevice device, Operand& destination, Operand& source, Extent& extent);

// For copies between contexts: both must be live and not lost.
CUresult check_contexts(CUcontext destination, CUcontext source);
// The same, and waits for their work: a synchronous peer copy is behind the work of all contexts that
// take part in it.
CUresult join_contexts(CUcontext destination, CUcontext source);

}  // namespace aiocuda::emulator::memory
