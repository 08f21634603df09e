"""What the host pays to submit: one launch, chains that are waited for once, and work on two streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from aiocuda._bench.figures import Sample, Section, Sizes, compare
from aiocuda._bench.loops import Loop
from aiocuda._bench.peers import Peer
from aiocuda._bench.work import Work

__all__ = ["chains", "submit_one", "two_streams"]

_CHAINS = (1, 10, 100, 1000)
_SUBMITTED = 400  # fewer than a stream may hold, so that submitting never waits for the device
_BETWEEN = 100


def submit_one(work: Work, peers: Sequence[Peer], sizes: Sizes) -> list[Section]:
    """Measure a launch until it is submitted; the device is waited for outside of it."""

    def one_by_one() -> None:
        for _ in range(_SUBMITTED):
            work.launch().submit()

    def in_a_chain() -> None:
        work.chain(_SUBMITTED).submit()

    def launched_by(peer: Peer) -> Sample:
        def sample() -> list[float]:
            start = time.perf_counter()
            for _ in range(_SUBMITTED):
                peer.launch()
            took = time.perf_counter() - start
            peer.wait()
            return [took / _SUBMITTED]

        return sample

    def each(run: Callable[[], None]) -> Sample:
        return lambda: [work.timed(run) / _SUBMITTED]

    figures = compare(
        "µs",
        sizes.rounds,
        {"C++: launch": lambda: [work.floor.launches(work.handles[:1], _SUBMITTED, False)[0] / _SUBMITTED]},
        {
            "aiocuda: in a chain, tracked": each(in_a_chain),
            "aiocuda: one by one, tracked, a future each": each(one_by_one),
            **{f"{peer.name}: launch": launched_by(peer) for peer in peers},
        },
    )
    return [Section("submit", "", "Submit one launch", figures)]


def chains(work: Work, loops: Sequence[Loop], peers: Sequence[Peer], sizes: Sizes) -> list[Section]:
    """Measure chains from building the first launch until the last has passed.

    Each sample launches and waits once before it: the others have been at work since its last one.
    """
    sections = []
    for number in _CHAINS:

        def launched_by(peer: Peer, number: int = number) -> Sample:
            def sample() -> list[float]:
                peer.launch()
                peer.wait()
                start = time.perf_counter()
                for _ in range(number):
                    peer.launch()
                peer.wait()
                return [time.perf_counter() - start]

            return sample

        def build(number: int = number) -> Any:
            return work.chain(number)

        def floor(number: int = number) -> list[float]:
            work.floor.launches(work.handles[:1], 1, False)
            return [work.floor.launches(work.handles[:1], number, False)[1]]

        figures = compare(
            "µs",
            sizes.long_rounds if number == max(_CHAINS) else sizes.rounds,
            {"C++: launches, spin on the stream": floor},
            {
                **_awaited_and_synced(work, loops, build),
                **{f"{peer.name}: launches, wait": launched_by(peer) for peer in peers},
            },
            is_warm=number == max(_CHAINS),
        )
        sections.append(
            Section("chain", f"{number:,}", f"Chain of {number:,}, built, submitted, awaited once", figures)
        )
    return sections


def two_streams(work: Work, loops: Sequence[Loop], sizes: Sizes) -> list[Section]:
    """Measure a chain that changes its stream at each launch."""

    def build() -> Any:
        op: Any = work.launch().on(work.streams[0])
        for i in range(1, _BETWEEN):
            op = work.scale(op, work.x, work.g, work.x.size, threads=work.x.size).on(work.streams[i % 2])
        return op

    figures = compare(
        "µs",
        sizes.rounds,
        {"C++: launches, an event and a wait each": lambda: [work.floor.launches(work.handles[:2], _BETWEEN, True)[1]]},
        _awaited_and_synced(work, loops, build),
    )
    title = f"Chain of {_BETWEEN} on two streams in turn, awaited once"
    return [Section("streams", "", title, figures)]


def _awaited_and_synced(work: Work, loops: Sequence[Loop], build: Callable[[], Any]) -> dict[str, Sample]:
    def awaited_under(loop: Loop) -> Sample:
        async def sample() -> list[float]:
            await work.launch()  # the loop's first await makes its port
            start = time.perf_counter()
            await build()
            return [time.perf_counter() - start]

        return lambda: loop.run(sample)

    def synced() -> list[float]:
        work.launch().sync()
        return [work.timed(lambda: build().sync())]

    return {
        "aiocuda: .sync()": synced,
        **{f"aiocuda: await, {loop.name}": awaited_under(loop) for loop in loops},
    }
