// Arrays as a kernel's parameters, in CUDA C++17. No other header is needed, and none is included.
//
//   View<const T, N>   reads an array of N dimensions with any strides; View<T, N> may write it too, anywhere.
//   Partition<T, N>    is an array cut into tiles, of which a block gets its own and no other.
//   Tile<T, N>         is that tile: indexed from its own first item, clipped where the array ends.
//
//   __global__ void twice(aiocuda::View<const float, 2> x, aiocuda::Partition<float, 2> y) {
//     const auto tile = y.tile();
//     const int i = threadIdx.y, j = threadIdx.x;
//     if (tile.contains(i, j)) tile(i, j) = 2 * x(tile.origin(0) + i, tile.origin(1) + j);
//   }
//
// Always true: tiles do not overlap, at most one block gets a tile, and neither a Partition nor a Tile gives its
// pointer away (an item's address is the kernel's own doing). So blocks that write through a partition alone do not
// race with one another there, whatever index within the tile they compute. That it is within is checked on the
// emulated driver, with the option -G, and where AIOCUDA_CHECK_BOUNDS is defined: an index outside prints which and
// traps. Else no check costs anything.
//
// Parameters are passed by value; the host packs their bytes, so their layout is fixed, 8 bytes a member:
//   View       { data; shape[N]; strides in bytes[N] }
//   Partition  { data; shape[N]; strides in bytes[N]; shape of a tile[N] }
// Pointers are not __restrict__: nothing here keeps a View from showing what its launch writes.
#pragma once

#if defined(AIOCUDA_EMULATED) || defined(__CUDACC_DEBUG__) || defined(AIOCUDA_CHECK_BOUNDS)
#define AIOCUDA_TILE_CHECKS 1
#else
#define AIOCUDA_TILE_CHECKS 0
#endif

namespace aiocuda {

// The index of an item, an integer an axis: written {i, j} where one is expected, or an array of them.
template <int N>
class Index {
 public:
  template <class... I>
  __device__ __forceinline__ Index(I... at) : at_{static_cast<long long>(at)...} {
    static_assert(sizeof...(I) == N, "an index has one number an axis");
    static_assert(((static_cast<I>(1) / 2 == static_cast<I>(0)) && ...), "an index consists of integers");
  }

  __device__ __forceinline__ Index(const long long (&at)[N]) {
#pragma unroll
    for (int axis = 0; axis < N; ++axis) at_[axis] = at[axis];
  }

  __device__ __forceinline__ long long operator[](int axis) const { return at_[axis]; }

