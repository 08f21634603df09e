"""Another process of this machine that uses aiocuda, as it is seen from here: by the page that it answers in.

Always true: the system decides who may look at a process, as for all of ``/proc``: its own user, and root. Looking
changes nothing there but the bell of the page. Nothing that a page says is believed about anything but the numbers.
Native code reads the page: Python cannot say in which order memory is read. A file of a process is opened for reading
and writing only if it is a file in memory that nobody can shorten.
"""

from __future__ import annotations

import fcntl
import functools
import mmap
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from aiocuda import _native
from aiocuda._live import report
from aiocuda._live.report import Report
from aiocuda._version import __version__

__all__ = ["Answer", "CannotLookError", "Counts", "Listed", "LookedAt", "listed"]

_SIZE: Final = _native.LivePage.size_bytes
_POLL_S = 0.002
_RUNS: Final = "has no time to, or its thread that answers has ended"


class CannotLookError(Exception):
    """A process cannot be looked at: the command says so. Programs get none of it.

    Parameters
    ----------
    process
        Its number.
    reason
        Why not, in words.

    Attributes
    ----------
    process, reason
        As given.
    """

    def __init__(self, process: int, reason: str) -> None:
        super().__init__(process, reason)
        self.process = process
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Counts(NamedTuple):
    """Counts that a process tells while something else holds Python there, as `Statistics` has them."""

    pending: int
    completed: int
    waits_for_room: int
    wakes: int
    spins: int
    spins_that_paid: int


class Listed(NamedTuple):
    """A process that uses aiocuda."""

    process: int
    version: str
    program: str


class Answer(NamedTuple):
    """The answer of a process.

    Attributes
    ----------
    report
        All of it; None: it has not answered in time.
    state
        In words, why there is no report; empty where there is one.
    counts
        What it could say without Python; None: it could not say that either.
    counted_ns
        When it said that, on the clock of `time.monotonic_ns`.
    """

    report: Report | None
    state: str = ""
    counts: Counts | None = None
    counted_ns: int = 0


