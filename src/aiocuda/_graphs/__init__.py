"""Work that is recorded once and launched often: graphs, and compiled functions.

What draws and counts them is imported when the first of that is asked for.
"""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._graphs import drawing as drawing
    from aiocuda._graphs.counts import CacheInfo as CacheInfo
    from aiocuda._graphs.counts import GraphStatistics as GraphStatistics
else:
    __getattr__, __dir__ = _later.names_of(
        __name__,
        globals(),
        {"aiocuda._graphs.drawing": ("drawing",)},
        {"aiocuda._graphs.counts": ("CacheInfo", "GraphStatistics")},
    )

__all__ = ["CacheInfo", "GraphStatistics", "drawing"]
