"""Random programs of aiocuda's operations and those of two frameworks over the same arrays, beside their meaning."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from framework import Framework, Tensor
from framework_ops import Adapter, InC

import aiocuda as ac

N = 32


class Program:
    """Operations, dealt at random; what each array is to hold is computed by NumPy beside."""

    def __init__(self, seed: int, increment: Any, make: Callable[[], Framework] = Framework) -> None:
        self.random = random.Random(seed)
        self.increment = increment
        self.frameworks = [make(), make()]
        self.adapters = [InC(self.frameworks[0]), Adapter(self.frameworks[1])]
        self.kept = [framework.full(N, 0) for framework in self.frameworks]
        self.streams = [ac.Device(0).stream() for _ in range(3)]
        self.slots: list[tuple[Any, np.ndarray]] = []
        self.compiled = [
            ac.compile(lambda x, which=which: self.adapters[which].op(self._copied(which), x)) for which in (0, 1)
        ]

    def _copied(self, which: int) -> Any:
        framework = self.frameworks[which]
        return lambda t: framework.full(N, 0).copy_(framework.full(N, 1).copy_(t))

    def _remembered(self, which: int) -> Any:
        framework = self.frameworks[which]

        def function(t: Tensor) -> Any:  # what it keeps is given back here, and made anew
            self.kept[which] = framework.full(N, 0).copy_(t)
            return framework.full(N, 0).copy_(self.kept[which])

        return function

    def step(self) -> None:
        choice = self.random.random()
        which = self.random.randrange(2)
        op, framework = self.adapters[which].op, self.frameworks[which]
        if not self.slots or choice < 0.1:
            value = self.random.randrange(100)
            made = ac.full(N, value, np.int32) if choice < 0.05 else op(lambda: framework.full(N, value))
            self.put(made, np.full(N, value, np.int32))
            return
        index = self.random.randrange(len(self.slots))
        x, expected = self.slots[index]
        if choice < 0.3:
            self.slots[index] = self.run(self.increment(x, N, threads=N)), expected + 1
        elif choice < 0.5:
            self.put(op(self._copied(which), x, stateless=self.random.random() < 0.5), expected)
        elif choice < 0.6:
            self.put(op(self._remembered(which), x), expected)
        elif choice < 0.7:
            value = self.random.randrange(100)
            self.slots[index] = (
                self.run(op(lambda t: t.part(0, N // 2).fill_(value) and t, x, writes=[x])),
                np.where(np.arange(N) < N // 2, value, expected).astype(np.int32),
            )
        elif choice < 0.8:
            self.put(self.compiled[which](x), expected)
        elif choice < 0.9:
            del self.slots[index], x
            gc.collect()
        else:  # the framework by itself, on its own stream
            framework.full(N, self.random.randrange(100))

    def put(self, op: Any, expected: np.ndarray) -> None:
        self.slots.append((self.run(op), expected))

    def run(self, op: Any) -> Any:
        """Execute it now: the order of submission is what a program means."""
        choice = self.random.random()
        if choice < 0.5:
            op.on(self.random.choice(self.streams))
        if choice > 0.9:
            return op.sync(60)
        op.submit()
        return op

    def check(self) -> None:
        for x, expected in self.slots:
            found = ac.to_host(x).sync(60)
            assert (found == expected).all(), (found, expected)

    def close(self) -> None:
        del self.slots, self.compiled, self.kept
        for _ in range(3):
            gc.collect()
            ac.Device(0).synchronize().sync()
            ac.zeros(1).sync()
        for framework in self.frameworks:
            framework.close()


def run_program(seed: int, increment: Any, steps: int = 40, make: Callable[[], Framework] = Framework) -> None:
    program = Program(seed, increment, make)
    try:
        for _ in range(steps):
            program.step()
        program.check()
    finally:
        program.close()
