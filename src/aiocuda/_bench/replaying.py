"""What replaying a graph costs: as it is, with arrays replaced, and with branches side by side."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._bench.figures import Sample, Section, Sizes, compare
from aiocuda._bench.goals import Goal, beside
from aiocuda._bench.graph_work import floor_of_scales, floor_of_spins, require_alike, values_of
from aiocuda._bench.loops import Loop
from aiocuda._bench.peers.graphs import GraphPeer
from aiocuda._bench.work import ITEMS, Work
from aiocuda._graphs.compiled import compile as compiled
from aiocuda._ops import composing
from aiocuda._ops.operation import DeviceOp
from aiocuda._verbs import create

__all__ = ["rebinding", "replays", "side_by_side"]

# Builds the n-th launch of a sample.
Build: TypeAlias = Callable[[int], DeviceOp[Any]]

_FLOOR = "C++: cuGraphLaunch, spin on the stream"
_CHAIN = 1_000
_CHAIN_AT_MOST = 1.03
_ONE_AT_MOST = {"await, asyncio": 1.7, "await, uvloop": 1.5}
_MORE_AT_MOST_US = 4
_BRANCHES_AT_MOST = {8: 1.08, 32: 1.06}
_DEPTH, _KERNEL_NS = 16, 50_000


def replays(work: Work, loops: Sequence[Loop], peers: Sequence[GraphPeer], sizes: Sizes) -> list[Section]:
    """Measure a replay of many kernels, and of one, from building the launch until the waiter goes on."""
    every = dict.fromkeys(_ways(loops, 0), _CHAIN_AT_MOST)
    return [
        _replays(work, loops, peers, sizes, f"Replay {_CHAIN:,} chained kernels", _CHAIN, every),
        _replays(work, loops, peers, sizes, "Replay 1 kernel", 1, _ONE_AT_MOST),
    ]


def _replays(
    work: Work,
    loops: Sequence[Loop],
    peers: Sequence[GraphPeer],
    sizes: Sizes,
    title: str,
    nodes: int,
    at_most: Mapping[str, float],
) -> Section:
    number = sizes.waits if nodes == 1 else sizes.waits // 10
    graph = work.chain(nodes).graph()
    floor = floor_of_scales(work, [(work.outputs[0], work.x, work.g)], nodes)
    require_alike(graph, floor)

    figures = compare(
        "µs",
        sizes.rounds,
        {_FLOOR: lambda: floor.replays(work.handles[0], number)},
        {
            **{f"aiocuda: {way}": sample(lambda _: graph.launch()) for way, sample in _ways(loops, number).items()},
            **{f"{peer.name}: replay, wait": _replayed_by(peer, nodes, number) for peer in peers},
        },
    )
    goals = {f"aiocuda: {way}": Goal(ratio, "ratio") for way, ratio in at_most.items()}
    return Section("replay", f"{nodes:,}", title, beside(goals, figures))


def _three_arrays() -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    return create.zeros(ITEMS).sync(), create.zeros(ITEMS).sync(), create.zeros(ITEMS).sync()


def rebinding(work: Work, loops: Sequence[Loop], sizes: Sizes) -> list[Section]:
    """Measure launches with three arrays replaced, each time by others, over launches as they are; each way to wait."""
    number = sizes.waits

    def scaled(y: DeviceArray, x: DeviceArray, g: DeviceArray) -> DeviceOp[DeviceArray]:
        op: DeviceOp[DeviceArray] = work.scale(y, x, g, ITEMS, threads=ITEMS)
        return op

    own, *others = (_three_arrays() for _ in range(3))
    y, x, g = own
    graph = scaled(y, x, g).graph(y=y, x=x, g=g)
    floor = floor_of_scales(work, [own], 1)
    require_alike(graph, floor)
    compiled_scaled = compiled(scaled)

    def replaced(i: int) -> DeviceOp[Any]:
        y, x, g = others[i % 2]
        return graph.launch(y=y, x=x, g=g)

    values = [values_of(arrays) for arrays in others]
    in_cpp: dict[str, Sample] = {
        _FLOOR: lambda: floor.replays(work.handles[0], number),
        "C++: set the node, cuGraphLaunch, spin": lambda: floor.rebound_replays(work.handles[0], number, values),
    }
    sections = []
    for way, sample in _ways(loops, number).items():
        figures = compare(
            "µs",
            sizes.rounds,
            {"aiocuda: launch()": sample(lambda _: graph.launch())},
            {
                "aiocuda: launch(y=, x=, g=)": sample(replaced),
                "aiocuda: a compiled function's call": sample(lambda i: compiled_scaled(*others[i % 2])),
                **(in_cpp if way == ".sync()" else {}),
            },
        )
        goal = Goal(_MORE_AT_MOST_US, "more")
        goals = {each.name: goal for each in figures[1:3]}
        sections.append(Section("rebind", way, f"Replace 3 arrays of a launch; {way}", beside(goals, figures)))
    return sections


def side_by_side(work: Work, loops: Sequence[Loop], sizes: Sizes) -> list[Section]:
    """Measure replays of independent branches of kernels that take a while, over one branch's in C++."""
    arrays = [create.zeros(1).sync() for _ in range(max(_BRANCHES_AT_MOST))]
    one = floor_of_spins(work, arrays[:1], _DEPTH, _KERNEL_NS)
    return [
        _side_by_side(work, loops, sizes, one, arrays[:count], at_most) for count, at_most in _BRANCHES_AT_MOST.items()
    ]


