"""Groups that nobody has any more, and that were neither closed nor aborted.

Always true: who drops a group waits for nothing, and takes no lock, whatever it is in the middle of. A thread that is
there since the first group was made lets go of it. At the end of the interpreter nothing is done.
"""

from __future__ import annotations

import queue
import threading
import warnings
import weakref
from typing import Final

from aiocuda import _forks, _native
from aiocuda._collective.members import Members

__all__ = ["let_go_when_dropped"]

_dropped: Final[queue.SimpleQueue[Members]] = queue.SimpleQueue()
_lock = _forks.lock()
_thread: threading.Thread | None = None


def let_go_when_dropped(owner: object, members: Members) -> None:
    """Have the ranks of a group let go of when `owner` is gone, which the group has, and each of its operations."""
    global _thread
    with _lock:
        if _thread is None or not _thread.is_alive():  # a forked child has none
            _thread = threading.Thread(target=_let_go, name="aiocuda-dropped-groups", daemon=True)
            _thread.start()
    # A group that has not ended has threads, which keep its ranks. One that has ended may be garbage as a whole.
    weakref.finalize(owner, _hand_over, weakref.ref(members)).atexit = False


def _hand_over(reference: weakref.ref[Members]) -> None:
    members = reference()
    if members is None or members.has_ended or _native.forked_from():  # then the ranks are the parent's
        return
    _dropped.put(members)
    text = f"a group of {members.size} ranks was dropped, and neither closed nor aborted; use `with`, or close() it"
    warnings.warn(text, ResourceWarning, stacklevel=2)


def _let_go() -> None:
    while True:
        _dropped.get().drop()
