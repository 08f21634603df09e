"""A framework's functions, tensors and kernels in operations, against its own calls: what each costs the host.

Run: python benchmarks/bench_frameworks.py [torch] [cupy] [triton] [--items 1024] [--chain 100] [--repeat 200]
Goals on an H200: an operation of PyTorch's costs at most 3 us more than PyTorch's own call, and a tensor as an argument
at most 1 us more than an array.

Arrays are small, so the host decides. Each row is a chain of as many steps, each on the result of the one before, with
one wait at its end; the figure is the median time for a step. Rows take turns, so a machine that slows down slows all.
At the end stand ratios: each is of two medians of this run, the second of which is the floor.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import aiocuda as ac

Row = tuple[str, Callable[[], None]]
ARRAY = "a kernel of aiocuda's, submitted by itself"
TENSOR = "a kernel of aiocuda's on its array, submitted by itself"
LAUNCH = "kernel(), submitted by itself"


def median_us(rows: list[Row], chain: int, repeat: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name, _ in rows}
    for turn in range(repeat + 5):
        for name, run in rows:
            start = time.perf_counter()
            run()
            if turn >= 5:
                times[name].append((time.perf_counter() - start) / chain * 1e6)
    return {name: statistics.median(each) for name, each in times.items()}


SOURCE = """
extern "C" __global__ void increment(float* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}"""
increment = ac.kernel(SOURCE)


def alone(name: str, launch: Callable[[], ac.DeviceOp[Any]], chain: int) -> Row:
    """One operation after another, each submitted by itself."""

    def run() -> None:
        for _ in range(chain - 1):
            launch().submit()
        launch().sync()

    return name, run


def aiocudas_rows(items: int, chain: int) -> list[Row]:
    x = ac.zeros(items, np.float32).sync()

    def kernels() -> None:
        y: Any = x
        for _ in range(chain):
            y = increment(y, items, threads=items)
        y.sync()

    return [
        ("a kernel of aiocuda's", kernels),
        alone(ARRAY, lambda: increment(x, items, threads=items), chain),
        alone("call, of a function that does nothing", lambda: ac.call(lambda stream, a: None, x, writes=[x]), chain),
    ]


def rows_of(name: str, add: Any, one: Any, wait: Any, items: int, chain: int) -> list[Row]:
    op = getattr(ac.interop, name).op
    x = ac.zeros(items, np.float32).sync()

    def own() -> None:
        y = one
        for _ in range(chain):
            y = add(y, 1)
        wait()

    def operations() -> None:
        y: Any = x
        for _ in range(chain):
            y = op(add, y, 1)
        y.sync()

    def alternating() -> None:
        y: Any = op(add, x, 1)
        for _ in range(chain // 2):
            y = op(add, increment(y, items, threads=items), 1)
        y.sync()

    return [
        (f"{name}: its own add", own),
        (f"{name}: op(add)", operations),
        alone(f"{name}: op, of a function that does nothing", lambda: op(do_nothing), chain),
        (f"{name}: op(add) and a kernel of aiocuda's in turn", alternating),
        alone(f"{name}: {TENSOR}", lambda: increment(one, items, threads=items), chain),
    ]


def launches(name: str, own: Callable[[], Any], wait: Callable[[], Any], launch: Any, chain: int) -> list[Row]:
    def owns() -> None:
        for _ in range(chain):
            own()
        wait()

    return [(f"{name}: its own launch", owns), alone(f"{name}: {LAUNCH}", launch, chain)]


def do_nothing() -> None:
    """Put nothing on the stream."""


def rows_of_torch(items: int, chain: int) -> list[Row]:
    import torch

    one = torch.zeros(items, device="cuda")
    return rows_of("torch", torch.add, one, torch.cuda.synchronize, items, chain)


def rows_of_cupy(items: int, chain: int) -> list[Row]:
    import cupy

    one, wait = cupy.zeros(items, np.float32), cupy.cuda.get_current_stream().synchronize
    raw, x = cupy.RawKernel(SOURCE, "increment"), ac.zeros(items, np.float32).sync()
    shape = ((items + 255) // 256,), (256,)
    arguments, kernel, n = (one, np.uint32(items)), ac.interop.cupy.kernel(raw), np.uint32(items)
    return [
        *rows_of("cupy", cupy.add, one, wait, items, chain),
        *launches("cupy", lambda: raw(*shape, arguments), wait, lambda: kernel(*shape, (x, n)), chain),
    ]


def rows_of_triton(items: int, chain: int) -> list[Row]:
    import torch
    import triton
    from kernels_of_triton import increment_all

    one, x, grid = torch.zeros(items, device="cuda"), ac.zeros(items, np.float32).sync(), (triton.cdiv(items, 256),)
    kernel = ac.interop.triton.kernel(increment_all)
    return launches(
        "triton",
        lambda: increment_all[grid](one, items, block=256),
        torch.cuda.synchronize,
        lambda: kernel[grid](x, items, block=256),
        chain,
    )


MATMUL = "torch: a matmul, "
ENQUEUED, BLOCKING = f"{MATMUL}enqueued only", f"{MATMUL}stream.synchronize()"
AWAITED, TO_THREAD = f"{MATMUL}await ac.done(stream)", f"{MATMUL}await asyncio.to_thread(stream.synchronize)"


async def waits_for_torch(repeat: int) -> dict[str, float]:
    """Return the median time of a product of matrices on a stream of PyTorch's with a wait for it, in us."""
    import torch

    a, stream = torch.randn(512, 512, device="cuda"), torch.cuda.Stream()

    def work() -> None:
        with torch.cuda.stream(stream):
            torch.mm(a, a)

    times: dict[str, list[float]] = {}

    def take(name: str, start: float) -> None:
        times.setdefault(name, []).append((time.perf_counter() - start) * 1e6)

    for _ in range(repeat + 50):
        start = time.perf_counter()
        work()
        take(ENQUEUED, start)
        stream.synchronize()
        start = time.perf_counter()
        work()
        stream.synchronize()
        take(BLOCKING, start)
        start = time.perf_counter()
        work()
        await ac.done(stream)
        take(AWAITED, start)
        start = time.perf_counter()
        work()
        await asyncio.to_thread(stream.synchronize)
        take(TO_THREAD, start)
    return {name: statistics.median(each[50:]) for name, each in times.items()}


