"""`aiocuda.interop.numba.op` with Numba-CUDA itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from real import NEEDS_GPU, QUIET, imported

import aiocuda as ac
from aiocuda.interop.numba import kernel, op

imported("numba_cuda", needs_gpu=False)
cuda = imported("numba.cuda", needs_gpu=False)

pytestmark = QUIET

N = 1 << 12


@cuda.jit
def add(a, x, y):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < x.shape[0]:
        y[i] = x[i] + a


def launch(stream: Any, a: float, x: Any, y: Any) -> None:
    add[N // 256, 256, stream](np.float32(a), x, y)


def host(x: Any) -> np.ndarray:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60)


def full(value: float, dtype: Any = np.float32) -> ac.DeviceArray:
    return ac.full(N, value, dtype).sync(60)


@NEEDS_GPU
def test_a_kernel_runs_on_the_operations_stream(run, device):
    async def main() -> None:
        y = ac.zeros(N, np.float32)
        result = op(launch, 2, full(3), y, writes=[y])
        assert (await ac.to_host(result) == 5).all()

    run(main)


def test_arrays_share_memory_and_stream(device):
    stream, x = device.stream(), full(3)
    seen = []

    def look(theirs: Any, a: Any) -> None:
        seen.append((a.device_ctypes_pointer.value, a.shape, a.dtype, int(theirs.handle)))

    assert op(look, x).sync_on(stream, 60) is None
    assert seen == [(x.address, (N,), np.float32, stream.handle)]


def test_arrays_that_numba_makes_are_results():
    def make(stream: Any, x: Any) -> Any:
        y = cuda.device_array(N, np.float32, stream=stream)
        y.copy_to_device(x, stream=stream)
        return {"y": y, "part": x[:7]}

    x = full(4)
    result = op(make, x).sync(60)
    assert (host(result["y"]) == 4).all()
    assert result["part"].address == x.address
    assert result["part"].shape == (7,)


@NEEDS_GPU
def test_a_chain_of_operations():
    x: Any = ac.zeros(N, np.float32)
    for _ in range(20):
        y = ac.empty(N, np.float32)
        x = op(launch, 1, x, y, writes=[y])
    assert (host(x) == 20).all()


@NEEDS_GPU
def test_a_compiled_function():
    @ac.compile
    def compiled(x: Any) -> Any:
        y = ac.empty(N, np.float32)
        return op(launch, 1, x, y, writes=[y])

    op(launch, 1, full(0), y := ac.empty(N, np.float32), writes=[y]).sync(60)  # it is compiled by now
    assert [host(compiled(full(value)))[0] for value in (0, 5, 7)] == [1, 6, 8]


def test_views_go_in_and_come_out(device):
    expected = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = ac.asarray(expected).sync(60)
    part = op(lambda stream, a: a[1:, ::2], x).sync(60)
    assert (part.address, part.shape) == (x[1].address, (2, 2))
    assert (host(part) == expected[1:, ::2]).all()
    assert op(lambda stream, a: a.shape, x[:, 1:3]).sync(60) == (3, 2)


def test_results_are_kept_while_their_stream_is_at_work(latch, device):
    def make(stream: Any, x: Any) -> Any:
        y = cuda.device_array(N, np.float32, stream=stream)
        y.copy_to_device(x, stream=stream)
        return y

    held = device.stream()
    y = op(make, full(6)).sync(60)
    latch.hold(held)
    copied = ac.dup(y).on(held)
    copied.submit()
    del y
    others = [op(make, full(value)).sync(60) for value in range(3)]
    latch.release()
    assert (host(copied) == 6).all()
    assert [host(other)[0] for other in others] == [0, 1, 2]


def test_arrays_that_are_dropped_in_a_capture_are_freed_after_it():
    x, y = full(4), full(0)
    dropped = [cuda.device_array(N, np.float32) for _ in range(100)]

    def copy(stream: Any, source: Any, to: Any) -> None:
        dropped.clear()
        to.copy_to_device(source, stream=stream)

    graph = op(copy, x, y, writes=[y]).graph()
    graph.launch().sync(60)
    assert (host(y) == 4).all()


class Copies:
    """As a kernel of Numba's is launched, but of work that the emulated driver has."""

    def __init__(self) -> None:
        self.configurations: list[Any] = []

    @staticmethod
    def py_func(factor: float, source: Any, to: Any) -> None:
        """Give it its parameters."""

    def __getitem__(self, configuration: Any) -> Any:
        self.configurations.append((*configuration[:2], int(configuration[2].handle), configuration[3]))
        return lambda factor, source, to: to.copy_to_device(source, stream=configuration[2])


