"""What a cluster costs on this machine, and what follows for 8, 64 and 1,000 ranks by a simulation.

Run: python benchmarks/bench_cluster.py [--calls N]     (needs aiocuda[ray])
Constants that are not measured here are marked as such in the output.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
import time
from typing import Any, NamedTuple

import numpy as np
import ray
from scheduling.constants import HOST_RANKS, LATENCY_S, NETWORK_BYTES_PER_S, constants
from scheduling.simulation import Job, step_s

import aiocuda as ac
from aiocuda._collective.hub import open_hub
from aiocuda._collective.meeting import Line
from aiocuda.cluster import Cluster, start

EMPTY = "Ray's, sent nothing"
TURNS = 10
changing: list[int] = []


async def nothing() -> None:
    pass


async def refers_to_what_may_change() -> int:
    return len(changing)


class Plain:
    """An actor of Ray's, without anything of aiocuda's."""

    async def nothing(self) -> None:
        """Do nothing, for nothing."""

    async def back(self, given: bytes) -> bytes:
        """Give back what was sent."""
        return given

    async def call(self, function: Any) -> Any:
        """Call a function that was sent along, as `Worker.run` does."""
        return await function()

    async def busy_s(self) -> float:
        """Return the processor time of this process."""
        return time.process_time()


class Threaded:
    """Another one, whose methods run in threads, with a loop beside them."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def back(self, given: bytes) -> bytes:
        """Give back what was sent, from the loop."""

        async def back() -> bytes:
            return given

        return asyncio.run_coroutine_threadsafe(back(), self.loop).result()

    def busy_s(self) -> float:
        """Return the processor time of this process."""
        return time.process_time()


class Costs(NamedTuple):
    """What one call takes, in microseconds: until its reply is there, of the caller's processor, of the other one's."""

    wall: float
    here: float
    there: float


async def costs_of(call: Any, busy_there_s: Any, calls: int) -> Costs:
    there_s, here_s = await busy_there_s(), time.process_time()
    wall = await median_us(call, calls)
    here_s = time.process_time() - here_s
    return Costs(wall, here_s / calls * 1e6, (await busy_there_s() - there_s) / calls * 1e6)


