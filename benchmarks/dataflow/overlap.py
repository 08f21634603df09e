"""What overlaps: independent branches, diamonds, and a chain that has nothing to overlap.

Always true: times are of the whole, from building the operations until their results are there. Every kernel is
one block, which spins for a given time by the device's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dataflow.tables import Table, fastest

import aiocuda as ac

BRANCHES = (1, 2, 4, 8, 16)
DEPTH, SPIN_NS = 16, 50_000
CHAIN = 256

SPIN = r"""
__device__ unsigned long long now_ns() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
extern "C" __global__ void spin(float* x, unsigned ns) {
    const unsigned long long start = now_ns();
    while (now_ns() - start < ns) {}
    x[0] += 1;
}
// A side of a diamond, of the top twice; or its bottom, of both sides.
extern "C" __global__ void meet(float* y, const float* a, const float* b, unsigned ns) {
    const unsigned long long start = now_ns();
    while (now_ns() - start < ns) {}
    y[0] = a[0] + b[0];
}
"""


class Overlap:
    """The kernels and arrays of these measures.

    Parameters
    ----------
    repeat
        Runs of each measure; the fastest counts.
    """

    def __init__(self, repeat: int) -> None:
        self.repeat = repeat
        self.spin = ac.kernel(SPIN, "spin")
        self.meet = ac.kernel(SPIN, "meet")
        self.arrays = [ac.ones(1).sync() for _ in range(3 * max(BRANCHES))]
        self.expect(4.0 ** (DEPTH // 2), self.diamonds(0))
        self.expect(1.0 + DEPTH, self.branch(3))

    def branch(self, index: int, depth: int = DEPTH, ns: int = SPIN_NS) -> Any:
        """Describe kernels on one array, each behind the one before it."""
        op: Any = self.arrays[index]
        for _ in range(depth):
            op = self.spin(op, ns, grid=1, block=1)
        return op

    def diamonds(self, index: int) -> Any:
        """Describe 8 diamonds, one after another: two kernels side by side, then one of both. 16 deep."""
        top, left, right = self.arrays[3 * index : 3 * index + 3]
        op: Any = top
        for _ in range(DEPTH // 2):
            sides = [self.meet(side, op, op, SPIN_NS, grid=1, block=1) for side in (left, right)]
            op = self.meet(top, *sides, SPIN_NS, grid=1, block=1)
        return op

    def branches(self) -> Table:
        """Measure independent branches against one of them."""
        table = Table(
            f"c. Branches of {DEPTH} kernels of {SPIN_NS // 1000} us, one block each: wall time over one branch's",
            [
                "branches",
                "one branch, us",
                "one DAG, Dataflow(8)",
                "one DAG, Dataflow(16)",
                "a level at a time, Dataflow(16)",
            ],
            notes=[
                "One DAG: zip(*branches), submitted branch after branch.",
                "A level at a time: a submit() for each kernel, the first of all branches first.",
            ],
        )
        eight, sixteen = ac.Dataflow(8), ac.Dataflow(16)
        for count in BRANCHES:
            one, *took = fastest(
                self.repeat,
                self.wall(eight, lambda: self.branch(0).sync()),
                self.wall(eight, lambda n=count: self.side_by_side(n)),
                self.wall(sixteen, lambda n=count: self.side_by_side(n)),
                self.wall(sixteen, lambda n=count: self.level_by_level(n)),
            )
            table.rows.append([str(count), one * 1e6, *(each / one for each in took)])
        return table

    def side_by_side(self, count: int) -> None:
        """Run branches as one DAG."""
        ac.zip(*[self.branch(index) for index in range(count)]).sync()

    def level_by_level(self, count: int) -> None:
        """Run branches a kernel of each at a time, so that the last branch need not wait to be submitted."""
        for _ in range(DEPTH):
            futures = [self.spin(array, SPIN_NS, grid=1, block=1).submit() for array in self.arrays[:count]]
        for future in futures:
            future.sync()

    def sixty_four_diamonds(self) -> Table:
        """Measure 8 branches of 8 diamonds each, which are as deep as a branch of 16 kernels."""
        table = Table(
            f"c. 64 diamonds: 8 branches of 8, {DEPTH} kernels deep, up to 16 at once",
            ["", "us", "x one branch of kernels", "x one branch of diamonds"],
        )
        measures = {
            f"Dataflow({streams})": self.wall(
                ac.Dataflow(streams), lambda: ac.zip(*map(self.diamonds, range(8))).sync()
            )
            for streams in (8, 16)
        }
        sixteen = ac.Dataflow(16)
        one, diamonds, *took = fastest(
            self.repeat,
            self.wall(sixteen, lambda: self.branch(0).sync()),
            self.wall(sixteen, lambda: self.diamonds(0).sync()),
            *measures.values(),
        )
        table.rows.append(["one branch of kernels", one * 1e6, 1.0, None])
        table.rows.append(["one branch of 8 diamonds", diamonds * 1e6, diamonds / one, 1.0])
        table.rows += [
            [name, each * 1e6, each / one, each / diamonds] for name, each in zip(measures, took, strict=True)
        ]
        return table

    def chain(self) -> Table:
        """Measure a chain under Dataflow against the same on a single stream."""
        table = Table(
            f"c. A chain of {CHAIN} kernels, nothing to overlap",
            ["", "SingleStream, us", "Dataflow(8), us", "x SingleStream"],
        )
        for name, ns in (("of no time", 0), (f"of {SPIN_NS // 1000} us", SPIN_NS)):
            single, dataflow = fastest(
                self.repeat,
                self.wall(ac.SingleStream(), lambda t=ns: self.branch(0, CHAIN, t).sync()),
                self.wall(ac.Dataflow(8), lambda t=ns: self.branch(0, CHAIN, t).sync()),
            )
            table.rows.append([name, single * 1e6, dataflow * 1e6, dataflow / single])
        return table

    def wall(self, policy: ac.Policy, run: Callable[[], object]) -> Callable[[], float]:
        """Return a measure of the whole, under a policy."""

        def measure() -> float:
            with ac.use(policy):
                start = time.perf_counter()
                run()
                return time.perf_counter() - start

        return measure

    def expect(self, value: float, op: Any) -> None:
        """See to it that an operation yields what it should, and its kernel is compiled."""
        found = float(ac.to_host(op).sync()[0])
        if found != value:
            raise RuntimeError(f"the spinning kernel gave {found}, not {value}")
