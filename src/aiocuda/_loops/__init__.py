"""Event loops: how a completion wakes what awaits it and how callbacks reach it, one file for each runtime.

Always true: a loop's port is made at its first await and ends with the loop; nothing here but a callback
that waits to be called keeps a loop alive, and no runtime is imported unless it runs already.
"""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Protocol, cast

from aiocuda._loops.port import Destination, LoopPort
from aiocuda._loops.tasks import Cancellable, Tasks, Waiter
from aiocuda._loops.thread import ThreadDestination, thread_port
from aiocuda.errors import AiocudaError

__all__ = [
    "Cancellable", "Destination", "LoopPort", "Tasks", "ThreadDestination", "Waiter", "current_destination",
    "current_name", "current_port", "current_tasks", "is_running", "thread_port",
]  # fmt: skip


class _Runtime(Protocol):
    """One of the files beside this one."""

    def is_running(self) -> bool: ...
    def current_port(self) -> LoopPort: ...
    def current_destination(self) -> Destination: ...
    def current_name(self) -> str: ...
    def current_tasks(self) -> Tasks: ...


def current_port() -> LoopPort:
    """Return the port of the event loop that runs in this thread.

    Raises
    ------
    AiocudaError
        None runs, or one that is not known.
    """
    return _required().current_port()


def current_tasks() -> Tasks:
    """Return the tasks of the event loop that runs in this thread.

    Raises
    ------
    AiocudaError
        None runs, or one that is not known.
    """
    return _required().current_tasks()


def _required() -> _Runtime:
    runtime = _running()
    if runtime is None:
        raise AiocudaError(
            f"no event loop runs in this thread{_unknown()}; operations can be awaited under asyncio (with any loop of "
            "it, such as uvloop) and trio, and executed with .sync() anywhere"
        )
    return runtime


def current_destination() -> Destination:
    """Return where callbacks that are added here are called: by the loop that runs in this thread, else by a thread."""
    runtime = _running()
    return ThreadDestination() if runtime is None else runtime.current_destination()


def current_name() -> str:
    """Return which event loop and task run in this thread, as ``"asyncio: Task-1"``; where none runs, the thread."""
    runtime = _running()
    return f"thread: {threading.current_thread().name}" if runtime is None else runtime.current_name()


def is_running() -> bool:
    """Say whether an event loop that is known runs in this thread."""
    return _running() is not None


def _running() -> _Runtime | None:
    """Return what knows the event loop that runs in this thread; None where none runs."""
    # A runtime that was never imported does not run. Trio may run as a guest of asyncio's loop: the
    # task that asks is then trio's, so trio is asked first.
    if "trio" in sys.modules:
        trio = _files.get("trio") or _file("trio")
        if trio.is_running():
            return trio
    if "asyncio" in sys.modules:
        asyncio = _files.get("asyncio") or _file("asyncio")
        if asyncio.is_running():
            return asyncio
    return None


_files: dict[str, _Runtime] = {}  # beside this one, once they are needed: an import statement is dear in every await


def _file(name: str) -> _Runtime:
    file = cast("_Runtime", importlib.import_module(f"aiocuda._loops.{name}"))
    return _files.setdefault(name, file)


def _unknown() -> str:
    """Name the event loop that runs in this thread and is none of ours, for a message; it may have told sniffio."""
    sniffio = sys.modules.get("sniffio")
    if sniffio is None:
        return ""
    try:
        return f" that aiocuda knows, only one of {sniffio.current_async_library()}"
    except sniffio.AsyncLibraryNotFoundError:
        return ""
