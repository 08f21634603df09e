"""A program is cancelled at every one of its await points in turn; what survives is right, and no memory is left.

The program's tasks run behind gates: a gate holds a stream until all tasks have had some turns, so every gated await
suspends, and what is interrupted there is in flight. If the driver looks for races, it finds none in any run.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import numpy as np
import pytest
import sniffio
import trio
from hypothesis import settings

import aiocuda as ac
from aiocuda._driver import checking

ROOT = Path(__file__).parents[2]
CHECKS_RACES = "AIOCUDA_EMULATOR_CHECK"
MOST_POINTS: Final = 100
LOOPS: Final = ("asyncio", "uvloop", "trio")
IS_LONG = settings().max_examples > 1000
CANCELLED: Final = "cancelled"

add_to_tiles = ac.kernel(
    r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void add_to_tiles(int by, aiocuda::Partition<int, 1> x) {
    auto tile = x.tile();
    for (long long i = threadIdx.x; i < tile.extent(0); i += blockDim.x) tile(i) += by;
}""",
    "add_to_tiles",
)


class Gates:
    """Latches that hold streams, opened together."""

    def __init__(self, latches: Callable[[], Any]) -> None:
        self._latches = latches
        self._closed: list[Any] = []

    def close(self, *streams: ac.Stream) -> None:
        latch = self._latches()
        for stream in streams:
            latch.hold(stream)
        self._closed.append(latch)

    def open(self) -> None:
        while self._closed:
            self._closed.pop().release()

    async def keep_opening(self) -> None:
        """Open what all tasks had the time to come to, again and again."""
        while True:
            for _ in range(6):
                await anyio.lowlevel.checkpoint()
            self.open()


class Program:
    """Tasks with all that can be awaited; what each returns is known."""

    def __init__(self, kernels: Any, streams: list[ac.Stream], gates: Gates) -> None:
        self.kernels = kernels
        self.streams = streams
        self.gates = gates
        self.array = ac.zeros(4, np.int32).sync()
        gates.close(streams[0])
        self.shared = self.increment(ac.full(4, 10, np.int32)).on(streams[0])
        self.shared = ac.to_host(self.increment(self.shared)).map(lambda host: host * 2)
        self.future = ac.to_host(self.increment(ac.full(4, 20, np.int32))).schedule(streams[0])
        self.tasks: dict[str, tuple[Callable[[], Coroutine[Any, Any, Any]], Any]] = {
            "chain": (self.chain, [7, 9]),
            "reader": (self.read_shared, [24, 21]),
            "another reader": (self.read_shared, [24, 21]),
            "partition": (self.partition, [5, 5, 8, 8]),
            "streams": (self.use_streams, [3, 2, 33]),
            "in place": (self.increment_in_place, 3),
        }

    def increment(self, x: Any) -> ac.DeviceOp[Any]:
        return self.kernels.increment(x, 4, threads=4)

    async def chain(self) -> list[int]:
        """A function at submission and one of the value stand in the middle."""
        self.gates.close(self.streams[1])
        op = self.increment(ac.full(4, 1, np.int32)).on(self.streams[1]).then(self.increment)
        op = ac.to_host(op).map(lambda host: host * 2)
        op = ac.to_host(self.increment(ac.to_device(op)).on(self.streams[1]))
        first = await op
        self.gates.close(self.streams[1])
        second = self.increment(self.increment(ac.to_device(first)).on(self.streams[1])).on(self.streams[1])
        return [int(first[0]), int((await ac.to_host(second).submit())[0])]

    async def read_shared(self) -> list[int]:
        first = await self.shared
        self.gates.close(self.streams[0])
        return [int(first[0]), int((await self.future)[0])]

    async def partition(self) -> list[int]:
        array = await ac.zeros(4, np.int32)
        tiles = array.partition(2)
        self.gates.close(self.streams[2])
        tiles = await add_to_tiles(5, tiles, grid=2, block=32).on(self.streams[2])
        array = tiles.unpartition()
        half = array[2:].partition(1)
        await add_to_tiles(3, half, grid=2, block=32).on(self.streams[2])
        half.unpartition()
        return [int(each) for each in await ac.to_host(array)]

    async def use_streams(self) -> list[int]:
        """Several at once: as they complete, until all are, a stream, an event, a time."""
        one, two = self.streams[1], self.streams[2]
        self.gates.close(one, two)
        ops = [self.increment(ac.full(4, i, np.int32)).on((one, two)[i % 2]) for i in range(3)]
        count = 0
        async for future in ac.as_completed(ops):
            future.result()
            count += 1
        self.gates.close(one)
        done, _ = await ac.wait([self.increment(op).on(one) for op in ops[:2]])
        self.gates.close(two)
        self.increment(ops[2]).on(two).submit()
        await two.synchronize()
        event = two.record()
        await event
        self.gates.close(one)
        both = ac.to_host(self.kernels.accumulate(10, ops[0], ac.full(4, 1, np.int32), 4, threads=4).on(one))
        return [count, len(done), int((await both.within(60))[0]) + 10]

    async def increment_in_place(self) -> int:
        for _ in range(3):
            self.gates.close(self.streams[0])
            await self.increment(self.array).on(self.streams[0])
        return 3


