"""The driver of this process: chosen once, when it is first needed. The environment says which.

Always true: nothing here loads a driver, or looks for one, before `select_driver` is called.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Final

from aiocuda import _driver, _forks
from aiocuda._later import aiocuda
from aiocuda.errors import ArgumentValueError, DriverSelectionError, EmulatedDeviceWarning

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["is_debugging", "is_logging", "select_driver", "submission_thread"]

VARIABLE = "AIOCUDA_DRIVER"
DEBUG_VARIABLE = "AIOCUDA_DEBUG"
LOG_VARIABLE = "AIOCUDA_LOG"
SUBMISSION_VARIABLE = "AIOCUDA_SUBMISSION_THREAD"

# Packages that call one another before a user's line comes: this one, event loops, and what begins a thread.
_ON_THE_WAY: Final = frozenset(
    {
        "aiocuda",
        "anyio",
        "asyncio",
        "concurrent",
        "contextlib",
        "contextvars",
        "functools",
        "selectors",
        "threading",
        "trio",
        "uvloop",
    }
)
_lock = _forks.lock()
_selected: _driver.DriverInfo | None = None


def select_driver() -> aiocuda.DriverInfo:
    """Choose and load the driver of this process, the first time; return the choice.

    The environment variable ``AIOCUDA_DRIVER`` says which: ``nvidia``, ``emulated``, or
    ``auto`` (the default): NVIDIA's where it has a device, else the emulated one with an
    `EmulatedDeviceWarning`. Safe to call from any thread, as often as one likes.

    Returns
    -------
    DriverInfo
        The choice, the same at every call.

    Raises
    ------
    DriverNotFoundError
        NVIDIA's driver was asked for and has no device, or aiocuda was installed without its
        emulated driver.
    DriverSelectionError
        ``AIOCUDA_DRIVER`` has another value, or this process already uses the other driver.

    Notes
    -----
    *Stream*: none. *Blocks*: the first call loads the driver and asks it for devices; later calls do not.
    """
    global _selected
    with _lock:
        if _selected is not None:
            return _selected
        asked = os.environ.get(VARIABLE, "auto").strip().lower() or "auto"
        if asked == "nvidia":
            chosen = _driver.choose_nvidia(f"{VARIABLE}=nvidia")
        elif asked == "emulated":
            chosen = _driver.choose_emulated(f"{VARIABLE}=emulated")
        elif asked == "auto":
            chosen = _driver.choose_by_device()
        else:
            raise DriverSelectionError(f"{VARIABLE} is {os.environ[VARIABLE]!r}; it must be auto, nvidia or emulated")
        _selected = chosen
    if asked == "auto" and chosen.is_emulated:
        frame = _frame_of_the_user()
        warnings.warn_explicit(
            f"kernels run on the CPU, on aiocuda's emulated CUDA driver: {chosen.reason}. "
            f"Set {VARIABLE}=emulated to choose it without this warning",
            EmulatedDeviceWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
            module=frame.f_globals.get("__name__"),
            registry=frame.f_globals.setdefault("__warningregistry__", {}),
        )
    return chosen


def _frame_of_the_user() -> FrameType:
    """Return the innermost frame that is neither this package's nor an event loop's, so that a warning names its line.

    An await chooses the driver on a thread of aiocuda's, where there is none: then it is the main thread's, at the call
    that runs the loop. If there is none there either, it is the outermost.
    """
    here = sys._getframe(1)
    main = sys._current_frames().get(threading.main_thread().ident or 0, here)
    for innermost in (here, main):
        frame: FrameType | None = innermost
        while frame is not None and _is_on_the_way(frame):
            frame = frame.f_back
        if frame is not None:
            return frame
    while here.f_back is not None:
        here = here.f_back
    return here


def _is_on_the_way(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in _ON_THE_WAY


def is_debugging() -> bool:
    """Return whether the environment variable ``AIOCUDA_DEBUG`` asks for what helps to find mistakes.

    Anything but nothing and ``0`` does.
    """
    return os.environ.get(DEBUG_VARIABLE, "").strip() not in {"", "0"}


def is_logging() -> bool:
    """Return whether the environment variable ``AIOCUDA_LOG`` asks for the stories of errors.

    Anything but nothing and ``0`` does.
    """
    return os.environ.get(LOG_VARIABLE, "").strip() not in {"", "0"}


def submission_thread() -> str:
    """Return when a thread of its own makes the driver's calls: ``never`` (the default), ``auto`` or ``always``.

    The environment variable ``AIOCUDA_SUBMISSION_THREAD`` says so. It is read when the driver is started.

    Raises
    ------
    ArgumentValueError
        The variable has another value.
    """
    asked = os.environ.get(SUBMISSION_VARIABLE, "").strip().lower() or "never"
    if asked not in {"never", "auto", "always"}:
        raise ArgumentValueError(
            f"{SUBMISSION_VARIABLE} is {os.environ[SUBMISSION_VARIABLE]!r}; it must be never, auto or always"
        )
    return asked
