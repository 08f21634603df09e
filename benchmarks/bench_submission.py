"""What a tracked launch costs over the driver's own call, with a driver whose functions do nothing.

Run: python benchmarks/bench_submission.py [--repeat 15]
Goal: at most 0.5 microseconds a launch over the call.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

CHAIN = 1000
ALONE = 2000


def load_stub(directory: Path) -> ctypes.CDLL:
    """Build the stub and load it as the process's libcuda.so.1, before anything else does."""
    library = directory / "libcuda.so.1"
    source = Path(__file__).with_name("submission") / "stub_driver.cpp"
    compiler = os.environ.get("CXX", "c++")
    subprocess.run(
        [compiler, "-std=c++20", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o", library],
        check=True,
    )
    stub = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    stub.launch_loop.restype = ctypes.c_double
    stub.launch_count.restype = ctypes.c_uint64
    return stub


class Description:
    """A kernel's Python side that has nothing to load."""

    def _load(self, device: int) -> int:
        return 1


def median_of(repeat: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(repeat))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15, help="runs of each measure, of which the median is shown")
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as directory:
        stub = load_stub(Path(directory))
        import aiocuda as ac
        from aiocuda import _native
        from aiocuda._engine import dtypes
        from aiocuda.ops import LaunchOp

        _native.load_driver()
        _native.open_device(0, 0x1000, 0x2000)
        float32 = dtypes.code_named("float32")
        scale = _native.make_kernel(
            LaunchOp,
            Description(),
            "scale",
            [
                ("array", float32, True, "y"),
                ("array", float32, False, "x"),
                ("array", float32, False, "g"),
                ("uint32", 0, False, "n"),
            ],
            1024,
        )
        y, x, g = (ac.empty(1024).sync() for _ in range(3))

        def floor() -> float:
            return float(stub.launch_loop(100_000))

        def chain() -> float:
            start = time.perf_counter()
            op = y
            for _ in range(CHAIN):
                op = scale(op, x, g, 1000, threads=1000)
            _native.submit(op, 0, -1)
            return (time.perf_counter() - start) / CHAIN

        def alone() -> float:
            start = time.perf_counter()
            for _ in range(ALONE):
                _native.submit(scale(y, x, g, 1000, threads=1000), 0, -1)
            return (time.perf_counter() - start) / ALONE

        def submitted() -> float:
            start = time.perf_counter()
            for _ in range(ALONE):
                scale(y, x, g, 1000, threads=1000).submit()
            return (time.perf_counter() - start) / ALONE

        def built() -> float:
            start = time.perf_counter()
            for _ in range(ALONE):
                scale(y, x, g, 1000, threads=1000)
            return (time.perf_counter() - start) / ALONE

        before = stub.launch_count()
        base = median_of(repeat, floor)
        print(f"{'measure':<46}{'ns':>8}{'over the call':>16}")
        print(f"{'the driver call in a C++ loop, doing nothing':<46}{base * 1e9:>8.0f}")
        for name, measure in [
            ("built only", built),
            (f"built and submitted, in a chain of {CHAIN}", chain),
            ("built and submitted, one by one", alone),
            ("built, submitted, with a DeviceFuture each", submitted),
        ]:
            took = median_of(repeat, measure)
            print(f"{name:<46}{took * 1e9:>8.0f}{(took - base) * 1e9:>16.0f}")
        launched = stub.launch_count() - before - 100_000 * repeat
        assert launched == repeat * (CHAIN + 2 * ALONE), launched


if __name__ == "__main__":
    main()
