"""`aiocuda.interop.cupy.kernel` with CuPy itself: what its kernels say needs no GPU, their launches do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from real import NEEDS_GPU, QUIET, check_order, imported

import aiocuda as ac
from aiocuda.interop.cupy import kernel

cupy = imported("cupy", needs_gpu=False)

pytestmark = QUIET

N = 1 << 12
SOURCE = r"""
extern "C" __global__ void add(float a, const float* x, float* y, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = x[i] + a;
}
template <class T> __global__ void twice(const T* x, T* y, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = x[i] + x[i];
}
extern "C" __global__ void shared(const float* x, float* y) {
    extern __shared__ float part[];
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}
"""
HIDDEN = '#define KERNEL extern "C" __global__\nKERNEL void hidden(const float* x, float* y) { y[0] = x[0]; }'
GRID, BLOCK = (N // 256,), (256,)


def raw(name: str = "add", source: str = SOURCE) -> Any:
    return cupy.RawKernel(source, name, options=("--std=c++17",))


def square() -> Any:
    return cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * x", "square")


def halves() -> Any:
    return cupy.ElementwiseKernel("float32 x", "float32 y, float32 z", "y = x / 2; z = x - y", "halves")


def total() -> Any:
    return cupy.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")


def host(x: Any) -> np.ndarray:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60)


def full(value: float, dtype: Any = np.float32) -> ac.DeviceArray:
    return ac.full(N, value, dtype).sync(60)


# --- what is written, and misuse -------------------------------------------------------------------------------------


def accesses(monkeypatch: pytest.MonkeyPatch, make: Any) -> list[Any]:
    """What `make` has the operation write."""
    from aiocuda._interop import kernels

    seen: list[Any] = []
    operation = kernels.operation
    monkeypatch.setattr(kernels, "operation", lambda *given: seen.append(given[4]) or operation(*given))
    make()
    (written,) = seen
    return list(written)


@pytest.mark.parametrize(
    ("name", "said", "position"),
    [
        ("add", None, 1),
        ("add", ["x"], 0),
        ("add", [2], 1),
        ("hidden", [0], 0),
    ],
)
def test_what_a_raw_kernel_writes(monkeypatch, name, said, position):
    x, y = full(1), full(2)
    arguments = {"add": (np.float32(1), x, y, N), "hidden": (x, y)}[name]
    made = kernel(raw(name, HIDDEN if name == "hidden" else SOURCE), writes=said)
    written = accesses(monkeypatch, lambda: made(GRID, BLOCK, arguments))
    assert [each is (x, y)[position] for each in written] == [True]


@pytest.mark.parametrize(
    ("made", "arguments", "keywords", "expected"),
    [
        (square, "x", {}, ""),
        (square, "xy", {}, "y"),
        (square, "x", {"size": N}, ""),
        (halves, "xyz", {}, "yz"),
        (total, "x", {"axis": 0}, ""),
        (total, "xy", {}, "y"),
        (total, "x", {"out": "y"}, "y"),
    ],
)
def test_what_a_kernel_of_parameters_in_and_out_writes(monkeypatch, made, arguments, keywords, expected):
    arrays = {name: full(1) for name in "xyz"}
    keywords = {name: arrays.get(value, value) for name, value in keywords.items()}
    written = accesses(monkeypatch, lambda: kernel(made())(*(arrays[name] for name in arguments), **keywords))
    assert len(written) == len(expected)
    assert all(each is arrays[name] for each, name in zip(written, expected, strict=True))


def test_misuse_is_an_error():
    x, launch = full(1), kernel(raw())
    with pytest.raises(ac.ArgumentTypeError, match=r"add takes 4 arguments \(a, x, y, n\), and 2 were given"):
        launch(GRID, BLOCK, (x, x))
    with pytest.raises(ac.ArgumentTypeError, match="add writes 'y', which takes an array on a device, not 3"):
        launch(GRID, BLOCK, (np.float32(1), x, 3, N))
    for arguments in ((GRID, BLOCK), (GRID, BLOCK, x), ()):
        with pytest.raises(ac.ArgumentTypeError, match=r"takes \(grid, block, \(its arguments\)\)"):
            launch(*arguments)
    with pytest.raises(ac.ArgumentTypeError, match=r"'stream' is none of its keywords \(shared_mem\)"):
        launch(GRID, BLOCK, (np.float32(1), x, x, N), stream=1)
    for wrong in (["out"], "y", [4], [-1]):
        with pytest.raises(ac.ArgumentValueError, match="add, which are a, x, y, n"):
            kernel(raw(), writes=wrong)
    with pytest.raises(ac.ArgumentValueError, match=r"no source shows its parameters; .* writes=\[1\]"):
        kernel(raw("hidden", HIDDEN))
    with pytest.raises(ac.ArgumentTypeError, match="hidden writes its argument 3, and 2 arguments were given"):
        kernel(raw("hidden", HIDDEN), writes=[3])(GRID, BLOCK, (x, x))
    with pytest.raises(ac.ArgumentTypeError, match=r"square takes 1 arguments \(x\), .* \(y\); 3 were given"):
        kernel(square())(x, x, x)
    with pytest.raises(ac.ArgumentTypeError, match="'axis' is none of its keywords"):
        kernel(square())(x, axis=0)
    with pytest.raises(ac.ArgumentTypeError, match="square writes 'y', which takes an array"):
        kernel(square())(x, 3)
    with pytest.raises(ac.ArgumentTypeError, match="out= was given, and what it writes by position"):
        kernel(total())(x, x, out=x)
    with pytest.raises(ac.ArgumentTypeError, match="total says itself what it writes"):
        kernel(total(), writes=["y"])
    with pytest.raises(ac.ArgumentTypeError, match=r"RawKernel, an ElementwiseKernel or a ReductionKernel .* op\(\)"):
        kernel(len)


# --- launches --------------------------------------------------------------------------------------------------------


@NEEDS_GPU
def test_a_raw_kernel_runs_on_the_operations_stream(run):
    async def main() -> None:
        x: Any = full(0)
        for _ in range(10):
            x = kernel(raw())(GRID, BLOCK, (np.float32(2), x, ac.empty(N, np.float32), np.int32(N)))
        assert (await ac.to_host(x) == 20).all()

    run(main)


@NEEDS_GPU
def test_templates_and_shared_memory():
    module = cupy.RawModule(code=SOURCE, options=("--std=c++17",), name_expressions=["twice<float>"])
    twice = kernel(module.get_function("twice<float>"), writes=[1])
    assert (host(twice(GRID, BLOCK, (full(4), ac.empty(N, np.float32), np.int32(N)))) == 8).all()
    source = ac.asarray(np.arange(64, dtype=np.float32)).sync(60)
    turned = kernel(raw("shared"))((1,), (64,), (source, ac.empty(64, np.float32)), shared_mem=256)
    assert (host(turned) == np.arange(64)[::-1]).all()


@NEEDS_GPU
def test_a_kernel_is_ordered_by_what_it_reads_and_writes(latch, device, settle):
    x, y = full(3), full(0)
    launch = kernel(raw())
    check_order(lambda: launch(GRID, BLOCK, (np.float32(1), x, y, np.int32(N))), x, y, 8, latch, device, settle)


@NEEDS_GPU
def test_kernels_of_parameters_in_and_out_make_arrays_or_write_those_given():
    y = full(0)
    assert (host(kernel(square())(full(3))) == 9).all()
    assert kernel(square())(full(4), y).sync(60) is y
    assert (host(y) == 16).all()
    one, other = kernel(halves())(full(8)).sync(60)
    assert (host(one)[0], host(other)[0]) == (4, 4)
    x = ac.asarray(np.arange(12, dtype=np.float32).reshape(3, 4)).sync(60)
    assert host(kernel(total())(x, axis=0)).tolist() == [12, 15, 18, 21]
    out = ac.empty(3, np.float32).sync(60)
    assert kernel(total())(x, axis=1, out=out).sync(60) is out
    assert host(out).tolist() == [6, 22, 38]
    assert host(kernel(total())(kernel(square())(x[:, 1:3]), keepdims=True)).tolist() == [[1 + 4 + 25 + 36 + 81 + 100]]


@NEEDS_GPU
def test_compiled_functions():
    @ac.compile
    def compiled(x: Any) -> Any:
        added = kernel(raw())(GRID, BLOCK, (np.float32(1), x, ac.empty(N, np.float32), np.int32(N)))
        return kernel(square())(added)

    kernel(raw())(GRID, BLOCK, (np.float32(1), full(0), full(0), np.int32(N))).sync(60)
    kernel(square())(full(0)).sync(60)
    assert [host(compiled(full(value)))[0] for value in (0, 4, 7)] == [1, 25, 64]
    assert compiled.cache_info().misses == 1


@NEEDS_GPU
def test_tensors_are_arguments():
    x, y = cupy.full(N, 2, np.float32), cupy.zeros(N, np.float32)
    for _ in range(20):
        x += 1
        kernel(raw())(GRID, BLOCK, (np.float32(1), x, y, np.int32(N))).submit()
        x.fill(0)
        x += y
    assert (x.get() == 42).all()


@NEEDS_GPU
@pytest.mark.needs_devices(2)
def test_an_array_of_another_device_is_an_error():
    there = ac.zeros(N, np.float32, device=1).sync(60)
    with pytest.raises(ac.DeviceMismatchError, match="device 1"):
        kernel(square())(full(1), there).sync(60)
