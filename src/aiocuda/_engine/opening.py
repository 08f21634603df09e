"""Devices, and files that cuFile moves, which another thread opens, for those who wait for it.

Always true: all who wait for a device share one opening. If a waiter gives up, the opening goes on, for the next one.
If it is refused, each waiter gets the error as his own, and who comes later begins anew.
"""

from __future__ import annotations

import os
from typing import Final

from aiocuda import _native
from aiocuda._driver import cufile, runtime
from aiocuda._engine import faults
from aiocuda._engine.background import FOR_DEVICES, FOR_FILES, Background, Work

__all__ = ["begin", "begin_file", "opened", "require_done"]

_openings: Final = Background(FOR_DEVICES)
_files: Final = Background(FOR_FILES)
for _each in (_openings, _files):
    os.register_at_fork(after_in_child=_each.start_anew)  # before the driver has started, a child may use it


def begin(ordinal: int) -> Work | None:
    """Have another thread open a device, unless it is open, and return what to wait for. Native code calls this."""
    runtime.require_not_forked()
    if _native.is_open(ordinal):
        return None
    return _openings.begin(ordinal, lambda: runtime.open_device(ordinal), f"opening device {ordinal}")


def begin_file(file: _native.FileCopy, ordinal: int) -> Work:
    """Have another thread open a file for cuFile, and return what to wait for. Native code calls this."""

    def do() -> None:
        with runtime.context_of(ordinal):
            file.open_directly(cufile.library())

    return _files.begin(file, do, "opening a file")


def require_done(work: Work, asked: _native.Op | str, ordinal: int) -> None:
    """Raise what another thread raised, as the error of what needed it on a device. Native code calls this."""
    if work.has_ended:
        with faults.raised_as(asked, ordinal):
            work.require_done()


async def opened(ordinal: int, asked: str) -> None:
    """Wait until a device is open; `asked` says what needs it, in words."""
    while (work := begin(ordinal)) is not None:
        await work
        require_done(work, asked, ordinal)
