"""The thread that stands in for a loop, and serves callbacks.

Always true: it starts at its first use, is one for the process, never keeps it alive and
holds up its end for no longer than `_LAST_CALL_S`.
"""

from __future__ import annotations

import atexit
import os
import select
import sys
import threading
from collections.abc import Callable
from typing import Final

from aiocuda import _forks, _native
from aiocuda._loops.port import Token
from aiocuda.errors import AiocudaError

__all__ = ["ThreadDestination", "thread_port"]

# How long the process's end waits for a callback that is being called.
_LAST_CALL_S: Final = 1.0


class _Call:
    """A call to be made by the serving thread."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def wake(self, _: int) -> None:
        self._call()


_STOP: Final = object()  # the token that ends the serving thread


class _Server:
    """The serving thread and its port."""

    def __init__(self) -> None:
        self.native = _native.Port()
        self._thread = threading.Thread(target=self._serve, name="aiocuda callbacks", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise AiocudaError(
                f"the operating system refuses a thread for callbacks ({error}); see the limits on threads and memory: "
                "ulimit -u, -v, and those of the container"
            ) from error

    def stop(self) -> None:
        self.native.put(_STOP)
        self._thread.join(_LAST_CALL_S)

    def _serve(self) -> None:
        readable = select.poll()
        readable.register(self.native.fileno(), select.POLLIN)
        readable.poll()
        while self._wake():
            readable.poll()

    def _wake(self) -> bool:  # a function of its own, so that nothing is held while the thread sleeps
        token: Token
        for token, error in self.native.take():
            if token is _STOP:
                return False
            try:
                token.wake(error)
            except BaseException:  # noqa: BLE001 - reported; a callback that exits ends its call, not the thread
                report()
        return True


_server: _Server | None = None
_has_ended = False
_lock = _forks.reentrant_lock()  # a finalizer may come here in the middle of what it guards


def thread_port() -> _native.Port:
    """Return the port of the thread that serves callbacks; its tokens have ``wake(error)``. Starts it."""
    global _server
    with _lock:
        if _server is None:
            _server = _Server()
        return _server.native


def _stop() -> None:
    global _has_ended
    _has_ended = True
    if _server is not None:
        _server.stop()


def _start_anew() -> None:
    """In a forked process: the thread is not here, and its port is the other process' as well."""
    global _server
    _server = None


atexit.register(_stop)
os.register_at_fork(after_in_child=_start_anew)


def report() -> None:
    """Hand the exception that is being handled to `threading.excepthook`, as a thread's end would."""
    kind, error, traceback = sys.exc_info()
    assert kind is not None
    arguments = threading.ExceptHookArgs((kind, error, traceback, threading.current_thread()))
    try:
        threading.excepthook(arguments)
    except Exception:  # noqa: BLE001 - the program's own hook failed: say both
        threading.__excepthook__(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class ThreadDestination:
    """The thread that serves callbacks where there is no loop."""

    __slots__ = ()

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made by the thread. At the end of the process nothing is called any more."""
        if not _has_ended:
            thread_port().put(_Call(call))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThreadDestination)

    def __hash__(self) -> int:
        return hash(ThreadDestination)
