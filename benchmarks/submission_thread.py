"""How long submitting holds the event loop, without the submission thread and with it.

    AIOCUDA_DRIVER=nvidia python benchmarks/submission_thread.py [--rounds N] [--runs N]

Each run is a process of its own, for each value of AIOCUDA_SUBMISSION_THREAD in turn. Medians of the runs are printed,
least first. *Held* is the time in which the loop's thread can do nothing else: the steps of the await, without what
lies between them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Generator
from typing import Any

import aiocuda as ac

VALUES = ["never", "auto", "always"]
LENGTHS = [1000, 100, 10, 1]
TASKS = 1000
SOURCE = """
extern "C" __global__ void scale(float* y, const float* x, const float* g, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = g[i] * x[i];
}
"""


class Timed:
    """Awaits an operation, and takes how long its steps hold the thread."""

    def __init__(self, op: Any) -> None:
        self.op = op
        self.held = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self.op.__await__()
        act, given = steps.send, None
        while True:
            begin = time.perf_counter()
            try:
                asked = act(given)
            except StopIteration as end:
                return end.value
            finally:
                self.held += time.perf_counter() - begin
            try:
                given = yield asked
                act = steps.send
            except BaseException as error:  # noqa: BLE001  # what the loop throws goes on to the await
                act, given = steps.throw, error


class Work:
    """Launches of one kernel, of 1,024 items each."""

    def __init__(self) -> None:
        self.kernel = ac.kernel(SOURCE)
        self.n = 1024
        self.arrays = [ac.ones(self.n).sync() for _ in range(8)]
        self.x, self.g = ac.ones(self.n).sync(), ac.ones(self.n).sync()
        self.launch(0).sync()

    def launch(self, number: int) -> Any:
        """Build a launch that writes one of the arrays."""
        return self.kernel(self.arrays[number % 8], self.x, self.g, self.n, threads=self.n)

    def chain(self, length: int) -> Any:
        """Build so many launches, each of what the one before has written."""
        op: Any = self.arrays[0]
        for _ in range(length):
            op = self.kernel(op, self.x, self.g, self.n, threads=self.n)
        return op


async def longest_turn(work: Awaitable[Any]) -> float:
    """Return the longest time in which another task got no turn while this was awaited, in seconds."""
    longest, is_over = 0.0, False

    async def beat() -> None:
        nonlocal longest
        last = time.perf_counter()
        while not is_over:
            await asyncio.sleep(0)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0)
    await work
    is_over = True
    await beating
    return longest


async def measured(work: Work, rounds: int) -> dict[str, float]:
    figures: dict[str, list[float]] = {}

    def note(name: str, seconds: float, scale: float = 1e6) -> None:
        figures.setdefault(name, []).append(seconds * scale)

    async def nothing(_: int) -> None:
        pass

    async def one(number: int) -> None:
        await work.launch(number)

    for length in LENGTHS:
        for _ in range(rounds):
            with ac.use(spin_us=0):
                op = Timed(work.chain(length))
                await asyncio.sleep(0)
                begin = time.perf_counter()
                await op
                whole = time.perf_counter() - begin
            note(f"awaited chain of {length}, not spinning: held for each launch, us", op.held / length)
            note(f"awaited chain of {length}, not spinning: whole, for each launch, us", whole / length)
    for _ in range(rounds):
        note("longest turn of the loop, a chain of 1000 awaited, ms", await longest_turn(work.chain(1000)), 1e3)
        for name, job in (("nothing", nothing), ("a launch each", one)):
            tasks = [asyncio.create_task(job(number)) for number in range(TASKS)]
            note(
                f"longest turn of the loop, {TASKS} tasks with {name}, ms", await longest_turn(asyncio.wait(tasks)), 1e3
            )
    for _ in range(10 * rounds):
        begin = time.perf_counter()
        await work.launch(0)
        note("await of one launch, us", time.perf_counter() - begin)
    for _ in range(10 * rounds):
        op = work.launch(0)
        begin = time.perf_counter()
        op.sync()
        note("sync of one launch, us", time.perf_counter() - begin)
    return {name: statistics.median(values[len(values) // 10 :]) for name, values in figures.items()}


def run(rounds: int) -> None:
    """One run, in this process; prints its medians as JSON."""
    work = Work()
    gc.collect()
    gc.disable()
    print(json.dumps(asyncio.run(measured(work, rounds))))


def compare(rounds: int, runs: int) -> None:
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(runs):
        for value in VALUES:
            done = subprocess.run(
                [sys.executable, __file__, "--one", "--rounds", str(rounds)],
                env={**os.environ, "AIOCUDA_SUBMISSION_THREAD": value},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            for name, figure in json.loads(done.stdout).items():
                found.setdefault(name, {}).setdefault(value, []).append(figure)
    for name, by_value in found.items():
        print(name)
        for value, figures in by_value.items():
            print(f"  {value:8}", "  ".join(f"{figure:.2f}" for figure in sorted(figures)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="how often each is measured in a run")
    parser.add_argument("--runs", type=int, default=3, help="runs for each value")
    parser.add_argument("--one", action="store_true", help="one run, with the value in force")
    asked = parser.parse_args()
    if asked.one:
        run(asked.rounds)
    else:
        compare(asked.rounds, asked.runs)
