// The memory a thread needs to run blocks: scratch space (dynamic shared memory, the fibers' records)
// and one stack per CUDA thread of a block. Reserved once per OS thread, committed as it is used,
// given back when the OS thread ends. Below the scratch space, between it and the stacks, below each
// stack and above the last one lies inaccessible memory, so that running over is a fault. Lowest of all lies
// inaccessible memory that stands for dynamic shared memory which a launch did not ask for.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace aiocuda::emulator::abi {

inline constexpr std::size_t thread_scratch_bytes = 512 * 1024;
inline constexpr std::size_t fiber_stack_bytes = 240 * 1024;
inline constexpr std::size_t fiber_stride_bytes = 256 * 1024;  // stack and guard, guard lowest
inline constexpr std::uint32_t max_fibers = 1024;
inline constexpr std::size_t unrequested_shared_bytes = 256 * 1024;

class ThreadMemory {
 public:
  ThreadMemory() = default;
  ThreadMemory(const ThreadMemory&) = delete;
  ThreadMemory& operator=(const ThreadMemory&) = delete;
  ~ThreadMemory() {
    if (reserved_ != nullptr) ::munmap(reserved_, total_bytes);
  }

  // The scratch space's address; stack i occupies [address + first_stack_offset + i * stride, + size).
  void* get(std::uint32_t stack_count) noexcept {
    if (stack_count > max_fibers) return nullptr;
    if (reserved_ == nullptr && !reserve()) return nullptr;
    for (; stacks_ < stack_count; ++stacks_) {
      if (!open(first_stack_offset + stacks_ * fiber_stride_bytes, fiber_stack_bytes)) return nullptr;
    }
    return reserved_ + scratch_offset;
  }

  // Whether an access to `address` was one to dynamic shared memory that the launch did not ask for.
  bool is_unrequested_shared(const void* address) const noexcept {
    const auto* at = static_cast<const char*>(address);
    return reserved_ != nullptr && at >= reserved_ && at < reserved_ + unrequested_shared_bytes;
  }

  static constexpr std::size_t guard_bytes = fiber_stride_bytes - fiber_stack_bytes;
  static constexpr std::size_t first_stack_offset = thread_scratch_bytes + guard_bytes;
  static constexpr std::size_t scratch_offset = unrequested_shared_bytes + guard_bytes;  // from the lowest address

 private:
  static constexpr std::size_t total_bytes =
      scratch_offset + thread_scratch_bytes + max_fibers * fiber_stride_bytes + guard_bytes;

  bool reserve() noexcept {
    void* memory = ::mmap(nullptr, total_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    reserved_ = static_cast<char*>(memory);
    if (open(0, thread_scratch_bytes)) return true;
    ::munmap(reserved_, total_bytes);
    reserved_ = nullptr;
    return false;
  }

  bool open(std::size_t offset, std::size_t size) noexcept {
    return ::mprotect(reserved_ + scratch_offset + offset, size, PROT_READ | PROT_WRITE) == 0;
  }

  char* reserved_ = nullptr;
  std::uint32_t stacks_ = 0;
};

inline ThreadMemory& memory_of_this_thread() {
  static thread_local ThreadMemory memory;
  return memory;
}

// The function behind Services::thread_memory.
inline void* thread_memory(std::uint32_t stack_count) { return memory_of_this_thread().get(stack_count); }

}  // namespace aiocuda::emulator::abi
