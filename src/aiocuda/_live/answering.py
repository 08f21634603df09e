"""Answers other processes that ask how this one stands: a thread that sleeps until somebody does.

Always true: nothing is counted, written or asked while nobody looks. The thread begins with the first device and ends
with the process, and holds nothing up that ends. An error does not end it: `threading.excepthook` is told. A forked
process has no such thread, and no page.
"""

from __future__ import annotations

import threading
import warnings

from aiocuda import _forks, _live, _native
from aiocuda._loops.thread import report as tell_of_error
from aiocuda._version import __version__
from aiocuda.errors import AiocudaError

__all__ = ["begin"]

_LARGEST = (10, 3, 0)  # lines of the program that are named, as many as have room

_lock = _forks.reentrant_lock()
_page: _native.LivePage | None = None


def begin() -> None:
    """Let other processes ask from now on. Called when a device has been opened."""
    global _page
    with _lock:
        if _page is not None:
            return
        try:
            page = _native.LivePage(__version__)
            threading.Thread(target=_answer, args=(page,), name="aiocuda answers", daemon=True).start()
        except (AiocudaError, RuntimeError) as error:  # no file or no thread more
            warnings.warn(f"aiocuda top cannot look at this process: {error}", RuntimeWarning, stacklevel=1)
            return
        _page = page


def _answer(page: _native.LivePage) -> None:
    while True:
        page.listen()
        try:
            for largest in _LARGEST:
                if page.answer(_live.report.of_this_process(largest=largest).as_json().encode()):
                    break
        except Exception:  # noqa: BLE001 - whoever asks next is answered, too
            tell_of_error()
