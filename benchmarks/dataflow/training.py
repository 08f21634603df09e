"""The example's network, trained data-parallel on 1, 2, 4 devices: steps a second."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

from dataflow.tables import Table

import aiocuda as ac
from aiocuda.collective import Group

EPOCHS = 8


def training(counts: tuple[int, ...] = (1, 2, 4)) -> Table:
    """Measure the steps a second on as many devices as there are of 1, 2, 4."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "mlp"))
    import mlp

    there = ac.devices()
    table = Table("f. The demo's network, data-parallel, a batch of 128 in all", ["devices", "steps/s", "x one device"])
    for count in counts:
        if count <= len(there):
            rate = asyncio.run(steps_a_second(mlp, there[:count]))
            table.rows.append([str(count), rate, rate / (table.rows[0][1] if table.rows else rate)])
    return table


async def steps_a_second(mlp: Any, devices: list[ac.Device]) -> float:
    training_set, _, values, rng = mlp.prepare()
    group = await asyncio.to_thread(Group.local, devices) if len(devices) > 1 else None
    with group or contextlib.nullcontext():
        network = mlp.Network(group)
        await network.start(devices, values)
        batches = await mlp.allocate(len(training_set[1]) // mlp.BATCH)
        mlp.shuffle(batches, *training_set, rng)
        async for _ in network.epoch(batches):  # compiles, and fills what is kept for later
            pass
        took = []
        for _ in range(EPOCHS):
            start = time.perf_counter()
            async for _ in network.epoch(batches):
                pass
            took.append(time.perf_counter() - start)
        return len(batches) / min(took)
