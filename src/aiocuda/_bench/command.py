"""``aiocuda bench``: which measures there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aiocuda._bench import running
from aiocuda._bench.awaiting import await_one, stall, waiters
from aiocuda._bench.figures import Section, Sizes
from aiocuda._bench.peers import Peer, load_peers
from aiocuda._bench.peers.to_thread import ToThread
from aiocuda._bench.process import idle, import_time
from aiocuda._bench.submitting import chains, submit_one, two_streams

__all__ = ["MEASURES", "run"]


class _Bench(running.Bench[Peer]):
    """With what waits in threads, where there is cuda.core."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes, load_peers)
        self.threaded = None if "cuda.core" in self.left_out else ToThread(self.work)


MEASURES: Mapping[str, tuple[str, Callable[[_Bench], list[Section]]]] = {
    "submit": (
        "submit one tracked launch",
        lambda bench: submit_one(bench.work, bench.peers, bench.sizes),
    ),
    "await": (
        "launch and await one",
        lambda bench: await_one(bench.work, bench.loops, bench.peers, bench.threaded, bench.sizes),
    ),
    "chain": (
        "chains of 1 to 1,000 launches, awaited once",
        lambda bench: chains(bench.work, bench.loops, bench.peers, bench.sizes),
    ),
    "streams": (
        "a chain on two streams in turn",
        lambda bench: two_streams(bench.work, bench.loops, bench.sizes),
    ),
    "waiters": (
        "1,000 and 10,000 waiters on 4 streams",
        lambda bench: waiters(bench.work, bench.loops, bench.threaded, bench.sizes),
    ),
    "stall": (
        "what the event loop notices of pending work",
        lambda bench: stall(bench.work, bench.loops, bench.sizes),
    ),
    "idle": (
        "CPU time of an idle process",
        lambda bench: idle(bench.work, bench.loops, bench.sizes),
    ),
    "import": (
        "import time",
        lambda bench: import_time(bench.peers, bench.sizes),
    ),
}


_MEASURING = running.Measuring(
    name="aiocuda bench",
    description="Measure what submitting and awaiting costs, as ratios to the same in C++ in the same run. "
    "`aiocuda bench graphs` does it for CUDA graphs.",
    measures=MEASURES,
    make=_Bench,
)


def run(arguments: Sequence[str]) -> int:
    """Measure what is asked for, print it, write it; return the exit status."""
    return running.run(_MEASURING, arguments)
