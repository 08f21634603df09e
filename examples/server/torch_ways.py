"""The ways without aiocuda, as well as they can be written: the same model, the same batches, the same server.

All have a CUDA graph for each bucket, page-locked memory, copies that do not block, tokens that stay on the device
between steps, and a step that is submitted while the one before it runs. They differ in who waits for the device.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from batching import Batch, Step, Text, empty_plan
from metering import Meter
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch_model import TorchDecoder

Chosen = NDArray[np.int32]
TURNS = 8  # of the event loop, in which way a sends tokens and lets in what waits at its sockets


class Slot:
    """The room of a step that is under way: memory on both sides, a graph for each bucket, and events."""

    def __init__(self, model: TorchDecoder, pool: Any) -> None:
        sizes = model.sizes
        longest = empty_plan(sizes, sizes.buckets[-1]).size
        self.host_plan = torch.empty(longest, dtype=torch.int32, pin_memory=True)
        self.plan = torch.empty(longest, dtype=torch.int32, device="cuda")
        self.chosen = torch.empty(sizes.slots + 4, dtype=torch.int32, device="cuda")
        self.host_chosen = torch.empty(sizes.slots + 4, dtype=torch.int32, pin_memory=True)
        self.uploaded, self.computed = torch.cuda.Event(), torch.cuda.Event()  # between streams, where there are three
        self.downloaded = torch.cuda.Event(blocking=True)  # whoever waits for it sleeps
        self._slots = sizes.slots
        self._fixed = empty_plan(sizes, 0).size
        self.plan.fill_(-1)
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()  # the stream does not wait for the fill by itself, nor for the model's zeros
        self._graphs = {bucket: self._capture(model, bucket, pool, stream) for bucket in sizes.buckets}

    def _capture(self, model: TorchDecoder, bucket: int, pool: Any, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
        with torch.cuda.stream(stream):  # loads kernels, and has cuBLAS choose its own
            model.step(self.plan, self.chosen, bucket)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            model.step(self.plan, self.chosen, bucket)
        with torch.cuda.stream(stream):  # the first replay of a graph uploads it
            graph.replay()
        torch.cuda.synchronize()
        return graph

    def upload(self, plan: NDArray[np.int32]) -> None:
        """Enqueue the upload of a plan. The slot's last step has ended before."""
        self.host_plan[: plan.size].numpy()[:] = plan
        self.plan[: plan.size].copy_(self.host_plan[: plan.size], non_blocking=True)

    def compute(self, plan: NDArray[np.int32]) -> None:
        """Enqueue the step."""
        self._graphs[self._bucket(plan)].replay()

    def download(self, plan: NDArray[np.int32]) -> None:
        """Enqueue the download of its tokens and its times."""
        size = self._size(plan)
        self.host_chosen[:size].copy_(self.chosen[:size], non_blocking=True)

    def wait(self, plan: NDArray[np.int32]) -> Chosen:
        """Wait until they are there; return them as a copy, as the memory is used again."""
        self.downloaded.synchronize()
        return np.array(self.host_chosen[: self._size(plan)].numpy())

    def _bucket(self, plan: NDArray[np.int32]) -> int:
        return int(plan.size - self._fixed) // 3

    def _size(self, plan: NDArray[np.int32]) -> int:
        return min(self._bucket(plan), self._slots) + 4


class Synchronous:
    """(a) PyTorch in one thread, with two slots on one stream: the event loop's own thread waits for the device.

    The loop goes on between steps. A step is submitted while the one before it runs.
    """

    def __init__(self, model: TorchDecoder, max_waiting: int) -> None:
        self.batch, self.meter = Batch(model.sizes, max_waiting), Meter()
        self._model = model
        self._arrivals: asyncio.Queue[None] = asyncio.Queue()

    def add(self, text: Text) -> None:
        """Let a text wait for its turn."""
        self.batch.add(text)
        if self._arrivals.empty():
            self._arrivals.put_nowait(None)

    async def warm_up(self) -> None:
        """Capture the graphs."""
        pool = torch.cuda.graph_pool_handle()  # graphs never run beside one another, so they may share memory
        self._slots = itertools.cycle([Slot(self._model, pool) for _ in range(2)])
        self._stream = torch.cuda.Stream()

    async def run(self) -> None:
        """Do one step after another until the task is cancelled."""
        before: tuple[Step, Slot] | None = None
        try:
            while True:
                now = None
                if step := self.batch.plan(asyncio.get_running_loop().time()):
                    now = step, next(self._slots)
                    self._enqueue(*now)
                if before is not None:
                    chosen = await self._done(*before)
                    self.batch.take(before[0], chosen)
                    self.meter.count(chosen)
                elif now is None:
                    await self._arrivals.get()
                before = now
        except Exception as error:
            self.batch.fail(error)
            raise

    async def _done(self, step: Step, slot: Slot) -> Chosen:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return slot.wait(step.plan)

    def _enqueue(self, step: Step, slot: Slot) -> None:
        with torch.cuda.stream(self._stream):
            slot.upload(step.plan)
            slot.compute(step.plan)
            slot.download(step.plan)
            slot.downloaded.record(self._stream)


