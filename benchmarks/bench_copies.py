"""Copies between host and device, against the driver's own calls in C++; and copies beside computation.

Run: python benchmarks/bench_copies.py [--mib 256] [--repeat 15] [--chunks 32]
Goals on an H200, 256 MiB: pageable to the device at least 4.5 x the driver's own pageable copy and 0.8 x the
page-locked rate, to the host 3 x and 0.8 x; page-locked 0.98 x the C++ rate; 4 KiB no slower than the driver's; of
the ideal overlap 92 %: the dearest of the three for each chunk, and the other two once.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np

import aiocuda as ac
from aiocuda import _native

SMALL = 4096


def median(times: list[float]) -> float:
    return statistics.median(times)


async def timed(make: Callable[[], Awaitable[Any]], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        await make()
        times.append(time.perf_counter() - start)
    return median(times[1:] or times)


def floor(to: int, source: int, size: int, repeat: int) -> float:
    stream = ac.Device(0).default_stream.handle
    return median(_native.copy_floor(0, stream, to, source, size, repeat + 1)[1:])


async def one_size(size: int, repeat: int) -> None:
    """Print the same bytes' copies by each way, with their ratios to the driver's pageable and page-locked copy."""
    source, out = np.full(size, 3, np.uint8), np.zeros(size, np.uint8)
    there = await ac.empty(size, np.uint8)
    locked = await ac.empty_host(size, np.uint8)
    locked.numpy()[...] = 5
    pageable = source.ctypes.data, out.ctypes.data
    floors = {
        "to the device": (
            floor(there.address, pageable[0], size, repeat),
            floor(there.address, locked.address, size, repeat),
        ),
        "to the host": (
            floor(pageable[1], there.address, size, repeat),
            floor(locked.address, there.address, size, repeat),
        ),
    }
    ours = [
        ("to the device", "copy(array, numpy)", lambda: ac.copy(there, source)),
        ("to the device", "to_device(numpy)", lambda: ac.to_device(source)),
        ("to the device", "copy(array, HostArray)", lambda: ac.copy(there, locked)),
        ("to the host", "to_host(array, out=numpy)", lambda: ac.to_host(there, out)),
        ("to the host", "to_host(array)", lambda: ac.to_host(there)),
        ("to the host", "copy(HostArray, array)", lambda: ac.copy(locked, there)),
    ]
    head(f"{size} bytes")
    for way, (slow, fast) in floors.items():
        for name, seconds in (("driver, pageable", slow), ("driver, page-locked", fast)):
            line(way, name, size, seconds, slow, fast)
        for found, name, make in ours:
            if found == way:
                line(way, name, size, await timed(make, repeat), slow, fast)


def head(title: str) -> None:
    print(f"\n{title}")
    print(f"{'':14} {'':27} {'us':>10} {'GB/s':>8}   {'of pageable':>11}  {'of page-locked':>14}")


async def at_once(size: int, count: int, repeat: int) -> None:
    """Print what one of many copies takes that are awaited together; the driver's pageable copies block one by one."""
    source, out = np.full(size, 3, np.uint8), np.zeros(size, np.uint8)
    arrays = [await ac.empty(size, np.uint8) for _ in range(count)]
    locked = [await ac.empty_host(size, np.uint8) for _ in range(count)]
    ways = {"to the device": (source.ctypes.data, True), "to the host": (out.ctypes.data, False)}
    ours = [
        ("to the device", "copy(array, numpy)", lambda: [ac.copy(array, source) for array in arrays]),
        ("to the device", "copy(array, HostArray)", lambda: list(map(ac.copy, arrays, locked))),
        ("to the host", "to_host(array)", lambda: [ac.to_host(array) for array in arrays]),
        ("to the host", "copy(HostArray, array)", lambda: list(map(ac.copy, locked, arrays))),
    ]
    head(f"{size} bytes, one of {count} at once")
    for way, (pageable, is_up) in ways.items():
        ends = (arrays[0].address, pageable, locked[0].address)
        slow, fast = (
            floor(*((ends[0], other) if is_up else (other, ends[0])), size, repeat) for other in (ends[1], ends[2])
        )
        for found, name, make in ours:
            if found == way:
                line(way, name, size, await timed(lambda make=make: ac.zip(*make()), repeat) / count, slow, fast)


