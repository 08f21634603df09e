"""Takes the reports of the emulated driver's checks (``AIOCUDA_EMULATOR_CHECK``).

Of races between operations the driver decides by its own account of streams and events, which shares nothing with the
engine's, so a report is the engine's mistake or that of work the engine was not told about. Of kernels it sees each
access. Nothing here starts or chooses a driver.
"""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass
from typing import Any

from aiocuda._driver.choosing import DRIVER_SONAME
from aiocuda.errors import KernelCheckError, RaceError

__all__ = [
    "KernelReport",
    "RaceReport",
    "finish_work",
    "is_driver_loaded",
    "raise_kernel_reports",
    "raise_races",
    "take_kernel_reports",
    "take_race_reports",
]


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
    return [RaceReport(**{name: fields[name] for name in RaceReport.__slots__}) for fields in _take("race")]


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


@dataclass(frozen=True, slots=True)
class KernelReport:
    """Something that a kernel does wrong.

    Attributes
    ----------
    check
        What found it: "memory", "races", "init" or "sync".
    kernel
        The kernel's name.
    file, line
        The line of its source; "" and 0 where the driver does not know it.
    block, thread
        The indices of the thread that did it first.
    memory
        Where in which array or shared variable, in words, and where the program made it; "" for "sync".
    address
        Of the first byte; 0 for "sync".
    count
        How often the same line did the same.
    message
        All of it in words, of a race with the other access.
    """

    check: str
    kernel: str
    file: str
    line: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    memory: str
    address: int
    count: int
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


def take_kernel_reports() -> list[KernelReport]:
    """Return what the checks found within kernels since the last call, in the order in which they found it.

    Kernels that have not run yet are in no report: synchronise first. Thread-safe; each report is given once. The
    driver has printed each on standard error, too.

    Returns
    -------
    list[KernelReport]
        Empty on NVIDIA's driver, before a driver is loaded, and where ``AIOCUDA_EMULATOR_CHECK`` is not set.
    """
    found = _take("kernel")
    for fields in found:
        fields["block"], fields["thread"] = tuple(fields["block"]), tuple(fields["thread"])
    return [KernelReport(**fields) for fields in found]


def raise_kernel_reports() -> None:
    """Raise what the checks found within kernels since the last look, if there is anything.

    Raises
    ------
    KernelCheckError
        With all of it.
    """
    reports = take_kernel_reports()
    if reports:
        raise KernelCheckError(reports)


def finish_work(patience_s: float) -> bool:
    """Wait until all work has ended that was submitted to the emulated driver, on every device.

    Parameters
    ----------
    patience_s
        How long to wait. Work may never end by itself, for a kernel may wait for the host.

    Returns
    -------
    bool
        Whether all has ended. True without waiting on NVIDIA's driver, before a driver is loaded, and in a process
        that was forked after the driver had started.
    """
    finish = getattr(_library(), "aiocuda_emulator_finish_work", None)
    if finish is None:
        return True
    finish.argtypes = (ctypes.c_uint64,)
    return bool(finish(round(patience_s * 1000)))


def is_driver_loaded() -> bool:
    """Tell whether the process has a CUDA driver."""
    return _library() is not None


def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(DRIVER_SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None  # no driver is loaded


def _take(what: str) -> list[dict[str, Any]]:
    take = getattr(_library(), f"aiocuda_emulator_take_{what}_reports", None)
    if take is None:
        return []  # NVIDIA's, or none
    take.restype = ctypes.c_size_t
    take.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    size_bytes = take(None, 0)
    while True:
        text = ctypes.create_string_buffer(max(1, size_bytes))
        needed_bytes = take(text, size_bytes)
        if needed_bytes <= size_bytes:
            return [json.loads(line) for line in text.raw[:needed_bytes].decode().splitlines()]
        size_bytes = needed_bytes  # more were found meanwhile
