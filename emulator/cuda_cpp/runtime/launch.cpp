// The functions that a compiled module calls to run its kernels: block ranges as fibers, dynamic shared memory, printf
// and the ways to end a launch. One copy of this file is linked into every module.
#include <pthread.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "block.hpp"

// Of the process, as older C libraries have them in a library that modules are not linked to.
#pragma weak pthread_getattr_np
#pragma weak pthread_attr_getstack
#pragma weak pthread_attr_destroy

extern "C" {
[[gnu::visibility("hidden")]] extern __thread aiocuda::emulator::runtime::Index3 threadIdx;
[[gnu::visibility("hidden")]] extern __thread aiocuda::emulator::runtime::Index3 blockIdx;
[[gnu::visibility("hidden")]] __thread aiocuda::emulator::runtime::Index3 blockDim;
[[gnu::visibility("hidden")]] __thread aiocuda::emulator::runtime::Index3 gridDim;
}

namespace aiocuda::emulator::runtime {
namespace {

constexpr int cuda_error_out_of_memory = 2;
constexpr int cuda_error_not_supported = 801;
constexpr int cuda_error_assert = 710;
constexpr int cuda_error_misaligned_address = 716;

__thread char* scratch;
__thread std::uint64_t dynamic_shared_bytes;

__thread char misalignment[400];  // what is to be said of it

// Output of threads that did not end its line yet.
struct PendingLine {
  std::size_t size;
  char text[1024];
};
__thread PendingLine pending;

void write_out(const char* text, std::size_t size) {
  std::fwrite(text, 1, size, stdout);
  std::fflush(stdout);
}

// Of the thread that runs blocks. Memory of devices may lie right behind it.
struct Stack {
  const char* begin;
  const char* end;
};
Stack stack_of_thread() {
  static __thread Stack known;
  pthread_attr_t attributes;
  if (known.end != nullptr || ::pthread_getattr_np(::pthread_self(), &attributes) != 0) return known;
  void* begin = nullptr;
  std::size_t bytes = 0;
  ::pthread_attr_getstack(&attributes, &begin, &bytes);
  ::pthread_attr_destroy(&attributes);
  known = {static_cast<const char*>(begin), static_cast<const char*>(begin) + bytes};
  return known;
}

void flush_pending() {
  if (pending.size == 0) return;
  const std::size_t size = pending.size;
  pending.size = 0;
  write_out(pending.text, size);
}

void print(const char* text, std::size_t size) {
  if (pending.size + size > sizeof pending.text) flush_pending();
  const bool ends_line = size != 0 && text[size - 1] == '\n';
  if (pending.size == 0 && (ends_line || size > sizeof pending.text)) {
    write_out(text, size);
    return;
  }
  std::memcpy(pending.text + pending.size, text, size);
  pending.size += size;
  if (ends_line) flush_pending();
}

}  // namespace

const abi::Services* services;

[[noreturn]] void fail(int cuda_error, const char* message) {
  flush_pending();
  if (services != nullptr && services->fail != nullptr) services->fail(cuda_error, message);
  std::fprintf(stderr, "%s\n", message);
  std::abort();
}

}  // namespace aiocuda::emulator::runtime

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::runtime;

