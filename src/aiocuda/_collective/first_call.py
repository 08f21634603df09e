"""How ranks join, and their first call: NCCL connects them for it, and keeps the caller until all of them have come.

Always true: NCCL does not keep the thread that waits for the call. So that one can give up, and a signal reaches it.
None reaches the thread that is in NCCL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from aiocuda import _native
from aiocuda.errors import CollectiveError

__all__ = ["call_while"]

_BETWEEN_LOOKS_S: Final = 0.01


def call_while(call: Callable[[], object], give_up: Callable[[], str | None]) -> None:
    """Call a function on a thread of its own, and wait for it.

    Parameters
    ----------
    call
        What NCCL may keep. If it is given up, it goes on until its communicators are aborted.
    give_up
        Why to wait no longer; None: to wait on.

    Raises
    ------
    CollectiveError
        It was given up.
    BaseException
        What `call` raised.
    """
    has_ended = threading.Event()
    raised: list[BaseException] = []

    def make() -> None:
        try:
            with _native.InCuda():  # the process may end meanwhile
                call()
        except BaseException as error:  # noqa: BLE001 - it is raised below
            raised.append(error)
        finally:
            has_ended.set()

    threading.Thread(target=make, name="aiocuda-first-call", daemon=True).start()
    while not has_ended.wait(_BETWEEN_LOOKS_S):
        if (reason := give_up()) is not None:
            raise CollectiveError(reason)
    if raised:
        raise raised[0]