class Threads(Synchronous):
    """(b) asyncio and `to_thread`: as before, but another thread waits for the device, and the event loop goes on."""

    async def _done(self, step: Step, slot: Slot) -> Chosen:
        return await asyncio.to_thread(slot.wait, step.plan)


class Overlapped:
    """(c) A thread of its own, two slots, three streams, and events between them.

    A step is submitted while the one before it runs. Its upload, and the download of the one before, run beside it. The
    thread owns the batch: the event loop hands it texts, and gets tokens of a step all at once.
    """

    def __init__(self, model: TorchDecoder, max_waiting: int) -> None:
        self.batch, self.meter = Batch(model.sizes, max_waiting), Meter()
        self._model = model
        self._changed = threading.Condition()  # guards the batch's line, and tells of arrivals
        self._ends = False
        self._given: list[functools.partial[None]] = []

    def add(self, text: Text) -> None:
        """Let a text wait for its turn."""
        give = text.give
        text.give = lambda token: self._given.append(functools.partial(give, token))
        with self._changed:
            self.batch.add(text)
            self._changed.notify()

    async def warm_up(self) -> None:
        """Capture the graphs."""
        pool = torch.cuda.graph_pool_handle()
        self._slots = [Slot(self._model, pool) for _ in range(2)]
        self._uploads, self._steps, self._downloads = (torch.cuda.Stream() for _ in range(3))

    async def run(self) -> None:
        """Have the thread work until the task is cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            await asyncio.to_thread(self._work)
        finally:
            with self._changed:
                self._ends = True
                self._changed.notify()

    def _work(self) -> None:
        before: tuple[Step, Slot] | None = None
        turn = 0
        try:
            while True:
                step = self._next(is_idle=before is None)
                if step is None and before is None:
                    return
                slot = self._slots[turn]
                if step is not None:
                    self._enqueue(step, slot)
                    turn = 1 - turn
                if before is not None:
                    chosen = before[1].wait(before[0].plan)
                    with self._changed:
                        self.batch.take(before[0], chosen)
                    self.meter.count(chosen)
                    self._hand_on()
                before = (step, slot) if step is not None else None
        except Exception as error:
            with self._changed:
                self.batch.fail(error)
            self._hand_on()
            raise

    def _next(self, is_idle: bool) -> Step | None:
        """Plan a step; wait for a text if nothing else is under way. None: nothing is to be done, or the end."""
        with self._changed:
            while (step := self.batch.plan(self._loop.time())) is None and is_idle and not self._ends:
                self._changed.wait()
        self._hand_on()
        return None if self._ends else step

    def _enqueue(self, step: Step, slot: Slot) -> None:
        with torch.cuda.stream(self._uploads):
            slot.upload(step.plan)
            slot.uploaded.record(self._uploads)
        with torch.cuda.stream(self._steps):
            self._steps.wait_event(slot.uploaded)
            slot.compute(step.plan)
            slot.computed.record(self._steps)
        with torch.cuda.stream(self._downloads):
            self._downloads.wait_event(slot.computed)
            slot.download(step.plan)
            slot.downloaded.record(self._downloads)

    def _hand_on(self) -> None:
        """Have the event loop give out tokens: it is woken once for all of a step."""
        given, self._given = self._given, []
        if given:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._give_out, given)

    @staticmethod
    def _give_out(given: list[functools.partial[None]]) -> None:
        for each in given:
            each()
