// The thread's place in the launch, barriers, warp operations, fences, and what else only a running
// block can answer. The functions named aiocuda_* are the block runtime's (cuda_cpp/runtime), linked in.
#pragma once

#include "vector_types.hpp"
#include "warp_operation.hpp"

#define AIOCUDA_RUNTIME __attribute__((visibility("hidden")))

extern "C" {
AIOCUDA_RUNTIME extern __thread uint3 threadIdx;
AIOCUDA_RUNTIME extern __thread uint3 blockIdx;
AIOCUDA_RUNTIME extern __thread dim3 blockDim;
AIOCUDA_RUNTIME extern __thread dim3 gridDim;

AIOCUDA_RUNTIME extern __thread dim3 aiocuda_cluster_dim;  // in blocks; 1 in each dimension where there are none
AIOCUDA_RUNTIME extern __thread bool aiocuda_cluster_is_given;

AIOCUDA_RUNTIME void aiocuda_barrier(int line);
AIOCUDA_RUNTIME void aiocuda_cluster_arrive(int line);
AIOCUDA_RUNTIME void aiocuda_cluster_wait(int line);
AIOCUDA_RUNTIME void aiocuda_grid_barrier(int line);
AIOCUDA_RUNTIME int aiocuda_is_in_grid();
AIOCUDA_RUNTIME int aiocuda_barrier_vote(int kind, int predicate, int line);
AIOCUDA_RUNTIME unsigned long long aiocuda_warp(int operation, unsigned mask, unsigned long long value,
                                                unsigned argument, int line);
AIOCUDA_RUNTIME void aiocuda_group_barrier(unsigned first_thread, unsigned threads, int line);
AIOCUDA_RUNTIME void* aiocuda_exchange_in_group(unsigned first_thread, unsigned threads, void* own, unsigned thread);
AIOCUDA_RUNTIME void aiocuda_named_barrier(unsigned name, unsigned threads, int waits, int line);
AIOCUDA_RUNTIME void aiocuda_offer(void* own);
AIOCUDA_RUNTIME void* aiocuda_offered(unsigned lane);
AIOCUDA_RUNTIME int aiocuda_is_shared(const void* address);
AIOCUDA_RUNTIME int aiocuda_is_cluster_shared(const void* address);
AIOCUDA_RUNTIME void* aiocuda_map_shared(const void* address, unsigned rank);
AIOCUDA_RUNTIME unsigned aiocuda_shared_rank(const void* address);
AIOCUDA_RUNTIME int aiocuda_is_local(const void* address);
AIOCUDA_RUNTIME int aiocuda_is_constant(const void* address);
AIOCUDA_RUNTIME int aiocuda_is_grid_constant(const void* address);
AIOCUDA_RUNTIME const void* aiocuda_argument(unsigned index) __attribute__((const));
AIOCUDA_RUNTIME unsigned aiocuda_shared_offset(const void* address);
AIOCUDA_RUNTIME void* aiocuda_shared_address(unsigned offset);
AIOCUDA_RUNTIME unsigned aiocuda_lane();
AIOCUDA_RUNTIME unsigned aiocuda_warp_index();
AIOCUDA_RUNTIME void aiocuda_yield();
AIOCUDA_RUNTIME void aiocuda_step(int place);
AIOCUDA_RUNTIME void* aiocuda_dynamic_shared() __attribute__((const));
AIOCUDA_RUNTIME unsigned aiocuda_dynamic_shared_bytes();
AIOCUDA_RUNTIME void aiocuda_fail(int cuda_error, const char* message) __attribute__((noreturn, cold));
AIOCUDA_RUNTIME void aiocuda_assert_failed(const char* condition, const char* file, int line, const char* function,
                                           const unsigned* block_index, const unsigned* thread_index)
    __attribute__((noreturn, cold));
AIOCUDA_RUNTIME long long aiocuda_clock_ns();
AIOCUDA_RUNTIME void aiocuda_sleep_ns(unsigned duration_ns);

AIOCUDA_RUNTIME int printf(const char* format, ...) __asm__("aiocuda_printf") __attribute__((format(printf, 1, 2)));
AIOCUDA_RUNTIME int vprintf(const char* format, va_list arguments) __asm__("aiocuda_vprintf");
typedef long clock_t;
clock_t clock() noexcept;  // the runtime's: nanoseconds
void* malloc(size_t size) noexcept;
void free(void* memory) noexcept;
void* memcpy(void* to, const void* from, size_t size) noexcept;
void* memmove(void* to, const void* from, size_t size) noexcept;
void* memset(void* to, int value, size_t size) noexcept;
int memcmp(const void* a, const void* b, size_t size) noexcept;
size_t strlen(const char* text) noexcept;
}

