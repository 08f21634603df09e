"""PyTorch's own graphs and private memory pools, with PyTorch itself: ``torch.compile`` and ``torch.cuda.MemPool``.

A graph that PyTorch records waits on the host for the device. So no latch holds anything here: what comes first takes
its time on the device, and a result that did not wait for it is wrong.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from real import QUIET, imported

import aiocuda as ac
from aiocuda.interop.torch import op

torch = imported("torch")

pytestmark = QUIET

N = 1 << 12
LONG_CYCLES = 200_000_000  # some 0.1 s
WARM = 4  # calls: PyTorch runs a function, then records it, and then replays its graph


def host(x: Any) -> np.ndarray:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60)


def full(value: float, dtype: Any = np.float32) -> ac.DeviceArray:
    return ac.full(N, value, dtype).sync(60)


def tensor(value: float) -> Any:
    return torch.full((N,), float(value), device="cuda")


def written_late(x: ac.DeviceArray, value: float) -> None:
    """Write an array on a stream of its own, some time from now."""

    def write(t: Any) -> None:
        torch.cuda._sleep(LONG_CYCLES)
        t.fill_(value)

    op(write, x, writes=[x]).on(ac.Device(0).stream()).submit()


def busy_stream() -> ac.Stream:
    """Return a stream that has something to do for some time."""
    stream = ac.Device(0).stream()
    op(torch.cuda._sleep, LONG_CYCLES).on(stream).submit()
    return stream


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], Any]]:
    """The function 3 * t + 1, replayed from a graph of PyTorch's own. The next call overwrites its result."""
    pytest.importorskip("triton")
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("Triton needs a C compiler")
    import torch._inductor.config as inductor

    monkeypatch.setattr(inductor, "compile_threads", 1)  # no processes beside this one

    @torch.compile(mode="reduce-overhead")
    def function(t: Any) -> Any:
        return t * 3 + 1

    def call(t: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            return function(t)

    yield call
    torch.cuda.synchronize()
    torch.compiler.reset()


@pytest.fixture
def cloned(compiled: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same, with a result of the caller's own; its graph has been recorded."""

    def call(t: Any) -> Any:
        return compiled(t).clone()

    for value in range(WARM):
        assert (host(op(call, full(value))) == 3 * value + 1).all()
    return call


def test_results_that_the_function_clones_are_the_callers(cloned):
    results = [op(cloned, full(value)) for value in range(6)]
    for each in results:
        each.submit()
    others = [tensor(77) for _ in range(16)]
    assert [host(each)[0] for each in results] == [1, 4, 7, 10, 13, 16]
    assert all(bool((each == 77).all()) for each in others)


def test_a_replay_comes_after_what_writes_its_argument(cloned):
    x = full(0)
    written_late(x, 5)
    assert (host(op(cloned, x)) == 16).all()


def test_later_operations_come_after_a_replay(cloned, kernels):
    def late(t: Any) -> Any:
        torch.cuda._sleep(LONG_CYCLES)
        return cloned(t).int()

    y = kernels.increment(op(late, full(5)), N, threads=N).on(ac.Device(0).stream())
    assert (host(y) == 17).all()


def test_a_result_in_the_graphs_memory_is_read_before_the_next_replay_overwrites_it(compiled):
    for value in range(WARM):
        assert bool((compiled(tensor(value)) == 3 * value + 1).all())
    copies = [ac.dup(compiled(tensor(value))).on(busy_stream()).submit() for value in range(4)]
    assert [host(each.sync(60))[0] for each in copies] == [1, 4, 7, 10]


def private_pool() -> Any:
    if not hasattr(torch.cuda, "MemPool"):
        pytest.skip("this PyTorch has no torch.cuda.MemPool")
    return torch.cuda.MemPool()


def test_tensors_of_a_private_memory_pool_are_arguments_and_results():
    pool = private_pool()
    with torch.cuda.use_mem_pool(pool):
        t = tensor(4)
        made = op(lambda x: x * 2, full(3)).sync(60)  # the function allocates in this thread
    assert (host(op(torch.mul, made, t)) == 24).all()
    assert (host(ac.dup(t)) == 4).all()


def test_a_private_memory_pool_that_is_gone_leaves_its_addresses_to_others():
    pool = private_pool()
    with torch.cuda.use_mem_pool(pool):
        t = tensor(4)
    copied = ac.dup(t).on(busy_stream()).submit()
    del t, pool  # the array that the operation holds keeps the memory
    gc.collect()
    torch.cuda.empty_cache()
    others = [tensor(77) for _ in range(16)]
    assert (host(copied.sync(60)) == 4).all()
    del others
    gc.collect()
    ac.Device(0).memory_info()  # lets go of what waited for the copy
    torch.cuda.empty_cache()
    again = [tensor(value) for value in range(16)]
    assert [host(ac.dup(each))[0] for each in again] == list(range(16))
