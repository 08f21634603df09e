"""Workers on Ray: processes with devices of their own, whose calls are awaited.

Annotations of modules that `worker` imports name these by the room.
"""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._cluster.worker import Remote as Remote
    from aiocuda._cluster.worker import Worker as Worker
else:
    __getattr__, __dir__ = _later.names_of(__name__, globals(), {"aiocuda._cluster.worker": ("Remote", "Worker")})

__all__ = ["Remote", "Worker"]
