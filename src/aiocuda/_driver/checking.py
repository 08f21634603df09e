"""Takes the reports of races that the emulated driver found (``AIOCUDA_EMULATOR_CHECK=races``).

The driver decides by its own account of streams and events, which shares nothing with the engine's, so a report is
the engine's mistake or that of work the engine was not told about. Nothing here starts or chooses a driver.
"""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass

from aiocuda._driver.select import DRIVER_SONAME
from aiocuda.errors import RaceError

__all__ = ["RaceReport", "raise_races", "take_race_reports"]


@dataclass(frozen=True, slots=True)
class RaceReport:
    """Two operations that touch the same bytes, one of them writing, with no order between them.

    Attributes
    ----------
    first, second
        What they are, in words, in the order of their submission.
    first_stream, second_stream
        Their streams, in words; "the host" for what a function does without a stream.
    begin, end
        The first range of bytes that both touch; `end` is exclusive.
    message
        All of it in words, with the missing wait and where in which allocation the bytes are.
    """

    first: str
    second: str
    first_stream: str
    second_stream: str
    begin: int
    end: int
    message: str

    def __str__(self) -> str:
        return self.message


def take_race_reports() -> list[RaceReport]:
    """Return the races found since the last call, in the order of submission.

    Work that has not run yet is in no report: synchronise first. Thread-safe; each report is given once.

    Returns
    -------
    list[RaceReport]
        Empty on NVIDIA's driver, before a driver is loaded, and where ``AIOCUDA_EMULATOR_CHECK`` is not set.
    """
    try:
        library = ctypes.CDLL(DRIVER_SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return []  # no driver is loaded
    take = getattr(library, "aiocuda_emulator_take_race_reports", None)
    if take is None:
        return []  # NVIDIA's
    take.restype = ctypes.c_size_t
    take.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    size_bytes = take(None, 0)
    while True:
        text = ctypes.create_string_buffer(max(1, size_bytes))
        needed_bytes = take(text, size_bytes)
        if needed_bytes <= size_bytes:
            return [_read(line) for line in text.raw[:needed_bytes].decode().splitlines()]
        size_bytes = needed_bytes  # more were found meanwhile


def raise_races() -> None:
    """Raise the races found since the last look, if there are any.

    Raises
    ------
    RaceError
        With all of them.
    """
    reports = take_race_reports()
    if reports:
        raise RaceError(reports)


def _read(line: str) -> RaceReport:
    fields = json.loads(line)
    return RaceReport(**{name: fields[name] for name in RaceReport.__slots__})
