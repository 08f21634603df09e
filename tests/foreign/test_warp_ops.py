"""`aiocuda.interop.warp.op` with Warp itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from real import NEEDS_GPU, QUIET, imported

import aiocuda as ac
from aiocuda.interop.warp import op

wp = imported("warp", needs_gpu=False)

pytestmark = QUIET

N = 1 << 12


@wp.kernel
def add(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):  # type: ignore[no-untyped-def]
    i = wp.tid()
    y[i] = x[i] + a


def launch(a: float, x: Any, y: Any) -> None:
    wp.launch(add, dim=N, inputs=[a, x], outputs=[y], device=x.device)


def host(x: Any) -> np.ndarray:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60)


def full(value: float, dtype: Any = np.float32) -> ac.DeviceArray:
    return ac.full(N, value, dtype).sync(60)


def current() -> int:
    return wp.get_device("cuda:0").stream.cuda_stream or 0


def test_arrays_share_memory_and_stream(device):
    stream, x = device.stream(), full(3)
    seen = []
    wp.init()
    before = current()
    assert op(lambda a: seen.append((a.ptr, a.shape, a.dtype, current())), x).sync_on(stream, 60) is None
    assert seen == [(x.address, (N,), wp.float32, stream.handle)]
    assert current() == before


def test_views_go_in_and_come_out():
    expected = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = ac.asarray(expected).sync(60)
    result = op(lambda a: {"t": a.transpose((1, 0)), "same": a, "part": a[1]}, x).sync(60)
    assert result["same"] is x
    assert (host(result["t"]) == expected.T).all()
    assert (host(result["part"]) == expected[1]).all()
    assert result["part"].address == x[1].address


def test_the_stream_comes_back_after_an_error():
    def fails(a: Any) -> None:
        raise ZeroDivisionError("mine")

    op(lambda a: None, full(1)).sync(60)
    before = current()
    with pytest.raises(ZeroDivisionError, match="mine"):
        op(fails, full(1)).sync(60)
    assert current() == before


@NEEDS_GPU
def test_a_kernel_runs_on_the_operations_stream(run):
    async def main() -> None:
        y = ac.zeros(N, np.float32)
        assert (await ac.to_host(op(launch, 2.0, full(3), y, writes=[y])) == 5).all()

    run(main)


@NEEDS_GPU
def test_arrays_that_warp_makes_are_results():
    def make(x: Any) -> Any:
        y = wp.empty(N, dtype=float, device=x.device)
        launch(1.0, x, y)
        return y

    x: Any = full(0)
    for _ in range(20):
        x = op(make, x)
    assert (host(x) == 20).all()


@NEEDS_GPU
def test_a_compiled_function():
    @ac.compile
    def compiled(x: Any) -> Any:
        y = ac.empty(N, np.float32)
        return op(launch, 1.0, x, y, writes=[y])

    wp.load_module(device="cuda:0")
    assert [host(compiled(full(value)))[0] for value in (0, 5, 7)] == [1, 6, 8]
