"""Each compiler that the emulated driver may be given makes of a kernel what CUDA C++ says it is.

A compiler sees the threads of a block as a loop, and may let several run as one. What tells a thread which one it is
must stay its own, wherever the kernel or a function reads it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.emulated_only

# Each kernel writes `y`, of integers, which for the compiler may be what says which thread it is. Those that read
# threadIdx in a function, a lambda or a class are compiled beside others that do not.
SOURCE = r"""
__device__ int my_index() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ int picked(const int* x, const int* at) { return x[at[threadIdx.x & 0]]; }

__global__ void gather(int* y, const int* x, const int* at, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[at[*at] * 0 + i] + x[at[0]];
}
__global__ void by_function(int* y, const int* x, const int* at, int n) {
    if (my_index() < n) y[my_index()] = x[my_index()] * 3 + picked(x, at);
}
__global__ void by_lambda(int* y, const int* x, const int* at, int n) {
    const auto index = [] { return blockIdx.x * blockDim.x + threadIdx.x; };
    if (index() < n) y[index()] = x[index()] - x[at[1]];
}
__global__ void by_class(int* y, const int* x, const int* at, int n) {
    struct Place {
        int index = blockIdx.x * blockDim.x + threadIdx.x;
    };
    if (Place().index < n) y[Place().index] = x[Place().index] ^ at[2];
}
template <int By> __global__ void reversed(int* y, const int* x, const int* at, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[n - 1 - i] = x[i] * By + threadIdx.x;
}
__global__ void in_place(int* y, const int* x, const int* at, int n) {
    const int i = my_index();
    if (i < n) y[i] = x[i];
    if (i < n) y[i] += (int)threadIdx.x * at[1];
}
"""
KERNELS = ("gather", "by_function", "by_lambda", "by_class", "reversed<5>", "in_place")
SIZES = (1, 7, 32, 100, 256, 257, 1000)
BLOCK = 256


def compilers() -> list[str]:
    """Return the compilers that are here: g++, every clang++, and zig of the wheel or of the path."""
    versions = {
        name.name
        for folder in os.environ.get("PATH", "").split(os.pathsep)
        if Path(folder).is_dir()
        for name in Path(folder).iterdir()
        if re.fullmatch(r"clang\+\+(-\d+)?", name.name)
    }
    found = [name for name in ("g++", *sorted(versions)) if shutil.which(name)]
    wheel = importlib.util.find_spec("ziglang")
    if wheel is not None and wheel.origin is not None:
        return [*found, str(Path(wheel.origin).with_name("zig"))]
    return [*found, *(["zig"] if shutil.which("zig") else [])]


SMALL_PROGRAM = """
import aiocuda as ac

double = ac.kernel(r'''
extern "C" __global__ void twice(int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}''')
print(ac.to_host(double(ac.arange(5, dtype="int32"), 5, threads=5)).sync(240))
"""


def test_the_extra_compiles_kernels_where_no_program_is_on_the_path(in_process, tmp_path):
    done = in_process(
        SMALL_PROGRAM, PATH="", HOME=str(tmp_path), AIOCUDA_CACHE_DIR="", XDG_CACHE_HOME="", AIOCUDA_CXX=""
    )
    assert (done.returncode, done.stdout) == (0, "[0 2 4 6 8]\n"), done.stderr
    assert sorted(each.name for each in (tmp_path / ".cache" / "aiocuda").iterdir()) == ["modules", "zig"]


def test_a_compiler_of_the_extra_that_has_no_directory_says_so(in_process):
    names = ("HOME", "AIOCUDA_CACHE_DIR", "XDG_CACHE_HOME", "ZIG_GLOBAL_CACHE_DIR", "AIOCUDA_CXX")
    done = in_process(SMALL_PROGRAM, PATH="", **dict.fromkeys(names, ""))
    assert done.returncode == 1
    assert "Set HOME, or AIOCUDA_CACHE_DIR to a directory of your own" in done.stderr


def expected(kernel: str, x: np.ndarray, at: np.ndarray) -> np.ndarray:
    threads = np.arange(x.size, dtype=np.int32) % BLOCK
    return {
        "gather": lambda: x + x[at[0]],
        "by_function": lambda: x * 3 + x[at[0]],
        "by_lambda": lambda: x - x[at[1]],
        "by_class": lambda: x ^ at[2],
        "reversed<5>": lambda: (x * 5 + threads)[::-1],
        "in_place": lambda: x + threads * at[1],
    }[kernel]().astype(np.int32)


@pytest.mark.parametrize("compiler", compilers(), ids=lambda path: Path(path).name)
def test_threads_that_run_as_one_know_which_they_are(in_process, compiler):
    done = in_process(
        f"""
        import json, sys
        import numpy as np
        import aiocuda as ac

        kernels = {{name: ac.kernel({SOURCE!r}, name) for name in {KERNELS!r}}}
        at = ac.to_device(np.array([0, 0, 9], np.int32)).sync(200).share()
        found = {{}}
        for n in {SIZES!r}:
            x = ac.to_device(np.arange(n, dtype=np.int32) + 11).sync(200).share()
            for name, kernel in kernels.items():
                y = kernel(ac.zeros(n, np.int32), x, at, n, threads=n, block={BLOCK})
                found[f"{{name}} {{n}}"] = ac.to_host(y).sync(200).tolist()
        print(json.dumps(found))
        """,
        AIOCUDA_CXX=compiler,
    )
    assert done.returncode == 0, done.stderr
    at = np.array([0, 0, 9], np.int32)
    found = json.loads(done.stdout)
    assert len(found) == len(KERNELS) * len(SIZES)
    wrong = []
    for case, values in found.items():
        kernel, n = case.split()
        if values != expected(kernel, np.arange(int(n), dtype=np.int32) + 11, at).tolist():
            wrong.append(case)
    assert not wrong, f"{Path(compiler).name} makes wrong results of {', '.join(wrong)}"
