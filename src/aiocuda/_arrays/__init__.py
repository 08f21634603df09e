"""Arrays on devices and in page-locked memory, their partitions, and those of other processes.

What makes handles for other processes is imported when the first is asked for.
"""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._arrays.ipc_handle import handle_of as handle_of
else:
    __getattr__, __dir__ = _later.names_of(__name__, globals(), {"aiocuda._arrays.ipc_handle": ("handle_of",)})

__all__ = ["handle_of"]