class LookedAt:
    """A process that is looked at, until it ends or this is closed.

    Raises
    ------
    CannotLookError
        There is no such process, it is another user's, or it does not use aiocuda, or another version.
    """

    def __init__(self, process: int) -> None:
        self.process = process
        try:
            self._began = _beginning(process)
        except PermissionError:
            raise CannotLookError(process, _not_allowed(process)) from None
        if self._began is None:
            raise CannotLookError(process, f"there is no process {process}")
        self._page = _page_of(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._page.close()

    def has_ended(self) -> bool:
        """Say whether the process has."""
        return _beginning(self.process) != self._began

    def ask(self, patience_s: float = 1.0) -> Answer:
        """Ask it, and wait for the answer for so many seconds.

        Raises
        ------
        CannotLookError
            It is another version of aiocuda.
        """
        rung = _native.ring(self._page)
        until = time.monotonic() + patience_s
        told: _Told | None = None
        while True:
            if now := _native.told_by_page(self._page):  # nothing, while it is written
                told = _Told(*now)
                if _is_up_to(told.answered, rung):
                    return Answer(self._read(told.text))
            if self.has_ended():
                return Answer(None, "it has ended")
            if time.monotonic() > until:
                break
            time.sleep(_POLL_S)
        state = _state_of(self.process)
        # A thread that has heard somebody, and has not answered, waits for the lock, or for the driver's.
        if state == _RUNS and told is not None and told.heard != told.answered:
            held = "it does not answer: something there holds Python's lock (the GIL), or the driver"
            return Answer(None, held, Counts(*told.counts), told.heard_ns)
        return Answer(None, f"it does not answer: it {state}")

    def _read(self, text: bytes) -> Report:
        try:
            return report.read(text)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise CannotLookError(
                self.process,
                f"process {self.process} tells other numbers than this aiocuda knows: use the aiocuda of its "
                "environment",
            ) from None


def listed() -> list[Listed]:
    """Return the processes that use aiocuda and may be looked at from here, in the order of their numbers."""
    found = []
    for process in sorted(int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()):
        try:
            for owner, page in _pages(process):
                page.close()
                if owner.process == _own_number(process):
                    found.append(Listed(process, owner.version, _program(process)))
                    break
        except OSError:  # it has ended, or is another user's
            continue
    return found


class _Owner(NamedTuple):
    layout: int
    process: int
    version: str


class _Told(NamedTuple):
    heard: int
    answered: int
    heard_ns: int
    counts: tuple[int, ...]
    text: bytes


def _pages(process: int) -> Iterator[tuple[_Owner, mmap.mmap]]:
    """Yield the pages that a process has open, each mapped, which is the caller's to close."""
    folder = Path(f"/proc/{process}/fd")
    for name in os.listdir(folder):  # noqa: PTH208 - numbers
        try:
            if not os.readlink(folder / name).startswith(f"/memfd:{_native.LivePage.file_name} "):  # noqa: PTH115
                continue
            file = _open_in_memory(folder / name)
        except FileNotFoundError:  # it was closed just now
            continue
        if file is None:
            continue
        try:
            page = mmap.mmap(file, _SIZE)
        finally:
            os.close(file)
        owner = _native.owner_of_page(page)
        if owner is None:
            page.close()
            continue
        layout, number, version = owner
        yield _Owner(layout, number, version.rstrip(b"\0").decode(errors="replace")), page


def _open_in_memory(path: Path) -> int | None:
    """Open a file of a process; None: it is no file in memory, whatever its name, or one that could be shortened.

    To open a device may do something, so what it is gets looked at before.
    """
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode) or os.fstat(found).st_dev != _device_of_memory():
            return None
        file = os.open(f"/proc/self/fd/{found}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(found)
    is_whole = os.fstat(file).st_size >= _SIZE and fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    if is_whole:
        return file
    os.close(file)
    return None


@functools.cache
def _device_of_memory() -> int:
    file = os.memfd_create("aiocuda-top")
    try:
        return os.fstat(file).st_dev
    finally:
        os.close(file)


def _page_of(process: int) -> mmap.mmap:
    others = []
    try:
        own_number = _own_number(process)
        for owner, page in _pages(process):
            if owner.process == own_number:
                break
            page.close()
            others.append(owner.process)
        else:
            raise CannotLookError(process, _why_none(process, others))
    except PermissionError:
        raise CannotLookError(process, _not_allowed(process)) from None
    except (FileNotFoundError, ProcessLookupError):
        raise CannotLookError(process, f"process {process} has ended") from None
    if (owner.layout, owner.version) != (_native.LivePage.layout, __version__):
        page.close()
        raise CannotLookError(
            process,
            f"process {process} uses aiocuda {owner.version}, and this is aiocuda {__version__}: use the aiocuda of "
            "its environment",
        )
    return page


def _not_allowed(process: int) -> str:
    return f"process {process} may be looked at by its own user and by root alone (ptrace(2) says when)"


def _why_none(process: int, others: list[int]) -> str:
    if others:
        return (
            f"process {process} was forked from process {others[0]}, which uses aiocuda, and can use no device itself; "
            f"look at {others[0]}"
        )
    if "/aiocuda/_native" in Path(f"/proc/{process}/maps").read_text(encoding="utf-8", errors="replace"):
        return f"process {process} uses aiocuda, and has not opened a device yet"
    return f"process {process} does not use aiocuda"


def _own_number(process: int) -> int:
    """Return the number that a process has in its own container."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return process  # a system without such containers


def _facts(process: int) -> list[str] | None:
    """Return what the system says of a process, from its state on; None: it has ended."""
    try:
        facts = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if facts[0] in "ZX" else facts


def _beginning(process: int) -> str | None:
    """Return when a process began; None: it has ended."""
    facts = _facts(process)
    return None if facts is None else facts[19]


def _state_of(process: int) -> str:
    facts = _facts(process)
    if facts is None:
        return "has ended"
    return "is stopped" if facts[0] in "tT" else _RUNS


def _program(process: int) -> str:
    words = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return " ".join(words.split())  # in one line


def _is_up_to(number: int, rung: int) -> bool:
    """Say whether a count that begins anew behind 2**32 has come to another one."""
    return (number - rung) % (1 << 32) < 1 << 31
