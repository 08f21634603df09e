"""What the emulated driver's kernels cost, as ratios to plain C++ loops or to NumPy in the same run.

Compile times, element-wise kernels, launches, a tiled matrix product with barriers, the check of alignments. Each pair
is measured in turns, so that a busy machine is busy for both. Needs g++ or another C++ compiler as `c++`.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

THREADS = len(os.sched_getaffinity(0))
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = str(THREADS)  # before NumPy
os.environ["AIOCUDA_DRIVER"] = "emulated"
scratch = tempfile.TemporaryDirectory()
os.environ["AIOCUDA_CACHE_DIR"] = scratch.name  # nothing is compiled yet

import numpy as np  # noqa: E402 - see above

import aiocuda as ac  # noqa: E402

COMPILATIONS = 9
ROUNDS = 9
ITEMS = 16 << 20
LAUNCHES = 20_000

PLAIN = r"""
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

static void saxpy(float a, const float* x, float* y, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) y[i] = a * x[i] + y[i];
}
static void scale(const float* x, float* y, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) y[i] = 2.0f * x[i];
}
template <class F> static void on_threads(unsigned threads, std::size_t n, F f) {
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; ++t) running.emplace_back([=] { f(n * t / threads, n * (t + 1) / threads); });
  for (std::thread& each : running) each.join();
}
extern "C" void plain_saxpy(unsigned threads, float a, const float* x, float* y, std::size_t n) {
  on_threads(threads, n, [=](std::size_t first, std::size_t last) { saxpy(a, x, y, first, last); });
}
extern "C" void plain_scale(unsigned threads, const float* x, float* y, std::size_t n) {
  on_threads(threads, n, [=](std::size_t first, std::size_t last) { scale(x, y, first, last); });
}
using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                       void**);
using Synchronise = int (*)(void*);
// Nanoseconds for a launch: until all have run.
extern "C" double launch(Launch launch, Synchronise synchronise, void* function, void* stream, int count) {
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    if (launch(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr) != 0) return -1;
  }
  if (synchronise(stream) != 0) return -1;
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - before).count() / count;
}
"""

KERNELS = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void scale(const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
extern "C" __global__ void nothing() {}
#define TILE 16
extern "C" __global__ void product(const float* A, const float* B, float* C, int n) {
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n / TILE; t++) {
        As[threadIdx.y][threadIdx.x] = A[row * n + t * TILE + threadIdx.x];
        Bs[threadIdx.y][threadIdx.x] = B[(t * TILE + threadIdx.y) * n + col];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    C[row * n + col] = sum;
}
"""
# A cast of pointers anywhere has the compiler look at the alignment of every access of the program.
CAST = "\n__device__ float4* cast(float* x) { return reinterpret_cast<float4*>(x); }\n"


