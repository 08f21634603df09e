"""``aiocuda bench graphs``: which measures of CUDA graphs there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aiocuda._bench import running
from aiocuda._bench.figures import Section
from aiocuda._bench.making import making
from aiocuda._bench.peers.graphs import GraphPeer, load_graph_peers
from aiocuda._bench.replaying import rebinding, replays, side_by_side

__all__ = ["MEASURES", "run"]


_Bench = running.Bench[GraphPeer]

MEASURES: Mapping[str, tuple[str, Callable[[_Bench], list[Section]]]] = {
    "replay": (
        "replay 1,000 chained kernels, and 1",
        lambda bench: replays(bench.work, bench.loops, bench.peers, bench.sizes),
    ),
    "rebind": (
        "launches and compiled calls with 3 arrays replaced",
        lambda bench: rebinding(bench.work, bench.loops, bench.sizes),
    ),
    "branches": (
        "replay 8 and 32 branches of 16 kernels",
        lambda bench: side_by_side(bench.work, bench.loops, bench.sizes),
    ),
    "make": (
        "make graphs of 1,000 nodes",
        lambda bench: making(bench.work, bench.peers, bench.sizes),
    ),
}

_MEASURING = running.Measuring(
    name="aiocuda bench graphs",
    description="Measure what making and replaying CUDA graphs costs, as ratios to the same in C++ in the same run.",
    measures=MEASURES,
    make=lambda sizes: _Bench(sizes, load_graph_peers),
    emulated_note="Emulated graphs run one node after another, whatever their order would allow.",
)


def run(arguments: Sequence[str]) -> int:
    """Measure what is asked for, print it, write it; return the exit status."""
    return running.run(_MEASURING, arguments)
