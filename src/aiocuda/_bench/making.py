"""What making a graph costs: from a DAG that was built until its first launch could follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from aiocuda import _native
from aiocuda._bench.figures import Sample, Section, Sizes, compare
from aiocuda._bench.goals import Goal, beside
from aiocuda._bench.graph_work import floor_of_scales, require_alike
from aiocuda._bench.peers.graphs import GraphPeer
from aiocuda._bench.work import ITEMS, Work
from aiocuda._ops import composing
from aiocuda._ops.operation import DeviceOp
from aiocuda._verbs import create

__all__ = ["making"]

_NODES = 1_000
_BRANCHES = 8
_NODE_AT_MOST_US = 12


def making(work: Work, peers: Sequence[GraphPeer], sizes: Sizes) -> list[Section]:
    """Measure graphs of as many nodes, in three forms; times are for each node."""
    chain = [(work.outputs[0], work.x, work.g)]
    arrays = [create.zeros(ITEMS).sync() for _ in range(_BRANCHES)]

    def each_its_own() -> DeviceOp[Any]:
        op: Any = work.x
        for _ in range(_NODES):
            op = work.scale(create.empty(ITEMS), op, work.g, ITEMS, threads=ITEMS)
        return op  # type: ignore[no-any-return]

    def branch(array: Any) -> DeviceOp[Any]:
        for _ in range(_NODES // _BRANCHES):
            array = work.scale(array, work.x, work.g, ITEMS, threads=ITEMS)
        return array  # type: ignore[no-any-return]

    made_by = {f"{peer.name}: chain": _made_by(peer) for peer in peers}
    own, side_by_side = "each writes an array of its own", f"{_BRANCHES} branches"
    floor = floor_of_scales(work, chain, _NODES)
    floor_of_branches = floor_of_scales(work, [(array, work.x, work.g) for array in arrays], _NODES // _BRANCHES)
    return [
        _making("chain", "a chain", lambda: work.chain(_NODES), floor, made_by, sizes),
        _making("own arrays", own, each_its_own, floor, {}, sizes),
        _making("branches", side_by_side, lambda: composing.zip(*map(branch, arrays)), floor_of_branches, {}, sizes),
    ]


def _making(
    case: str,
    form: str,
    build: Callable[[], DeviceOp[Any]],
    floor: _native.GraphFloor,
    made_by: dict[str, Sample],
    sizes: Sizes,
) -> Section:
    def sample() -> list[float]:
        op = build()
        start = time.perf_counter()
        graph = op.graph()
        taken = time.perf_counter() - start
        require_alike(graph, floor)
        graph.close()
        return [taken / _NODES]

    figures = compare(
        "µs",
        sizes.rounds,
        {"C++: cuGraphAddKernelNode each, cuGraphInstantiate": lambda: [floor.make() / _NODES]},
        {"aiocuda: op.graph()": sample, **made_by},
    )
    goals = {"aiocuda: op.graph()": Goal(_NODE_AT_MOST_US, "median")}
    title = f"Make a graph of {_NODES:,} nodes, for each: {form}"
    return Section("make", case, title, beside(goals, figures))


def _made_by(peer: GraphPeer) -> Sample:
    def sample() -> list[float]:
        start = time.perf_counter()
        made = peer.make(_NODES)
        taken = time.perf_counter() - start
        del made
        return [taken / _NODES]

    return sample
