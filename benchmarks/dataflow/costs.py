"""What submitting costs: a launch on one stream, between two, on many slices, and under each policy.

Always true: only the time that the caller is kept is measured; the device is waited for outside of it. The
floors are the driver's own calls in C++, in turn with what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dataflow.tables import Table, fastest
from submission.floor import SCALE, THREADS, Floor

import aiocuda as ac

CHAIN = 400  # fewer than a stream may hold, so that submitting never waits for the device
BRANCHES = 400
ITEMS = 1024  # of an array

FILL = r"""
extern "C" __global__ void fill(int* x, int value) { if (threadIdx.x == 0) x[0] = value; }
"""
TOUCH = r"""
extern "C" __global__ void look(const int* x, int* seen) { if (threadIdx.x == 0) seen[0] = x[0]; }
"""


class Costs:
    """The kernels and arrays that the measures of submission share.

    Parameters
    ----------
    directory
        Where the C++ loops are built.
    repeat
        Runs of each measure; the fastest counts.
    loaded
        What makes a kernel ready to launch.
    """

    def __init__(self, directory: Path, repeat: int, loaded: Callable[[Any], Any]) -> None:
        self.repeat = repeat
        self.scale, self.fill, self.look = (loaded(ac.kernel(source)) for source in (SCALE, FILL, TOUCH))
        self.y, self.x, self.g = (ac.zeros(ITEMS).sync() for _ in range(3))
        self.device = ac.Device(0)
        self.streams = self.device.stream(), self.device.stream()
        self.dataflow = ac.Dataflow(8)
        self.dataflow.streams()  # made now, and not while something is measured
        self.floor = Floor(directory, self.scale, self.y, self.x, self.g)

    def launch_floor(self) -> float:
        """Return the seconds for each launch of a chain in C++."""
        return self.settled(lambda: self.floor.launches(self.streams[0], CHAIN))

    def one_stream(self) -> Table:
        """Measure a tracked launch on one stream over the launch in C++."""
        base = ac.zeros(4 * ITEMS).sync()
        views = [base[i * ITEMS : (i + 1) * ITEMS] for i in range(3)]
        # Of arrays of their own: memory of which a part was shared is looked at more closely from then on.
        handles = [self.y, *(ac.zeros(ITEMS).sync().share() for _ in range(2))]
        measures = {
            "built and not submitted": self.per_launch(lambda: self.chain([self.y, self.x, self.g]), lambda _: None),
            "a chain in one DAG: arrays": self.per_launch(lambda: self.chain([self.y, self.x, self.g]), submit),
            "a chain in one DAG: slices of one array": self.per_launch(lambda: self.chain(views), submit),
            "a chain in one DAG: reads shared handles": self.per_launch(lambda: self.chain(handles), submit),
            "one by one, a future each: arrays": self.per_launch(lambda: None, lambda _: self.one_by_one(self.y)),
            "one by one, a future each: slices of one array": self.per_launch(
                lambda: None, lambda _: self.one_by_one(views[0])
            ),
        }
        with ac.use(self.streams[0]):
            floor, *took = fastest(self.repeat, self.launch_floor, *measures.values())
        rows = list(zip(measures, took, strict=True))
        with ac.use(self.dataflow):
            (chosen,) = fastest(self.repeat, measures["a chain in one DAG: arrays"])
        rows.append(("a chain in one DAG: arrays, under Dataflow(8)", chosen))
        return over_floor(
            "a. A tracked launch on one stream, three arrays and a number", "cuLaunchKernel in C++", floor, rows
        )

    def two_streams(self) -> Table:
        """Measure launches on two streams in turn, each waiting for the other stream, over the same in C++."""

        def alternating() -> ac.DeviceOp[ac.DeviceArray]:
            op: Any = self.y
            for i in range(CHAIN):
                op = self.scale(op, self.x, self.g, THREADS, threads=THREADS).on(self.streams[i % 2])
            return op

        waits = alternating().explain().count(" wait for ")
        if waits != CHAIN - 1:
            raise RuntimeError(f"each launch but the first waits for the other stream once; {waits} waits were placed")
        floor, took = fastest(
            self.repeat,
            lambda: self.settled(lambda: self.floor.ping_pong(*self.streams, CHAIN)),
            self.per_launch(alternating, submit),
        )
        rows = [("a chain in one DAG, on(a), on(b), on(a), ...", took)]
        title = "b. Between two streams, each launch waiting for the other stream"
        return over_floor(title, "launch, event record, stream wait in C++", floor, rows)

    def slices(self, counts: Sequence[int]) -> Table:
        """Measure accesses to one array of which many slices are in flight."""
        table = Table(
            "d. An array with many slices in flight: ns to submit an access",
            ["slices", "write each", "again each", "read all", "read all again", "write all", "write each after it"],
            notes=["Under Dataflow(8), submission alone. `each`: for one slice; `all`: the whole array in one launch."],
        )
        seen = ac.zeros(1, "int32").sync()
        for count in counts:
            runs = [self.one_array(count, seen) for _ in range(self.repeat if count < 10_000 else 2)]
            table.rows.append([f"{count:,}", *(min(figures) for figures in zip(*runs, strict=True))])
        return table

    def one_array(self, count: int, seen: ac.DeviceArray) -> list[float]:
        """Write all slices twice, read the whole twice, write it, write the slices; ns of each."""
        array = ac.zeros(count, "int32").sync()
        parts = [array[i : i + 1] for i in range(count)]

        def each() -> float:
            return timed(ac.zip(*[self.fill(part, 1, grid=1, block=1) for part in parts])) / count

        def read() -> float:
            return timed(self.look(array, seen, grid=1, block=1))

        def write() -> float:
            return timed(self.fill(array, 1, grid=1, block=1))

        with ac.use(self.dataflow):
            took = [1e9 * measure() for measure in (each, each, read, read, write, each)]
            self.device.synchronize().sync()
        return took

    def policies(self) -> Table:
        """Measure what choosing a stream adds, for a DAG of independent launches."""

        class InTurn(ac.SchedulingPolicy):
            """The same as `RoundRobin`, in Python."""

            turn = 0

            def choose(self, op: Any, producers: Sequence[ac.Stream], candidates: Sequence[ac.Stream]) -> ac.Stream:
                self.turn += 1
                return candidates[self.turn % len(candidates)]

        arrays = [ac.zeros(8).sync() for _ in range(BRANCHES)]
        known = [ac.SingleStream(), self.dataflow, ac.RoundRobin(8), ac.LeastLoaded(8), InTurn(8)]

        def under(policy: ac.Policy) -> Callable[[], float]:
            def measure() -> float:
                dag = ac.zip(*[self.scale(array, self.x, self.g, 8, threads=THREADS) for array in arrays])
                with ac.use(policy):
                    return self.settled(lambda: timed(dag) / BRANCHES)

            return measure

        floor, *took = fastest(self.repeat, self.launch_floor, *map(under, known))
        names = [
            "SingleStream()",
            "Dataflow(8)",
            "RoundRobin(8)",
            "LeastLoaded(8)",
            "a SchedulingPolicy in Python, 8 streams",
        ]
        title = f"e. Policies: {BRANCHES:,} independent launches in one DAG, submission alone"
        return over_floor(title, "cuLaunchKernel in C++", floor, list(zip(names, took, strict=True)))

    def chain(self, arrays: Sequence[Any]) -> Any:
        """Describe launches of which each overwrites what the one before it wrote."""
        op, x, g = arrays
        for _ in range(CHAIN):
            op = self.scale(op, x, g, THREADS, threads=THREADS)
        return op

    def one_by_one(self, y: ac.DeviceArray) -> None:
        """Build and submit the same, a launch at a time."""
        for _ in range(CHAIN):
            self.scale(y, self.x, self.g, THREADS, threads=THREADS).submit()

    def per_launch(self, build: Callable[[], Any], submitted: Callable[[Any], object]) -> Callable[[], float]:
        """Return a measure of building and submitting, for each launch of a chain."""

        def measure() -> float:
            def run() -> float:
                start = time.perf_counter()
                submitted(build())
                return (time.perf_counter() - start) / CHAIN

            return self.settled(run)

        return measure

    def settled(self, run: Callable[[], float]) -> float:
        """Take a measure, then wait until the device has nothing to do."""
        took = run()
        self.device.synchronize().sync()
        return took


def submit(op: Any) -> object:
    return op.submit()


def timed(op: ac.DeviceOp[Any]) -> float:
    """Return the seconds that submitting takes."""
    start = time.perf_counter()
    future = op.submit()
    took = time.perf_counter() - start
    del future
    return took


def over_floor(title: str, floor_name: str, floor: float, rows: Sequence[tuple[str, float]]) -> Table:
    table = Table(title, ["", "ns each", "over the floor", "x floor"])
    table.rows.append([f"the floor: {floor_name}", floor * 1e9, None, None])
    table.rows += [[name, took * 1e9, (took - floor) * 1e9, took / floor] for name, took in rows]
    return table