async def compare(cluster: Cluster, calls: int) -> dict[str, list[Costs]]:
    """Compare calls of workers with calls of Ray's own, in turns."""
    actor: Any = ray.remote(num_cpus=0, max_concurrency=10_000)(Plain).remote()
    threaded: Any = ray.remote(num_cpus=0, max_concurrency=64)(Threaded).remote()
    worker, sent = cluster[0], bytes(400)

    def by_ray(method: Any, *arguments: Any) -> Any:
        async def call() -> Any:
            return await method.remote(*arguments)

        return call

    async def busy_worker_s() -> float:
        return await worker.run(time.process_time)

    ways = {
        EMPTY: (by_ray(actor.nothing), by_ray(actor.busy_s)),
        "Ray's, 400 bytes": (by_ray(actor.back, sent), by_ray(actor.busy_s)),
        "the same, of threads": (by_ray(threaded.back, sent), by_ray(threaded.busy_s)),
        "Ray's, sent a function": (by_ray(actor.call, nothing), by_ray(actor.busy_s)),
        "run(nothing)": (lambda: worker.run(nothing), busy_worker_s),
        "run, pickled anew": (lambda: worker.run(refers_to_what_may_change), busy_worker_s),
        "run, imported there": (lambda: worker.run(asyncio.sleep, 0), busy_worker_s),
        "run, in a thread": (lambda: worker.run(bool), busy_worker_s),
    }
    found: dict[str, list[Costs]] = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        for name, (call, busy_there_s) in ways.items():
            costs = await costs_of(call, busy_there_s, max(calls // TURNS, 1))
            if turn:  # the first one warms up
                found[name].append(costs)
    return found


def print_costs(found: dict[str, list[Costs]]) -> None:
    print("an empty call            us: all   here  there   of Ray's, sent nothing: all  here  there")
    for name, each in found.items():
        us = np.median(each, axis=0)
        ratios = np.median(np.divide(each, found[EMPTY]), axis=0)
        print(f"{name:23} {us[0]:8.0f} {us[1]:6.0f} {us[2]:6.0f} {ratios[0]:28.2f} {ratios[1]:5.2f} {ratios[2]:6.2f}")


async def median_us(call: Any, calls: int) -> float:
    taken = []
    for _ in range(calls):
        before = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - before)
    return float(np.median(taken)) * 1e6


async def cpu_us(cluster: Cluster, calls: int) -> float:
    """Measure the driver's processor time for one call, of many that are under way at once."""
    before = time.process_time()
    for _ in range(calls // 50):
        await asyncio.gather(*[worker.run(nothing) for worker in cluster for _ in range(25)])
    return (time.process_time() - before) / (calls // 50 * 50) * 1e6


def line_us(ranks: int, calls: int) -> float:
    """Measure the processor time for one message of the channel, the threads of the ranks included."""
    place, left = open_hub("127.0.0.1", 1e6), threading.Semaphore(0)
    lines = [Line(place, rank, ranks, lambda _: left.release(), 10) for rank in range(ranks)]

    def call(numbers: range) -> None:
        for number in numbers:
            for line in lines:
                line.say(["call", [number, -1, -1], "all_reduce of float32(1000,), sum"])
        for _ in range(ranks * len(numbers)):
            left.acquire(timeout=30)

    call(range(1, 2))  # all have come
    before = time.process_time()
    call(range(2, calls + 2))
    taken = time.process_time() - before
    for line in lines:
        line.close()
    return taken / (2 * ranks * calls) * 1e6


async def steps_us(cluster: Cluster, steps: int, kib: int) -> tuple[float, float]:
    """Measure a step with an all_reduce: with one call for each, and with one call for all."""

    async def step(group: Any, count: int) -> None:
        x = await ac.ones(kib * 256)
        for _ in range(count):
            await group.all_reduce(x, "max", out=x)

    async with await cluster.group() as group:
        await cluster.run(step, group, 5)
        before = time.perf_counter()
        for _ in range(steps):
            await cluster.run(step, group, 1)
        between = time.perf_counter()
        await cluster.run(step, group, steps)
        after = time.perf_counter()
    return (between - before) / steps * 1e6, (after - between) / steps * 1e6


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400)
    given = parser.parse_args()
    os.environ.setdefault("AIOCUDA_EMULATED_DEVICES", "2")
    async with start(workers=2) as cluster:
        found = await compare(cluster, given.calls)
        print_costs(found)
        busy_us = await cpu_us(cluster, given.calls)
        print(f"driver's processor      {busy_us:8.0f} us for a call and its reply")
        x = await ac.zeros(64 << 20, interprocess=True)

        async def take(array: Any) -> int:
            return int(array.size)

        handed_us = await median_us(lambda: cluster[0].run(take, x), 20)
        print(f"256 MiB by handle       {handed_us:8.0f} us, the call included")
        each_us, all_us = await steps_us(cluster, 50, 4)
        print(f"step, 2 ranks, 4 KiB    {each_us:8.0f} us with a call for each; {all_us:.0f} us with one call for all")
    hub_us = line_us(16, 100)
    print(f"a message of the hub    {hub_us:8.2f} us of a processor, with the rank's part")
    here = {
        "processors_s": busy_us / 1e6,
        "wire_s": float(np.median([each.wall for each in found[EMPTY]])) / 2e6,
        "line_s": hub_us / 1e6,
    }
    print(f"\nsimulated: up to {HOST_RANKS} ranks NCCL as it was measured on two GPUs of one host; more are several")
    print(f"hosts, with {NETWORK_BYTES_PER_S / 1e9:g} GB/s and {LATENCY_S * 1e6:g} us, which nobody measured:")
    print("ranks   compute ms   call for each step ms   one call for all ms   share of compute")
    for ranks in (2, 8, 64, 1000):
        for compute_s in (0.01, 0.1, 1.0):
            times = [
                step_s(constants(ranks, **here), Job(ranks, 10, compute_s, 0.05, 64 << 20, each, ranks <= HOST_RANKS))
                for each in (True, False)
            ]
            share = compute_s / times[1]
            print(f"{ranks:5} {compute_s * 1e3:12.0f} {times[0] * 1e3:22.1f} {times[1] * 1e3:21.1f} {share:18.0%}")


if __name__ == "__main__":
    asyncio.run(main())
