"""Operations with tensors whose kernels are not there, or that find no room: the loop goes on, and the order is kept.

Such operations are submitted together, in one step, after the wait. What the framework enqueues meanwhile, for other
tasks, comes before them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac

N = 64
TIMES = 'extern "C" __global__ void {name}(int* x) {{ x[threadIdx.x] *= {factor}; }}'


def times(name: str, factor: int) -> Any:
    """Make a kernel that nobody has compiled."""
    return ac.kernel(TIMES.format(name=name, factor=factor))


def launch(kernel: Any, x: Any) -> Any:
    return kernel(x, grid=1, block=N)


async def turns() -> None:
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def soon(condition: Any) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.lowlevel.checkpoint()


def test_the_loop_goes_on_while_a_kernel_is_compiled(torch, compiler, run):
    x, y = torch.tensor(2, N), torch.tensor(100, N)
    operation = launch(times("tripled", 3), x)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(operation.within, 60)
            await compiler.until_begun()
            assert operation._state == "pending"
            y.add_(x)  # enqueued before the operation is
            compiler.released.set()
        y.add_(x)

    run(main)
    assert x.tolist() == [6] * N
    assert y.tolist() == [108] * N


def test_the_stream_is_the_one_that_was_current_before_the_wait(torch, kernels, run, latches):
    full, theirs = latches(), latches()
    stream, behind = ac.Device(0).stream(), ac.Device(0).stream()
    full.hold(stream)
    theirs.hold(behind)
    x, other = torch.tensor(2, N), torch.other_stream()
    torch.order(torch.current, behind.handle)
    x.fill_(5)
    operation = kernels.increment(x, N, threads=N)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            with ac.use(stream, max_in_flight=1):
                group.start_soon(operation.within, 60)
                await turns()
            assert operation._state == "pending"
            with torch.using(other):  # as another task does
                full.release()
                await soon(lambda: operation._state == "submitted")
            theirs.release()

    run(main)
    assert x.tolist() == [6] * N


def test_nothing_of_it_is_submitted_before_all_its_kernels_are_there(torch, kernels, compiler, run):
    x, y = torch.tensor(2, N), torch.tensor(100, N)
    ready = kernels.increment(x, N, threads=N)
    operation = launch(times("five", 5), launch(times("three", 3), ready))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(operation.within, 60)
            for _ in range(2):  # at the same time
                await compiler.until_begun()
            y.add_(x)
            assert ready._state == "pending"
            compiler.released.set()

    run(main)
    assert x.tolist() == [45] * N
    assert y.tolist() == [102] * N


def test_others_wait_behind_it_that_touch_its_memory(torch, kernels, compiler, run_asyncio):
    """Trio chooses itself which of two tasks it wakes first."""
    x = torch.tensor(2, N)
    operation = launch(times("first_of_two", 3), x)
    later = kernels.increment(x, N, threads=N)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(operation.within, 60)
            await compiler.until_begun()
            group.start_soon(later.within, 60)
            await turns()
            assert later._state == "pending"
            compiler.released.set()

    run_asyncio(main)
    assert x.tolist() == [7] * N


def test_a_graph_that_is_not_made(torch, compiler, run):
    x, y = torch.tensor(2, N), torch.tensor(100, N)
    added = ac.kernel('extern "C" __global__ void added(int* x, const int* a) { x[threadIdx.x] += a[threadIdx.x]; }')
    compiled = ac.compile(lambda a: added(x, a, grid=1, block=N))
    operation = compiled(ac.ones(N, np.int32).sync())

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(operation.within, 60)
            await compiler.until_begun()
            assert operation._state == "pending"
            y.add_(x)
            compiler.released.set()
        y.add_(x)

    run(main)
    assert x.tolist() == [3] * N
    assert y.tolist() == [105] * N


def test_a_kernel_that_does_not_compile(torch, kernels, run):
    x = torch.tensor(2, N)
    broken = ac.kernel('extern "C" __global__ void broken(int* x) { x[0] = nowhere; }')
    first = kernels.increment(x, N, threads=N)
    operation = launch(broken, first)

    async def main() -> None:
        with pytest.raises(ac.CompilationError, match="nowhere") as found:
            await operation
        assert any("the launch of broken" in note for note in found.value.__notes__)

    run(main)
    assert x.tolist() == [3] * N


def test_a_time_out_and_a_cancellation_leave_nothing_submitted(torch, compiler, run):
    x = torch.tensor(2, N)
    operation = launch(times("awaited_thrice", 3), x)

    async def main() -> None:
        with pytest.raises(ac.DeviceTimeoutError, match="a kernel that is being compiled"):
            await operation.within(0.01)
        await compiler.until_begun()
        async with anyio.create_task_group() as group:
            group.start_soon(operation.within, 60)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert operation._state == "pending"
        compiler.released.set()
        await operation

    run(main)
    assert x.tolist() == [6] * N
    assert len(compiler.threads) == 1


def test_a_stream_that_others_have_filled(torch, kernels, run, held, latch):
    x, y = torch.tensor(2, N), torch.tensor(100, N)
    fills = ac.zeros(N, np.int32).sync()

    async def main() -> None:
        with ac.use(held, max_in_flight=2):  # the latch is the first
            kernels.increment(fills, N, threads=N).submit()
            operation = kernels.increment(x, N, threads=N)
            async with anyio.create_task_group() as group:
                group.start_soon(operation.within, 60)
                await turns()
                assert operation._state == "pending"
                y.add_(x)
                latch.release()
        y.add_(x)

    run(main)
    assert y.tolist() == [105] * N


def test_a_function_of_then_that_needs_a_kernel(torch, compiler, run):
    x, y = torch.tensor(2, N), torch.tensor(100, N)
    tripled = times("of_then", 3)
    operation = ac.zeros(N).then(lambda _: launch(tripled, x))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(operation.within, 60)
            await compiler.until_begun()
            y.add_(x)
            compiler.released.set()
        y.add_(x)

    run(main)
    assert y.tolist() == [108] * N


def test_a_future_that_is_waited_for(torch, compiler, run_asyncio):
    x = torch.tensor(2, N)
    future = launch(times("of_a_future", 3), x).schedule(ac.Device(0))

    async def main() -> None:
        waiting = asyncio.ensure_future(ac.wait([future]))
        await compiler.until_begun()
        assert not future.done()
        compiler.released.set()
        await waiting

    run_asyncio(main)
    assert x.tolist() == [6] * N


def test_who_submits_has_a_place_at_once(torch, run):
    """`submit()` blocks until the work is on the device, so what the framework enqueues next comes after it."""
    x, y = torch.tensor(2, N), torch.tensor(100, N)

    async def main() -> None:
        future = launch(times("submitted", 3), x).submit()
        y.add_(x)
        await future

    run(main)
    assert y.tolist() == [106] * N
