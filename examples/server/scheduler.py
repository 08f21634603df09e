"""Continuous batching in plain asyncio. This is all of it, because aiocuda knows what a step reads and writes.

A step is submitted while the one before it runs. aiocuda orders the two, uploads the plan of the second meanwhile, and
wakes the task when the tokens of the first are on the host.
"""

from __future__ import annotations

import asyncio

from batching import Batch, Text, empty_plan
from metering import Meter
from model import Decoder

import aiocuda as ac


class Scheduler:
    """Answers texts with a transformer, as many at once as it has slots."""

    def __init__(self, model: Decoder, max_waiting: int) -> None:
        self.batch, self.meter = Batch(model.sizes, max_waiting), Meter()
        self._model = model
        self._arrivals: asyncio.Queue[None] = asyncio.Queue()

    def add(self, text: Text) -> None:
        """Let a text wait for its turn; `Batch.add` says when it is refused."""
        self.batch.add(text)
        if self._arrivals.empty():
            self._arrivals.put_nowait(None)

    async def warm_up(self) -> None:
        """Have kernels compiled and loaded, and graphs made."""
        for bucket in self._model.sizes.buckets:
            plan = await ac.to_device(empty_plan(self._model.sizes, bucket))
            await self._model.described(plan)
            await self._model.step(plan)

    async def run(self) -> None:
        """Do one step after another until the task is cancelled."""
        before = None
        try:
            while True:
                now = None
                if step := self.batch.plan(asyncio.get_running_loop().time()):
                    now = step, ac.to_host(self._model.step(ac.to_device(step.plan))).submit()
                await asyncio.sleep(0)  # a result that is there does not suspend, and others need their turns
                if before is not None:
                    chosen = await before[1]
                    self.batch.take(before[0], chosen)
                    self.meter.count(chosen)
                elif now is None:
                    await self._arrivals.get()
                before = now
        except Exception as error:
            self.batch.fail(error)
            raise
