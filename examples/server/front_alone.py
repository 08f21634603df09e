"""The server without a model: its HTTP front and its batches, and a pause for each step. No way can cost less."""

from __future__ import annotations

import asyncio

import numpy as np
from batching import Batch, Step, Text
from metering import Meter
from sizes import Sizes

STEP_S = 0.006  # about what a step of the medium model takes on an H200


class FrontAlone:
    """Answers texts with the same tokens each, in steps of one length."""

    def __init__(self, sizes: Sizes, max_waiting: int) -> None:
        self.batch, self.meter = Batch(sizes, max_waiting), Meter()
        self._chosen = np.arange(sizes.slots + 4, dtype=np.int32)
        self._arrivals: asyncio.Queue[None] = asyncio.Queue()

    def add(self, text: Text) -> None:
        """Let a text wait for its turn."""
        self.batch.add(text)
        if self._arrivals.empty():
            self._arrivals.put_nowait(None)

    async def warm_up(self) -> None:
        """Do nothing: nothing has to be warm."""

    async def run(self) -> None:
        """Do one step after another until the task is cancelled."""
        loop = asyncio.get_running_loop()
        before: Step | None = None
        began = 0.0
        while True:
            step = self.batch.plan(loop.time())
            if before is not None:
                began = max(began + STEP_S, loop.time())
                await asyncio.sleep(began - loop.time())
                self.batch.take(before, self._chosen)
                self.meter.steps += 1
            elif step is None:
                await self._arrivals.get()
            if before is None:
                began = loop.time()
            before = step