def _side_by_side(
    work: Work,
    loops: Sequence[Loop],
    sizes: Sizes,
    one: _native.GraphFloor,
    arrays: Sequence[DeviceArray],
    at_most: float,
) -> Section:
    def branch(array: Any) -> DeviceOp[Any]:
        for _ in range(_DEPTH):
            array = work.spin(array, _KERNEL_NS, grid=1, block=1)
        return array  # type: ignore[no-any-return]

    number = max(1, sizes.waits // 20)
    graph = composing.zip(*map(branch, arrays)).graph()
    as_many = floor_of_spins(work, arrays, _DEPTH, _KERNEL_NS)
    require_alike(graph, as_many)
    ways = {f"aiocuda: {way}": sample for way, sample in _ways(loops, number).items()}
    figures = compare(
        "µs",
        sizes.long_rounds,
        {"C++: 1 branch": lambda: one.replays(work.handles[0], number)},
        {
            f"C++: {len(arrays)} branches": lambda: as_many.replays(work.handles[0], number),
            **{name: sample(lambda _: graph.launch()) for name, sample in ways.items()},
        },
    )
    note = ", emulated: one node after another" if work.device.is_emulated else ""
    title = f"Replay {len(arrays)} branches of {_DEPTH} kernels of {_KERNEL_NS // 1000} µs{note}"
    return Section("branches", f"{len(arrays)}", title, beside(dict.fromkeys(ways, Goal(at_most, "ratio")), figures))


def _ways(loops: Sequence[Loop], number: int) -> dict[str, Callable[[Build], Sample]]:
    """Return the ways to wait: each makes, of what builds a launch, a sample of `number` of them."""
    return {
        ".sync()": functools.partial(_synced, number),
        **{f"await, {loop.name}": functools.partial(_awaited, number, loop) for loop in loops},
    }


def _synced(number: int, build: Build) -> Sample:
    def sample() -> list[float]:
        times = []
        for i in range(number):
            start = time.perf_counter()
            build(i).sync()
            times.append(time.perf_counter() - start)
        return times

    return sample


def _awaited(number: int, loop: Loop, build: Build) -> Sample:
    async def sample() -> list[float]:
        times = []
        await build(number)  # the loop's first await makes its port
        for i in range(number):
            start = time.perf_counter()
            await build(i)
            times.append(time.perf_counter() - start)
        return times

    return lambda: loop.run(sample)


def _replayed_by(peer: GraphPeer, nodes: int, number: int) -> Sample:
    replay = peer.make(nodes)

    def sample() -> list[float]:
        times = []
        for _ in range(number):
            start = time.perf_counter()
            replay()
            times.append(time.perf_counter() - start)
        return times

    return sample
