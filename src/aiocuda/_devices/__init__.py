"""Devices, their streams, events and memory, and where work goes that says nothing of it.

What tells of them is imported when the first is asked for.
"""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._devices.event_handle import IpcEventHandle as IpcEventHandle
    from aiocuda._devices.limits_read import DeviceLimits as DeviceLimits
    from aiocuda._devices.memory import MemoryHolder as MemoryHolder
    from aiocuda._devices.memory import MemoryInfo as MemoryInfo
    from aiocuda._devices.memory import MemoryPool as MemoryPool
else:
    __getattr__, __dir__ = _later.names_of(
        __name__,
        globals(),
        {"aiocuda._devices.memory": ("MemoryHolder", "MemoryInfo", "MemoryPool")},
        {"aiocuda._devices.limits_read": ("DeviceLimits",)},
        {"aiocuda._devices.event_handle": ("IpcEventHandle",)},
    )

__all__ = ["DeviceLimits", "IpcEventHandle", "MemoryHolder", "MemoryInfo", "MemoryPool"]
