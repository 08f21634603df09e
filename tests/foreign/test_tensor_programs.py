"""Random programs: work dealt to aiocuda and a framework, over shared tensors and streams, against NumPy.

Nothing is awaited in between. So each value depends on the order that events make, both ways, and the race oracle
judges that as well.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_like import Torch, close

import aiocuda as ac

N = 32
TENSORS = 4
STREAMS = 2

tensors = st.integers(0, TENSORS - 1)
streams = st.integers(0, STREAMS - 1)
steps = st.one_of(
    st.tuples(st.just("add"), streams, tensors, tensors),  # the framework's own work
    st.tuples(st.just("fill"), streams, tensors, st.integers(0, 9)),
    st.tuples(st.just("increment"), streams, tensors),  # aiocuda's, while a stream of the framework's is current
    st.tuples(st.just("accumulate"), streams, tensors, tensors),
    st.tuples(st.just("both"), streams, tensors, tensors),
    st.tuples(st.just("copy"), streams, tensors, tensors),
    st.tuples(st.just("part"), streams, tensors, st.integers(0, 9)),
    st.tuples(st.just("drop"), streams, tensors),
    st.tuples(st.just("switch"), streams, streams),  # the program orders its own streams itself
)


class Program:
    """A program's state, twice: on the device, and in NumPy."""

    def __init__(self, torch: Torch, kernels: Any) -> None:
        self.torch, self.kernels = torch, kernels
        self.streams = [torch.default_stream] + [torch.other_stream() for _ in range(STREAMS - 1)]
        self.model = [np.full(N, value, np.int32) for value in range(TENSORS)]
        self.tensors = [torch.tensor(value, N) for value in range(TENSORS)]
        self.current = 0
        self.futures: list[Any] = []

    def go_to(self, stream: int) -> None:
        """Make a stream current, behind what the former one holds, as a correct program of the framework's does."""
        if stream != self.current:
            self.torch.order(self.streams[stream], self.streams[self.current])
            self.current = stream

    def run(self, step: tuple[Any, ...]) -> None:
        kind, stream, *given = step
        self.go_to(stream)
        with self.torch.using(self.streams[self.current]):
            getattr(self, kind)(*given)

    def submit(self, operation: Any) -> None:
        self.futures.append(operation.submit())

    def add(self, x: int, y: int) -> None:
        self.tensors[x].add_(self.tensors[y])
        self.model[x] = self.model[x] + self.model[y]

    def fill(self, x: int, value: int) -> None:
        self.tensors[x].fill_(value)
        self.model[x][:] = value

    def increment(self, x: int) -> None:
        self.submit(self.kernels.increment(self.tensors[x], N, threads=N))
        self.model[x] += 1

    def accumulate(self, x: int, y: int) -> None:
        if x != y:
            self.submit(self.kernels.accumulate(2, self.tensors[x], self.tensors[y], N, threads=N))
            self.model[y] = 3 * self.model[y] + 2 * self.model[x]

    def both(self, x: int, y: int) -> None:
        first, second = (self.kernels.increment(self.tensors[each], N, threads=N) for each in (x, y))
        self.submit(ac.zip(first, second))
        self.model[x] += 1
        self.model[y] += 1

    def copy(self, x: int, y: int) -> None:
        if x != y:
            self.submit(ac.copy(self.tensors[x], self.tensors[y]))
            self.model[x][:] = self.model[y]

    def part(self, x: int, value: int) -> None:
        self.submit(ac.fill(self.tensors[x][: N // 2], value))
        self.model[x][: N // 2] = value

    def drop(self, x: int) -> None:
        """Let go of a tensor: the framework gives its memory to the next one."""
        self.tensors[x] = None
        self.futures.clear()
        gc.collect(0)
        self.tensors[x] = self.torch.tensor(5, N)
        self.model[x] = np.full(N, 5, np.int32)

    def switch(self, stream: int) -> None:
        self.go_to(stream)

    def check(self) -> None:
        for tensor, model in zip(self.tensors, self.model, strict=True):
            with self.torch.using(self.streams[self.current]):
                assert tensor.tolist() == model.tolist()


@pytest.fixture(scope="module")
def torch():
    made = Torch()
    with made.imported():
        yield made
    close(made)


@given(program=st.lists(steps, max_size=20))
def test_a_program_of_both_gives_what_numpy_gives(torch, kernels, program):
    running = Program(torch, kernels)
    for step in program:
        running.run(step)
    running.check()