def test_a_kernels_launches_are_operations(device):
    copies, x, y = Copies(), full(3), full(0)
    launch = kernel(copies, writes=["to"])[(4, 1), 32, 16]
    stream = device.stream()
    made = launch(1.0, x, y)
    assert "call Copies.py_func on device 0" in made.explain()
    assert made.sync_on(stream, 60) is y
    assert (host(y) == 3).all()
    assert copies.configurations == [((4, 1), 32, stream.handle, 16)]
    assert kernel(copies)[1, 2](1.0, x, y).sync_on(stream, 60) is None
    assert copies.configurations[1] == (1, 2, stream.handle, 0)


def test_a_kernels_launch_is_ordered_by_what_it_reads_and_writes(latch, device, settle):
    held, x, y = device.stream(), full(3), full(0)
    latch.hold(held)
    ac.fill(x, 7).on(held).submit()
    copied = kernel(Copies(), writes=["to"])[1, 1](1.0, x, y).on(device.stream())
    future = copied.submit()
    read = ac.dup(y).on(device.stream())
    pending = read.submit()
    settle()
    assert [future.done(), pending.done()] == [False, False]
    latch.release()
    assert (host(read) == 7).all()


def test_misuse_of_a_kernel_is_an_error():
    launch = kernel(Copies(), writes=["to"])
    with pytest.raises(ac.ArgumentTypeError, match=r"3 arguments \(factor, source, to\), and 2 were given"):
        launch[1, 1](1.0, full(1))
    for configuration in (1, (1,), (1, 1, 0, 0)):
        with pytest.raises(ac.ArgumentTypeError, match=r"takes \(grid, block\)"):
            launch[configuration]
    with pytest.raises(ac.ArgumentValueError, match="factor, source, to; 'out' was given"):
        kernel(Copies(), writes=["out"])
    with pytest.raises(ac.ArgumentValueError, match="'to' was given"):
        kernel(Copies(), writes="to")
    with pytest.raises(
        ac.ArgumentTypeError, match=r"Copies.py_func writes 'to', which takes an array on a device, not 3"
    ):
        launch[1, 1](1.0, full(1), 3)
    with pytest.raises(ac.ArgumentTypeError, match=r"cuda\.jit"):
        kernel(len)


@cuda.jit(device=True)
def put(z, i, value):  # type: ignore[no-untyped-def]
    z[i] = value


@cuda.jit
def uses(x, y, count, shared_in):  # type: ignore[no-untyped-def]
    part = cuda.shared.array(32, np.float32)
    i = cuda.grid(1)
    part[cuda.threadIdx.x] = shared_in[i]
    cuda.syncthreads()
    if i < x.shape[0]:
        put(y, i, x[i] + part[0] + cuda.fma(x[i], x[i], x[i]))
        cuda.atomic.add(count, 0, x[i])


def test_what_a_kernel_writes_is_found(monkeypatch):
    from aiocuda._interop import kernels

    seen: list[Any] = []
    monkeypatch.setattr(kernels, "operation", lambda *given: seen.append([*given[4]]))
    arrays = [full(value) for value in range(4)]
    kernel(uses)[1, 1](*arrays)
    kernel(uses, writes=["x"])[1, 1](*arrays)
    kernel(add)[1, 1](2, *arrays[:2])
    assert [[next(i for i, x in enumerate(arrays) if x is each) for each in one] for one in seen] == [[1, 2], [0], [1]]


def test_a_kernel_without_a_source_needs_names():
    made = cuda.jit(eval("lambda x: None"))
    with pytest.raises(ac.ArgumentValueError, match=r"its source is not there .* writes="):
        kernel(made)
    assert kernel(made, writes=["x"])[1, 1](full(1)) is not None


@NEEDS_GPU
def test_a_kernel_of_numbas_own(run):
    added = kernel(add)

    async def main() -> None:
        x: Any = full(0)
        for _ in range(10):
            x = added[N // 256, 256](np.float32(2), x, ac.empty(N, np.float32))
        assert (await ac.to_host(x) == 20).all()

    run(main)


def test_an_error_keeps_its_traceback():
    def fails(stream: Any, x: Any) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        op(fails, full(1)).sync(60)


def test_functions_that_store_and_those_of_other_languages_write():
    theirs = cuda.declare_device("theirs", "void(CPointer(float32))")

    @cuda.jit
    def stores(x, y):  # type: ignore[no-untyped-def]
        cuda.stwt(y, 0, cuda.ldcg(x, 0))

    @cuda.jit
    def declared(x, y):  # type: ignore[no-untyped-def]
        theirs(y)
        cuda.syncthreads()
        x[0]

    assert kernel(declared)._written == (frozenset(), frozenset("y"))
    if hasattr(cuda, "stwt"):
        assert kernel(stores)._written == (frozenset("y"), frozenset())
