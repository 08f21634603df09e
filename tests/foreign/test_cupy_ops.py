"""`aiocuda.interop.cupy.op` with CuPy itself."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from real import QUIET, imported

import aiocuda as ac
from aiocuda.interop.cupy import op

cupy = imported("cupy")

pytestmark = QUIET

N = 1 << 12


def host(x: Any) -> np.ndarray:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60)


def full(value: float, dtype: Any = np.float32) -> ac.DeviceArray:
    return ac.full(N, value, dtype).sync(60)


def test_arrays_share_memory_and_stream(device):
    stream, x = device.stream(), full(3)
    seen = []

    def look(a: Any) -> None:
        seen.append((a.data.ptr, a.shape, a.dtype, cupy.cuda.get_current_stream().ptr))

    before = cupy.cuda.get_current_stream().ptr
    assert op(look, x).sync_on(stream, 60) is None
    assert seen == [(x.address, (N,), np.float32, stream.handle)]
    assert cupy.cuda.get_current_stream().ptr == before


def test_results_are_arrays_that_kernels_use(kernels, run):
    async def main() -> None:
        y = op(lambda a: a * 2, full(3, np.int32))
        assert (await ac.to_host(kernels.increment(y, N, threads=N)) == 7).all()

    run(main)


def test_views_go_in_and_come_out():
    expected = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = ac.asarray(expected).sync(60)
    transposed, part = op(lambda a: (a.T, a[1:, ::2]), x).sync(60)
    assert (host(transposed) == expected.T).all()
    assert (host(part) == expected[1:, ::2]).all()
    assert transposed.address == x.address
    assert (host(op(lambda a: a + 1, x[:, 1:3])) == expected[:, 1:3] + 1).all()
    with pytest.raises(ac.ArgumentValueError, match="strides"):
        op(lambda a: a[::-1], x).sync(60)


def test_in_place_writes():
    x = full(1)

    def add(a: Any) -> Any:
        a += 1
        return a

    assert op(add, x, writes=[x]).sync(60) is x
    assert (host(x) == 2).all()


def test_kernels_of_cupys_and_products():
    square = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * x", "square")
    assert (host(op(square, full(3))) == 9).all()
    a = np.random.default_rng(1).random((64, 32), np.float32)
    assert np.allclose(host(op(lambda x: x @ x.T, ac.asarray(a).sync(60))), a @ a.T, atol=1e-4)


def test_weights_that_were_just_loaded_are_waited_for():
    weight = cupy.zeros(1 << 24, np.float32)
    for value in range(20):
        weight.fill(value)
    assert (host(op(lambda: weight[:N].copy())) == 19).all()


def test_results_are_kept_while_their_stream_gives_out_memory(latch, device):
    producing, held = device.stream(), device.stream()
    y = op(lambda: cupy.full(N, 5, np.float32)).sync_on(producing, 60)
    latch.hold(held)
    copied = ac.dup(y).on(held)
    copied.submit()
    del y
    gc.collect()
    others = [op(lambda v: cupy.full(N, v, np.float32), v).sync_on(producing, 60) for v in range(4)]
    latch.release()
    assert (host(copied) == 5).all()
    assert [host(other)[0] for other in others] == [0, 1, 2, 3]


def test_compiled_functions_give_results_of_the_callers_own():
    compiled = ac.compile(lambda x: op(lambda a: cupy.sqrt(a * 2 + 1), x))
    results = [compiled(full(value)).sync(60) for value in (0, 4, 12)]
    others = [cupy.full(N, 77, np.float32) for _ in range(16)]
    assert compiled.cache_info().misses == 1
    assert [host(result)[0] for result in results] == [1, 3, 5]
    assert host(compiled(full(24)))[0] == 7
    assert all(bool((each == 77).all()) for each in others)


def test_results_go_to_pytorch_and_back():
    torch = pytest.importorskip("torch")
    from aiocuda.interop import torch as pytorch

    x: Any = full(1)
    for _ in range(20):
        x = op(cupy.add, pytorch.op(torch.add, x, 1), 1)
    assert (host(x) == 41).all()
