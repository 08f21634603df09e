"""A running process in numbers, in this process and from another one: `monitor` and ``aiocuda top``.

What makes up a report is imported when the first is asked for.
"""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._live import report as report
else:
    __getattr__, __dir__ = _later.names_of(__name__, globals(), {"aiocuda._live.report": ("report",)})

__all__ = ["report"]
