"""The simulation of many ranks beside what was measured on one and two GPUs; then what it says of many.

Run: python benchmarks/compare_simulation.py     (needs no device)

It prints the tables of docs/measurements/beyond-one-machine.md. What was measured stands in scheduling/measured.json,
with its page. Times of 4 KiB, NCCL's of 1 GiB in two processes, and the network's on one GPU are no rows: the constants
are made of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from scheduling.constants import HOST_RANKS, bytes_of, constants, measured
from scheduling.simulation import Job, Network, ring_s, step_s, training_s

TOLERANCE = 0.15  # by which simulated and measured may differ
STEPS = 8  # of bench_collectives.py
MANY = [(2, 0.1), (8, 0.1), (64, 0.1), (64, 1.0), (1000, 0.1), (1000, 1.0)]  # ranks, seconds of computing


class Row(NamedTuple):
    """A figure, twice."""

    what: str
    simulated: float
    measured: float
    digits: int = 0

    @property
    def ratio(self) -> float:
        """Simulated by measured."""
        return self.simulated / self.measured


def rows() -> Iterator[Row]:
    """Yield all figures that were measured and can be simulated."""
    there = measured()
    found = there["two H200"]
    for place, of_place in found["all_reduce, us"].items():
        if place == "columns":
            continue
        made = constants(2, place=place)
        for size, (ours, _, of_nccl, _) in of_place.items():
            takes_us = ring_s(made, 2, bytes_of(size)) * 1e6
            if size != "4 KiB":
                if (size, place) != ("1 GiB", "two processes"):
                    yield Row(f"NCCL's `all_reduce`, {place}, {size}, µs", takes_us, of_nccl)
                yield Row(f"`all_reduce`, {place}, {size}, µs", made.call_s * 1e6 + takes_us, ours)
    yield from network_rows()
    of_cluster, made = found["cluster"], constants(2)
    processors_s = made.dispatch_s + made.reply_s
    made = constants(2, wire_s=(of_cluster["empty run, us"] / 1e6 - processors_s) / 2)
    for name, has_call_per_step in (("a call for each", True), ("one call for all", False)):
        job = Job(2, 1000, 0.0, 0.0, bytes_of("4 KiB"), has_call_per_step, is_one_host=True)
        yield Row(
            f"step of two workers, 4 KiB, {name}, ms", step_s(made, job) * 1e3, of_cluster[f"step, {name}, ms"], 2
        )


def network_rows() -> Iterator[Row]:
    """Yield those of the network whose gradients are added up while it computes."""
    there = measured()
    shape, found = there["the network"], there["two H200"]["network"]
    layers, width = shape["layers"], shape["width"]
    network = Network(layers, found["alone, ms"] / 1e3 / (3 * layers), width * width * shape["bytes of a number"])
    alone, sums, both = (
        training_s(constants(2), network, 2, STEPS, is_computed=computed, is_reduced=reduced) * 1e3
        for computed, reduced in ((True, False), (False, True), (True, True))
    )
    yield Row("network of 8,192, two GPUs, the sums alone, ms", sums, found["sums alone, ms"], 2)
    yield Row("network of 8,192, two GPUs, both, ms", both, found["both, ms"], 2)
    yield Row("network of 8,192, weak scaling from one GPU to two", 2 * alone / both, found["weak scaling"], 2)
    ideal = max(alone, sums) + sums / layers
    yield Row("network of 8,192, overlap", (alone + sums - both) / (alone + sums - ideal), found["overlap"], 2)


def checks() -> list[str]:
    """Return the lines of the table of both."""
    lines = ["| figure | simulated | measured | ratio |", "|---|--:|--:|--:|"]
    for row in rows():
        lines.append(
            f"| {row.what} | {row.simulated:,.{row.digits}f} | {row.measured:,.{row.digits}f} | {row.ratio:.2f} |"
        )
    return lines


def many() -> list[str]:
    """Return the lines of the table of many ranks."""
    lines = [
        "| ranks | compute, ms | step with a call for each, ms | step with one call for all, ms | share of compute |",
        "|---|---|---|---|---|",
    ]
    for ranks, compute_s in MANY:
        each_ms, all_ms = (
            step_s(constants(ranks), Job(ranks, 10, compute_s, 0.05, 64 << 20, each, ranks <= HOST_RANKS)) * 1e3
            for each in (True, False)
        )
        share = compute_s * 1e3 / all_ms
        lines.append(f"| {ranks:,} | {compute_s * 1e3:,.0f} | {each_ms:,.0f} | {all_ms:,.0f} | {share * 100:.0f} % |")
    return lines


def main() -> None:
    for lines in (checks(), many()):
        print("\n".join(lines), end="\n\n")
    worst = max(rows(), key=lambda row: abs(row.ratio - 1))
    print(f"furthest apart: {worst.what}: {worst.ratio:.2f}")


if __name__ == "__main__":
    main()
