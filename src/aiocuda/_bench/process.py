"""What the library costs a process that does nothing with it: importing it, and being idle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from aiocuda._bench.figures import Section, Sizes, figure
from aiocuda._bench.loops import Loop
from aiocuda._bench.peers import PACKAGES, Peer
from aiocuda._bench.work import Work

__all__ = ["idle", "import_time"]

_TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def idle(work: Work, loops: Sequence[Loop], sizes: Sizes) -> list[Section]:
    """Measure the process's CPU time while a loop runs, work has been done and none is pending."""
    figures = []
    for loop in loops:

        async def sample(loop: Loop = loop) -> float:
            await work.launch()
            await loop.sleep(0.05)  # whoever looked for completions has gone to sleep by then
            start = time.process_time()
            await loop.sleep(sizes.idle_s)
            return time.process_time() - start

        figures.append(figure(f"aiocuda: {loop.name}", "ms", [loop.run(sample)]))
    return [Section("idle", "", f"CPU time of {sizes.idle_s:g} s with nothing pending", tuple(figures))]


def import_time(peers: Sequence[Peer], sizes: Sizes) -> list[Section]:
    """Measure imports, each in a fresh process; the files are in the system's cache."""
    modules = ["aiocuda", *(PACKAGES[peer.name] for peer in peers)]
    taken: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(sizes.long_rounds):
        for name in modules:
            done = subprocess.run(
                [sys.executable, "-c", _TIMED.format(name)], capture_output=True, text=True, check=True
            )
            taken[name].append(float(done.stdout.split()[-1]))
    figures = tuple(figure(f"import {name}", "ms", seconds) for name, seconds in taken.items())
    return [Section("import", "", "Import, in a fresh process", figures)]
