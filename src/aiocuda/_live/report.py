"""What a process says of itself, as plain values and as JSON.

Always true: what was read is what was written, by the same version of aiocuda.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from aiocuda._devices.memory import MemoryHolder
from aiocuda._driver.select import select_driver
from aiocuda._instruments.statistics import MemoryUse, Statistics, statistics
from aiocuda._version import __version__

__all__ = ["Report", "of_this_process", "read"]


@dataclass(frozen=True, slots=True)
class Report:
    """A process at a moment.

    Attributes
    ----------
    process
        Its number, in its own container.
    version
        Its version of aiocuda.
    program
        Its command line.
    driver
        Its driver, in words.
    taken_ns
        When this was said, on the clock of `time.monotonic_ns`, which all processes of a machine share.
    statistics
        Its counts.
    """

    process: int
    version: str
    program: str
    driver: str
    taken_ns: int
    statistics: Statistics

    def as_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self))


def of_this_process(*, largest: int) -> Report:
    """Return a report of this process, with so many of the lines that hold the most of each memory."""
    driver = select_driver()
    return Report(
        os.getpid(),
        __version__,
        " ".join(" ".join(sys.orig_argv).split()),  # in one line
        f"{'emulated' if driver.is_emulated else 'NVIDIA'}, CUDA {driver.version_text}",
        time.monotonic_ns(),
        statistics(largest=largest),
    )


def read(text: str | bytes) -> Report:
    """Return the report that a JSON text is.

    Raises
    ------
    TypeError, ValueError, KeyError
        It is none of this version's.
    """
    given: dict[str, Any] = json.loads(text)
    counts = given["statistics"]
    memory = tuple(
        MemoryUse(**{**each, "largest_places": tuple(MemoryHolder(**place) for place in each["largest_places"])})
        for each in counts["memory"]
    )
    counts = {**counts, "latencies": tuple(counts["latencies"]), "memory": memory}
    return Report(**{**given, "statistics": Statistics(**counts)})
