"""`aiocuda.interop.warp.kernel` with Warp itself: what its kernels write needs no GPU, their launches do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from real import NEEDS_GPU, QUIET, imported

import aiocuda as ac
from aiocuda._interop.warp_kernels import _as_declared
from aiocuda.interop.warp import kernel, op

wp = imported("warp", needs_gpu=False)

pytestmark = QUIET

N = 1 << 12


@wp.func
def put(z: wp.array(dtype=float), i: int, value: float):  # type: ignore[no-untyped-def]
    z[i] = value


@wp.kernel
def uses(  # type: ignore[no-untyped-def]
    a: float,
    points: wp.array(dtype=wp.vec3),
    y: wp.array(dtype=float),
    count: wp.array(dtype=int),
    tiled: wp.array2d(dtype=float),
    out: wp.array(dtype=float),
):
    i = wp.tid()
    p = points[i]
    p[0] = 0.0
    put(y, i, p[1] + wp.sin(a))
    wp.atomic_add(count, 0, 1)
    wp.tile_store(tiled, wp.tile_load(tiled, shape=(8, 8)))
    out[i] = a


@wp.struct
class State:
    x: wp.array(dtype=float)


@wp.kernel
def of_struct(state: State):  # type: ignore[no-untyped-def]
    state.x[0] = 1.0


@wp.func_native("wp::atomic_add(z, 0, 1.0f);")
def native(z: wp.array(dtype=float)):  # type: ignore[no-untyped-def]
    ...


@wp.func
def either(z: wp.array(dtype=float)):  # type: ignore[no-untyped-def]
    z[0] = 1.0


@wp.func
def either(z: float):  # type: ignore[no-untyped-def]  # noqa: F811
    return z


@wp.func
def filled(z: wp.array(dtype=wp.Float), value: wp.Float):  # type: ignore[no-untyped-def]
    z[0] = value


@wp.kernel
def hidden(  # type: ignore[no-untyped-def]
    x: wp.array(dtype=float),
    a: wp.array(dtype=float),
    b: wp.array(dtype=float),
    c: wp.array(dtype=float),
    d: wp.array(dtype=float),
    e: wp.array(dtype=float),
):
    native(a)
    either(b)
    wp.atomic_add(i=0, value=x[wp.lower_bound(x, 1.0)], arr=c)
    state = State()
    state.x = d
    state.x[0] = wp.max(x[0], x[1])
    filled(e, 1.0)


@wp.kernel
def solves(x: wp.array(dtype=float), y: wp.array(dtype=float)):  # type: ignore[no-untyped-def]
    wp.dense_chol(1, x, 1.0, y)


@wp.kernel
def add(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):  # type: ignore[no-untyped-def]
    i = wp.tid()
    y[i] = x[i] + a


@wp.kernel
def lengths(points: wp.array(dtype=wp.vec3), y: wp.array(dtype=float)):  # type: ignore[no-untyped-def]
    i = wp.tid()
    y[i] = wp.length(points[i])


def array(dtype: Any = np.float32, shape: Any = 64) -> ac.DeviceArray:
    return ac.zeros(shape, dtype).sync(60)


def full(value: float) -> ac.DeviceArray:
    return ac.full(N, value, np.float32).sync(60)


def host(x: Any) -> np.ndarray:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60)


def test_what_a_kernel_writes_is_found_also_among_its_inputs(monkeypatch):
    from aiocuda._interop import kernels

    seen: list[Any] = []
    monkeypatch.setattr(kernels, "operation", lambda *given: seen.append([*given[4]]))
    arrays = [array(shape=(64, 3)), array(), array(np.int32), array(shape=(8, 8)), array()]
    kernel(uses)(64, inputs=[1.0, *arrays[:4]], outputs=arrays[4:])
    kernel(uses, writes=[])(64, inputs=[1.0], outputs=arrays)
    kernel(uses, writes=["y"])((64,), [1.0, *arrays[:4]], arrays[4:], block_dim=64)
    kernel(uses)(64, inputs=[1.0, *arrays])
    found = [[next(i for i, x in enumerate(arrays) if x is each) for each in one] for one in seen]
    assert found == [[1, 2, 3, 4], [0, 1, 2, 3, 4], [1, 4], [1, 2, 3, 4]]


def found_in(made: Any) -> tuple[str, str]:
    surely, unclear = kernel(made)._written
    return "".join(sorted(surely)), "".join(sorted(unclear))


def test_what_a_kernel_writes_in_hidden_ways_is_found():
    assert found_in(hidden) == ("de", "abc")
    assert found_in(solves) == ("", "xy")  # which of them is not known
    wp.launch(hidden, 1, inputs=[wp.zeros(4, dtype=float, device="cpu") for _ in range(6)], device="cpu")
    assert found_in(hidden) == ("de", "abc")  # also when a function has been compiled for its types


def test_misuse_is_an_error():
    arrays = [array(shape=(64, 3)), array(), array(np.int32), array(shape=(8, 8)), array()]
    with pytest.raises(ac.ArgumentTypeError, match=r"uses takes 6 arguments \(a, points, .*\), and 1 were given"):
        kernel(uses)(64, inputs=[1.0])
    with pytest.raises(ac.ArgumentTypeError, match="outputs= takes a list"):
        kernel(uses)(64, inputs=[1.0], outputs=arrays[0])
    with pytest.raises(ac.ArgumentTypeError, match="writes 'out', which takes an array on a device, not 3"):
        kernel(uses)(64, inputs=[1.0, *arrays[:4]], outputs=[3])
    with pytest.raises(ac.ArgumentValueError, match="points, y, count, tiled, out; 'x' was given"):
        kernel(uses, writes=["x"])
    with pytest.raises(ac.ArgumentTypeError, match=r"warp\.kernel"):
        kernel(len)
    with pytest.raises(ac.ArgumentTypeError, match="'state' of of_struct is a struct"):
        kernel(of_struct)


def test_arrays_of_scalars_are_seen_as_the_vectors_that_a_kernel_takes():
    points, y = array(shape=(64, 3)), array()
    vectors, scalars = (each.type for each in lengths.adj.args)
    seen = []

    def look(a: Any, b: Any) -> None:
        as_vectors = _as_declared(a, vectors)
        seen.append((as_vectors.shape, as_vectors.dtype, as_vectors.ptr))
        assert _as_declared(b, scalars) is b
        assert _as_declared(2.0, scalars) == 2.0

    op(look, points, y).sync(60)
    assert seen == [((64,), wp.vec3, points.address)]


@NEEDS_GPU
def test_a_kernel_runs_on_the_operations_stream(run):
    async def main() -> None:
        x: Any = full(0)
        for _ in range(10):
            x = kernel(add)(N, inputs=[2.0, x], outputs=[ac.empty(N, np.float32)])
        assert (await ac.to_host(x) == 20).all()

    run(main)


@NEEDS_GPU
def test_arrays_of_scalars_become_vectors():
    points = ac.asarray(np.tile(np.float32([3, 4, 0]), (N, 1))).sync(60)
    assert (host(kernel(lengths)(N, [points], [ac.empty(N, np.float32)])) == 5).all()


@NEEDS_GPU
def test_a_compiled_function():
    @ac.compile
    def compiled(x: Any) -> Any:
        return kernel(add)(N, inputs=[1.0, x], outputs=[ac.empty(N, np.float32)])

    wp.load_module(device="cuda:0")
    assert [host(compiled(full(value)))[0] for value in (0, 5, 7)] == [1, 6, 8]