#ifndef AIOCUDA_HOST_LIBRARY
inline void* operator new(size_t, void* place) noexcept { return place; }
inline void* operator new[](size_t, void* place) noexcept { return place; }
inline void operator delete(void*, void*) noexcept {}
inline void operator delete[](void*, void*) noexcept {}
#endif

static constexpr int warpSize = 32;

#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) \
  ((condition)            \
       ? (void)0          \
       : ::aiocuda_assert_failed(#condition, __FILE__, __LINE__, __PRETTY_FUNCTION__, &blockIdx.x, &threadIdx.x))
#endif

namespace aiocuda_device {

// Stands for `extern __shared__` arrays: they all begin at the block's dynamic shared memory.
struct DynamicShared {
  template <class T>
  using Array = T[];
  template <class T>
  operator Array<T>&() const {
    return *reinterpret_cast<Array<T>*>(::aiocuda_dynamic_shared());
  }
};

// In the condition of a loop that waits for another thread: lets it go on.
inline bool spin() {
  ::aiocuda_yield();
  return true;
}

// In an assignment to volatile memory, which programs written for lanes in step (before Volta) count on: the
// lanes meet when each has read (`value` is evaluated), and again when each has written.
inline void step(int place) { ::aiocuda_step(place); }
template <class T>
inline T in_step(int place, T value) {
  ::aiocuda_step(place);
  return value;
}

}  // namespace aiocuda_device

inline void __syncthreads(int line = __builtin_LINE()) { aiocuda_barrier(line); }
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  return aiocuda_barrier_vote(aiocuda_vote_count, predicate, line);
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  return aiocuda_barrier_vote(aiocuda_vote_and, predicate, line);
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  return aiocuda_barrier_vote(aiocuda_vote_or, predicate, line);
}
inline void __barrier_sync(unsigned, int line = __builtin_LINE()) { aiocuda_barrier(line); }
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  aiocuda_warp(aiocuda_warp_sync, mask, 0, 0, line);
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_cluster() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Clusters: the block's place, the barrier, and the shared memory of other blocks.
inline bool __clusterDimIsSpecified() { return aiocuda_cluster_is_given; }
inline dim3 __clusterDim() { return aiocuda_cluster_dim; }
inline dim3 __clusterRelativeBlockIdx() {
  const dim3& of = aiocuda_cluster_dim;
  return {blockIdx.x % of.x, blockIdx.y % of.y, blockIdx.z % of.z};
}
inline dim3 __clusterIdx() {
  const dim3& of = aiocuda_cluster_dim;
  return {blockIdx.x / of.x, blockIdx.y / of.y, blockIdx.z / of.z};
}
inline dim3 __clusterGridDimInClusters() {
  const dim3& of = aiocuda_cluster_dim;
  return {gridDim.x / of.x, gridDim.y / of.y, gridDim.z / of.z};
}
inline unsigned __clusterRelativeBlockRank() {
  const dim3& of = aiocuda_cluster_dim;
  const dim3 index = __clusterRelativeBlockIdx();
  return index.x + of.x * (index.y + of.y * index.z);
}
inline unsigned __clusterSizeInBlocks() {
  return aiocuda_cluster_dim.x * aiocuda_cluster_dim.y * aiocuda_cluster_dim.z;
}
inline void __cluster_barrier_arrive(int line = __builtin_LINE()) { aiocuda_cluster_arrive(line); }
inline void __cluster_barrier_arrive_relaxed(int line = __builtin_LINE()) { aiocuda_cluster_arrive(line); }
inline void __cluster_barrier_wait(int line = __builtin_LINE()) { aiocuda_cluster_wait(line); }
inline void* __cluster_map_shared_rank(const void* address, unsigned rank) { return aiocuda_map_shared(address, rank); }
inline unsigned __cluster_query_shared_rank(const void* address) { return aiocuda_shared_rank(address); }

inline unsigned __activemask(int line = __builtin_LINE()) {
  return (unsigned)aiocuda_warp(aiocuda_warp_converge, 0xffffffffu, 0, 0, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return (unsigned)aiocuda_warp(aiocuda_warp_ballot, mask, predicate != 0, 0, line);
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return aiocuda_warp(aiocuda_warp_ballot, mask, predicate != 0, 0, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return aiocuda_warp(aiocuda_warp_ballot, mask, predicate == 0, 0, line) == 0;
}

namespace aiocuda_device {

// Values of up to 8 bytes travel between lanes as integers.
template <class T>
inline unsigned long long packed(T value) {
  static_assert(sizeof(T) <= 8, "a lane exchanges values of at most 8 bytes");
  unsigned long long word = 0;
  __builtin_memcpy(&word, &value, sizeof value);
  return word;
}
template <class T>
inline T unpacked(unsigned long long word) {
  T value;
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}

template <class T>
inline T shuffle(unsigned mask, T value, unsigned lane, int line) {
  return unpacked<T>(aiocuda_warp(aiocuda_warp_shuffle, mask, packed(value), lane, line));
}

// `width` divides the warp into groups of that many lanes, a power of two.
template <class T>
inline T shuffle_index(unsigned mask, T value, int source, int width, int line) {
  const unsigned lane = aiocuda_lane();
  return shuffle(mask, value, (lane & ~(unsigned)(width - 1)) | ((unsigned)source & (unsigned)(width - 1)), line);
}
template <class T>
inline T shuffle_up(unsigned mask, T value, unsigned delta, int width, int line) {
  const unsigned lane = aiocuda_lane();
  return shuffle(mask, value, (lane & (unsigned)(width - 1)) >= delta ? lane - delta : lane, line);
}
template <class T>
inline T shuffle_down(unsigned mask, T value, unsigned delta, int width, int line) {
  const unsigned lane = aiocuda_lane();
  return shuffle(mask, value, (lane & (unsigned)(width - 1)) + delta < (unsigned)width ? lane + delta : lane, line);
}
template <class T>
inline T shuffle_xor(unsigned mask, T value, int lane_mask, int width, int line) {
  const unsigned lane = aiocuda_lane();
  const unsigned source = lane ^ (unsigned)lane_mask;
  const unsigned group_end = (lane & ~(unsigned)(width - 1)) + (unsigned)width;
  return shuffle(mask, value, source < group_end ? source : lane, line);
}

}  // namespace aiocuda_device

#define AIOCUDA_SHUFFLES(T)                                                                                        \
  inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {          \
    return aiocuda_device::shuffle_index<T>(mask, value, source, width, line);                                     \
  }                                                                                                                \
  inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {   \
    return aiocuda_device::shuffle_up<T>(mask, value, delta, width, line);                                         \
  }                                                                                                                \
  inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) { \
    return aiocuda_device::shuffle_down<T>(mask, value, delta, width, line);                                       \
  }                                                                                                                \
  inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, int line = __builtin_LINE()) {   \
    return aiocuda_device::shuffle_xor<T>(mask, value, lane_mask, width, line);                                    \
  }
AIOCUDA_SHUFFLES(int)
AIOCUDA_SHUFFLES(unsigned)
AIOCUDA_SHUFFLES(long)
AIOCUDA_SHUFFLES(unsigned long)
AIOCUDA_SHUFFLES(long long)
AIOCUDA_SHUFFLES(unsigned long long)
AIOCUDA_SHUFFLES(float)
AIOCUDA_SHUFFLES(double)

#define AIOCUDA_MATCHES(T)                                                                                \
  inline unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {                 \
    return (unsigned)aiocuda_warp(aiocuda_warp_match_any, mask, aiocuda_device::packed(value), 0, line);  \
  }                                                                                                       \
  inline unsigned __match_all_sync(unsigned mask, T value, int* predicate, int line = __builtin_LINE()) { \
    const unsigned same =                                                                                 \
        (unsigned)aiocuda_warp(aiocuda_warp_match_all, mask, aiocuda_device::packed(value), 0, line);     \
    *predicate = same != 0;                                                                               \
    return same;                                                                                          \
  }
AIOCUDA_MATCHES(int)
AIOCUDA_MATCHES(unsigned)
AIOCUDA_MATCHES(long)
AIOCUDA_MATCHES(unsigned long)
AIOCUDA_MATCHES(long long)
AIOCUDA_MATCHES(unsigned long long)
AIOCUDA_MATCHES(float)
AIOCUDA_MATCHES(double)
#undef AIOCUDA_MATCHES

#define AIOCUDA_WARP_REDUCE(name, T, wide, operation)                                    \
  inline T __reduce_##name##_sync(unsigned mask, T value, int line = __builtin_LINE()) { \
    return (T)aiocuda_warp(operation, mask, (unsigned long long)(wide)value, 0, line);   \
  }
