"""Event loops: how a completion wakes what awaits it, one file for each runtime.

Always true: a loop's port is made at its first await and ends with the loop; nothing here keeps a
loop alive, and no runtime is imported unless it runs already.
"""

from __future__ import annotations

import sys

from aiocuda._loops.port import LoopPort
from aiocuda.errors import AiocudaError

__all__ = ["LoopPort", "current_port"]


def current_port() -> LoopPort:
    """Return the port of the event loop that runs in this thread.

    Raises
    ------
    AiocudaError
        None runs, or one that is not known.
    """
    # A runtime that was never imported does not run. Trio may run as a guest of asyncio's loop: the
    # task that asks is then trio's, so trio is asked first.
    if "trio" in sys.modules:
        from aiocuda._loops import trio

        if trio.is_running():
            return trio.current_port()
    if "asyncio" in sys.modules:
        from aiocuda._loops import asyncio

        if asyncio.is_running():
            return asyncio.current_port()
    raise AiocudaError(
        "no event loop runs in this thread; operations can be awaited under asyncio (with any loop of it, such as "
        "uvloop) and trio, and executed with .sync() anywhere"
    )
