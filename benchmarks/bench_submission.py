"""The cost of a tracked launch over the driver's own call, with a driver whose functions do nothing.

Run: python benchmarks/bench_submission.py [--repeat 15]
Goal: at most 0.6 microseconds a launch over the call.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

from dataflow.tables import fastest
from submission.stub import Stub, without_code

CHAIN = 1000
ALONE = 2000
CALLS = 100_000  # of the floor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15, help="runs of each measure, of which the fastest is shown")
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as directory:
        stub = Stub(Path(directory))
        from submission.floor import SCALE, THREADS, Floor

        import aiocuda as ac
        from aiocuda import _native
        from aiocuda._engine import placement

        scale = without_code(ac.kernel(SCALE))
        y, x, g = (ac.empty(1024).sync() for _ in range(3))
        loop = Floor(Path(directory), scale, y, x, g)
        stream = ac.Device(0).default_stream

        def under(policy: ac.Policy) -> _native.Placement:
            with ac.use(policy):
                return placement.current.get()

        def chain(policy: ac.Policy) -> float:
            start = time.perf_counter()
            op = y
            for _ in range(CHAIN):
                op = scale(op, x, g, THREADS, threads=THREADS)
            _native.submit(op, under(policy))  # without a future
            return (time.perf_counter() - start) / CHAIN

        def alone(policy: ac.Policy) -> float:
            where = under(policy)
            start = time.perf_counter()
            for _ in range(ALONE):
                _native.submit(scale(y, x, g, THREADS, threads=THREADS), where)
            return (time.perf_counter() - start) / ALONE

        def submitted(policy: ac.Policy) -> float:
            with ac.use(policy):
                start = time.perf_counter()
                for _ in range(ALONE):
                    scale(y, x, g, THREADS, threads=THREADS).submit()
                return (time.perf_counter() - start) / ALONE

        def built(_: ac.Policy) -> float:
            start = time.perf_counter()
            for _ in range(ALONE):
                scale(y, x, g, THREADS, threads=THREADS)
            return (time.perf_counter() - start) / ALONE

        policies = {"SingleStream": ac.SingleStream(), "Dataflow": ac.current_policy()}
        before = stub.counts()
        (base,) = fastest(repeat, lambda: loop.launches(stream, CALLS))
        print(f"{'ns over the driver call, with policy':<50}{''.join(f'{name:>16}' for name in policies)}")
        print(f"{'the driver call in a C++ loop, doing nothing':<50}{base * 1e9:>16.1f}")
        for name, measure in [
            ("built only", built),
            (f"built and submitted, in a chain of {CHAIN}", chain),
            ("built and submitted, one by one", alone),
            ("built, submitted, with a DeviceFuture each", submitted),
        ]:
            took = fastest(repeat, *(partial(measure, policy) for policy in policies.values()))
            print(f"{name:<50}{''.join(f'{(each - base) * 1e9:>16.0f}' for each in took)}")
        launches, _, waits = (now - then for now, then in zip(stub.counts(), before, strict=True))
        assert launches == repeat * (CALLS + len(policies) * (CHAIN + 2 * ALONE)), launches
        assert waits == 0, f"{waits} waits on what is one chain"


if __name__ == "__main__":
    main()
