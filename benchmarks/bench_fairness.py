"""How long one task's operation takes to be submitted while another task of its loop sends a flood.

    python benchmarks/bench_fairness.py [--operations 10000] [--loop uvloop] [--period-us 500]

The operation goes to a stream of its own, where nothing waits. One is due in each period, and its task looks at the
clock in each turn of the loop. The time is that from when it was due to its submission. So it has all that the flood
and the event loop hold the thread for. A flood of many tasks has the steps of those tasks, too, which are the loop's
own: `asyncio alone` has that many tasks that await no operation.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiocuda as ac

STREAMS = 16
KERNEL = r"""
extern "C" __global__ void increment(int* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}"""

Ops = list[ac.DeviceOp[Any]]
Flood = Callable[[Ops], Awaitable[object]]


class Work:
    """Launches of a small kernel, on some streams in turn."""

    def __init__(self) -> None:
        device = ac.Device(0)
        self.kernel = ac.kernel(KERNEL)
        self.kernel.compile(device)
        self.places = [(device.stream(), ac.zeros(64, "int32").sync()) for _ in range(STREAMS)]
        self.own, self.x = device.stream(), ac.zeros(64, "int32").sync()

    def launches(self, count: int) -> Ops:
        """Return so many operations."""
        each = zip(range(count), itertools.cycle(self.places), strict=False)
        return [self.kernel(x, 64, threads=64).on(stream) for _, (stream, x) in each]

    async def submit_one(self) -> float:
        """Await one operation; return when it was submitted."""
        times: list[float] = []
        with ac.use(self.own):
            await self.kernel(self.x, 64, threads=64).inspect(lambda _: times.append(time.perf_counter()))
        return times[0]


async def measure(work: Work, flood: Flood, ops: Ops, period_s: float) -> tuple[list[float], float]:
    """Return how late one task's operations were while another sent a flood, and how long that took, in seconds."""
    begin = time.perf_counter()
    task = asyncio.ensure_future(flood(ops))
    late_s = []
    due = begin + period_s
    while not task.done():
        while time.perf_counter() < due and not task.done():  # noqa: ASYNC110 - a timer would be a millisecond late
            await asyncio.sleep(0)
        late_s.append(await work.submit_one() - due)
        due = max(due + period_s, time.perf_counter())  # those that were missed meanwhile are one
    await task
    return late_s, time.perf_counter() - begin


async def main(count: int, period_s: float) -> None:
    """Measure each kind of flood, and print a line for it."""
    work = Work()

    async def no_operation() -> None:
        await asyncio.sleep(0)

    floods: dict[str, Flood] = {
        "no flood": lambda _: asyncio.sleep(0.2),
        "asyncio alone": lambda ops: asyncio.gather(*(no_operation() for _ in ops)),
        "await zip(*ops)": lambda ops: ac.as_coroutine(ac.zip(*ops)),
        "await ac.wait(ops)": ac.wait,
        "asyncio.gather(*ops)": lambda ops: asyncio.gather(*ops),
    }
    for _ in range(20):
        await work.submit_one()
    print(f"{count} operations; how late one operation of another task is submitted, in microseconds")
    print(f"{'flood':22}{'due':>8}{'median':>9}{'90 %':>9}{'longest':>9}{'flood, ms':>11}")
    for name, flood in floods.items():
        times, flood_s = await measure(work, flood, work.launches(count), period_s)
        print(f"{name:22}{len(times):8}{line(times)}{flood_s * 1e3:11.1f}")


def line(times: Sequence[float]) -> str:
    """Return the median, the 90th percentile and the longest, in microseconds."""
    ordered = sorted(times)
    return "".join(f"{ordered[round(part * (len(ordered) - 1))] * 1e6:9.0f}" for part in (0.5, 0.9, 1.0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How a flood of operations delays another task's operation.")
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--period-us", type=float, default=500.0)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    given = parser.parse_args()
    if given.loop == "uvloop":
        import uvloop

        uvloop.run(main(given.operations, given.period_us / 1e6))
    else:
        asyncio.run(main(given.operations, given.period_us / 1e6))
