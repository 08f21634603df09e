"""Random programs: work dealt to aiocuda and to libraries, over arrays of all of them, on streams and in tasks.

Nothing is awaited in between, so each value depends on the order that events make, in both directions. NumPy computes
beside what is to come out.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

import aiocuda as ac

N = 48
STREAMS = 2
ARRAYS = 3  # of each library, and of aiocuda


class Library(Protocol):
    """A library with a current stream; its arrays are int32."""

    def streams(self, count: int) -> list[Any]: ...
    def using(self, stream: Any) -> contextlib.AbstractContextManager[Any]: ...
    def order(self, later: Any, earlier: Any) -> None: ...
    def full(self, value: int) -> Any: ...
    def add(self, x: Any, y: Any) -> None:
        """Add `y` to `x`, in place."""

    def fill(self, x: Any, value: int) -> None: ...
    def take(self, x: ac.DeviceArray) -> Any:
        """Borrow an array."""

    def op(self, function: Any, *arguments: Any, writes: Sequence[Any]) -> ac.DeviceOp[Any]: ...
    def host(self, x: Any) -> np.ndarray: ...


class Program:
    """A program of one task's."""

    def __init__(self, seed: int, libraries: Sequence[Library], kernels: Any) -> None:
        self.random = random.Random(seed)
        self.libraries, self.kernels = libraries, kernels
        self.streams = [library.streams(STREAMS) for library in libraries]
        self.current = [0 for _ in libraries]
        self.futures: list[Any] = []
        self.arrays: list[tuple[int | None, Any, np.ndarray]] = []  # whose each is, None: aiocuda's
        with self.inside():
            for owner in (None, *range(len(libraries))):
                for value in range(ARRAYS):
                    model = np.full(N, value, np.int32)
                    made = ac.asarray(model).sync(60) if owner is None else libraries[owner].full(value)
                    self.arrays.append((owner, made, model))

    def inside(self) -> contextlib.ExitStack:
        """Make this task's streams the current ones, until the step ends."""
        inside = contextlib.ExitStack()
        for library, streams, current in zip(self.libraries, self.streams, self.current, strict=True):
            inside.enter_context(library.using(streams[current]))
        return inside

    def step(self) -> None:
        if self.random.random() < 0.15:
            which = self.random.randrange(len(self.libraries))
            before, self.current[which] = self.current[which], self.random.randrange(STREAMS)
            if before != self.current[which]:
                streams = self.streams[which]
                self.libraries[which].order(streams[self.current[which]], streams[before])
        with self.inside():
            self.random.choice((self.own, self.own, self.kernel, self.kernel, self.two, self.function, self.lend))()

    def any_of(self, *owners: int | None) -> tuple[int | None, Any, np.ndarray]:
        return self.random.choice([each for each in self.arrays if each[0] in owners])

    def any_library(self) -> tuple[int, Library]:
        which = self.random.randrange(len(self.libraries))
        return which, self.libraries[which]

    def submit(self, operation: ac.DeviceOp[Any]) -> None:
        self.futures.append(operation.submit())

    def own(self) -> None:
        """Do a library's own work on its own arrays."""
        which, library = self.any_library()
        _, x, expected = self.any_of(which)
        if self.random.random() < 0.5:
            value = self.random.randrange(10)
            library.fill(x, value)
            expected[:] = value
        else:
            _, y, other = self.any_of(which)
            library.add(x, y)
            expected += other

    def kernel(self) -> None:
        """Launch a kernel of aiocuda's on anybody's array."""
        _, x, expected = self.random.choice(self.arrays)
        self.submit(self.kernels.increment(x, N, threads=N))
        expected += 1

    def two(self) -> None:
        """Launch a kernel of aiocuda's on two arrays, of two libraries as it comes."""
        (_, x, read), (_, y, written) = self.random.sample(self.arrays, 2)
        self.submit(self.kernels.accumulate(2, x, y, N, threads=N))
        written[:] = 3 * written + 2 * read

    def function(self) -> None:
        """Run a library's function as an operation."""
        _, library = self.any_library()
        _, x, expected = self.any_of(None)
        _, y, other = self.any_of(None)
        self.submit(library.op(library.add, x, y, writes=[x]))
        expected += other

    def lend(self) -> None:
        """Lend an array to a library, which works on it, and gives it back."""
        which, library = self.any_library()
        _, x, expected = self.any_of(None)
        _, y, other = self.any_of(which)
        library.add(library.take(x), y)
        expected += other

    def check(self) -> None:
        with self.inside():
            for owner, x, expected in self.arrays:
                found = ac.to_host(x).sync(60) if owner is None else self.libraries[owner].host(x)
                assert found.tolist() == expected.tolist()


async def run_tasks(seed: int, libraries: Sequence[Library], kernels: Any, *, tasks: int = 3, steps: int = 40) -> None:
    """Run a program in each of some tasks, which take turns after each step; check all."""
    programs = [Program(seed * tasks + each, libraries, kernels) for each in range(tasks)]

    async def run(program: Program) -> None:
        for _ in range(steps):
            program.step()
            await asyncio.sleep(0)

    await asyncio.gather(*map(run, programs))
    for program in programs:
        program.check()