class Interrupted:
    """Awaits a coroutine, counts where it suspends, and calls a function at the n-th of these points, suspended."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], count: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._count = count

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        step, argument = steps.send, None
        while True:
            try:
                trap = step(argument)
            except StopIteration as end:
                return end.value
            self._count()
            try:
                step, argument = steps.send, (yield trap)
            except BaseException as error:  # noqa: BLE001 - the coroutine's, such as its cancellation
                step, argument = steps.throw, error


class Point:
    """The await point at which a run is cancelled: the n-th that it comes to."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen = 0
        self.cancel: Callable[[], object] = lambda: None

    def __call__(self) -> None:
        self.seen += 1
        if self.seen == self.number:
            self.cancel()

    @property
    def was_reached(self) -> bool:
        return self.seen >= self.number


async def cancelled_at(point: Point, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine as its loop's own cancellation leaves it: one that is cancelled there and then."""
    if sniffio.current_async_library() == "trio":
        with trio.CancelScope() as scope:
            point.cancel = scope.cancel
            return await Interrupted(coroutine, point)
        return CANCELLED
    task = asyncio.current_task()
    assert task is not None
    point.cancel = task.cancel
    try:
        return await Interrupted(coroutine, point)
    except asyncio.CancelledError:
        task.uncancel()
        return CANCELLED


async def run_program(program: Program, victim: str, point: Point) -> dict[str, Any]:
    """Run all tasks, one of them, or all, cancelled at a point; give what they returned."""
    found: dict[str, Any] = {}

    async def one(name: str, work: Callable[[], Awaitable[Any]]) -> None:
        found[name] = await work()

    async def all_tasks() -> None:
        async with anyio.create_task_group() as group:
            for name, (function, _) in program.tasks.items():
                if name == victim:
                    group.start_soon(one, name, lambda f=function: cancelled_at(point, f()))
                elif victim == "all":
                    point.cancel = group.cancel_scope.cancel
                    group.start_soon(one, name, lambda f=function: await_counted(f(), point))
                else:
                    group.start_soon(one, name, function)

    async with anyio.create_task_group() as opening:
        opening.start_soon(program.gates.keep_opening)
        await all_tasks()
        opening.cancel_scope.cancel()
    return found


async def await_counted(coroutine: Coroutine[Any, Any, Any], point: Point) -> Any:
    return await Interrupted(coroutine, point)


def check(program: Program, victim: str, point: Point, found: dict[str, Any]) -> None:
    for name, (_, expected) in program.tasks.items():
        if name == victim and point.was_reached:
            assert found[name] == CANCELLED
        elif victim != "all" or not point.was_reached:
            assert found[name] == expected, name
    # Shared work is as it would have been, and anybody can ask it.
    assert list(program.shared.sync(timeout=60)) == [24] * 4
    assert list(program.future.sync(timeout=60)) == [21] * 4
    # Each increment has happened as a whole, or not at all.
    contents = list(ac.to_host(program.array).sync(timeout=60))
    assert contents == [3] * 4 if victim not in ("in place", "all") else contents in [[i] * 4 for i in range(4)]


def check_races() -> None:
    if CHECKS_RACES in os.environ:
        for device in ac.devices():
            device.synchronize().sync()
        checking.raise_races()


def sweep(
    run: functools.partial[Any],
    latches: Callable[[], Any],
    used_bytes: Callable[[], int],
    let_go: Callable[[Callable[[], bool]], bool],
    victim: str,
    make: Callable[[Gates], Any],
    check: Callable[[Any, str, Point, dict[str, Any]], None],
) -> None:
    """Run a program again and again, cancelled at its first await point, its second, until there are no more.

    The three loops share the points after the first: each leaves out a third, which the other two take. A long run
    leaves out none.
    """
    before = used_bytes()
    for number in range(1, MOST_POINTS + 1):
        if not IS_LONG and number > 1 and number % len(LOOPS) == LOOPS.index(run.args[0]):
            continue
        gates = Gates(latches)
        program = make(gates)
        point = Point(number)
        with ac.use(spin_us=0):
            found = run(run_program, program, victim, point)
        gates.open()
        check(program, victim, point, found)
        check_races()
        del program, found, gates
        gc.collect()
        assert let_go(lambda: used_bytes() == before), f"cancelled at point {number}"
        if not point.was_reached:
            break
    # At how many points it suspends is the device's and the loop's doing; it does at one at least, behind its gate.
    assert 1 < number < MOST_POINTS


VICTIMS = ("chain", "reader", "partition", "streams", "in place", "all")


@pytest.mark.parametrize("victim", VICTIMS)
def test_cancelled_anywhere_the_rest_is_right_and_nothing_is_left(
    run, kernels, device, latches, used_bytes, let_go, victim
):
    streams = [device.stream() for _ in range(3)]
    add_to_tiles.compile(device)  # a kernel is not loaded while a gate is closed
    sweep(run, latches, used_bytes, let_go, victim, lambda gates: Program(kernels, streams, gates), check)


@pytest.mark.emulated_only
@pytest.mark.skipif(CHECKS_RACES in os.environ, reason="this is the run that checks")
def test_the_driver_sees_no_race_wherever_it_is_cancelled():
    """All this again, where the driver has its own account of what is ordered, and reorders what it may."""
    environment = {**os.environ, CHECKS_RACES: "races", "AIOCUDA_EMULATOR_SHUFFLE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "anywhere", __file__]
    found = subprocess.run(command, env=environment, cwd=ROOT, timeout=200, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
