"""Whatever takes long to end: communicators of NCCL.

Always true: who ends something waits for a second at most, and the process ends when all of it has ended, within a few
seconds.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from typing import Final

from aiocuda import _native
from aiocuda._driver.nccl import Communicators

__all__ = ["abort", "destroy", "end_later"]

_WAIT_S: Final = 1.0
_MARKED_S: Final = 0.02  # NCCL marks before all else
_EXIT_S: Final = 5.0

_ending: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


@atexit.register
def _wait_at_exit() -> None:
    """Keep the process, for a while, as long as something ends.

    What takes longer ends with the process, which runs no exit handlers then (`_native.InCuda`). So the wait is for the
    sake of those handlers: profilers write their reports in some.
    """
    deadline = time.monotonic() + _EXIT_S
    for each in list(_ending):
        each.join(max(deadline - time.monotonic(), 0))


def end_later(end: Callable[[], object], name: str) -> threading.Event:
    """Call a function on a thread of its own; return what is set when it has returned.

    Raises
    ------
    RuntimeError
        Python ends, so that there are no more threads.
    """
    has_ended = threading.Event()

    def call() -> None:
        try:
            with _native.InCuda():
                end()
        finally:
            has_ended.set()

    thread = threading.Thread(target=call, name=name, daemon=True)
    _ending.add(thread)
    thread.start()
    return has_ended


def abort(communicators: Communicators, let_go: Callable[[], object] = lambda: None) -> None:
    """Abort communicators. *Blocks*: for a second at most.

    NCCL marks a communicator first, so that its kernels end. Then it may wait for them, and for what their streams wait
    for: an agreement, or work that needs this very thread. So it gets a thread. `let_go` lets streams go on; it is
    called as soon as NCCL has had time to mark: a launch that is under way may wait for its stream, and others for the
    launch.
    """
    try:
        has_ended = end_later(communicators.abort, "aiocuda-abort")
        has_ended.wait(_MARKED_S)
    finally:
        let_go()
    has_ended.wait(_WAIT_S)


def destroy(communicators: Communicators) -> None:
    """Destroy communicators whose calls have all ended. *Blocks*: for a second at most.

    NCCL keeps a rank until the other ranks on its host destroy theirs, too, because they may still write into its
    memory. They may never do it, so NCCL gets a thread.
    """
    end_later(communicators.destroy, "aiocuda-destroy").wait(_WAIT_S)
