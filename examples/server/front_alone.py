"""The server without a model: its HTTP front and its batches, and a pause for each step. No way can cost less."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
from batching import Step
from scheduler import Scheduler
from sizes import Sizes

if TYPE_CHECKING:
    from model import Decoder

STEP_S = 0.006  # about what a step of the medium model takes on an H200


class FrontAlone(Scheduler):
    """Answers texts with the same tokens each, in steps of one length."""

    def __init__(self, sizes: Sizes, max_waiting: int) -> None:
        super().__init__(cast("Decoder", SimpleNamespace(sizes=sizes)), max_waiting)
        self._chosen = np.arange(sizes.slots + 4, dtype=np.int32)

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
