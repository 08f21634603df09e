"""Executions, futures and waits, as Python sees them, and the errors that come of them.

What explains and draws operations is imported when the first of that is asked for.
"""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._engine import drawing as drawing
    from aiocuda._engine import explain as explain
else:
    __getattr__, __dir__ = _later.names_of(
        __name__, globals(), {"aiocuda._engine.drawing": ("drawing",), "aiocuda._engine.explain": ("explain",)}
    )

__all__ = ["drawing", "explain"]
