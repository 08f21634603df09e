"""What waiting for one launch costs: built, submitted, complete, and the waiter going on.

Run: python benchmarks/bench_await.py [--number 2000]
The floor is measured in the same run: the same launch in C++, with a thread that asks until it is done.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np

import aiocuda as ac

SOURCE = r"""
extern "C" __global__ void touch(int* x) { if (threadIdx.x == 0) *x += 1; }
"""


def measure_floor(kernel: object, array: ac.DeviceArray, number: int) -> float:
    """Build the C++ loop and run it on aiocuda's own function, stream and memory."""
    from cuda.bindings import driver

    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "floor.so"
        source = Path(__file__).with_name("awaiting") / "floor.cpp"
        compiler = os.environ.get("CXX", "c++")
        subprocess.run([compiler, "-std=c++20", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        floor = ctypes.CDLL(str(library)).launch_and_spin
        floor.restype = ctypes.c_double
        floor.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int]
        stream = ac.Device(0).default_stream.handle
        address = ctypes.c_uint64(array.address)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(address))
        _, context = driver.cuStreamGetCtx(driver.CUstream(stream))
        took = float(floor(int(context), kernel._load(0), stream, arguments, number))  # type: ignore[attr-defined]
    assert took > 0, "the driver refused the launch"
    return took


def median_us(number: int, once: Callable[[], object]) -> float:
    times = []
    for _ in range(number):
        start = time.perf_counter()
        once()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


async def median_us_awaited(number: int, once: Callable[[], Awaitable[object]]) -> float:
    times = []
    for _ in range(number):
        start = time.perf_counter()
        await once()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=2000, help="launches of each kind, of which the median is shown")
    number = parser.parse_args().number
    touch = ac.kernel(SOURCE)
    x = ac.zeros(1, np.int32).sync()

    def once() -> ac.DeviceOp[ac.DeviceArray]:
        return touch(x, grid=1, block=32)

    async def threaded() -> None:
        await asyncio.to_thread(once().sync)

    once().sync()
    rows = {"C++: launch, then ask until it is done (the floor)": measure_floor(touch, x, number)}
    rows["op.sync()"] = median_us(number, lambda: once().sync())
    runners: dict[str, Callable[[], asyncio.AbstractEventLoop] | None] = {"asyncio": None}
    try:
        import uvloop
    except ImportError:
        pass
    else:
        runners["uvloop"] = uvloop.new_event_loop
    for name, factory in runners.items():
        with asyncio.Runner(loop_factory=factory) as runner:
            rows[f"await op, {name}"] = runner.run(median_us_awaited(number, once))
            rows[f"asyncio.to_thread(op.sync), {name}"] = runner.run(median_us_awaited(number, threaded))
    device = ac.Device(0)
    print(f"{device.name}{' (emulated: only ratios mean anything)' if device.is_emulated else ''}")
    floor = next(iter(rows.values()))
    print(f"{'measure':<52}{'µs':>8}{'x floor':>10}")
    for name, took in rows.items():
        print(f"{name:<52}{took:>8.1f}{took / floor:>10.2f}")


if __name__ == "__main__":
    main()
