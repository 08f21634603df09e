"""NVIDIA's own headers of libcu++ and cub, as they are in the wheel, in kernels of the emulated driver."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import aiocuda as ac

BLOCKS = """
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
template <int size>
__global__ void primitives(const int* in, int* sums, int* total) {
  using Scan = cub::BlockScan<int, size>;
  using Reduce = cub::BlockReduce<int, size>;
  __shared__ typename Scan::TempStorage scan;
  __shared__ typename Reduce::TempStorage reduce;
  int sum;
  Scan(scan).InclusiveSum(in[threadIdx.x], sum);
  sums[threadIdx.x] = sum;
  const int all = Reduce(reduce).Sum(in[threadIdx.x]);
  if (threadIdx.x == 0) *total = all;
}
"""

WARPS = """
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
extern "C" __global__ void warps(const int* in, int* sums, int* most) {
  using Scan = cub::WarpScan<int>;
  using Reduce = cub::WarpReduce<int>;
  __shared__ typename Scan::TempStorage scan[4];
  __shared__ typename Reduce::TempStorage reduce[4];
  const int warp = threadIdx.x / 32;
  int scanned;
  Scan(scan[warp]).ExclusiveSum(in[threadIdx.x], scanned);
  sums[threadIdx.x] = scanned;
  const int found = Reduce(reduce[warp]).Reduce(in[threadIdx.x], cuda::maximum<>{});
  if (threadIdx.x % 32 == 0) most[warp] = found;
}
"""

STANDARD = """
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/complex>
#include <cuda/std/limits>
#include <cuda/std/optional>
#include <cuda/std/span>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>
extern "C" __global__ void standard(double* out) {
  cuda::std::array<int, 3> numbers{4, 5, 6};
  cuda::std::span<int> rest(numbers.data() + 1, 2);
  out[0] = rest[1] + rest.size();
  const auto [a, b] = cuda::std::make_tuple(3, 0.5);
  out[1] = a + b;
  cuda::std::optional<int> nothing;
  out[2] = nothing.value_or(7);
  const cuda::std::complex<double> z{1, 2};
  out[3] = (z * z).real();
  out[4] = cuda::std::numeric_limits<short>::max();
  out[5] = cuda::std::is_convertible_v<int, double> && !cuda::std::is_convertible_v<int*, double>;
  out[6] = cuda::std::popcount(0xffu);
  double sum = 0;
  for (double each : {1.5, 2.5}) sum += each;
  out[7] = sum;
}
"""

ATOMICS = """
#include <cuda/atomic>
extern "C" __global__ void atomics(int* sum, int* most) {
  cuda::atomic_ref<int, cuda::thread_scope_device> total(*sum);
  total.fetch_add(2, cuda::std::memory_order_relaxed);
  cuda::atomic_ref<int, cuda::thread_scope_block>(*most).fetch_max((int)threadIdx.x);
}
"""

BARRIERS = """
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda/std/utility>
using Barrier = cuda::barrier<cuda::thread_scope_block>;
// Three turns of "everyone takes what the next one had", with one barrier and two phases a turn.
extern "C" __global__ void turns(int* x) {
  __shared__ Barrier barrier;
  __shared__ int had[64];
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  for (int i = 0; i < 3; ++i) {
    had[threadIdx.x] = x[threadIdx.x];
    auto token = barrier.arrive();
    barrier.wait(cuda::std::move(token));
    x[threadIdx.x] = had[(threadIdx.x + 1) % 64];
    barrier.arrive_and_wait();
  }
}
// Threads leave, one after the other; those that stay go on without them.
extern "C" __global__ void leaves(int* x) {
  __shared__ Barrier barrier;
  __shared__ int turn;
  if (threadIdx.x == 0) init(&barrier, blockDim.x), turn = 0;
  __syncthreads();
  for (int i = 0; i < (int)threadIdx.x; ++i) {
    if (threadIdx.x == blockDim.x - 1) turn = i;
    barrier.arrive_and_wait();
    if (turn == i) x[threadIdx.x] += 1;
    barrier.arrive_and_wait();
  }
  barrier.arrive_and_drop();
}
// A copy by all threads, and copies by one, of which the barrier counts the bytes.
extern "C" __global__ void copies(const int* from, int* to, int* back) {
  __shared__ Barrier barrier;
  __shared__ alignas(16) int all[64], bulk[64];
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  cuda::memcpy_async(all + threadIdx.x, from + threadIdx.x, sizeof(int), barrier);
  barrier.arrive_and_wait();
  auto* const handle = cuda::device::barrier_native_handle(barrier);
  Barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::ptx::cp_async_bulk(cuda::ptx::space_cluster, cuda::ptx::space_global, bulk, from, sizeof bulk, handle);
    token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof bulk);
  } else {
    token = barrier.arrive();
  }
  barrier.wait(cuda::std::move(token));
  to[threadIdx.x] = all[threadIdx.x] + bulk[(threadIdx.x + 1) % 64];
  if (threadIdx.x < 32 && cuda::ptx::elect_sync(0xffffffffu)) {
    cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, back, bulk, sizeof bulk);
    cuda::ptx::cp_async_bulk_commit_group();
    cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<0>{});
  }
}
"""


@pytest.mark.parametrize("size", [32, 96, 256])
def test_sums_and_scans_of_a_block_match_numpy(options: ac.CompileOptions, size: int):
    kernel = ac.kernel(BLOCKS, f"primitives<{size}>", options=options)
    for seed in range(3):
        numbers = np.random.default_rng(seed).integers(-1000, 1000, size, dtype=np.int32)
        sums, total = ac.zeros(size, np.int32).sync(), ac.zeros(1, np.int32).sync()
        kernel(ac.to_device(numbers), sums, total, grid=1, block=size).sync()
        np.testing.assert_array_equal(ac.to_host(sums).sync(), np.cumsum(numbers, dtype=np.int32))
        assert ac.to_host(total).sync().tolist() == [numbers.sum()]


def test_primitives_of_warps_match_numpy(options: ac.CompileOptions):
    numbers = np.random.default_rng(1).integers(-1000, 1000, (4, 32), dtype=np.int32)
    sums, most = ac.zeros(128, np.int32).sync(), ac.zeros(4, np.int32).sync()
    ac.kernel(WARPS, options=options)(ac.to_device(numbers.ravel()), sums, most, grid=1, block=128).sync()
    before = np.cumsum(numbers, axis=1) - numbers
    np.testing.assert_array_equal(ac.to_host(sums).sync(), before.ravel())
    np.testing.assert_array_equal(ac.to_host(most).sync(), numbers.max(axis=1))


def test_the_standard_library_by_nvidia(options: ac.CompileOptions):
    op = ac.kernel(STANDARD, options=options)(ac.zeros(8, np.float64), grid=1, block=1)
    assert ac.to_host(op).sync().tolist() == [8, 3.5, 7, -3, 32767, 1, 8, 4]


def test_atomic_references(options: ac.CompileOptions):
    total, most = ac.zeros(1, np.int32).sync(), ac.zeros(1, np.int32).sync()
    ac.kernel(ATOMICS, options=options)(total, most, grid=3, block=64).sync()
    assert ac.to_host(total).sync().tolist() == [2 * 3 * 64]
    assert ac.to_host(most).sync().tolist() == [63]


def test_barriers_of_blocks(folder: str, options: ac.CompileOptions):
    if not Path(folder, "cuda", "__ptx", "instructions", "elect_sync.h").exists():
        pytest.skip("these headers have no ptx::elect_sync")
    module = ac.Module.from_source(BARRIERS, options=options)
    given = np.arange(64, dtype=np.int32)
    turned = module.kernel("turns")(ac.to_device(given), grid=1, block=64)
    np.testing.assert_array_equal(ac.to_host(turned).sync(), np.roll(given, -3))
    left = module.kernel("leaves")(ac.zeros(64, np.int32), grid=1, block=64)
    np.testing.assert_array_equal(ac.to_host(left).sync(), given)
    to, back = ac.zeros(64, np.int32).sync(), ac.zeros(64, np.int32).sync()
    module.kernel("copies")(ac.to_device(given), to, back, grid=1, block=64).sync()
    np.testing.assert_array_equal(ac.to_host(to).sync(), given + np.roll(given, -1))
    np.testing.assert_array_equal(ac.to_host(back).sync(), given)


def test_what_nvrtc_refuses_is_refused_beside_nvidias_headers(options: ac.CompileOptions):
    source = "#include <cuda/std/array>\nint helper() { return 1; }\n__global__ void k(int* x) { *x = helper(); }"
    with pytest.raises(ac.CompilationError, match="without execution space annotations"):
        ac.kernel(source, options=options)(ac.zeros(1, np.int32), grid=1, block=1).sync()


CONTROL = """
#include <cuda/ptx>
extern "C" __global__ void control(int* x, int runs) {
  *x = 5;
  if (runs) cuda::ptx::clusterlaunchcontrol_try_cancel(x, nullptr);
}
"""
CLUSTERS = """
#include <cuda/ptx>
extern "C" __global__ void __cluster_dims__(2, 1, 1) next(int* out) {
  __shared__ int value;
  const unsigned rank = cuda::ptx::get_sreg_cluster_ctarank();
  if (threadIdx.x == 0) value = 10 + rank;
  cuda::ptx::barrier_cluster_arrive();
  cuda::ptx::barrier_cluster_wait();
  int* theirs = static_cast<int*>(__cluster_map_shared_rank(&value, rank ^ 1));
  if (threadIdx.x == 0) out[blockIdx.x] = *theirs;
  cuda::ptx::barrier_cluster_arrive();
  cuda::ptx::barrier_cluster_wait();
}
"""


def run_with_and_without(in_process, folder: str, source: str, name: str):
    """Launch a kernel without what is not supported, which gives 5, and then with it, which loses the device."""
    done = in_process(f"""
        import aiocuda as ac
        options = ac.CompileOptions(include_paths=[{folder!r}])
        kernel = ac.Module.from_source({source!r}, options=options).kernel({name!r})
        print(ac.to_host(kernel(ac.zeros(1, "int32"), 0, grid=1, block=1)).sync())
        try:
            kernel(ac.zeros(1, "int32"), 1, grid=1, block=1).sync()
        except ac.errors.DeviceLostError as error:
            print(error)
    """)
    assert done.stdout.startswith("[5]"), done.stderr
    assert "CUDA_ERROR_NOT_SUPPORTED" in done.stdout
    return done


@pytest.mark.emulated_only
def test_an_instruction_that_is_not_supported_fails_with_its_name_where_it_runs(folder: str, in_process):
    done = run_with_and_without(in_process, folder, CONTROL, "control")
    assert re.search(r"clusterlaunchcontrol[._]try_cancel", done.stderr)
    assert "is not supported on the emulated driver" in done.stderr
    assert "clusterlaunchcontrol.h" in done.stderr


# The headers of CUDA 13.0 declare this in place of an instruction of newer devices, once for each of its forms.
OF_NEWER_DEVICES = """
extern "C" __device__ void __cuda_ptx_newest_is_not_supported_before_SM_100__();
template <typename = void>
__device__ static inline void newest(int*) { __cuda_ptx_newest_is_not_supported_before_SM_100__(); }
extern "C" __device__ void __cuda_ptx_newest_is_not_supported_before_SM_100__();
template <typename = void>
__device__ static inline void newest(float*) { __cuda_ptx_newest_is_not_supported_before_SM_100__(); }
"""


@pytest.mark.emulated_only
def test_an_instruction_of_newer_devices_fails_with_its_name_where_it_runs(tmp_path: Path, in_process):
    header = tmp_path / "cuda" / "std" / "__cccl" / "compiler.h"
    header.parent.mkdir(parents=True)
    header.write_text(OF_NEWER_DEVICES)
    source = """
        #include <cuda/std/__cccl/compiler.h>
        extern "C" __global__ void k(int* x, int runs) { *x = 5; if (runs) newest(x); }
    """
    done = run_with_and_without(in_process, str(tmp_path), source, "k")
    assert "compiler.h:2: cuda::ptx::newest is not supported on the emulated driver: it needs SM_100" in done.stderr


def test_libcuxxs_ptx_knows_clusters(options: ac.CompileOptions):
    kernel = ac.Module.from_source(CLUSTERS, options=options).kernel("next")
    assert ac.to_host(kernel(ac.zeros(4, np.int32), grid=4, block=32)).sync().tolist() == [11, 10] * 2


PIPELINE = """
#include <cuda/pipeline>
// A block copies batch after batch into shared memory, two ahead of what it adds up.
template <class T>
__device__ void sums(const T* x, T* out, int batches) {
  constexpr int stages = 2;
  __shared__ T batch[stages][32];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
  struct block {
    __device__ static void sync() { __syncthreads(); }
    __device__ static unsigned size() { return 32; }
    __device__ static unsigned thread_rank() { return threadIdx.x; }
  } group;
  auto pipe = cuda::make_pipeline(group, &state);
  for (int fetched = 0, used = 0; used < batches; ++used) {
    for (; fetched < batches && fetched < used + stages; ++fetched) {
      pipe.producer_acquire();
      cuda::memcpy_async(group, batch[fetched % stages], x + 32 * fetched, 32 * sizeof(T), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    T sum = 0;
    for (int i = 0; i < 32; ++i) sum += batch[used % stages][i];
    if (threadIdx.x == used % 32) out[used] = sum;
    pipe.consumer_release();
  }
}
extern "C" __global__ void int32(const int* x, int* out, int batches) { sums(x, out, batches); }
extern "C" __global__ void float64(const double* x, double* out, int batches) { sums(x, out, batches); }
"""


@pytest.fixture(scope="module")
def pipelines(options: ac.CompileOptions) -> ac.Module:
    return ac.Module.from_source(PIPELINE, options=options)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("batches", [1, 2, 7])
def test_a_pipeline_of_copies_into_shared_memory_keeps_their_order(pipelines: ac.Module, dtype: str, batches: int):
    x = np.arange(32 * batches, dtype=dtype)
    out = pipelines.kernel(dtype)(ac.to_device(x), ac.zeros(batches, dtype), batches, grid=1, block=32)
    np.testing.assert_array_equal(ac.to_host(out).sync(), x.reshape(batches, 32).sum(axis=1))
