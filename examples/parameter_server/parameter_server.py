"""Train the network of examples/mlp with a parameter server: no worker waits for another one.

Worker 0 has the weights. Each other worker takes them, computes the gradients of a batch, and gives these back. By then
the weights may have changed, so gradients are a little old: that is the price of not waiting.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import aiocuda as ac
from aiocuda.cluster import Cluster, Remote, Worker, start

FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "mlp")]
sys.path[:0] = FOLDERS
mlp: Any = importlib.import_module("mlp")  # of the folder beside this one; it has no types

RATE = mlp.RATE / 4  # old gradients and large steps do not go together


class Parameters:
    """The weights, on the worker that has them. Arrays come and go as arguments and results."""

    def __init__(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        self.weights = [ac.to_device(value).sync() for value in values]
        self.velocities = [ac.zeros(shape).sync() for shape in mlp.SHAPES]
        self.steps = 0

    async def pull(self) -> tuple[int, list[ac.DeviceArray]]:
        """Return how many steps were made, and the weights, which are copied behind the last one."""
        steps = self.steps
        return steps, list(await ac.zip(*[ac.dup(weight) for weight in self.weights]))

    async def push(self, gradients: Sequence[ac.DeviceArray], of_step: int) -> int:
        """Make a step; return how old the gradients are, in steps."""
        age, self.steps = self.steps - of_step, self.steps + 1
        updates = [
            mlp.sgd(weight, velocity, gradient, RATE, mlp.MOMENTUM, weight.size, threads=weight.size)
            for weight, velocity, gradient in zip(self.weights, self.velocities, gradients, strict=True)
        ]
        await ac.zip(*updates)
        return age


async def gradients_of(
    weights: Sequence[ac.DeviceArray], images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
) -> list[ac.DeviceArray]:
    """Return the gradients of a batch; runs on a worker."""
    _, gradients = mlp.backward(weights, ac.to_device(images), ac.to_device(labels), len(images), len(images))
    return list(await ac.zip(*gradients))


async def work(worker: Worker, parameters: Remote, batches: Iterator[Any], ages: list[int]) -> None:
    """Have one worker take batches until none is left."""
    for images, labels in batches:
        step, weights = await parameters.pull()
        gradients = await worker.run(gradients_of, weights, images, labels)
        ages.append(await parameters.push(gradients, step))


async def train(cluster: Cluster, batches: int) -> tuple[float, list[int]]:
    """Train on so many batches; return the accuracy, and how old the gradients were."""

    def extend(folders: list[str]) -> None:
        sys.path[:0] = folders

    await cluster.run(extend, FOLDERS)
    (images, labels), (test_images, test_labels), values, _ = mlp.prepare()
    starts = (number * mlp.BATCH % (len(labels) - mlp.BATCH) for number in range(batches))
    left = ((images[at : at + mlp.BATCH], labels[at : at + mlp.BATCH]) for at in starts)
    parameters = await cluster[0].create(Parameters, values)
    ages: list[int] = []
    workers = [each for each in cluster if each.number > 0]
    await asyncio.gather(*[work(each, parameters, left, ages) for each in workers])
    _, weights = await parameters.pull()
    w1, b1, w2, b2 = [await ac.to_host(weight) for weight in weights]
    scores = np.maximum(test_images @ w1 + b1, 0) @ w2 + b2
    return float(np.mean(scores.argmax(axis=1) == test_labels)), ages


async def main() -> int:
    parser = argparse.ArgumentParser(description="Train the digits network with a parameter server.")
    parser.add_argument("--workers", type=int, default=3, help="the first one has the weights")
    parser.add_argument("--batches", type=int, default=400)
    given = parser.parse_args()
    if given.workers < 2:
        parser.error("--workers: one has the weights, so there are 2 at least")
    os.environ.setdefault("AIOCUDA_EMULATED_DEVICES", str(given.workers))
    async with start(workers=given.workers) as cluster:
        right, ages = await train(cluster, given.batches)
    print(f"workers            {given.workers}, of which one has the weights")
    print(f"test accuracy      {right:.1%}")
    print(f"age of gradients   {np.mean(ages):.2f} steps on average, {max(ages)} at most")
    return 0 if right >= 0.85 else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
