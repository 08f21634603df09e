// cooperative_groups.h: the thread block, tiles of a warp, and the lanes that run together; collectives
// and reductions over them; clusters, whose blocks use each other's shared memory; and the grid, whose blocks meet in
// cooperative launches.
#pragma once

#include "block.hpp"
#include "math.hpp"

namespace cooperative_groups {

namespace details {

template <class T>
inline T shuffle(unsigned mask, T value, unsigned lane, int line) {
  if constexpr (sizeof(T) <= 8) {
    return aiocuda_device::shuffle(mask, value, lane, line);
  } else {  // word by word
    static_assert(sizeof(T) <= 32, "a tile exchanges values of at most 32 bytes");
    T result;
    unsigned long long words[(sizeof(T) + 7) / 8] = {};
    __builtin_memcpy(words, &value, sizeof value);
    for (unsigned long long& word : words) word = aiocuda_device::shuffle(mask, word, lane, line);
    __builtin_memcpy(&result, words, sizeof result);
    return result;
  }
}

}  // namespace details

class AIOCUDA_VISIBLE thread_block {
 public:
  static void sync(int line = __builtin_LINE()) { __syncthreads(line); }
  static unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return dim3(blockIdx); }
  static dim3 thread_index() { return dim3(threadIdx); }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
  static void barrier_arrive() {}
  static void barrier_wait(int line = __builtin_LINE()) { __syncthreads(line); }
};

inline thread_block this_thread_block() { return {}; }

// What tiles of several warps need on a GPU. Here they need nothing.
template <unsigned max_block_size = 1024>
struct AIOCUDA_VISIBLE block_tile_memory {};
template <unsigned max_block_size>
inline thread_block this_thread_block(block_tile_memory<max_block_size>&) {
  return {};
}

class AIOCUDA_VISIBLE cluster_group {
 public:
  struct arrival_token {};
  static void sync(int line = __builtin_LINE()) {
    __cluster_barrier_arrive(line);
    __cluster_barrier_wait(line);
  }
  static arrival_token barrier_arrive(int line = __builtin_LINE()) {
    __cluster_barrier_arrive(line);
    return {};
  }
  static void barrier_wait(int line = __builtin_LINE()) { __cluster_barrier_wait(line); }
  static void barrier_wait(arrival_token&&, int line = __builtin_LINE()) { __cluster_barrier_wait(line); }
  static unsigned query_shared_rank(const void* address) { return aiocuda_shared_rank(address); }
  template <class T>
  static T* map_shared_rank(T* address, int rank) {
    return static_cast<T*>(aiocuda_map_shared((const void*)address, (unsigned)rank));
  }
  static dim3 block_index() { return __clusterRelativeBlockIdx(); }
  static unsigned block_rank() { return __clusterRelativeBlockRank(); }
  static dim3 dim_blocks() { return __clusterDim(); }
  static unsigned num_blocks() { return __clusterSizeInBlocks(); }
  static dim3 thread_index() {
    const dim3 block = block_index();
    return {block.x * blockDim.x + threadIdx.x, block.y * blockDim.y + threadIdx.y, block.z * blockDim.z + threadIdx.z};
  }
  static unsigned thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
  static dim3 dim_threads() {
    const dim3 blocks = dim_blocks();
    return {blocks.x * blockDim.x, blocks.y * blockDim.y, blocks.z * blockDim.z};
  }
  static unsigned num_threads() { return num_blocks() * thread_block::size(); }
  static unsigned size() { return num_threads(); }
};

inline cluster_group this_cluster() { return {}; }

class AIOCUDA_VISIBLE grid_group {
 public:
  static void sync(int line = __builtin_LINE()) { aiocuda_grid_barrier(line); }
  static bool is_valid() { return aiocuda_is_in_grid() != 0; }
  static unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
  static unsigned long long block_rank() {
    return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
  }
  static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
  static unsigned long long size() { return num_blocks() * thread_block::size(); }
  static unsigned long long num_threads() { return size(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return dim3(blockIdx); }
  static unsigned long long num_clusters() { return num_blocks() / __clusterSizeInBlocks(); }
  static dim3 dim_clusters() { return __clusterGridDimInClusters(); }
  static dim3 cluster_index() { return __clusterIdx(); }
  static unsigned long long cluster_rank() {
    const dim3 index = __clusterIdx();
    const dim3 extent = __clusterGridDimInClusters();
    return index.x + (unsigned long long)extent.x * (index.y + (unsigned long long)extent.y * index.z);
  }
};

inline grid_group this_grid() { return {}; }

// Lanes of one warp: those in `mask`. Ranks count the mask's bits.
class AIOCUDA_VISIBLE lane_group {
 public:
  explicit lane_group(unsigned mask) : mask_(mask) {}

