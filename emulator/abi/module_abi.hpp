// The binary contract between a compiled CUDA C++ module (made by the emulated NVRTC) and the
// emulated driver that loads it. Plain data only: the two sides are built by different compilers,
// possibly with different standard libraries.
//
// A module image is an ELF shared object of the host's own machine type that exports `entry_symbol`.
// The driver loads one private copy of the image for each context, so `__device__` and
// `__constant__` variables are per context as on a GPU; it finds them by their symbol (dlsym), and
// their size in the ELF symbol table.
#pragma once
#ifndef AIOCUDA_CUDA_CPP  // the device headers declare the fixed-width types themselves
#include <cstdint>
#endif

#include "texture_abi.hpp"

namespace aiocuda::emulator::abi {

inline constexpr std::uint32_t abi_version = 4;
inline constexpr const char* entry_symbol = "aiocuda_emulator_module";

struct Dim3 {
  std::uint32_t x, y, z;
};

// One launch. `arguments[i]` points at the value of parameter i, alive until the launch has ended.
struct Launch {
  Dim3 grid;
  Dim3 block;
  std::uint64_t dynamic_shared_bytes;
  void* const* arguments;
  Dim3 cluster;  // in blocks; all 0: the launch has no clusters
};

enum ParameterFlags : std::uint32_t {
  parameter_is_pointer = 1u << 0,        // T* by value
  parameter_pointee_is_const = 1u << 1,  // const T*: the kernel reads through it and never writes
};

struct Parameter {
  std::uint32_t offset_bytes;  // in the packed parameter buffer (CU_LAUNCH_PARAM_BUFFER_POINTER)
  std::uint32_t size_bytes;
  std::uint32_t flags;
};

struct Kernel {
  const char* name;  // the lowered name, as nvrtcGetLoweredName answers it
  std::uint32_t parameter_count;
  const Parameter* parameters;
  std::uint64_t static_shared_bytes;
  std::uint64_t local_bytes_per_thread;  // 0 where unknown
  std::uint32_t max_threads_per_block;   // from __launch_bounds__, else 1024
  // Runs the blocks [first, last) of the launch, numbered x fastest, on the calling thread. Returns
  // when they have run. Several threads call it at once with disjoint ranges of one launch. A block
  // never leaves the thread it started on, so shared memory may be thread-local.
  void (*run)(const Launch* launch, std::uint64_t first, std::uint64_t last);
  Dim3 cluster;  // of __cluster_dims__, which every launch then has; all 0: none
};

// How a thread touches memory. Volatile accesses count as atomic ones: both are how threads that run at the
// same time talk to one another.
enum AccessKind : std::uint32_t { access_read, access_write, access_atomic_read, access_atomic_write };

// Where threads come to one another, for modules that were compiled for checking.
enum Meeting : std::uint32_t {
  meeting_of_block,  // all threads of the block that have not returned
  meeting_of_lanes,  // lanes of a warp, which see each other's memory from then on
  meeting_fence,     // no meeting: the calling thread's earlier accesses come before what it tells others next
  meeting_arrival,   // no meeting: what the block did comes before what others of its cluster do when they have met
  meeting_of_cluster,
};

// Where the shared memory of a block lies, which others of its cluster may use.
struct SharedWindows {
  char* dynamic_memory;
  char* static_memory;
};

// The range of blocks that the calling thread is about to run, of a module that was compiled for checking. The indices
// are those of the thread that runs, at any time.
struct CheckedRange {
  const Launch* launch;
  const Dim3* block_index;
  const Dim3* thread_index;
  const void* dynamic_shared;
  std::uint64_t dynamic_shared_room;  // bytes from there on that no launch uses for anything else
};

// The services that the driver offers to compiled code. It sets them once, right after loading, before any kernel runs.
struct Services {
  std::uint32_t version;
  // Ends the launch with a CUresult (CUDA_ERROR_ASSERT for a failed assert, CUDA_ERROR_LAUNCH_FAILED
  // for __trap and for a barrier that can never be passed). Does not return: it jumps out of the
  // kernel, from a fiber's stack too. The context is lost with that error, as on a GPU.
  void (*fail)(std::int32_t cuda_error, const char* message);
  // The calling thread's working memory for running blocks; see thread_memory.hpp, whose
  // `thread_memory` is what a driver puts here. The same address at every call on one thread.
  // Null when the memory cannot be had. The modules of a process share it: only one runs at a time
  // on a thread, and each finds it as the last one left it.
  void* (*thread_memory)(std::uint32_t stack_count);
  // Told of each access of modules that were compiled for checking (AIOCUDA_EMULATOR_CHECK), before it is made, and
  // which instruction makes it. Null where nobody wants to know.
  void (*record_access)(const void* address, std::uint64_t bytes, AccessKind kind, const void* code) = nullptr;
  // Of cooperative launches, whose blocks all run at once: whether the calling thread runs a block of one; and where
  // such a block waits for all others of its launch, or fails. Null where there are no such launches.
  bool (*is_in_grid)() = nullptr;
  void (*meet_grid)() = nullptr;
  // Textures and surfaces. Null where there are none.
  void (*fetch_texture)(TextureFetch* fetch) = nullptr;
  void (*access_surface)(const SurfaceAccess* access) = nullptr;
  // Modules that were compiled for checking call these: before a range of blocks, when threads have met, and when a
  // thread misuses a barrier or a warp operation at a line. Null: nobody checks.
  void (*begin_range)(const CheckedRange* range) = nullptr;
  void (*met)(Meeting meeting, std::uint32_t warp, std::uint32_t lanes) = nullptr;
  void (*report_meeting)(std::uint32_t thread, std::int32_t line, const char* message) = nullptr;
  // An access to an address that its own size does not divide, where the compiler was promised that it does.
  void (*report_misaligned)(const void* address, std::uint64_t bytes, AccessKind kind, const void* code) = nullptr;
  // Of launches in clusters, whose blocks run at once, each on a thread of its own. A block that begins shows its
  // shared memory.
  void (*show_shared)(const SharedWindows* own) = nullptr;
  // That of another block, as soon as it has begun. Fails the kernel where there is no such block.
  const SharedWindows* (*shared_of)(std::uint32_t rank) = nullptr;
  // The barrier of the cluster: the block arrives; whether all blocks have arrived so often; waits until they have, or
  // fails. Without clusters a block is alone.
  void (*arrive_in_cluster)() = nullptr;
  bool (*has_met_cluster)(std::uint64_t round) = nullptr;
  void (*meet_cluster)(std::uint64_t round) = nullptr;
  // A thread waits for what a thread of another block writes, and comes back soon. Fails the kernel where a block of
  // the launch has failed.
  void (*poll)() = nullptr;
  // A launch of a graph by the device, in a way that the number of a stream stands for; answers a cudaError_t. And the
  // executable graph that the calling thread's kernel is of, null where the device cannot launch that.
  std::int32_t (*launch_graph)(void* executable, std::uint64_t how) = nullptr;
  void* (*current_graph)() = nullptr;
};

struct Module {
  std::uint32_t version;  // abi_version
  std::uint32_t kernel_count;
  const Kernel* const* kernels;
  void (*set_services)(const Services* services);
};

// extern "C" const Module* aiocuda_emulator_module();
using Entry = const Module* (*)();

}  // namespace aiocuda::emulator::abi