AIOCUDA_WARP_REDUCE(add, int, long long, aiocuda_warp_add)
AIOCUDA_WARP_REDUCE(add, unsigned, unsigned long long, aiocuda_warp_add)
AIOCUDA_WARP_REDUCE(min, int, long long, aiocuda_warp_min_signed)
AIOCUDA_WARP_REDUCE(min, unsigned, unsigned long long, aiocuda_warp_min_unsigned)
AIOCUDA_WARP_REDUCE(max, int, long long, aiocuda_warp_max_signed)
AIOCUDA_WARP_REDUCE(max, unsigned, unsigned long long, aiocuda_warp_max_unsigned)
AIOCUDA_WARP_REDUCE(and, unsigned, unsigned long long, aiocuda_warp_and)
AIOCUDA_WARP_REDUCE(or, unsigned, unsigned long long, aiocuda_warp_or)
AIOCUDA_WARP_REDUCE(xor, unsigned, unsigned long long, aiocuda_warp_xor)
#undef AIOCUDA_WARP_REDUCE

// Memory spaces. Shared addresses of 32 bits are what inline PTX takes.
inline bool __isShared(const void* address) { return aiocuda_is_shared(address) != 0; }
inline bool __isLocal(const void* address) { return aiocuda_is_local(address) != 0; }
inline bool __isClusterShared(const void* address) { return aiocuda_is_cluster_shared(address) != 0; }
inline bool __isConstant(const void* address) { return aiocuda_is_constant(address) != 0; }
inline bool __isGridConstant(const void* address) { return aiocuda_is_grid_constant(address) != 0; }
// On a GPU, too, the arguments of a launch count as global memory.
inline bool __isGlobal(const void* address) {
  return !__isClusterShared(address) && !__isLocal(address) && !__isConstant(address);
}
inline size_t __cvta_generic_to_shared(const void* address) { return aiocuda_shared_offset(address); }
inline void* __cvta_shared_to_generic(size_t address) { return aiocuda_shared_address((unsigned)address); }
inline size_t __cvta_generic_to_global(const void* address) { return (size_t)address; }
inline void* __cvta_global_to_generic(size_t address) { return (void*)address; }
inline size_t __cvta_generic_to_local(const void* address) { return (size_t)address; }
inline void* __cvta_local_to_generic(size_t address) { return (void*)address; }
inline size_t __cvta_generic_to_constant(const void* address) { return (size_t)address; }
inline void* __cvta_constant_to_generic(size_t address) { return (void*)address; }
inline size_t __cvta_generic_to_grid_constant(const void* address) { return (size_t)address; }
inline void* __cvta_grid_constant_to_generic(size_t address) { return (void*)address; }

// Time is the host's: one tick of clock64() is a nanosecond, as one of %globaltimer in PTX is.
inline long long clock64() { return aiocuda_clock_ns(); }
inline void __nanosleep(unsigned duration_ns) {
  aiocuda_sleep_ns(duration_ns);
  aiocuda_yield();
}
[[noreturn]] inline void __trap(int line = __builtin_LINE()) {
  (void)line;
  aiocuda_fail(719, "a kernel called __trap()");
}
inline void __brkpt() {}
inline void __prof_trigger(int) {}
