"""Files to a device and back, against the same bytes of a NumPy array, and against the usual way by NumPy.

Run: python benchmarks/bench_files.py [--mib 4096] [--repeat 15] [--folder /dev/shm]
Goal: a file of 4 GiB that is in the system's page cache reaches the device at 0.8 x the rate of to_device of the same
bytes, or more. The measures of a row take turns, so that what else the machine does meets all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

import aiocuda as ac

Make = Callable[[], Awaitable[Any]]


async def in_turns(makes: dict[str, Make], repeat: int) -> dict[str, float]:
    """Return the median seconds of each; the first round warms all of them up and does not count."""
    times: dict[str, list[float]] = {name: [] for name in makes}
    for _ in range(repeat + 1):
        for name, make in makes.items():
            start = time.perf_counter()
            result = await make()
            times[name].append(time.perf_counter() - start)
            del result  # the next one has the memory
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def show(title: str, size: int, seconds: dict[str, float], base: str) -> None:
    print(f"\n{title:34} {'ms':>10} {'GB/s':>10}   of {base}")
    for name, each in seconds.items():
        print(f"{name:34} {each * 1e3:10.2f} {size / each / 1e9:10.4f}   {seconds[base] / each:.2f}")


async def measure(folder: Path, size: int, repeat: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    source, target = folder / "source", folder / "target"
    data.tofile(source)
    there = await ac.to_device(data)
    out = np.zeros_like(data)

    async def by_numpy() -> Any:
        return await ac.to_device(np.fromfile(source, np.uint8))

    async def mapped() -> Any:
        return await ac.to_device(np.memmap(source, np.uint8, "r"))

    async def to_file_by_numpy() -> None:
        (await ac.to_host(there, out)).tofile(target)

    ways: dict[str, Make] = {
        "to_device(array)": lambda: ac.to_device(data),
        "read(path)": lambda: ac.read(source, size, np.uint8),
        "to_device(fromfile(path))": by_numpy,
        "to_device(memmap(path))": mapped,
    }
    show(f"{size >> 20} MiB to the device", size, await in_turns(ways, repeat), "to_device(array)")
    assert np.array_equal(await ac.to_host(await ac.read(source, size, np.uint8)), data)
    ways = {
        "to_host(array, out)": lambda: ac.to_host(there, out),
        "write(path, array)": lambda: ac.write(target, there),
        "write(path, array, offset=0)": lambda: ac.write(target, there, 0),
        "to_host(array, out).tofile(path)": to_file_by_numpy,
    }
    show(f"{size >> 20} MiB to the host", size, await in_turns(ways, repeat), "to_host(array, out)")
    assert np.array_equal(np.fromfile(target, np.uint8), data)


async def small(folder: Path, repeat: int) -> None:
    """Print what one file of 4 KiB takes, and one of 64 that are read at once."""
    size, count = 4096, 64
    data = np.arange(size, dtype=np.uint8)
    paths = [folder / f"small{i}" for i in range(count)]
    for path in paths:
        data.tofile(path)
    ways: dict[str, Make] = {
        "to_device(array)": lambda: ac.to_device(data),
        "read(path)": lambda: ac.read(paths[0], size, np.uint8),
    }
    show("4 KiB", size, await in_turns(ways, repeat * 10), "to_device(array)")
    ways = {
        "to_device(array)": lambda: ac.zip(*(ac.to_device(data) for _ in paths)),
        "read(path)": lambda: ac.zip(*(ac.read(path, size, np.uint8) for path in paths)),
    }
    show(f"{count} of 4 KiB at once", size * count, await in_turns(ways, repeat), "to_device(array)")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="the size of the file")
    parser.add_argument("--repeat", type=int, default=15, help="runs of each measure, of which the median is shown")
    parser.add_argument("--folder", type=Path, help="where the files are made; default: the system's for such")
    asked = parser.parse_args()
    print(f"{ac.Device(0).name}, medians of {asked.repeat}")
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        await small(Path(folder), asked.repeat)
        await measure(Path(folder), asked.mib << 20, asked.repeat)


if __name__ == "__main__":
    asyncio.run(main())
