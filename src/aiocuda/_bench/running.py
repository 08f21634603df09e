"""A command that measures: its options, what it says of the machine, and what becomes of its figures.

Always true: a table is printed as soon as it is measured; files are written when all are.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from aiocuda._bench.comparing import print_comparison, read_earlier
from aiocuda._bench.figures import Section, Sizes
from aiocuda._bench.goals import shown
from aiocuda._bench.loops import loops
from aiocuda._bench.plot import write_svg
from aiocuda._bench.report import print_section, write_csv, write_json
from aiocuda._bench.work import Work
from aiocuda._driver import runtime
from aiocuda.errors import EmulatedDeviceWarning

__all__ = ["Bench", "Measuring", "run"]

_FULL = Sizes(rounds=15, waits=200, long_rounds=5, idle_s=5.0)
_QUICK = Sizes(rounds=3, waits=20, long_rounds=1, idle_s=0.3)

_EMULATED = (
    "The driver is emulated, on the CPU: it is not a performance model. Its floors are not a GPU's, its kernels take\n"
    "the cores that the program needs, and no ratio below says anything about a GPU."
)
_VERSIONS = (
    "aiocuda",
    "cuda-core",
    "cuda-bindings",
    "numpy",
    "uvloop",
    "trio",
    "torch",
    "cupy-cuda13x",
    "triton",
    "numba-cuda",
)


P = TypeVar("P")


class Bench(Generic[P]):
    """The parts that the measures of a command share.

    Parameters
    ----------
    sizes
        How much is measured.
    load_peers
        Gives those that the command compares with, and why others are left out.

    Attributes
    ----------
    work
        The device, and the launch that is measured.
    loops, peers
        Of the installed ones, those that work here.
    left_out
        What is not compared with, and why.
    """

    def __init__(self, sizes: Sizes, load_peers: Callable[[Work], tuple[list[P], dict[str, str]]]) -> None:
        self.sizes = sizes
        self.work = Work()
        self.loops, no_loops = loops()
        self.peers, no_peers = load_peers(self.work)
        self.left_out: Mapping[str, str] = {**no_loops, **no_peers}


B = TypeVar("B", bound=Bench[Any])


@dataclass(frozen=True, slots=True)
class Measuring(Generic[B]):
    """A command that measures.

    Attributes
    ----------
    name
        As it is typed.
    description
        For its ``--help``.
    measures
        What each is called, what it is, and what measures it.
    make
        Makes what they share.
    emulated_note
        What is to be said besides where the driver is emulated.
    """

    name: str
    description: str
    measures: Mapping[str, tuple[str, Callable[[B], list[Section]]]]
    make: Callable[[Sizes], B]
    emulated_note: str = ""


def run(command: Measuring[B], arguments: Sequence[str]) -> int:
    """Measure what is asked for, print it, write it; return the exit status."""
    given = _parse(command, arguments)
    with warnings.catch_warnings():
        # What it warns of is the first thing printed below.
        warnings.simplefilter("ignore", EmulatedDeviceWarning)
        bench = command.make(_QUICK if given.quick else _FULL)
    about = _about(bench)
    print("\n".join(f"{name}: {what}" for name, what in about.items() if not isinstance(what, Mapping)))
    for name, why in bench.left_out.items():
        print(f"left out: {name} ({why})")
    device = bench.work.device
    if device.is_emulated:
        print("\n" + "\n".join(filter(None, (_EMULATED, command.emulated_note))))
    sections: list[Section] = []
    for name in given.only:
        for section in command.measures[name][1](bench):
            print_section(shown(section))
            sections.append(section)
    if given.compare:
        print_comparison(given.compare, about, sections)
    if given.csv:
        write_csv(given.csv, sections)
    if given.json:
        write_json(given.json, about, sections)
    if given.plot:
        emulated = " (emulated: no performance model)" if device.is_emulated else ""
        write_svg(given.plot, f"{command.name} on {device.name}{emulated}: times over the floor", sections)
    return 0


def _parse(command: Measuring[B], arguments: Sequence[str]) -> argparse.Namespace:
    measures = command.measures
    parser = argparse.ArgumentParser(
        prog=command.name,
        description=command.description,
        epilog="measures: " + "; ".join(f"{name}: {what}" for name, (what, _) in measures.items()),
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats: seconds, and rougher figures")
    parser.add_argument("--only", metavar="NAME,...", default=",".join(measures), help="some measures")
    parser.add_argument("--csv", metavar="PATH", type=Path, help="write the raw figures")
    parser.add_argument("--json", metavar="PATH", type=Path, help="write them, with what they were measured on")
    parser.add_argument("--plot", metavar="PATH", type=Path, help="write the ratios as a picture, SVG")
    parser.add_argument(
        "--compare", metavar="PATH", type=Path, help="print the figures beside those that --json wrote in another run"
    )
    given = parser.parse_args(arguments)
    asked = given.only.split(",")
    if unknown := [name for name in asked if name not in measures]:
        parser.error(f"--only takes {', '.join(measures)}, with commas; {', '.join(map(repr, unknown))} was given")
    given.only = [name for name in measures if name in asked]
    for path in (given.csv, given.json, given.plot):
        # Said before minutes of measuring, not after.
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            parser.error(f"{path} cannot be written: it is a directory, or {path.parent} is none")
    if given.compare is not None:
        given.compare = read_earlier(given.compare)
    return given


def _about(bench: Bench[Any]) -> dict[str, object]:
    device = bench.work.device
    return {
        "device": device.name,
        "driver": "emulated" if device.is_emulated else "NVIDIA's",
        "CUDA": runtime.driver_info().version_text,
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "Python": platform.python_version(),
        "versions": {name: version for name in _VERSIONS if (version := _version_of(name))},
        "left out": dict(bench.left_out),
    }


def _processor() -> str:
    with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return next(models, platform.machine())  # an Arm processor's model has no name there


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
