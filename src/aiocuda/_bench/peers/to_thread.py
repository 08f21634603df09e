"""The way of a program that awaits a GPU without aiocuda: a thread that blocks, ``asyncio.to_thread(stream.sync)``."""

from __future__ import annotations

import asyncio

from aiocuda._bench.peers.cuda_core import CudaCore
from aiocuda._bench.work import LANES, Work

__all__ = ["ToThread"]


class ToThread:
    """Launches of cuda.core's on several streams, each waited for by a thread. Under asyncio alone.

    Parameters
    ----------
    work
        Whose arrays they take.
    """

    name = "cuda.core: launch, to_thread(sync)"

    def __init__(self, work: Work) -> None:
        self._lanes = [CudaCore(work, lane) for lane in range(LANES)]

    async def launch_and_wait(self, i: int) -> None:
        """Launch on one of the streams and await it."""
        lane = self._lanes[i % LANES]
        lane.launch()
        await asyncio.to_thread(lane.wait)
