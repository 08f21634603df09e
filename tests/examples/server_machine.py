"""Stand-ins for the server's tests: a device that does steps in Python, and PyTorch's streams on top of it.

The device's "model" takes the next token from all tokens before it, which it finds in the pages of the cache. So a page
that two texts have, or a step in the wrong place, makes other tokens.
"""

from __future__ import annotations

import contextlib
import random
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sizes import PAGE, Sizes


def next_token(tokens: Sequence[int], vocabulary: int) -> int:
    """The token behind others."""
    found = 17
    for token in tokens:
        found = (found * 31 + token) % 1_000_003
    return found % vocabulary


def answer_to(prompt: Sequence[int], limit: int, stop: int | None, vocabulary: int) -> list[int]:
    """The answer that a text gets, whatever else is going on."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit and (len(tokens) == len(prompt) or tokens[-1] != stop):
        tokens.append(next_token(tokens, vocabulary))
    return tokens[len(prompt) :]


class Machine:
    """The state that a device has, and what a step does with it."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.cache = np.full((sizes.pages, PAGE), -1)
        self.last = np.full(sizes.slots, -1)

    def do(self, plan: np.ndarray, bucket: int) -> np.ndarray:
        """Do a step; return what it has chosen, and its times."""
        sizes = self.sizes
        tables, picks, rows = np.split(plan, [sizes.slots * sizes.pages_each, -3 * bucket])
        tables, picks, rows = tables.reshape(sizes.slots, -1), picks.reshape(-1, 4), rows.reshape(-1, 3)
        for slot, position, token in rows:
            if slot >= 0:
                kept = self.last[slot] if token < 0 else token
                self.cache[tables[slot, position // PAGE], position % PAGE] = kept
        chosen = np.full(min(bucket, sizes.slots) + 4, -1, np.int32)
        chosen[-4:] = 0
        for i, (row, slot, _, _) in enumerate(picks[: min(bucket, sizes.slots)]):
            if row >= 0:
                assert rows[row, 0] == slot
                at = range(rows[row, 1] + 1)
                tokens = [int(self.cache[tables[slot, each // PAGE], each % PAGE]) for each in at]
                self.last[slot] = chosen[i] = next_token(tokens, sizes.vocabulary)
        return chosen


class Tensor:
    """A part of memory; copies are work of the current stream."""

    def __init__(self, torch: FakeTorch, data: np.ndarray) -> None:
        self._torch, self.data = torch, data

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self._torch, self.data[key])

    def numpy(self) -> np.ndarray:
        return self.data

    def fill_(self, number: int) -> None:
        self._torch.enqueue(lambda: self.data.fill(number))

    def copy_(self, other: Tensor, non_blocking: bool) -> None:
        assert non_blocking
        self._torch.enqueue(lambda: np.copyto(self.data, other.data))


class Stream:
    """Work that is done in order, and as late as it may be."""

    def __init__(self, torch: FakeTorch) -> None:
        self.work: list[tuple[Callable[[], None], Event | None, int]] = []
        self._torch = torch
        torch.streams.append(self)

    def wait_event(self, event: Event) -> None:
        with self._torch.lock:
            self.work.append((lambda: None, event, event.recorded))


class Event:
    """A point of a stream."""

    def __init__(self, torch: FakeTorch) -> None:
        self._torch = torch
        self.recorded = self.passed = 0

    def record(self, stream: Stream) -> None:
        with self._torch.lock:
            self.recorded += 1
            number = self.recorded
            stream.work.append((lambda: setattr(self, "passed", number), None, 0))

    def synchronize(self) -> None:
        with self._torch.lock:
            while self.passed < self.recorded:
                self._torch.do_one()


class FakeTorch(types.SimpleNamespace):
    """PyTorch as torch_ways.py uses it: streams whose work is done when a host waits, in an order by chance."""

    int32 = np.int32

    def __init__(self, seed: int) -> None:
        self.lock = threading.RLock()
        self.streams: list[Stream] = []
        self._chance = random.Random(seed)
        self._current = threading.local()
        self._default = Stream(self)
        self._captured: list[Callable[[], None]] | None = None
        self.cuda = types.SimpleNamespace(
            Stream=lambda: Stream(self),
            Event=lambda blocking=False: Event(self),
            CUDAGraph=lambda: FakeGraph(self),
            stream=self._stream,
            graph=self._graph,
            graph_pool_handle=lambda: "pool",
            synchronize=self._synchronize,
        )

    def empty(self, size: int, dtype: Any, device: str = "cpu", pin_memory: bool = False) -> Tensor:
        assert (device == "cpu") == pin_memory
        return Tensor(self, np.full(size, -99, dtype))

    def enqueue(self, work: Callable[[], None]) -> None:
        if self._captured is not None:
            self._captured.append(work)
            return
        with self.lock:
            getattr(self._current, "stream", self._default).work.append((work, None, 0))

    def do_one(self) -> None:
        """Do the first of some stream's work."""
        ready = [
            each for each in self.streams if each.work and (not (on := each.work[0][1]) or on.passed >= each.work[0][2])
        ]
        assert ready, "streams wait for one another"
        work, _, _ = self._chance.choice(ready).work.pop(0)
        work()

    def _synchronize(self) -> None:
        with self.lock:
            while any(stream.work for stream in self.streams):
                self.do_one()

    @contextlib.contextmanager
    def _stream(self, stream: Stream) -> Iterator[None]:
        before = getattr(self._current, "stream", self._default)
        self._current.stream = stream
        yield
        self._current.stream = before

    @contextlib.contextmanager
    def _graph(self, graph: FakeGraph, pool: str, stream: Stream) -> Iterator[None]:
        assert pool == "pool"
        self._captured = graph.work
        yield
        self._captured = None


class FakeGraph:
    """Work that was captured."""

    def __init__(self, torch: FakeTorch) -> None:
        self.work: list[Callable[[], None]] = []
        self._torch = torch

    def replay(self) -> None:
        for work in self.work:
            self._torch.enqueue(work)


class FakeDecoder:
    """In the place of torch_model.TorchDecoder."""

    def __init__(self, torch: FakeTorch, sizes: Sizes) -> None:
        self.sizes = sizes
        self._torch, self._machine = torch, Machine(sizes)

    def step(self, plan: Tensor, chosen: Tensor, bucket: int) -> None:
        size = self.sizes.slots * (self.sizes.pages_each + 4) + 3 * bucket

        def work() -> None:
            found = self._machine.do(plan.data[:size], bucket)
            chosen.data[: found.size] = found

        self._torch.enqueue(work)