 private:
  long long at_[N];
};

namespace detail {

#if AIOCUDA_TILE_CHECKS
__device__ __noinline__ inline void stop_at_index(const char* what, int axis, long long index, long long extent) {
  printf("aiocuda: index %lld is outside axis %d of a %s, whose extent there is %lld: block (%u, %u, %u), "
         "thread (%u, %u, %u)\n",
         index, axis, what, extent, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  __trap();
}

__device__ __noinline__ inline void stop_at_axis(const char* what, int axis, int rank) {
  printf("aiocuda: there is no axis %d in a %s of %d dimensions: block (%u, %u, %u), thread (%u, %u, %u)\n", axis,
         what, rank, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  __trap();
}
#endif

__device__ __forceinline__ int checked_axis([[maybe_unused]] const char* what, int axis, [[maybe_unused]] int rank) {
#if AIOCUDA_TILE_CHECKS
  if (axis < 0 || axis >= rank) stop_at_axis(what, axis, rank);
#endif
  return axis;
}

template <class T>
constexpr bool is_const = false;
template <class T>
constexpr bool is_const<const T> = true;

template <class T>
struct Byte {
  using type = char;
};
template <class T>
struct Byte<const T> {
  using type = const char;
};

template <int N>
__device__ __forceinline__ bool is_within(const Index<N>& at, const long long (&extents)[N]) {
  bool within = true;
#pragma unroll
  for (int axis = 0; axis < N; ++axis) within = within && at[axis] >= 0 && at[axis] < extents[axis];
  return within;
}

template <class T, int N>
__device__ __forceinline__ T& item([[maybe_unused]] const char* what, T* data, const Index<N>& at,
                                   [[maybe_unused]] const long long (&extents)[N], const long long (&strides)[N]) {
  long long offset = 0;
#pragma unroll
  for (int axis = 0; axis < N; ++axis) {
#if AIOCUDA_TILE_CHECKS
    if (at[axis] < 0 || at[axis] >= extents[axis]) stop_at_index(what, axis, at[axis], extents[axis]);
#endif
    offset += at[axis] * strides[axis];
  }
  return *reinterpret_cast<T*>(reinterpret_cast<typename Byte<T>::type*>(data) + offset);
}

}  // namespace detail

template <class T, int N>
class Partition;

template <class T, int N>
class View {
  static_assert(N >= 1 && N <= 8, "a View has 1 to 8 dimensions");

 public:
  View() = delete;  // the host makes them

  // x(i, j), or x[{i, j}]
  template <class... I>
  __device__ __forceinline__ T& operator()(I... at) const {
    return (*this)[Index<N>(at...)];
  }
  __device__ __forceinline__ T& operator[](Index<N> at) const {
    static_assert(sizeof(View) == 8 + 16 * N, "the host packs a View with members of 8 bytes");
    return detail::item("View", data_, at, shape_, strides_bytes_);
  }

  __device__ __forceinline__ long long extent(int axis) const {
    return shape_[detail::checked_axis("View", axis, N)];
  }
  // In bytes, as NumPy's.
  __device__ __forceinline__ long long stride(int axis) const {
    return strides_bytes_[detail::checked_axis("View", axis, N)];
  }
  __device__ __forceinline__ T* data() const { return data_; }

 private:
  T* data_;
  long long shape_[N];
  long long strides_bytes_[N];
};

// The part of a partitioned array that is the calling block's. Axes count from 0; indices are local to the tile.
template <class T, int N>
class Tile {
 public:
  // tile(i, j), or tile[{i, j}]
  template <class... I>
  __device__ __forceinline__ T& operator()(I... at) const {
    return (*this)[Index<N>(at...)];
  }
  __device__ __forceinline__ T& operator[](Index<N> at) const {
    return detail::item("Tile", data_, at, extents_, strides_bytes_);
  }

  template <class... I>
  __device__ __forceinline__ bool contains(I... at) const {
    return contains(Index<N>(at...));
  }
  __device__ __forceinline__ bool contains(Index<N> at) const { return detail::is_within(at, extents_); }
  __device__ __forceinline__ bool contains(const long long (&at)[N]) const { return contains(Index<N>(at)); }

  // Items along an axis: fewer than in a whole tile at the array's edge, none in a tile outside of it.
  __device__ __forceinline__ long long extent(int axis) const {
    return extents_[detail::checked_axis("Tile", axis, N)];
  }
  // The tile's first item in the whole array.
  __device__ __forceinline__ long long origin(int axis) const {
    return origin_[detail::checked_axis("Tile", axis, N)];
  }
  // Which tile it is.
  __device__ __forceinline__ long long index(int axis) const {
    return index_[detail::checked_axis("Tile", axis, N)];
  }
  // The extent of the whole array.
  __device__ __forceinline__ long long shape(int axis) const {
    return shape_[detail::checked_axis("Tile", axis, N)];
  }

 private:
  friend class Partition<T, N>;
  Tile() = default;

  T* data_;
  long long extents_[N];
  long long strides_bytes_[N];
  long long origin_[N];
  long long index_[N];
  long long shape_[N];
};

template <class T, int N>
class Partition {
  static_assert(N >= 1 && N <= 8, "a Partition has 1 to 8 dimensions");
  static_assert(!detail::is_const<T>, "a Partition is there to be written; read through a View<const T, N>");

 public:
  Partition() = delete;  // the host makes them

  // The calling block's own tile. blockIdx.x counts tiles along the last axis, blockIdx.y along the one before,
  // blockIdx.z along all others, the first of them slowest. A block beyond the last tile gets an empty one.
  __device__ __forceinline__ Tile<T, N> tile() const {
    static_assert(sizeof(Partition) == 8 + 24 * N, "the host packs a Partition with members of 8 bytes");
    Tile<T, N> own;
    bool exists = true;
    long long rest = blockIdx.z;
    own.index_[N - 1] = blockIdx.x;
    if constexpr (N >= 2) {
      own.index_[N - 2] = blockIdx.y;
    } else {
      exists = blockIdx.y == 0;
    }
#pragma unroll
    for (int axis = N - 3; axis > 0; --axis) {
      const long long tiles = (shape_[axis] + tile_shape_[axis] - 1) / tile_shape_[axis];
      own.index_[axis] = tiles > 1 ? rest % tiles : 0;  // an axis without items has no tiles to divide by
      rest = tiles > 1 ? rest / tiles : rest;
    }
    if constexpr (N >= 3) {
      own.index_[0] = rest;
    } else {
      exists = exists && rest == 0;
    }
#pragma unroll
    for (int axis = 0; axis < N; ++axis) exists = exists && own.index_[axis] * tile_shape_[axis] < shape_[axis];

    long long offset = 0;
#pragma unroll
    for (int axis = 0; axis < N; ++axis) {
      own.index_[axis] = exists ? own.index_[axis] : 0;
      own.origin_[axis] = own.index_[axis] * tile_shape_[axis];
      const long long left = shape_[axis] - own.origin_[axis];
      own.extents_[axis] = !exists ? 0 : left < tile_shape_[axis] ? left : tile_shape_[axis];
      own.strides_bytes_[axis] = strides_bytes_[axis];
      own.shape_[axis] = shape_[axis];
      offset += own.origin_[axis] * strides_bytes_[axis];
    }
    own.data_ = reinterpret_cast<T*>(reinterpret_cast<char*>(data_) + offset);
    return own;
  }

  // The extent of the whole array.
  __device__ __forceinline__ long long shape(int axis) const {
    return shape_[detail::checked_axis("Partition", axis, N)];
  }
  // The extent of a tile that no edge clips.
  __device__ __forceinline__ long long tile_shape(int axis) const {
    return tile_shape_[detail::checked_axis("Partition", axis, N)];
  }

 private:
  T* data_;
  long long shape_[N];
  long long strides_bytes_[N];
  long long tile_shape_[N];
};

}  // namespace aiocuda

#undef AIOCUDA_TILE_CHECKS
