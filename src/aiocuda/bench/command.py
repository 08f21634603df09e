"""``aiocuda bench``: which measures there are, and what becomes of their figures.

Always true: a table is printed as soon as it is measured; files are written when all are.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aiocuda._driver import runtime
from aiocuda.bench.awaiting import await_one, stall, waiters
from aiocuda.bench.figures import Section, Sizes
from aiocuda.bench.loops import Loop, loops
from aiocuda.bench.peers import Peer, load_peers
from aiocuda.bench.peers.to_thread import ToThread
from aiocuda.bench.plot import write_svg
from aiocuda.bench.process import idle, import_time
from aiocuda.bench.report import print_section, write_csv, write_json
from aiocuda.bench.submitting import chains, submit_one, two_streams
from aiocuda.bench.work import Work
from aiocuda.errors import EmulatedDeviceWarning

__all__ = ["MEASURES", "run"]

_FULL = Sizes(rounds=15, waits=200, long_rounds=5, idle_s=5.0)
_QUICK = Sizes(rounds=3, waits=20, long_rounds=1, idle_s=0.3)

_EMULATED = (
    "The driver is emulated, on the CPU: it is not a performance model. Its floors are not a GPU's, its kernels take\n"
    "the cores that the program needs, and no ratio below says anything about a GPU."
)
_VERSIONS = ("aiocuda", "cuda-core", "cuda-bindings", "numpy", "uvloop", "trio", "torch", "triton", "numba-cuda")


class _Bench:
    """What the measures share."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.work = Work()
        self.loops: list[Loop]
        self.peers: list[Peer]
        self.loops, no_loops = loops()
        self.peers, no_peers = load_peers(self.work)
        self.left_out: Mapping[str, str] = {**no_loops, **no_peers}
        self.threaded = None if "cuda.core" in no_peers else ToThread(self.work)


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


def run(arguments: Sequence[str]) -> int:
    """Measure what is asked for, print it, write it; return the exit status."""
    given = _parse(arguments)
    with warnings.catch_warnings():
        # What it warns of is the first thing printed below.
        warnings.simplefilter("ignore", EmulatedDeviceWarning)
        bench = _Bench(_QUICK if given.quick else _FULL)
    about = _about(bench)
    print("\n".join(f"{name}: {what}" for name, what in about.items() if not isinstance(what, Mapping)))
    for name, why in bench.left_out.items():
        print(f"left out: {name} ({why})")
    if bench.work.device.is_emulated:
        print(f"\n{_EMULATED}")
    sections: list[Section] = []
    for name in given.only:
        for section in MEASURES[name][1](bench):
            print_section(section)
            sections.append(section)
    if given.csv:
        write_csv(given.csv, sections)
    if given.json:
        write_json(given.json, about, sections)
    if given.plot:
        emulated = " (emulated: no performance model)" if bench.work.device.is_emulated else ""
        write_svg(given.plot, f"aiocuda on {bench.work.device.name}{emulated}: times over the floor", sections)
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="aiocuda bench",
        description="Measure what submitting and awaiting costs, as ratios to the same in C++ in the same run.",
        epilog="measures: " + "; ".join(f"{name}: {what}" for name, (what, _) in MEASURES.items()),
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats: seconds, and rougher figures")
    parser.add_argument("--only", metavar="NAME,...", default=",".join(MEASURES), help="some measures")
    parser.add_argument("--csv", metavar="PATH", type=Path, help="write the raw figures")
    parser.add_argument("--json", metavar="PATH", type=Path, help="write them, with what they were measured on")
    parser.add_argument("--plot", metavar="PATH", type=Path, help="write the ratios as a picture, SVG")
    given = parser.parse_args(arguments)
    asked = given.only.split(",")
    if unknown := [name for name in asked if name not in MEASURES]:
        parser.error(f"--only takes {', '.join(MEASURES)}, with commas; {', '.join(map(repr, unknown))} was given")
    given.only = [name for name in MEASURES if name in asked]
    for path in (given.csv, given.json, given.plot):
        # Said before minutes of measuring, not after.
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            parser.error(f"{path} cannot be written: it is a directory, or {path.parent} is none")
    return given


def _about(bench: _Bench) -> dict[str, object]:
    device = bench.work.device
    return {
        "device": device.name,
        "driver": "emulated" if device.is_emulated else "NVIDIA's",
        "CUDA": runtime.driver_info().version_text,
        "cores": len(os.sched_getaffinity(0)),
        "Python": platform.python_version(),
        "versions": {name: version for name in _VERSIONS if (version := _version_of(name))},
        "left out": dict(bench.left_out),
    }


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
