"""The report that a process gives of itself, as plain values and as JSON.

Always true: what was read is what was written, by the same version of aiocuda.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from typing import Any, NamedTuple

from aiocuda._devices.memory import MemoryHolder
from aiocuda._driver.select import select_driver
from aiocuda._instruments.statistics import MemoryUse, Statistics, statistics
from aiocuda._version import __version__

__all__ = ["Report", "of_this_process", "read"]

_TEXTS = ("version", "program", "driver", "place")
_MAY_LACK = ("device", "kept_bytes", "peak_bytes")
_BEYOND_NUMBERS = 1 << 64
_MOST_OF_PROGRAM = 1000  # characters, so that the rest has room on a page


class Report(NamedTuple):
    """A process at a moment.

    Attributes
    ----------
    process
        Its number, in its own container.
    version
        Its version of aiocuda.
    program
        The first thousand characters of its command line.
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

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it: all records in it are dictionaries, too."""
        return {**self._asdict(), "statistics": asdict(self.statistics)}

    def as_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(self.as_dict())


def of_this_process(*, largest: int) -> Report:
    """Return a report of this process, with so many of the lines that hold the most of each memory."""
    driver = select_driver()
    return Report(
        os.getpid(),
        __version__,
        " ".join(" ".join(sys.orig_argv).split())[:_MOST_OF_PROGRAM],  # in one line
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
        MemoryUse(**_checked({**each, "largest_places": tuple(map(_holder, each["largest_places"]))}))
        for each in counts["memory"]
    )
    latencies = tuple(map(_number, counts["latencies"]))
    statistics = Statistics(**_checked({**counts, "latencies": latencies, "memory": memory}))
    return Report(**_checked({**given, "statistics": statistics}))


def _holder(given: dict[str, Any]) -> MemoryHolder:
    return MemoryHolder(**_checked(given))


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return values, of which those that say how many are: some come from processes that say what they like."""
    for name, value in given.items():
        if name in _TEXTS:
            if not isinstance(value, str):
                raise TypeError(f"{name}={value!r} is no text")
        elif not isinstance(value, tuple | Statistics) and not (value is None and name in _MAY_LACK):
            _number(value)
    return given


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _BEYOND_NUMBERS:
        raise TypeError(f"{value!r} does not say how many")
    return value
