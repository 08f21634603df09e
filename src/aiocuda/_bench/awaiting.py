"""What awaiting costs: one launch, thousands of waiters, and what the event loop notices of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence

from aiocuda._bench.figures import Figure, Sample, Section, Sizes, compare, figure
from aiocuda._bench.loops import Loop
from aiocuda._bench.peers import Peer
from aiocuda._bench.peers.to_thread import ToThread
from aiocuda._bench.work import LANES, Work
from aiocuda._devices.placing import use
from aiocuda._verbs.create import zeros

__all__ = ["await_one", "stall", "waiters"]

_WAITERS = (1_000, 10_000)
_MOST_THREADED = 1_000  # waiters of `to_thread`: ten times as many say the same
_BEAT_S = 0.001


def await_one(
    work: Work, loops: Sequence[Loop], peers: Sequence[Peer], threaded: ToThread | None, sizes: Sizes
) -> list[Section]:
    """Measure a launch from building it until the waiter goes on."""
    number = sizes.waits

    def synced() -> list[float]:
        return [_seconds(lambda: work.launch().sync()) for _ in range(number)]

    def waited_by(peer: Peer) -> Sample:
        def once() -> None:
            peer.launch()
            peer.wait()

        return lambda: [_seconds(once) for _ in range(number)]

    def awaited_under(loop: Loop, spin_us: int | None) -> Sample:
        async def sample() -> list[float]:
            times = []
            with contextlib.nullcontext() if spin_us is None else use(spin_us=spin_us):
                await work.launch()
                for _ in range(number):
                    start = time.perf_counter()
                    await work.launch()
                    times.append(time.perf_counter() - start)
            return times

        return lambda: loop.run(sample)

    def threaded_under(loop: Loop, threaded: ToThread) -> Sample:
        async def sample() -> list[float]:
            times = []
            await threaded.launch_and_wait(0)
            for _ in range(number):
                start = time.perf_counter()
                await threaded.launch_and_wait(0)
                times.append(time.perf_counter() - start)
            return times

        return lambda: loop.run(sample)

    figures = compare(
        "µs",
        sizes.rounds,
        work.floor_of_waits(number),
        {
            "aiocuda: .sync()": synced,
            **{f"aiocuda: await, {loop.name}, spinning": awaited_under(loop, None) for loop in loops},
            **{f"aiocuda: await, {loop.name}, not spinning": awaited_under(loop, 0) for loop in loops},
            **{f"{peer.name}: launch, wait": waited_by(peer) for peer in peers},
            **({f"{threaded.name}, {loops[0].name}": threaded_under(loops[0], threaded)} if threaded else {}),
        },
    )
    return [Section("await", "", "Launch and await one", figures)]


def waiters(work: Work, loops: Sequence[Loop], threaded: ToThread | None, sizes: Sizes) -> list[Section]:
    """Measure many tasks at once, each of which awaits a launch; times are for each of them."""
    sections = []
    for number in _WAITERS:

        def awaited_under(loop: Loop, number: int = number) -> Sample:
            async def once(i: int) -> None:
                await work.launch(i % LANES).on(work.streams[i % LANES])

            async def sample() -> list[float]:
                await work.launch()
                start = time.perf_counter()
                await loop.together(once, number)
                return [(time.perf_counter() - start) / number]

            return lambda: loop.run(sample)

        def bare(loop: Loop, number: int = number) -> Sample:
            async def sample() -> list[float]:
                start = time.perf_counter()
                await loop.woken(number)
                return [(time.perf_counter() - start) / number]

            return lambda: loop.run(sample)

        def threaded_under(loop: Loop, threaded: ToThread, number: int = number) -> Sample:
            async def sample() -> list[float]:
                await threaded.launch_and_wait(0)
                start = time.perf_counter()
                await loop.together(threaded.launch_and_wait, number)
                return [(time.perf_counter() - start) / number]

            return lambda: loop.run(sample)

        def floor(number: int = number) -> list[float]:
            return [work.floor.launches(work.handles, number, False)[1] / number]

        others = {f"aiocuda: await, {loop.name}": awaited_under(loop) for loop in loops}
        others |= {f"{loop.name} alone: tasks that a thread wakes": bare(loop) for loop in loops}
        if threaded and number <= _MOST_THREADED:
            others[f"{threaded.name}, {loops[0].name}"] = threaded_under(loops[0], threaded)
        floors = {"C++: launches, spin on the streams": floor}
        figures = compare("µs", sizes.long_rounds, floors, others, is_warm=number > min(_WAITERS))
        title = f"{number:,} waiters on {LANES} streams, for each"
        sections.append(Section("waiters", f"{number:,}", title, figures))
    return sections


def stall(work: Work, loops: Sequence[Loop], sizes: Sizes) -> list[Section]:
    """Measure the largest gap of a heartbeat while work is pending; the floor is the same loop's alone."""
    # Emulated kernels take the cores that the heartbeat needs too: fewer and shorter ones say as much.
    number, kernel_ms = (100, 1) if work.device.is_emulated else (1_000, 10)
    arrays = [zeros(1).sync() for _ in range(number)]
    spin = work.spin
    spin(arrays[0], 0, grid=1, block=1).sync()
    figures: list[Figure] = []
    for loop in loops:

        async def once(i: int) -> None:
            await spin(arrays[i], kernel_ms * 1_000_000, grid=1, block=1)

        async def busy(loop: Loop = loop) -> _Beats:
            beats = _Beats(loop)
            started = 0

            async def task(i: int) -> None:
                nonlocal started
                started += 1
                if started == number:
                    beats.mark()
                await once(i)

            await beats.during(lambda: loop.together(task, number))
            return beats

        async def started(loop: Loop = loop) -> _Beats:
            beats = _Beats(loop)
            await beats.during(lambda: loop.woken(number))
            return beats

        async def alone(seconds: float, loop: Loop = loop) -> _Beats:
            beats = _Beats(loop)
            beats.mark()
            await beats.during(lambda: loop.sleep(seconds))
            return beats

        quiet, starting, pending, bare = [], [], [], []
        for _ in range(sizes.long_rounds):
            ran = loop.run(busy)
            starting.append(ran.largest(is_marked=False))
            pending.append(ran.largest(is_marked=True))
            bare.append(loop.run(started).largest(is_marked=False))
            quiet.append(loop.run(lambda ran=ran: alone(ran.took_s)).largest(is_marked=True))  # type: ignore[misc]
        floor = figure(f"{loop.name}: nothing pending", "ms", quiet)
        figures += [
            figure(floor.name, "ms", quiet, floor),
            figure(f"aiocuda: {loop.name}, while {number:,} tasks start", "ms", starting, floor),
            figure(f"aiocuda: {loop.name}, while {number:,} are pending", "ms", pending, floor),
            figure(f"{loop.name}: while {number:,} tasks that wait for a thread start", "ms", bare, floor),
        ]
    title = f"Largest gap of a 1 ms heartbeat, {number:,} operations of {kernel_ms} ms"
    return [Section("stall", "", title, tuple(figures))]


class _Beats:
    """A heartbeat and the gaps between its beats, before and after a mark."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._gaps: list[tuple[float, float]] = []  # when it began, and how long it was
        self._marked_at = float("inf")
        self.took_s = 0.0

    def mark(self) -> None:
        """Remember this moment."""
        self._marked_at = time.perf_counter()

    async def during(self, work: Callable[[], Awaitable[object]]) -> None:
        """Beat until some work has ended."""
        is_over = False
        begin = time.perf_counter()

        async def part(i: int) -> None:
            nonlocal is_over
            if i == 1:
                await work()
                is_over = True
                return
            before = time.perf_counter()
            while not is_over:
                await self._loop.sleep(_BEAT_S)
                now = time.perf_counter()
                self._gaps.append((before, now - before))
                before = now

        await self._loop.together(part, 2)
        self.took_s = time.perf_counter() - begin

    def largest(self, *, is_marked: bool) -> float:
        """Return the largest gap, in seconds, of those that began after the mark, or of the others."""
        return max((gap for began, gap in self._gaps if (began >= self._marked_at) == is_marked), default=0.0)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
