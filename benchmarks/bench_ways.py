"""The three ways of an array to a worker and back: how many messages, what they carry, and which copies are made.

Run: python benchmarks/bench_ways.py [--mib N]     (needs aiocuda[ray] and aiocuda[nccl])
All run on one machine: the driver and the worker believe that they are on different hosts, or without NCCL. So the
times are no measure of a network. Counts are.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import time
from collections import Counter
from typing import Any

import aiocuda as ac
from aiocuda._cluster import driver_links, parcels, worker, worker_links
from aiocuda._cluster.messages import Parcel, Sent
from aiocuda._driver import nccl
from aiocuda.cluster import start

COPIES = {
    parcels: ("copy", "to_host", "to_device"),
    driver_links: ("to_device",),
    worker_links: ("to_host",),
    nccl.Communicators: ("launch",),
}
WAYS: dict[str, dict[str, Any]] = {
    "by handle": {},
    "by NCCL": {"host": "elsewhere"},
    "object store": {"host": "elsewhere", "has_nccl": False},
}


def count_copies(counts: Counter[str]) -> None:
    """Count what this process has copied from now on, by what does it."""

    def counted(name: str, function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **keywords)

        return call

    for place, names in COPIES.items():
        for name in names:
            setattr(place, name, counted("NCCL" if place is nccl.Communicators else name, getattr(place, name)))


class CountingActor:
    """A worker's actor; counts what is said to it, and its answers, but for signs of life."""

    def __init__(self, actor: Any, counts: Counter[str]) -> None:
        self._actor, self._counts = actor, counts

    def __getattr__(self, name: str) -> Any:
        if name != "ping":
            self._counts["messages"] += 2
        return getattr(self._actor, name)


def count_stored(counts: Counter[str]) -> None:
    """Count the bytes of arrays that travel within messages, of this process' calls."""
    pack, unpack = worker.pack, worker.unpack

    def note(parcel: Parcel) -> Parcel:
        counts["stored bytes"] += sum(each.data.nbytes for each in parcel.arrays if isinstance(each, Sent))
        return parcel

    async def packed(*arguments: Any) -> Parcel:
        return note(await pack(*arguments))

    async def unpacked(parcel: Parcel, *arguments: Any) -> Any:
        return await unpack(note(parcel), *arguments)

    worker.pack, worker.unpack = packed, unpacked


def meet(driver: Any) -> None:
    """On a worker: believe this of the driver; count copies."""
    (actor,) = [each for each in gc.get_objects() if type(each).__name__ == "WorkerActor"]
    actor._driver = driver
    if not hasattr(actor, "copies"):
        actor.copies = Counter()
        count_copies(actor.copies)


def copies_there() -> Counter[str]:
    (actor,) = [each for each in gc.get_objects() if type(each).__name__ == "WorkerActor"]
    copies: Counter[str] = actor.copies
    return copies


async def back(x: Any) -> Any:
    return x


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    given = parser.parse_args()
    os.environ.setdefault("AIOCUDA_EMULATED_DEVICES", "1")
    here: Counter[str] = Counter()
    count_copies(here)
    count_stored(here)
    async with start(workers=1) as cluster:
        x = await ac.zeros(given.mib << 18, "float32")
        process, driver = cluster[0]._process, cluster[0]._driver
        truth, process.actor = process.facts, CountingActor(process.actor, here)
        print("to a worker and back     messages   stored MiB      ms   copies here, and there")
        for name, facts in WAYS.items():
            await cluster[0].run(meet, driver._replace(**facts))
            process.facts = truth._replace(**facts)
            await ac.done(await cluster[0].run(back, x))  # links are made, memory is there
            there_before = await cluster[0].run(copies_there)
            before, began = Counter(here), time.perf_counter()
            await ac.done(await cluster[0].run(back, x))
            taken_ms, counts = (time.perf_counter() - began) * 1e3, here - before
            there = await cluster[0].run(copies_there) - there_before
            messages, stored = counts.pop("messages"), counts.pop("stored bytes", 0) >> 20
            print(f"{name:20} {messages:12} {stored:12} {taken_ms:7.1f}   {in_words(counts)}; {in_words(there)}")
        process.facts = truth


def in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


if __name__ == "__main__":
    asyncio.run(main())
