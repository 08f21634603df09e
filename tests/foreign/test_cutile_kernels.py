"""`aiocuda.interop.cutile.kernel` with cuTile itself: what its kernels write, and how it takes arrays, need no GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from real import NEEDS_GPU, QUIET, imported

import aiocuda as ac
from aiocuda._interop import kernels
from aiocuda._interop.cutile import _Lent
from aiocuda.interop.cutile import kernel

ct = imported("cuda.tile", needs_gpu=False)

pytestmark = QUIET

N, TILE = 1 << 12, 256
GRID = (N // TILE,)
Size = ct.Constant[int]


def stored(y, i, tile):  # type: ignore[no-untyped-def]
    ct.store(y, index=(i,), tile=tile)


@ct.kernel
def add(x, y, z, size: Size):  # type: ignore[no-untyped-def]
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(size,))
    b = ct.load(y, index=(i,), shape=(size,)).reshape((size,))
    stored(z, i, a + b)


@ct.kernel
def counts(x, index, count, viewed, size: Size):  # type: ignore[no-untyped-def]
    i = ct.bid(0)
    where = ct.gather(index, ct.arange(16, dtype=ct.int32))
    ct.atomic_add(count, where, ct.sum(ct.load(x, index=(i,), shape=(size,))))
    view = viewed.tiled_view((size,))
    view.store((i,), view.load((i,)))


@ct.kernel
def by_name(x, z, size: Size):  # type: ignore[no-untyped-def]
    ct.store(index=(0,), tile=ct.load(x, index=(0,), shape=(size,)), array=z)


def full(value: float, dtype: Any = np.float32) -> ac.DeviceArray:
    return ac.full(N, value, dtype).sync(60)


def host(x: Any) -> np.ndarray:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60)


def test_what_a_kernel_writes_is_found(monkeypatch):
    seen: list[Any] = []
    monkeypatch.setattr(kernels, "operation", lambda *given: seen.append([*given[4]]))
    arrays = [full(value) for value in range(4)]
    kernel(add)[GRID](*arrays[:3], TILE)
    kernel(counts)[GRID](*arrays, TILE)
    kernel(add, writes=["x"])[GRID](*arrays[:3], TILE)
    kernel(by_name)[GRID](*arrays[:2], TILE)
    found = [[next(i for i, x in enumerate(arrays) if x is each) for each in one] for one in seen]
    assert found == [[2], [2, 3], [0], [1]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int64"])
def test_cutile_takes_arrays_as_they_are_lent(dtype):
    from cuda.tile import _cext

    x = ac.zeros((4, 16), dtype).sync(60)
    as_v1 = _cext.CallingConvention.cutile_python_v1()
    taken = _cext.get_parameter_constraints_from_pyargs(add, (_Lent(x), _Lent(x[:, 2:4]), _Lent(x), 16), as_v1)
    assert [(each.dtype.name.strip("_"), each.ndim) for each in taken[:3]] == [(dtype, 2)] * 3


def test_misuse_is_an_error():
    x = full(1)
    with pytest.raises(ac.ArgumentTypeError, match=r"add takes 4 arguments \(x, y, z, size\), and 2 were given"):
        kernel(add)[GRID](x, x)
    with pytest.raises(ac.ArgumentTypeError, match="add writes 'z', which takes an array on a device, not 3"):
        kernel(add)[GRID](x, x, 3, TILE)
    for grid in (1, (), (1, 1, 1, 1)):
        with pytest.raises(ac.ArgumentTypeError, match="takes a grid of one to three numbers"):
            kernel(add)[grid]
    with pytest.raises(ac.ArgumentValueError, match="x, y, z, size; 'out' was given"):
        kernel(add, writes=["out"])
    with pytest.raises(ac.ArgumentTypeError, match=r"cuda\.tile\.kernel"):
        kernel(len)


@NEEDS_GPU
def test_a_kernel_runs_on_the_operations_stream(run):
    async def main() -> None:
        z: Any = full(0)
        for _ in range(10):
            z = kernel(add)[GRID](z, full(2), ac.empty(N, np.float32), TILE)
        assert (await ac.to_host(z) == 20).all()

    run(main)


@NEEDS_GPU
def test_a_compiled_function():
    launch = kernel(add)[GRID]
    launch(full(0), full(0), full(0), TILE).sync(60)  # it is compiled by now
    compiled = ac.compile(lambda x: launch(x, x, ac.empty(N, np.float32), TILE))
    assert [host(compiled(full(value)))[0] for value in (0, 5, 7)] == [0, 10, 14]
