"""Aborts of NCCL's communicators, which may take long.

Always true: who aborts waits for a second at most, and the process ends when NCCL has let go, within a few seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Final

from aiocuda._driver.nccl import Communicator

__all__ = ["abort"]

_ABORT_S: Final = 1.0
_EXIT_S: Final = 5.0

_aborting: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


@atexit.register
def _wait_for_aborts() -> None:
    """Keep the process, for a while, as long as NCCL aborts: its memory must not be taken down meanwhile."""
    deadline = time.monotonic() + _EXIT_S
    for each in list(_aborting):
        each.join(max(deadline - time.monotonic(), 0))


def abort(communicators: Sequence[Communicator]) -> None:
    """Abort communicators. *Blocks*: for a second at most.

    NCCL marks a communicator first, so that its kernels end. Then it may wait for them, and for what their streams wait
    for: an agreement, or work that needs this very thread. So it gets a thread.
    """
    are_aborted = threading.Event()

    def abort_each() -> None:
        for each in communicators:
            with contextlib.suppress(RuntimeError):
                each.abort()
        are_aborted.set()

    thread = threading.Thread(target=abort_each, name="aiocuda-abort", daemon=True)
    _aborting.add(thread)
    thread.start()
    are_aborted.wait(_ABORT_S)