FRAMEWORKS = {"torch": rows_of_torch, "cupy": rows_of_cupy, "triton": rows_of_triton}
# What each imports, and what pip calls that.
PACKAGES = {
    "torch": {"torch": "torch"},
    "cupy": {"cupy": "cupy-cuda13x"},
    "triton": {"triton": "triton", "torch": "torch"},
}


def missing(name: str) -> str | None:
    """Say what a framework's rows need and do not have; None if nothing."""
    if ac.Device(0).is_emulated:
        return "needs a GPU; this is the emulated driver"
    without = [package for module, package in PACKAGES[name].items() if importlib.util.find_spec(module) is None]
    return f"needs what is not installed: pip install {' '.join(without)}" if without else None


def comparisons(found: dict[str, float]) -> list[tuple[str, str, str]]:
    """Return what is compared with which floor, of the rows that there are: the words, the row, the floor."""
    pairs = [
        ("await ac.done(stream) over a blocking wait", AWAITED, BLOCKING),
        ("asyncio.to_thread(stream.synchronize) over a blocking wait", TO_THREAD, BLOCKING),
    ]
    for name in FRAMEWORKS:
        own, alternating = f"{name}: its own add", f"{name}: op(add) and a kernel of aiocuda's in turn"
        pairs += [
            (f"{name}: a chain of operations and kernels in turn over its own calls", alternating, own),
            (f"{name}: its array as an argument over an array of aiocuda's", f"{name}: {TENSOR}", ARRAY),
            (f"{name}: an operation over its own call", f"{name}: op(add)", own),
            (f"{name}: kernel() over its own launch", f"{name}: {LAUNCH}", f"{name}: its own launch"),
        ]
    return [pair for pair in pairs if pair[1] in found and pair[2] in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "frameworks", nargs="*", metavar="torch|cupy|triton", help="by default, those that can be measured here"
    )
    parser.add_argument("--items", type=int, default=1024)
    parser.add_argument("--chain", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=200)
    given = parser.parse_args()
    if unknown := set(given.frameworks) - set(FRAMEWORKS):
        parser.error(f"there are {', '.join(FRAMEWORKS)}, and no {', '.join(sorted(unknown))}")
    without = {name: why for name in given.frameworks or FRAMEWORKS if (why := missing(name))}
    if given.frameworks and without:
        sys.exit("\n".join(f"error: {name} {why}" for name, why in without.items()))
    print(f"{ac.Device(0).name}: chains of {given.chain} steps on {given.items} items, {given.repeat} times")
    rows = aiocudas_rows(given.items, given.chain)
    frameworks = given.frameworks or [name for name in FRAMEWORKS if name not in without]
    for name in frameworks:
        rows += FRAMEWORKS[name](given.items, given.chain)
    found = median_us(rows, given.chain, given.repeat)
    if "torch" in frameworks:
        found |= asyncio.run(waits_for_torch(given.repeat))
    for name, us in found.items():
        print(f"{us:8.2f} us  {name}")
    for words, row, floor in comparisons(found):
        print(f"{found[row] / found[floor]:8.2f} x   {words} ({found[row] - found[floor]:+.2f} us)")
    for name, why in without.items():
        print(f"not measured: {name} {why}")


if __name__ == "__main__":
    main()