def line(way: str, name: str, size: int, seconds: float, slow: float, fast: float) -> None:
    rate = size / seconds / 1e9
    print(f"{way:14} {name:27} {seconds * 1e6:10.1f} {rate:8.2f}   {slow / seconds:11.2f}  {fast / seconds:14.2f}")


CHUNK = 16 << 20
# Computation and download take two chunks' time, and who waits is called a little later: with two downloads under way
# he would hold up the third.
LAG = 4
CHURN = r"""
extern "C" __global__ void churn(float* x, unsigned n, unsigned rounds) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float value = x[i];
        for (unsigned round = 0; round < rounds; ++round) value = value * 0.999f + 0.5f;
        x[i] = value;
    }
}"""


async def overlap(count: int, repeat: int) -> None:
    """Print how near a stream of chunks comes to doing its three steps at once; the host's memory is page-locked."""
    churn = ac.kernel(CHURN)
    items = CHUNK // 4
    sources = [(await ac.empty_host(items)) for _ in range(4)]
    targets = [(await ac.empty_host(items)) for _ in range(LAG + 2)]
    array = await ac.zeros(items)

    def compute(x: ac.DeviceArray, rounds: int) -> ac.DeviceOp[Any]:
        return churn(x, items, rounds, grid=1024, block=256)

    upload = await timed(lambda: ac.copy(array, sources[0]), repeat)
    download = await timed(lambda: ac.copy(targets[0], array), repeat)
    rounds = 1
    while (computation := await timed(partial(compute, array, rounds), repeat)) < upload:
        rounds = max(rounds + 1, min(2 * rounds, round(rounds * upload / computation)))

    async def pipeline() -> None:
        under_way: deque[ac.DeviceFuture[Any]] = deque()
        index = 0
        async for chunk in ac.stream_chunks((sources[i % 4] for i in range(count)), depth=2):
            under_way.append(ac.copy(targets[index % len(targets)], compute(chunk, rounds)).submit())
            index += 1
            if len(under_way) > LAG:
                await under_way.popleft()
        for future in under_way:
            await future

    arrays = [await ac.empty(items) for _ in range(LAG + 2)]
    device = ac.Device(0)
    lanes = device.stream(), device.stream(), device.stream()

    async def all_at_once() -> None:
        for i in range(count):
            there, back = arrays[i % len(arrays)], targets[i % len(targets)]
            ac.copy(there, sources[i % 4]).on(lanes[0]).submit()
            compute(there, rounds).on(lanes[1]).submit()
            last = ac.copy(back, there).on(lanes[2]).submit()
        await last

    steps = upload, computation, download
    ideal = max(steps) * (count - 1) + sum(steps)
    taken, least = await timed(pipeline, 5), await timed(all_at_once, 5)
    print(f"\n{count} chunks of {CHUNK >> 20} MiB: upload, computation and download take", end=" ")
    print(", ".join(f"{seconds * 1e6:.0f}" for seconds in steps), "us each")
    print(f"one behind the other {sum(steps) * count * 1e3:.2f} ms, ideal overlap {ideal * 1e3:.2f} ms", end=", ")
    print(f"stream_chunks {taken * 1e3:.2f} ms: {ideal / taken:.1%} of the ideal")
    print(f"all submitted at once, on three streams and {LAG + 2} arrays that are there: {least * 1e3:.2f} ms")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="the large size")
    parser.add_argument("--repeat", type=int, default=15, help="runs of each measure, of which the median is shown")
    parser.add_argument("--chunks", type=int, default=32, help="of the stream of chunks")
    asked = parser.parse_args()
    print(f"{ac.Device(0).name}, medians of {asked.repeat}")
    await one_size(SMALL, max(asked.repeat, 200))
    await at_once(SMALL, 64, max(asked.repeat, 50))
    for size in (1 << 20, asked.mib << 20):
        await one_size(size, asked.repeat)
    await overlap(asked.chunks, asked.repeat)


if __name__ == "__main__":
    asyncio.run(main())
