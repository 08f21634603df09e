"""Instruments: statistics, reports for debugging, and advice on what to do instead.

What notebooks show is imported when one shows it.
"""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._instruments import notebook as notebook
else:
    __getattr__, __dir__ = _later.names_of(__name__, globals(), {"aiocuda._instruments.notebook": ("notebook",)})

__all__ = ["notebook"]