  void sync(int line = __builtin_LINE()) const { __syncwarp(mask_, line); }
  unsigned size() const { return (unsigned)__builtin_popcount(mask_); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return (unsigned)__builtin_popcount(mask_ & ((1u << aiocuda_lane()) - 1u)); }

  template <class T>
  T shfl(T value, unsigned rank, int line = __builtin_LINE()) const {
    return details::shuffle(mask_, value, lane(rank % size()), line);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, int line = __builtin_LINE()) const {
    const unsigned rank = thread_rank();
    return details::shuffle(mask_, value, lane(rank >= delta ? rank - delta : rank), line);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, int line = __builtin_LINE()) const {
    const unsigned rank = thread_rank();
    return details::shuffle(mask_, value, lane(rank + delta < size() ? rank + delta : rank), line);
  }
  template <class T>
  T shfl_xor(T value, unsigned change, int line = __builtin_LINE()) const {
    const unsigned rank = thread_rank() ^ change;
    return details::shuffle(mask_, value, lane(rank < size() ? rank : thread_rank()), line);
  }
  int any(int predicate, int line = __builtin_LINE()) const { return __any_sync(mask_, predicate, line); }
  int all(int predicate, int line = __builtin_LINE()) const { return __all_sync(mask_, predicate, line); }
  unsigned ballot(int predicate, int line = __builtin_LINE()) const {
    return packed(__ballot_sync(mask_, predicate, line));
  }
  template <class T>
  unsigned match_any(T value, int line = __builtin_LINE()) const {
    return packed(__match_any_sync(mask_, value, line));
  }
  template <class T>
  unsigned match_all(T value, int& predicate, int line = __builtin_LINE()) const {
    return packed(__match_all_sync(mask_, value, &predicate, line));
  }
  unsigned mask() const { return mask_; }

 private:
  // The lane of a rank.
  unsigned lane(unsigned rank) const {
    unsigned rest = mask_;
    for (; rank > 0; --rank) rest &= rest - 1;
    return (unsigned)__builtin_ctz(rest);
  }
  // A set of lanes as a set of ranks.
  unsigned packed(unsigned lanes) const {
    unsigned ranks = 0;
    unsigned rank = 0;
    for (unsigned rest = mask_; rest != 0; rest &= rest - 1, ++rank) {
      if ((lanes >> __builtin_ctz(rest) & 1u) != 0) ranks |= 1u << rank;
    }
    return ranks;
  }

  unsigned mask_;
};

class AIOCUDA_VISIBLE coalesced_group : public lane_group {
 public:
  using lane_group::lane_group;
  unsigned meta_group_rank() const { return 0; }
  unsigned meta_group_size() const { return 1; }
};

inline coalesced_group coalesced_threads(int line = __builtin_LINE()) { return coalesced_group(__activemask(line)); }

// Threads of a block, several warps of them: those of a tile.
template <unsigned size_>
class AIOCUDA_VISIBLE warps_tile {
  static_assert((size_ & (size_ - 1)) == 0 && size_ <= 1024, "a tile's size is a power of two, at most 1024");

 public:
  static constexpr unsigned size() { return size_; }
  static constexpr unsigned num_threads() { return size_; }
  static unsigned thread_rank() { return thread_block::thread_rank() % size_; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / size_; }
  static unsigned meta_group_size() { return (thread_block::size() + size_ - 1) / size_; }
  static void sync(int line = __builtin_LINE()) { aiocuda_group_barrier(first(), threads(), line); }
  static int any(int predicate, int line = __builtin_LINE()) { return count(predicate != 0, line) != 0; }
  static int all(int predicate, int line = __builtin_LINE()) { return count(predicate == 0, line) == 0; }
  template <class T>
  static T shfl(T value, unsigned rank, int line = __builtin_LINE()) {
    aiocuda_exchange_in_group(first(), threads(), &value, first());
    const T result = of(value, rank % size_);
    sync(line);
    return result;
  }

