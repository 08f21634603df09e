"""Locks of modules, in a process that was forked while another thread held them.

Always true: in the child each of them is free. The state that they guard stays as it was: it changes in few steps, and
each of them leaves it whole.
"""

from __future__ import annotations

import os
import threading

__all__ = ["lock", "reentrant_lock"]


def lock() -> threading.Lock:
    """Return a lock that is free in a child process, whoever held it."""
    made = threading.Lock()
    os.register_at_fork(after_in_child=made._at_fork_reinit)  # type: ignore[attr-defined]
    return made


def reentrant_lock() -> threading.RLock:
    """Return a reentrant lock that is free in a child process, whoever held it."""
    made = threading.RLock()
    os.register_at_fork(after_in_child=made._at_fork_reinit)  # type: ignore[attr-defined]
    return made