extern "C" {

[[gnu::visibility("hidden")]] void* aiocuda_dynamic_shared();
[[gnu::visibility("hidden")]] int aiocuda_is_shared(const void* address);

[[gnu::visibility("hidden")]] void aiocuda_set_services(const abi::Services* given) { services = given; }

// Before a range of blocks: the thread's memory and the launch's extents.
[[gnu::visibility("hidden")]] void aiocuda_begin_range(const abi::Launch* launch, unsigned stacks) {
  const abi::Dim3 block = launch->block;
  if (launch->dynamic_shared_bytes > max_dynamic_shared_bytes) {
    fail(cuda_error_out_of_memory, "the launch asks for more dynamic shared memory than a block can have");
  }
  scratch = services == nullptr ? nullptr : static_cast<char*>(services->thread_memory(stacks));
  if (scratch == nullptr) fail(cuda_error_out_of_memory, "no memory for the threads' stacks of a block");
  forget_block();
  dynamic_shared_bytes = launch->dynamic_shared_bytes;
  blockDim = {block.x, block.y, block.z};
  gridDim = {launch->grid.x, launch->grid.y, launch->grid.z};
  begin_cluster(*launch);
#ifdef AIOCUDA_CHECKED
  const abi::CheckedRange range{launch, reinterpret_cast<const abi::Dim3*>(&blockIdx),
                                reinterpret_cast<const abi::Dim3*>(&threadIdx), aiocuda_dynamic_shared(),
                                max_dynamic_shared_bytes};
  if (services->begin_range != nullptr) services->begin_range(&range);
#endif
}

[[gnu::visibility("hidden")]] void aiocuda_end_range() { flush_pending(); }

[[gnu::visibility("hidden")]] void aiocuda_run_fibers(const abi::Launch* launch, unsigned long long first,
                                                      unsigned long long last, void (*kernel)(void* const*)) {
  const unsigned threads = launch->block.x * launch->block.y * launch->block.z;
  aiocuda_begin_range(launch, threads);
  for (unsigned long long index = first; index < last; ++index) {
    const unsigned long long row = index / launch->grid.x;
    blockIdx = {static_cast<unsigned>(index % launch->grid.x), static_cast<unsigned>(row % launch->grid.y),
                static_cast<unsigned>(row / launch->grid.y)};
    run_block(scratch, Index3{launch->block.x, launch->block.y, launch->block.z}, threads, kernel, launch->arguments);
  }
  aiocuda_end_range();
}

[[gnu::visibility("hidden")]] int aiocuda_is_in_grid() {
  return services != nullptr && services->is_in_grid != nullptr && services->is_in_grid() ? 1 : 0;
}

[[gnu::visibility("hidden")]] int aiocuda_launch_graph(void* executable, unsigned long long how) {
  return services != nullptr && services->launch_graph != nullptr ? services->launch_graph(executable, how)
                                                                  : cuda_error_not_supported;
}
[[gnu::visibility("hidden")]] void* aiocuda_current_graph() {
  return services != nullptr && services->current_graph != nullptr ? services->current_graph() : nullptr;
}

[[gnu::visibility("hidden")]] void aiocuda_fetch_texture(abi::TextureFetch* fetch) {
  if (services == nullptr || services->fetch_texture == nullptr)
    fail(cuda_error_not_supported, "this driver has no textures");
  services->fetch_texture(fetch);
}
[[gnu::visibility("hidden")]] void aiocuda_access_surface(const abi::SurfaceAccess* access) {
  if (services == nullptr || services->access_surface == nullptr)
    fail(cuda_error_not_supported, "this driver has no surfaces");
  services->access_surface(access);
}

// Without a request there is none: its address is then of memory that nobody may touch.
[[gnu::visibility("hidden")]] void* aiocuda_dynamic_shared() {
  return dynamic_shared_bytes != 0 ? scratch : scratch - abi::ThreadMemory::scratch_offset;
}
[[gnu::visibility("hidden")]] unsigned aiocuda_dynamic_shared_bytes() {
  return static_cast<unsigned>(dynamic_shared_bytes);
}

// On a fiber's stack, or on that of the thread that runs the loop.
[[gnu::visibility("hidden")]] int aiocuda_is_local(const void* address) {
  const auto* at = static_cast<const char*>(address);
  const char* stacks = scratch + abi::ThreadMemory::first_stack_offset;
  if (at >= stacks && at < stacks + abi::max_fibers * abi::fiber_stride_bytes) return 1;
  const Stack own = stack_of_thread();
  // A C library may keep a thread's variables, as shared variables are, at the end of its stack.
  return at >= own.begin && at < own.end && aiocuda_is_shared(address) == 0 ? 1 : 0;
}

[[gnu::visibility("hidden")]] void aiocuda_fail(int cuda_error, const char* message) { fail(cuda_error, message); }

[[gnu::visibility("hidden")]] void aiocuda_assert_failed(const char* condition, const char* file, int line,
                                                         const char* function, const unsigned* block_index,
                                                         const unsigned* thread_index) {
  flush_pending();
  char message[1024];
  std::snprintf(message, sizeof message, "%s:%d: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.",
                file, line, function, block_index[0], block_index[1], block_index[2], thread_index[0], thread_index[1],
                thread_index[2], condition);
  std::fprintf(stderr, "%s\n", message);
  std::fflush(stderr);
  fail(cuda_error_assert, message);
}

// What code that was compiled with -fsanitize=alignment calls, in place of the sanitizer's library, when an access is
// misaligned for its type. The layout of the argument is the compilers' own.
struct MisalignedAccess {
  const char* file;
  std::uint32_t line;
  std::uint32_t column;
  const char* type;  // two numbers of two bytes, then the name, in quotes
  unsigned char alignment_exponent;
  unsigned char kind;
};
[[gnu::visibility("hidden")]] void __ubsan_handle_type_mismatch_v1(const MisalignedAccess* access,
                                                                   std::uintptr_t address) {
  std::snprintf(misalignment, sizeof misalignment,
                "%s:%u: block (%u,%u,%u): a misaligned access to address 0x%llx: %s must be aligned to %u bytes",
                access->file, access->line, blockIdx.x, blockIdx.y, blockIdx.z,
                static_cast<unsigned long long>(address), access->type + 4, 1u << access->alignment_exponent);
  fail(cuda_error_misaligned_address, misalignment);
}
[[gnu::visibility("hidden")]] void __ubsan_handle_type_mismatch_v1_abort(const MisalignedAccess* access,
                                                                         std::uintptr_t address) {
  __ubsan_handle_type_mismatch_v1(access, address);
}

[[gnu::visibility("hidden")]] int aiocuda_vprintf(const char* format, va_list arguments) {
  char text[1024];
  va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(text, sizeof text, format, arguments);
  if (size >= 0 && static_cast<std::size_t>(size) < sizeof text) {
    print(text, static_cast<std::size_t>(size));
  } else if (size >= 0) {
    if (auto* longer = static_cast<char*>(std::malloc(static_cast<std::size_t>(size) + 1))) {
      std::vsnprintf(longer, static_cast<std::size_t>(size) + 1, format, again);
      flush_pending();
      write_out(longer, static_cast<std::size_t>(size));
      std::free(longer);
    }
  }
  va_end(again);
  return size;
}

[[gnu::visibility("hidden")]] int aiocuda_printf(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int size = aiocuda_vprintf(format, arguments);
  va_end(arguments);
  return size;
}

[[gnu::visibility("hidden")]] long long aiocuda_clock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

[[gnu::visibility("hidden")]] long clock() noexcept { return static_cast<long>(aiocuda_clock_ns()); }

[[gnu::visibility("hidden")]] void aiocuda_sleep_ns(unsigned duration_ns) {
  timespec duration{0, static_cast<long>(duration_ns)};
  ::nanosleep(&duration, nullptr);
}
}

// Device-side new and delete, without the C++ library: a failed allocation gives null, as on a GPU.
void* operator new(std::size_t size) { return std::malloc(size != 0 ? size : 1); }
void* operator new[](std::size_t size) { return std::malloc(size != 0 ? size : 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
