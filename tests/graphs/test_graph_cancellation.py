"""A program that makes, launches and awaits graphs is cancelled at every one of its await points in turn.

Survivors are right, shared work goes on, and no memory is left: as in the sweep of operations, whose gates these tasks
run behind (`test_cancellation_sweep`). If the driver looks for races, it finds none in any run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio.lowlevel
import numpy as np
import pytest
from test_cancellation_sweep import CANCELLED, CHECKS_RACES, Gates, Point, sweep

import aiocuda as ac

ROOT = Path(__file__).parents[2]
N = 4


class Program:
    """Tasks around graphs, some of which they share; what each returns is known."""

    def __init__(self, kernels: Any, streams: list[ac.Stream], gates: Gates) -> None:
        self.kernels = kernels
        self.streams = streams
        self.gates = gates
        self.array = ac.zeros(N, np.int32).sync()
        self.counting = self.increment(self.array).graph_on(streams[0])
        self.compiled = ac.compile(executables=2)(self.axpy)
        gates.close(streams[0])
        seen = ac.full(N, 10, np.int32).sync()
        self.shared = ac.to_host(self.increment(seen)).map(lambda host: host * 2).graph_on(streams[0]).launch()
        self.future = ac.to_host(self.compiled(ac.full(N, 1, np.int32), seen, 3)).schedule(streams[0])
        self.tasks: dict[str, tuple[Callable[[], Coroutine[Any, Any, Any]], Any]] = {
            "launches": (self.launch, [3, 7, 12]),
            "calls": (self.call, [[6], [8], [10]]),
            "first call": (self.call_first, [5, 9]),
            "scope": (self.record, [6, 4]),
            "nested": (self.launch_nested, [12, 5]),
            "reader": (self.read_shared, [22, 36]),
            "another reader": (self.read_shared, [22, 36]),
            "in place": (self.count, 3),
        }

    def increment(self, x: Any) -> ac.DeviceOp[Any]:
        return self.kernels.increment(x, N, threads=N)

    def axpy(self, x: Any, y: Any, a: Any) -> ac.DeviceOp[Any]:
        return self.kernels.accumulate(a, x, ac.dup(y), N, threads=N)

    async def launch(self) -> list[int]:
        """Late values, of launches with other arrays, and of an updated graph."""
        x, y = await ac.full(N, 1, np.int32), await ac.full(N, 10, np.int32)
        with ac.to_host(self.increment(self.increment(ac.dup(x)))).graph_on(self.streams[1], x=x) as graph:
            self.gates.close(self.streams[1])
            found = [await graph.launch()]
            self.gates.close(self.streams[1])
            found.append(await graph.launch(x=self.increment(ac.full(N, 4, np.int32))))
            self.gates.close(self.streams[1])
            future = graph.launch().submit()
            graph.update(ac.to_host(self.increment(self.increment(ac.dup(y)))), x=y)
            assert int((await future)[0]) == 3
            self.gates.close(self.streams[1])
            found.append(await graph.launch())
        return [int(each[0]) for each in found]

    async def call(self) -> list[list[int]]:
        """Results that are kept, of a function that others call too."""
        x, y = await ac.full(N, 2, np.int32), await ac.full(N, 2, np.int32)
        results = []
        for a in range(3):
            self.gates.close(self.streams[2])
            results.append(await self.compiled(x, y, a).on(self.streams[2]))
        return [sorted({int(each) for each in await ac.to_host(result)}) for result in results]

    async def call_first(self) -> list[int]:
        """A function of its own, whose arguments are operations and whose result comes to the host."""
        own = ac.compile(lambda x, a: ac.to_host(self.axpy(x, x, a)))
        found = []
        for value, a in ((1, 2), (3, 0)):
            self.gates.close(self.streams[1])
            found.append(await own(ac.full(N, value, np.int32), ac.value(a)).on(self.streams[1]))
        return [int(each[0]) for each in found]

    async def record(self) -> list[int]:
        """Others go on while it records, and it may be cancelled in the middle."""
        with ac.graph_scope(self.streams[2]) as scope:
            x = scope.record(ac.full(N, 3, np.int32))
            await anyio.lowlevel.checkpoint()
            y = scope.record(ac.dup(x))
            scope.record(self.increment(y))
            await anyio.lowlevel.checkpoint()
            scope.record(self.increment(self.increment(self.increment(x))))
            scope.result = (x, y)
        self.gates.close(self.streams[2])
        x, y = await scope.graph.launch()
        self.gates.close(self.streams[2])
        return [int((await ac.to_host(each).on(self.streams[2]))[0]) for each in (x, y)]

    async def launch_nested(self) -> list[int]:
        """A graph in a graph, each of them launched."""
        x, y = await ac.full(N, 0, np.int32), await ac.full(N, 10, np.int32)
        inner = self.increment(x).graph(x=x)
        outer = ac.zip(inner.launch(x=y), inner.launch(x=y)).then(lambda _: y).graph()
        self.gates.close(self.streams[0], self.streams[1])
        first = await ac.to_host(outer.launch().on(self.streams[1]))
        for i in range(5):
            launch = inner.launch().on(self.streams[i % 2])
            if i == 2:
                await launch
            else:
                launch.submit()
        self.gates.close(self.streams[0])
        return [int(first[0]), int((await ac.to_host(x).on(self.streams[0]))[0])]

    async def read_shared(self) -> list[int]:
        first = await self.shared
        self.gates.close(self.streams[0])
        return [int(first[0]), int((await self.future)[0])]

    async def count(self) -> int:
        for _ in range(3):
            self.gates.close(self.streams[0])
            await self.counting.launch()
        return 3

    def check(self, victim: str, point: Point, found: dict[str, Any]) -> None:
        for name, (_, expected) in self.tasks.items():
            if name == victim and point.was_reached:
                assert found[name] == CANCELLED
            elif victim != "all" or not point.was_reached:
                assert found[name] == expected, name
        # Shared work is as it would have been, and anybody can ask and launch it.
        assert list(self.shared.sync(timeout=60)) == [22] * N
        assert list(self.future.sync(timeout=60)) == [36] * N
        again = self.compiled(ac.full(N, 5, np.int32), ac.full(N, 1, np.int32), 2)
        assert list(ac.to_host(again).sync(timeout=60)) == [13] * N
        # Each launch has happened as a whole, or not at all.
        contents = list(ac.to_host(self.array).sync(timeout=60))
        assert contents == [3] * N if victim not in ("in place", "all") else contents in [[i] * N for i in range(4)]
        self.counting.launch().sync(timeout=60)
        assert list(ac.to_host(self.array).sync(timeout=60)) == [contents[0] + 1] * N


VICTIMS = ("launches", "calls", "first call", "scope", "nested", "reader", "in place", "all")


@pytest.mark.parametrize("victim", VICTIMS)
def test_cancelled_anywhere_the_rest_is_right_and_nothing_is_left(
    run, kernels, device, latches, used_bytes, let_go, victim
):
    streams = [device.stream() for _ in range(3)]
    sweep(run, latches, used_bytes, let_go, victim, lambda gates: Program(kernels, streams, gates), Program.check)


@pytest.mark.emulated_only
@pytest.mark.skipif(CHECKS_RACES in os.environ, reason="this is the run that checks")
def test_the_driver_sees_no_race_wherever_it_is_cancelled():
    """All at once again, where the driver has its own account of what is ordered, and reorders what it may."""
    environment = {**os.environ, CHECKS_RACES: "races", "AIOCUDA_EMULATOR_SHUFFLE": "1"}
    name = test_cancelled_anywhere_the_rest_is_right_and_nothing_is_left.__name__
    chosen = [f"{__file__}::{name}[{loop}-all]" for loop in ("asyncio", "trio")]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *chosen]
    found = subprocess.run(command, env=environment, cwd=ROOT, timeout=200, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
