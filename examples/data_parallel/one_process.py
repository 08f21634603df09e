"""Train the network of examples/mlp on the devices of one process, whose gradients a local group adds up.

All gradients of a step go out in one call of `all_reduce`. The demo itself adds them up by copies between the devices,
as it must run where NCCL is not installed. Both give the same weights on two devices, bit for bit: two addends make the
same sum in any order.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import aiocuda as ac
from aiocuda.collective import Group

sys.path.insert(0, str(Path(__file__).parent.parent / "mlp"))
mlp: Any = importlib.import_module("mlp")  # of the folder beside this one; it has no types


def network(group: Group | None) -> Any:
    """Return the demo's network; with a group, the group adds its gradients up."""
    made = mlp.Network()
    if group is not None:
        made.summed = group.all_reduce  # a list of gradients for each device
    return made


async def train(
    devices: Sequence[ac.Device], group: Group | None, epochs: int
) -> tuple[list[list[np.ndarray[Any, Any]]], float]:
    """Train on the devices; return the weights of each, and the share of the digits for testing that are read right."""
    training, testing, values, rng = mlp.prepare()
    made = network(group)
    await made.start(devices, values)
    batches = await mlp.allocate(len(training[1]) // mlp.BATCH)
    for _ in range(epochs):
        mlp.shuffle(batches, *training, rng)
        async for _ in made.epoch(batches):
            pass
    weights = [list(await ac.zip(*[ac.to_host(each) for each in mine])) for mine in made.weights]
    return weights, await made.accuracy(*testing)


async def compare(devices: Sequence[ac.Device], epochs: int) -> tuple[float, float]:
    """Train with a group, and with copies; return the accuracy, and the largest difference of the weights."""
    with Group.local(devices) as group:
        by_group, right = await train(devices, group, epochs)
    by_copies, _ = await train(devices, None, epochs)
    pairs = zip(by_group, by_copies, strict=True)
    return right, max(float(np.abs(a - b).max()) for mine, other in pairs for a, b in zip(mine, other, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description="Train the digits network on the devices of one process.")
    parser.add_argument("--epochs", type=int, default=30)
    os.environ.setdefault("AIOCUDA_EMULATED_DEVICES", "2")
    given = parser.parse_args()
    devices = ac.devices()
    right, difference = asyncio.run(compare(devices, given.epochs))
    print(f"devices            {len(devices)}")
    print(f"test accuracy      {right:.1%}")
    print(f"weights by copies  differ by {difference:g} at most")
    return 0 if right >= 0.9 else 1


if __name__ == "__main__":
    raise SystemExit(main())