  // The operation over the values of all threads, warp by warp, as a GPU does it.
  template <class T, class F>
  static T reduced(T value, F& operation, int line) {
    for (unsigned distance = 16; distance > 0; distance /= 2) {
      value = operation(value, details::shuffle(0xffffffffu, value, aiocuda_lane() ^ distance, line));
    }
    aiocuda_exchange_in_group(first(), threads(), &value, first());
    T result = of(value, 0);
    for (unsigned rank = 32; rank < threads(); rank += 32) result = operation(result, of(value, rank));
    sync(line);
    return result;
  }
  // Over the values of the threads up to this one. False: there is none before it.
  template <class T, class F>
  static bool scanned(T& value, F& operation, bool is_exclusive, int line) {
    aiocuda_exchange_in_group(first(), threads(), &value, first());
    const unsigned count = thread_rank() + (is_exclusive ? 0 : 1);
    T result = of(value, 0);
    for (unsigned rank = 1; rank < count; ++rank) result = operation(result, of(value, rank));
    sync(line);
    if (count != 0) value = result;
    return count != 0;
  }

 private:
  static unsigned first() { return thread_block::thread_rank() / size_ * size_; }
  static unsigned threads() {
    const unsigned left = thread_block::size() - first();
    return left < size_ ? left : size_;
  }
  template <class T>
  static const T& of(const T&, unsigned rank) {
    return *static_cast<const T*>(aiocuda_exchange_in_group(first(), threads(), nullptr, first() + rank));
  }
  static unsigned count(bool predicate, int line) {
    plus_one operation;
    return reduced((unsigned)predicate, operation, line);
  }
  struct plus_one {
    unsigned operator()(unsigned a, unsigned b) const { return a + b; }
  };
};

template <unsigned size_, class Parent = void, bool is_large = (size_ > 32)>
class AIOCUDA_VISIBLE thread_block_tile : public warps_tile<size_> {
 public:
  thread_block_tile() = default;
  template <class Other>
  thread_block_tile(const thread_block_tile<size_, Other>&) {}
};

template <unsigned size_, class Parent>
class AIOCUDA_VISIBLE thread_block_tile<size_, Parent, false> : public lane_group {
  static_assert(size_ >= 1 && (size_ & (size_ - 1)) == 0, "a tile's size is a power of two");

 public:
  thread_block_tile() : lane_group(tile_mask()) {}
  template <class Other>
  thread_block_tile(const thread_block_tile<size_, Other>& other) : lane_group(other) {}
  static constexpr unsigned size() { return size_; }
  static constexpr unsigned num_threads() { return size_; }
  static unsigned thread_rank() { return aiocuda_lane() % size_; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / size_; }
  static unsigned meta_group_size() { return (thread_block::size() + size_ - 1) / size_; }

 private:
  static unsigned tile_mask() {
    const unsigned first = aiocuda_lane() & ~(size_ - 1);
    return (size_ == 32 ? 0xffffffffu : (1u << (size_ % 32)) - 1u) << first;
  }
};

template <unsigned size, class Parent>
inline thread_block_tile<size, Parent> tiled_partition(const Parent&) {
  return {};
}

// A group whose kind is known at run time only: a block, or lanes of a warp.
class AIOCUDA_VISIBLE thread_group {
 public:
  thread_group(const thread_block&) : lanes_(0), is_block_(true) {}
  thread_group(const lane_group& lanes) : lanes_(lanes), is_block_(false) {}
  void sync(int line = __builtin_LINE()) const { is_block_ ? __syncthreads(line) : lanes_.sync(line); }
  unsigned size() const { return is_block_ ? thread_block::size() : lanes_.size(); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return is_block_ ? thread_block::thread_rank() : lanes_.thread_rank(); }

