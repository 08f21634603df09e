"""cub's primitives of blocks that move, sort and count, by NVIDIA's own headers. Each module has many cases: to compile
these headers takes longer than to run the kernels."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac

# Storage in memory that each launch asks for: what all kernels of a module declare is too much for one of them.
STORAGE = """
template <class T> __device__ T& storage() {
  extern __shared__ __align__(16) char bytes[];
  __syncthreads();
  return *reinterpret_cast<T*>(bytes);
}
"""
SHARED = 24 << 10

# The threads of a block, and the items of a thread.
SHAPES = [(32, 1), (96, 3), (256, 4)]
BY_SHAPE = "".join(
    f"if (blockDim.x == {size}) {{{{ {{0}}<T, {size}, {items}>{{1}}; return; }}}}\n" for size, items in SHAPES
)


def module(
    options: ac.CompileOptions, source: str, function: str, parameters: str, arguments: str, types: dict[str, str]
) -> ac.Module:
    """Kernels of each type, each for blocks of every shape."""
    source = STORAGE + source
    for name, of_device in types.items():
        source += (
            f'extern "C" __global__ void {name}({parameters.replace("T", of_device)}) {{\n  using T = {of_device};\n'
        )
        source += BY_SHAPE.format(function, f"({arguments})") + "}\n"
    return ac.Module.from_source(source, options=options)


def numbers(dtype: str, count: int, most: int = 120) -> np.ndarray:
    least = 0 if np.dtype(dtype).kind == "u" else -most
    return np.random.default_rng(count).integers(least, most, count).astype(dtype)


@pytest.fixture(scope="module")
def sorts(options: ac.CompileOptions) -> ac.Module:
    source = """
    #include <cub/block/block_merge_sort.cuh>
    #include <cub/block/block_radix_sort.cuh>
    struct Less { template <class T> __device__ bool operator()(const T& a, const T& b) const { return a < b; } };
    template <class T, int size, int items>
    __device__ void merge(T (&x)[items]) {
      using Merge = cub::BlockMergeSort<T, size, items>;
      Merge(storage<typename Merge::TempStorage>()).StableSort(x, Less{});
    }
    template <class T, int size, int items>
    __device__ void sort(T* io, T* down, int* places, T* merged) {
      using Radix = cub::BlockRadixSort<T, size, items>;
      using Pairs = cub::BlockRadixSort<T, size, items, int>;
      T a[items], b[items], c[items];
      int place[items];
      for (int i = 0; i < items; ++i) {
        place[i] = threadIdx.x * items + i;
        a[i] = b[i] = c[i] = io[place[i]];
      }
      Pairs(storage<typename Pairs::TempStorage>()).Sort(a, place);
      Radix(storage<typename Radix::TempStorage>()).SortDescending(b);
      // cub merges blocks of these sizes alone.
      if constexpr ((size & (size - 1)) == 0) merge<T, size, items>(c);
      for (int i = 0; i < items; ++i) {
        const int at = threadIdx.x * items + i;
        io[at] = a[i], down[at] = b[i], places[at] = place[i], merged[at] = c[i];
      }
    }
    """
    types = {"uint8": "unsigned char", "int32": "int", "int64": "long long", "float64": "double"}
    return module(options, source, "sort", "T* io, T* down, int* places, T* merged", "io, down, places, merged", types)


@pytest.mark.parametrize(("size", "items"), SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float64"])
def test_sorts_match_numpy(sorts: ac.Module, dtype: str, size: int, items: int):
    count = size * items
    given = numbers(dtype, count)
    io = ac.to_device(given).sync()
    down, merged = ac.zeros(count, dtype).sync(), ac.zeros(count, dtype).sync()
    places = ac.zeros(count, np.int32).sync()
    sorts.kernel(dtype)(io, down, places, merged, grid=1, block=size, shared_memory=SHARED).sync()
    np.testing.assert_array_equal(ac.to_host(io).sync(), np.sort(given))
    np.testing.assert_array_equal(ac.to_host(places).sync(), np.argsort(given, kind="stable"))
    np.testing.assert_array_equal(ac.to_host(down).sync(), np.sort(given)[::-1])
    is_merged = size & (size - 1) == 0
    np.testing.assert_array_equal(ac.to_host(merged).sync(), np.sort(given) if is_merged else given)


@pytest.fixture(scope="module")
def moves(options: ac.CompileOptions) -> ac.Module:
    source = """
    #include <cub/block/block_exchange.cuh>
    #include <cub/block/block_load.cuh>
    #include <cub/block/block_store.cuh>
    template <class T, int size, int items, cub::BlockLoadAlgorithm in, cub::BlockStoreAlgorithm out>
    __device__ void copy(const T* from, T* to, int n) {
      using Load = cub::BlockLoad<T, size, items, in>;
      using Store = cub::BlockStore<T, size, items, out>;
      T x[items];
      Load(storage<typename Load::TempStorage>()).Load(from, x, n, T(7));
      Store(storage<typename Store::TempStorage>()).Store(to, x);
    }
    template <class T, int size, int items>
    __device__ void move(const T* from, T* to, T* striped, int n) {
      copy<T, size, items, cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_DIRECT>(from, to, n);
      copy<T, size, items, cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED>(from, to + size * items, n);
      copy<T, size, items, cub::BLOCK_LOAD_VECTORIZE, cub::BLOCK_STORE_VECTORIZE>(from, to + 2 * size * items, n);
      copy<T, size, items, cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_TRANSPOSE>(from, to + 3 * size * items, n);
      copy<T, size, items, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE>(
          from, to + 4 * size * items, n);
      using Exchange = cub::BlockExchange<T, size, items>;
      T x[items];
      for (int i = 0; i < items; ++i) x[i] = from[threadIdx.x * items + i];
      Exchange(storage<typename Exchange::TempStorage>()).BlockedToStriped(x, x);
      for (int i = 0; i < items; ++i) striped[threadIdx.x * items + i] = x[i];
    }
    """
    types = {"int16": "short", "int32": "int", "float64": "double"}
    return module(options, source, "move", "const T* from, T* to, T* striped, int n", "from, to, striped, n", types)


@pytest.mark.parametrize(("size", "items"), SHAPES)
@pytest.mark.parametrize("dtype", ["int16", "int32", "float64"])
def test_loads_and_stores_move_each_item(moves: ac.Module, dtype: str, size: int, items: int):
    count = size * items
    given = numbers(dtype, count)
    to, striped = ac.zeros(5 * count, dtype).sync(), ac.zeros(count, dtype).sync()
    for n in (count, count - 5):
        moves.kernel(dtype)(ac.to_device(given), to, striped, n, grid=1, block=size, shared_memory=SHARED).sync()
        expected = np.where(np.arange(count) < n, given, 7)
        for copied in ac.to_host(to).sync().reshape(5, count):
            np.testing.assert_array_equal(copied, expected)
    by_stripe = given.reshape(items, size).T.ravel()
    np.testing.assert_array_equal(ac.to_host(striped).sync(), by_stripe)


@pytest.fixture(scope="module")
def counts(options: ac.CompileOptions) -> ac.Module:
    source = """
    #include <cub/block/block_adjacent_difference.cuh>
    #include <cub/block/block_discontinuity.cuh>
    #include <cub/block/block_histogram.cuh>
    #include <cub/block/block_shuffle.cuh>
    template <class T, int size, int items, cub::BlockHistogramAlgorithm how>
    __device__ void histogram(const T* in, int* out) {
      using Histogram = cub::BlockHistogram<T, size, items, 128, how>;
      __shared__ int bins[128];
      T x[items];
      for (int i = 0; i < items; ++i) x[i] = in[threadIdx.x * items + i];
      Histogram(storage<typename Histogram::TempStorage>()).Histogram(x, bins);
      __syncthreads();
      for (int i = threadIdx.x; i < 128; i += size) out[i] = bins[i];
      __syncthreads();
    }
    template <class T, int size, int items>
    __device__ void count(const T* in, int* bins, int* heads, T* differences, T* before) {
      histogram<T, size, items, cub::BLOCK_HISTO_ATOMIC>(in, bins);
      histogram<T, size, items, cub::BLOCK_HISTO_SORT>(in, bins + 128);
      using Discontinuity = cub::BlockDiscontinuity<T, size>;
      using Difference = cub::BlockAdjacentDifference<T, size>;
      using Shuffle = cub::BlockShuffle<T, size>;
      T x[items], less[items], up[items];
      int flags[items];
      for (int i = 0; i < items; ++i) x[i] = in[threadIdx.x * items + i];
      Discontinuity(storage<typename Discontinuity::TempStorage>()).FlagHeads(flags, x, cuda::std::not_equal_to<>{});
      Difference(storage<typename Difference::TempStorage>()).SubtractLeft(x, less, cuda::std::minus<>{});
      up[0] = x[0];
      Shuffle(storage<typename Shuffle::TempStorage>()).Up(x, up);
      for (int i = 0; i < items; ++i) {
        const int at = threadIdx.x * items + i;
        heads[at] = flags[i], differences[at] = less[i], before[at] = up[i];
      }
    }
    """
    parameters = "const T* in, int* bins, int* heads, T* differences, T* before"
    types = {"uint8": "unsigned char", "uint32": "unsigned"}
    return module(options, source, "count", parameters, "in, bins, heads, differences, before", types)


@pytest.mark.parametrize(("size", "items"), SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "uint32"])
def test_histograms_and_neighbours_match_numpy(counts: ac.Module, dtype: str, size: int, items: int):
    count = size * items
    given = numbers(dtype, count, most=4 if size == 96 else 120)
    bins, heads = ac.zeros(256, np.int32).sync(), ac.zeros(count, np.int32).sync()
    differences, before = ac.zeros(count, dtype).sync(), ac.zeros(count, dtype).sync()
    counts.kernel(dtype)(
        ac.to_device(given), bins, heads, differences, before, grid=1, block=size, shared_memory=SHARED
    ).sync()
    for found in ac.to_host(bins).sync().reshape(2, 128):
        np.testing.assert_array_equal(found, np.bincount(given, minlength=128))
    shifted = np.concatenate([given[:1], given[:-1]])
    expected = given - shifted
    expected[0] = given[0]
    np.testing.assert_array_equal(ac.to_host(heads).sync(), np.concatenate([[1], given[1:] != given[:-1]]))
    np.testing.assert_array_equal(ac.to_host(differences).sync(), expected)
    np.testing.assert_array_equal(ac.to_host(before).sync(), shifted)


STATIC = """
#include <cuda_fp16.h>
#include <cub/block/block_radix_sort.cuh>
template <class T>
__device__ void sort(T* x) {
  using Sort = cub::BlockRadixSort<T, 128, 4>;
  __shared__ typename Sort::TempStorage storage;
  T items[4];
  for (int i = 0; i < 4; ++i) items[i] = x[threadIdx.x * 4 + i];
  Sort(storage).Sort(items);
  for (int i = 0; i < 4; ++i) x[threadIdx.x * 4 + i] = items[i];
}
"""
# Of 4,640 bytes each: together more than a block may have.
STATIC_TYPES = {
    "float16": "__half",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}


@pytest.fixture(scope="module")
def static(options: ac.CompileOptions) -> ac.Module:
    kernels = (
        f'extern "C" __global__ void {name}({of_device}* x) {{ sort(x); }}\n'
        for name, of_device in STATIC_TYPES.items()
    )
    return ac.Module.from_source(STATIC + "".join(kernels), options=options)


@pytest.mark.parametrize("dtype", STATIC_TYPES)
def test_each_kernel_has_the_static_shared_memory_of_its_own_sort_alone(static: ac.Module, dtype: str):
    given = numbers(dtype, 512)
    if np.dtype(dtype).kind == "f":
        given /= 8
    found = static.kernel(dtype)(ac.to_device(given), grid=1, block=128).sync()
    np.testing.assert_array_equal(ac.to_host(found).sync(), np.sort(given))
