"""The end of a service: it takes no more items, what it has accepted is done, and what is not is told by name."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aiocuda as ac

LONG_MS = 1e9  # longer than a test: such a batch begins when it is full


class Held:
    """A function of a batch that holds its batches until it is told to let them go."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.begun = anyio.Event()
        self.released = anyio.Event()

    async def __call__(self, items: list[Any]) -> list[Any]:
        self.batches.append(items)
        self.begun.set()
        await self.released.wait()
        return [2 * item for item in items]


def test_what_was_accepted_is_done_and_new_items_are_refused(run) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=2, max_wait_ms=LONG_MS, max_in_flight=1)(held)
        results: dict[int, int] = {}
        refused: list[str] = []

        async def call(item: int) -> None:
            results[item] = await function(item)

        async def call_late() -> None:
            await anyio.wait_all_tasks_blocked()  # the end waits
            assert function.statistics().items == 0
            assert ac.healthy()  # a supervisor must not end it early
            with pytest.raises(ac.StoppingError, match="Held") as caught:
                await function(9)
            refused.append(caught.value.function)
            held.released.set()

        async with anyio.create_task_group() as group:
            async with ac.lifespan():
                for item in range(5):  # two are under way, two wait for them, and one would wait for another for ever
                    group.start_soon(call, item)
                    await anyio.wait_all_tasks_blocked()
                group.start_soon(call_late)
            await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            assert results == {item: 2 * item for item in range(5)}
        assert len(refused) == 1
        assert sorted(map(len, held.batches)) == [1, 2, 2]

    run(main)


def test_a_batch_that_was_accepted_may_use_other_functions_until_it_ends(run) -> None:
    """Items that wait, and those under way; also where nobody had used the other function."""

    async def main() -> None:
        held = Held()
        left_behind: list[str] = []

        @ac.batched(max_size=4, max_wait_ms=LONG_MS)
        async def inner(items: list[int]) -> list[int]:
            return [item + 1 for item in items]

        @ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1)
        async def outer(items: list[int]) -> list[int]:
            await held(items)
            results: list[int] = []

            async def call(item: int) -> None:
                results.append(await inner(item))

            async with anyio.create_task_group() as group:
                for item in items:
                    group.start_soon(call, item)
            return results

        @ac.batched(max_wait_ms=0)
        async def leaves_a_task(items: list[int]) -> list[int]:
            async def call_later() -> None:
                await held.released.wait()
                with pytest.raises(ac.StoppingError) as caught:
                    await inner(9)
                left_behind.append(caught.value.function)

            others.start_soon(call_later)
            return items

        results: dict[int, int] = {}

        async def call(item: int) -> None:
            results[item] = await outer(item)

        async def release() -> None:
            await anyio.wait_all_tasks_blocked()  # the end waits
            held.released.set()

        async with anyio.create_task_group() as others:
            async with ac.lifespan():
                assert await leaves_a_task(1) == 1
                for item in range(3):
                    others.start_soon(call, item)
                    await anyio.wait_all_tasks_blocked()
                others.start_soon(release)
            with pytest.raises(ac.StoppingError):
                await inner(9)
            await anyio.wait_all_tasks_blocked()
            assert results == {item: item + 1 for item in range(3)}
        assert len(left_behind) == 1

    run(main)


def test_items_outside_of_the_queue_were_accepted_too(run) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1, max_waiting=1)(held)
        results: list[int] = []

        async def call(item: int) -> None:
            results.append(await function(item))

        async def release() -> None:
            await anyio.wait_all_tasks_blocked()
            held.released.set()

        async with anyio.create_task_group() as group:
            async with ac.lifespan():
                for item in range(4):
                    group.start_soon(call, item)
                    await anyio.wait_all_tasks_blocked()
                group.start_soon(release)
            await anyio.wait_all_tasks_blocked()
            assert sorted(results) == [0, 2, 4, 6]

    run(main)


def test_what_was_submitted_is_waited_for(run, latch, device, kernels) -> None:
    stream = device.stream()
    x = ac.zeros(4, np.int32).sync()
    latch.hold(stream)

    async def main() -> None:
        is_over = False

        async def serve() -> None:
            nonlocal is_over
            async with ac.lifespan():
                with ac.use(stream):
                    kernels.increment(x, 4, threads=4).submit()
            is_over = True

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            await anyio.wait_all_tasks_blocked()
            assert not is_over
            latch.release()
        assert is_over

    run(main)
    assert (ac.to_host(x).sync() == 1).all()