def seconds(work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def in_turns(*works: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Return the least time of each."""
    times = [[seconds(work) for work in works] for _ in range(rounds)]
    return [min(of_one) for of_one in zip(*times, strict=True)]


def plain() -> ctypes.CDLL:
    place = Path(scratch.name)
    (place / "plain.cpp").write_text(PLAIN)
    command = [
        "c++",
        "-std=c++20",
        "-O3",
        "-march=native",
        "-shared",
        "-fPIC",
        "-pthread",
        "plain.cpp",
        "-o",
        "plain.so",
    ]
    subprocess.run(command, cwd=place, check=True)
    return ctypes.CDLL(str(place / "plain.so"))


def compile_times() -> None:
    times = []
    for each in range(COMPILATIONS):
        kernel = ac.kernel(f'extern "C" __global__ void k{each}(float* x) {{ x[threadIdx.x] += {each}; }}')
        times.append(seconds(lambda: kernel.compile(ac.Device(0))))  # noqa: B023 - called at once
    print(f"compile a small kernel: median {statistics.median(times):.3f} s, least {min(times):.3f} s (goal: 0.5 s)")


def element_wise(loops: ctypes.CDLL) -> None:
    saxpy, scale = ac.kernel(KERNELS, "saxpy"), ac.kernel(KERNELS, "scale")
    x, y = ac.ones(ITEMS, np.float32).sync(), ac.ones(ITEMS, np.float32).sync()
    host_x, host_y = np.ones(ITEMS, np.float32), np.ones(ITEMS, np.float32)
    places = [ctypes.c_void_p(each.ctypes.data) for each in (host_x, host_y)]
    count = ctypes.c_size_t(ITEMS)
    for name, kernel, loop in (
        (
            "saxpy",
            lambda: saxpy(0.5, x, y, ITEMS, threads=ITEMS).sync(),
            lambda: loops.plain_saxpy(THREADS, ctypes.c_float(0.5), *places, count),
        ),
        (
            "scale",
            lambda: scale(x, y, ITEMS, threads=ITEMS).sync(),
            lambda: loops.plain_scale(THREADS, *places, count),
        ),
    ):
        kernel_s, plain_s = in_turns(kernel, loop)
        print(
            f"{name} of {ITEMS} floats: {kernel_s * 1e3:.2f} ms, plain C++ {plain_s * 1e3:.2f} ms, "
            f"ratio {kernel_s / plain_s:.2f} (goal: 1.1)"
        )


def launches(loops: ctypes.CDLL) -> None:
    from cuda.bindings import driver, nvrtc

    library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    program = KERNELS[KERNELS.index('extern "C" __global__ void nothing') : KERNELS.index("#define")]
    made = nvrtc.nvrtcCreateProgram(program.encode(), b"k.cu", 0, [], [])[1]
    assert nvrtc.nvrtcCompileProgram(made, 0, [])[0] == 0
    image = b" " * nvrtc.nvrtcGetCUBINSize(made)[1]
    nvrtc.nvrtcGetCUBIN(made, image)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    module = driver.cuModuleLoadData(image)[1]
    function, stream = driver.cuModuleGetFunction(module, b"nothing")[1], driver.cuStreamCreate(1)[1]
    loops.launch.restype = ctypes.c_double
    found = [
        loops.launch(
            library.cuLaunchKernel,
            library.cuStreamSynchronize,
            ctypes.c_void_p(int(function)),
            ctypes.c_void_p(int(stream)),
            LAUNCHES,
        )
        for _ in range(ROUNDS)
    ]
    print(
        f"a launch of an empty kernel, until it has run: median {statistics.median(found):.0f} ns, "
        f"least {min(found):.0f} ns (goal: 250 ns)"
    )


def products() -> None:
    kernel = ac.kernel(KERNELS, "product")
    for n in (512, 1024):
        host = np.random.default_rng(1).normal(size=(n, n)).astype(np.float32)
        a, c = ac.to_device(host).sync(), ac.zeros((n, n), np.float32).sync()
        kernel_s, numpy_s = in_turns(
            lambda: kernel(a, a, c, n, grid=(n // 16, n // 16), block=(16, 16)).sync(),  # noqa: B023 - called at once
            lambda: host @ host,  # noqa: B023
            rounds=3,
        )
        assert np.allclose(ac.to_host(c).sync(), host @ host, atol=1e-2)
        print(
            f"tiled matrix product {n}^3: {kernel_s * 1e3:.0f} ms, {2e-9 * n**3 / kernel_s:.1f} GFLOP/s; NumPy "
            f"{numpy_s * 1e3:.1f} ms, ratio {kernel_s / numpy_s:.1f} (goal for 1024: 6)"
        )


def alignment() -> None:
    x, y = ac.ones(ITEMS, np.float32).sync(), ac.ones(ITEMS, np.float32).sync()
    for name in ("scale", "saxpy"):
        checked, unchecked = ac.kernel(CAST + KERNELS, name), ac.kernel(KERNELS, name)
        values = (x, y, ITEMS) if name == "scale" else (0.5, x, y, ITEMS)
        checked_s, unchecked_s = in_turns(
            lambda: checked(*values, threads=ITEMS).sync(),  # noqa: B023 - called at once
            lambda: unchecked(*values, threads=ITEMS).sync(),  # noqa: B023
        )
        print(
            f"{name} of {ITEMS} floats with the check of alignments: {checked_s * 1e3:.2f} ms, without "
            f"{unchecked_s * 1e3:.2f} ms, ratio {checked_s / unchecked_s:.2f}"
        )


def main() -> None:
    print(f"{THREADS} cores, load {os.getloadavg()[0]:.1f}, NumPy {np.__version__}, Python {sys.version.split()[0]}")
    loops = plain()
    compile_times()
    element_wise(loops)
    launches(loops)
    products()
    alignment()


if __name__ == "__main__":
    main()
