"""Train the network of examples/mlp on several workers; all of them have the same weights at each step.

Each worker computes the gradients of its share of a batch, and `all_reduce` adds them up. The same network is trained
on one worker, too, which computes the same shares: two addends make the same sum in any order, so the weights of one
worker and of two are equal, bit for bit.
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
from aiocuda.cluster import Cluster, ClusterGroup, Worker, start

FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "mlp")]
sys.path[:0] = FOLDERS
mlp: Any = importlib.import_module("mlp")  # of the folder beside this one; it has no types


class Trainer:
    """One worker's weights. It lives on the worker, and its shares of the batches are those in `shares`."""

    def __init__(self, values: Sequence[np.ndarray[Any, Any]], shares: Sequence[int], all_shares: int) -> None:
        self.values, self.shares, self.all_shares = values, shares, all_shares

    async def start(self) -> None:
        """Upload the weights."""
        self.weights = list(await ac.zip(*[ac.to_device(value) for value in self.values]))
        self.velocities = list(await ac.zip(*[ac.zeros(shape) for shape in mlp.SHAPES]))

    async def step(self, group: Any, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> None:
        """Train on a batch. `group` is None on a worker that has all shares."""
        parts = [self.gradients(images, labels, share) for share in self.shares]
        totals = parts[0]
        for part in parts[1:]:
            totals = [ac.algorithms.transform("a + b", a=a, b=b) for a, b in zip(totals, part, strict=True)]
        if group is not None:
            totals = group.all_reduce(totals)
        updates = [
            mlp.sgd(weight, velocity, total, mlp.RATE, mlp.MOMENTUM, weight.size, threads=weight.size)
            for weight, velocity, total in zip(self.weights, self.velocities, totals, strict=True)
        ]
        await ac.zip(*updates)

    def gradients(self, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], share: int) -> list[Any]:
        """Describe the gradients of one share of a batch."""
        mine, classes = (np.array_split(each, self.all_shares)[share] for each in (images, labels))
        uploaded = ac.to_device(mine), ac.to_device(classes)
        _, gradients = mlp.backward(self.weights, *uploaded, len(mine), len(images))
        return list(gradients)

    async def read(self) -> list[np.ndarray[Any, Any]]:
        """Return the weights."""
        return list(await ac.zip(*[ac.to_host(weight) for weight in self.weights]))


async def import_here(cluster: Cluster) -> None:
    """Let the workers import this file and the network."""

    def extend(folders: list[str]) -> None:
        sys.path[:0] = folders

    await cluster.run(extend, FOLDERS)


async def train(
    workers: Sequence[Worker], group: ClusterGroup | None, shares: int, batches: int
) -> list[np.ndarray[Any, Any]]:
    """Train on so many batches; return the weights, which are the same on all workers."""
    (images, labels), _, values, _ = mlp.prepare()
    trainers = [
        await worker.create(Trainer, values, range(number, shares, len(workers)), shares)
        for number, worker in enumerate(workers)
    ]
    await asyncio.gather(*[each.start() for each in trainers])
    for number in range(batches):
        at = number * mlp.BATCH % (len(labels) - mlp.BATCH)
        batch = images[at : at + mlp.BATCH], labels[at : at + mlp.BATCH]
        await asyncio.gather(*[each.step(group, *batch) for each in trainers])
    of_all: list[list[np.ndarray[Any, Any]]] = await asyncio.gather(*[each.read() for each in trainers])
    for weights in of_all[1:]:
        if not all(map(np.array_equal, weights, of_all[0])):
            raise AssertionError("the workers' weights differ")
    return of_all[0]


def accuracy(weights: Sequence[np.ndarray[Any, Any]]) -> float:
    """Return the share of the digits for testing that are read right, by NumPy."""
    _, (images, labels), _, _ = mlp.prepare()
    w1, b1, w2, b2 = weights
    hidden = np.maximum(images @ w1 + b1, 0)
    return float(np.mean((hidden @ w2 + b2).argmax(axis=1) == labels))


async def compare(cluster: Cluster, batches: int) -> tuple[float, float]:
    """Train on all workers, and on one; return the accuracy, and the largest difference of their weights."""
    await import_here(cluster)
    async with await cluster.group() as group:
        of_all = await train(list(cluster), group, len(cluster), batches)
    of_one = await train([cluster[0]], None, len(cluster), batches)
    difference = max(float(np.abs(a - b).max()) for a, b in zip(of_all, of_one, strict=True))
    return accuracy(of_all), difference


async def main() -> int:
    parser = argparse.ArgumentParser(description="Train the digits network on several workers.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batches", type=int, default=300)
    given = parser.parse_args()
    os.environ.setdefault("AIOCUDA_EMULATED_DEVICES", str(given.workers))
    async with start(workers=given.workers) as cluster:
        right, difference = await compare(cluster, given.batches)
    print(f"workers            {given.workers}")
    print(f"test accuracy      {right:.1%}")
    print(f"weights of one     differ by {difference:g} at most")
    return 0 if right >= 0.9 else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
