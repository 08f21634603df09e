"""The handle of an event, a plain value, from which another process opens the event.

Always true: it says of which process it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiocuda._devices.lending import Owner
from aiocuda._naming import name_publicly

__all__ = ["IpcEventHandle"]


@dataclass(frozen=True, slots=True, repr=False)
class IpcEventHandle:
    """An event that another process may open with `open_ipc`; made by `Event.ipc_handle`. It can be pickled.

    Attributes
    ----------
    owner
        The process that made it, and the device.
    event
        The driver's handle.
    """

    owner: Owner
    event: bytes

    def __repr__(self) -> str:
        return f"<IpcEventHandle of process {self.owner.process_id}>"


name_publicly("aiocuda", globals(), __all__)