def test_what_is_left_when_the_time_is_over_is_named(run, latch, device, kernels) -> None:
    stream = device.stream()
    x = ac.zeros(4, np.int32).sync()
    latch.hold(stream)

    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1)(held)
        async with anyio.create_task_group() as group:
            with pytest.raises(ac.DrainTimeoutError) as caught:  # noqa: PT012 - the end of the block raises
                async with ac.lifespan(drain_s=0.01):
                    for item in range(3):
                        group.start_soon(function, item)
                    await anyio.wait_all_tasks_blocked()
                    with ac.use(stream):
                        kernels.increment(x, 4, threads=4).submit()
            group.cancel_scope.cancel()
        assert caught.value.drain_s == 0.01
        first, second = caught.value.left
        assert "2 items wait, and 1 are in batches under way" in first
        assert second.startswith("device 0: ")
        assert f"stream {stream._number}" in second

    run(main)


def test_an_error_of_the_block_is_raised_after_the_drain(run) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0)(held)
        async with anyio.create_task_group() as group:
            with pytest.raises(KeyError, match="the program's") as caught:  # noqa: PT012 - its end adds to the error
                async with ac.lifespan(drain_s=0):
                    group.start_soon(function, 1)
                    await held.begun.wait()
                    raise KeyError("the program's")
            (note,) = caught.value.__notes__
            assert "1 are in batches under way" in note
            held.released.set()

    run(main)


def test_the_last_of_several_lifespans_drains(run) -> None:
    async def main() -> None:
        function = ac.batched(max_wait_ms=0)(lambda items: items)
        async with ac.lifespan():
            async with ac.lifespan():
                assert await function(1) == 1
            assert await function(2) == 2
        with pytest.raises(ac.StoppingError):
            await function(3)
        async with ac.lifespan():
            assert await function(4) == 4

    run(main)


def test_one_that_begins_while_the_last_one_drains_is_an_error(run) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0)(held)

        async def begin() -> None:
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ac.AiocudaError, match="drains"):
                async with ac.lifespan():
                    pass
            held.released.set()

        async with anyio.create_task_group() as group, ac.lifespan():
            group.start_soon(function, 1)
            await held.begun.wait()
            group.start_soon(begin)

    run(main)


def test_loops_have_lifespans_of_their_own(run) -> None:
    """A function that another loop has stopped is taken from here."""
    function = ac.batched(max_wait_ms=0)(lambda items: items)

    async def end() -> None:
        async with ac.lifespan():
            assert await function(1) == 1

    async def call() -> int:
        return await function(2)

    run(end)
    assert run(call) == 2


def test_a_function_of_which_nobody_asked_before_takes_none_either(run) -> None:
    async def main() -> None:
        async with ac.lifespan():
            pass
        with pytest.raises(ac.StoppingError):
            await ac.batched(lambda items: items)(1)

    run(main)


def test_callers_that_are_cancelled_meanwhile_end_the_drain(run) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1)(held)

        async def cancel(group: anyio.abc.TaskGroup) -> None:
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as others, ac.lifespan():
            callers = await others.start(hold_group, function)
            others.start_soon(cancel, callers)

    async def hold_group(function: Any, task_status: Any) -> None:
        async with anyio.create_task_group() as group:
            for item in range(3):
                group.start_soon(function, item)
            await anyio.wait_all_tasks_blocked()
            task_status.started(group)

    run(main)


def test_a_cancelled_block_drains_under_asyncio(run_asyncio) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0)(held)
        ended: list[int] = []

        async def call() -> None:
            ended.append(await function(1))

        async def serve() -> None:
            async with ac.lifespan():
                await asyncio.get_running_loop().create_future()

        caller, server = asyncio.create_task(call()), asyncio.create_task(serve())
        await held.begun.wait()
        server.cancel()
        await anyio.wait_all_tasks_blocked()
        assert not server.done()
        held.released.set()
        with pytest.raises(asyncio.CancelledError):
            await server
        assert ended == [2]
        await caller

    run_asyncio(main)


def test_one_that_is_thrown_away_leaves_nothing(run_asyncio) -> None:
    async def main() -> weakref.ref[Any]:
        lifespan = ac.lifespan()
        await lifespan.__aenter__()
        generator: AsyncIterator[None] = lifespan.gen  # type: ignore[attr-defined]
        await generator.aclose()  # type: ignore[attr-defined]
        function = ac.batched(max_wait_ms=0)(lambda items: items)
        assert await function(1) == 1
        return weakref.ref(generator)

    left = run_asyncio(main)
    gc.collect()
    assert left() is None


@pytest.mark.parametrize("wrong", [-1, "soon", float("nan")])
def test_what_is_no_time_is_an_error(run, wrong) -> None:
    async def main() -> None:
        with pytest.raises(ac.ArgumentValueError, match="seconds"):
            async with ac.lifespan(drain_s=wrong):
                pass

    run(main)


def test_it_needs_a_loop() -> None:
    with pytest.raises(ac.AiocudaError, match="no event loop runs"):
        ac.lifespan().__aenter__().send(None)