 private:
  lane_group lanes_;
  bool is_block_;
};

inline thread_group tiled_partition(const thread_group&, unsigned size) {
  const unsigned lanes = size >= 32 ? 0xffffffffu : (1u << size) - 1u;
  return thread_group(lane_group(lanes << (aiocuda_lane() & ~(size - 1))));
}

inline coalesced_group binary_partition(const lane_group& group, bool predicate, int line = __builtin_LINE()) {
  const unsigned yes = __ballot_sync(group.mask(), predicate, line);
  return coalesced_group(predicate ? yes : group.mask() & ~yes);
}
template <class T>
inline coalesced_group labeled_partition(const lane_group& group, T label, int line = __builtin_LINE()) {
  return coalesced_group(__match_any_sync(group.mask(), label, line));
}

template <class Group>
inline void sync(const Group& group, int line = __builtin_LINE()) {
  group.sync(line);
}
template <class Group>
inline unsigned thread_rank(const Group& group) {
  return group.thread_rank();
}
template <class Group>
inline unsigned group_size(const Group& group) {
  return group.size();
}

template <class T>
struct AIOCUDA_VISIBLE plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct AIOCUDA_VISIBLE less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct AIOCUDA_VISIBLE greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct AIOCUDA_VISIBLE bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct AIOCUDA_VISIBLE bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct AIOCUDA_VISIBLE bit_xor {
  T operator()(T a, T b) const { return a ^ b; }
};

// (What namespace experimental held before CUDA 12.)
namespace experimental {
using ::cooperative_groups::block_tile_memory;
using ::cooperative_groups::this_thread_block;
using ::cooperative_groups::tiled_partition;
}  // namespace experimental

// The operation over the values of all the group's threads, to all of them. Halves at a time, as a GPU does
// it, so that sums of floating-point numbers come in the same order.
template <class Group, class T, class F>
inline T reduce(const Group& group, T value, F&& operation, int line = __builtin_LINE()) {
  const unsigned size = group.size();
  if ((size & (size - 1)) == 0) {
    for (unsigned distance = size / 2; distance > 0; distance /= 2) {
      value = operation(value, group.shfl_xor(value, distance, line));
    }
    return value;
  }
  T result = group.shfl(value, 0, line);
  for (unsigned rank = 1; rank < size; ++rank) result = operation(result, group.shfl(value, rank, line));
  return result;
}

template <unsigned size, class Parent, class T, class F, class = aiocuda_device::enable_if_t<(size > 32)>>
inline T reduce(const thread_block_tile<size, Parent>&, T value, F&& operation, int line = __builtin_LINE()) {
  return warps_tile<size>::reduced(value, operation, line);
}
template <unsigned size, class Parent, class T, class F, class = aiocuda_device::enable_if_t<(size > 32)>>
inline T inclusive_scan(const thread_block_tile<size, Parent>&, T value, F&& operation, int line = __builtin_LINE()) {
  warps_tile<size>::scanned(value, operation, false, line);
  return value;
}
template <unsigned size, class Parent, class T, class F, class = aiocuda_device::enable_if_t<(size > 32)>>
inline T exclusive_scan(const thread_block_tile<size, Parent>&, T value, F&& operation, int line = __builtin_LINE()) {
  return warps_tile<size>::scanned(value, operation, true, line) ? value : T();
}

template <class Group, class T, class F>
inline T inclusive_scan(const Group& group, T value, F&& operation, int line = __builtin_LINE()) {
  for (unsigned distance = 1; distance < group.size(); distance *= 2) {
    const T other = group.shfl_up(value, distance, line);
    if (group.thread_rank() >= distance) value = operation(other, value);
  }
  return value;
}
template <class Group, class T>
inline T inclusive_scan(const Group& group, T value, int line = __builtin_LINE()) {
  return inclusive_scan(group, value, plus<T>(), line);
}
template <class Group, class T, class F>
inline T exclusive_scan(const Group& group, T value, F&& operation, int line = __builtin_LINE()) {
  const T inclusive = inclusive_scan(group, value, operation, line);
  const T before = group.shfl_up(inclusive, 1, line);
  return group.thread_rank() == 0 ? T() : before;
}
template <class Group, class T>
inline T exclusive_scan(const Group& group, T value, int line = __builtin_LINE()) {
  return exclusive_scan(group, value, plus<T>(), line);
}

// One thread of the group runs `function`.
template <class Group, class F>
inline void invoke_one(const Group& group, F&& function) {
  if (group.thread_rank() == 0) function();
}

// Copies done by the time of the wait: here, by the group together at once.
template <class Group>
inline void memcpy_async(const Group& group, void* to, const void* from, size_t size) {
  for (size_t i = group.thread_rank(); i < size; i += group.size()) {
    static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
  }
}
template <class Group>
inline void wait(const Group& group, int line = __builtin_LINE()) {
  group.sync(line);
}
template <unsigned stages, class Group>
inline void wait_prior(const Group& group, int line = __builtin_LINE()) {
  group.sync(line);
}

}  // namespace cooperative_groups
