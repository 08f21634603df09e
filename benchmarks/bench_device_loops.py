"""Loops on the device beside the same loops whose host is asked in each iteration.

Run: python benchmarks/bench_device_loops.py [--quick] [--json PATH]     (AIOCUDA_DRIVER=nvidia for a GPU)

Both are compiled functions. `device` is one launch of a `while_`. `host` launches an iteration, and awaits the number
on the device that says whether to go on. The figures are microseconds an iteration, the least of several runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

import aiocuda as ac

SOURCE = r"""
extern "C" __global__ void advance(float* x, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * 0.5f + 1.0f;
}
extern "C" __global__ void count(int* left, bool* goes_on) { *goes_on = --*left > 0; }
"""
SIZES = 1, 1 << 12, 1 << 16, 1 << 20
ITERATIONS = 10, 100, 1000


def steps(n: int) -> tuple[Callable[..., Any], Callable[[Any], Any]]:
    """Return an iteration, in place, and what says whether there is another."""
    advance, count = (ac.kernel(SOURCE, name) for name in ("advance", "count"))

    def body(state: Any) -> Any:
        x, left, goes_on = state
        return advance(x, n, threads=n), *count(left, goes_on, grid=1, block=1)

    return body, lambda state: state[1]


async def least_us(run: Callable[[], Awaitable[int]], runs: int) -> float:
    """Return the microseconds of an iteration in the fastest of several runs; `run` says how many it had."""
    found = []
    for _ in range(runs + 1):  # the first one compiles and makes graphs
        begun = time.perf_counter_ns()
        iterations = await run()
        found.append((time.perf_counter_ns() - begun) / 1e3 / iterations)
    return min(found[1:])


async def measured(n: int, iterations: int, runs: int) -> dict[str, Any]:
    body, condition = steps(n)
    x, left, goes_on = await ac.zip(ac.ones(n), ac.zeros((), np.int32), ac.zeros((), np.bool_))

    @ac.compile
    def looped(x: Any, *state: Any) -> Any:
        # `x` is written in place, as in the other loop: it is no part of the state, so there is no copy of it.
        def step(state: Any) -> Any:
            return ac.zip(*body((x, *state))).then(lambda found: found[1:])

        return ac.while_(condition, step, state, max_iterations=10 * iterations)

    @ac.compile
    def iteration(*state: Any) -> Any:
        return ac.zip(*body(state))

    async def begin() -> None:
        await ac.zip(ac.fill(left, iterations), ac.fill(goes_on, True))

    async def on_device() -> int:
        await begin()
        done = await looped(x, left, goes_on)
        return int(await ac.to_host(done.iterations))

    async def on_host() -> int:
        await begin()
        count, more = 0, True
        while more:
            await iteration(x, left, goes_on)
            more = bool(await ac.to_host(goes_on))
            count += 1
        return count

    assert await on_device() == await on_host() == iterations
    device_us, host_us = await least_us(on_device, runs), await least_us(on_host, runs)
    return {"items": n, "iterations": iterations, "device_us": device_us, "host_us": host_us}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--quick", action="store_true", help="the smallest of each only, to see that it runs")
    given = parser.parse_args()
    sizes, counts, runs = (SIZES[:1], ITERATIONS[:1], 1) if given.quick else (SIZES, ITERATIONS, 5)
    about = f"{ac.Device(0).name}, driver of CUDA {ac.select_driver().version_text}"
    print(f"{about}\n\n{'items':>10}{'iterations':>12}{'device':>12}{'host':>12}   host / device")
    rows = []
    for n in sizes:
        for iterations in counts:
            row = await measured(n, iterations, runs)
            rows.append(row)
            device_us, host_us = row["device_us"], row["host_us"]
            print(
                f"{n:>10,}{iterations:>12,}{device_us:>9.2f} us{host_us:>9.2f} us{host_us / device_us:>12.2f}",
                flush=True,
            )
    if given.json:
        given.json.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
