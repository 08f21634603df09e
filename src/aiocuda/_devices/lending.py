"""The lender of something to other processes: its process, and the device.

Always true: a process knows itself again, whichever container it is in.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from aiocuda._driver import runtime
from aiocuda.errors import DeviceMismatchError

__all__ = ["Owner"]

# Process ids are one container's own: this tells processes of several apart.
_TOKEN: Final = os.urandom(16)


class Owner(NamedTuple):
    """Which process has made a handle, and which device it is about."""

    process_id: int
    process_token: bytes
    device_uuid: bytes

    @classmethod
    def here(cls, ordinal: int) -> Owner:
        """Return this process, as the owner of something of a device."""
        return cls(os.getpid(), _TOKEN, runtime.uuid(ordinal))

    @property
    def is_here(self) -> bool:
        """Whether it is this process."""
        return (self.process_id, self.process_token) == (os.getpid(), _TOKEN)

    def ordinal(self) -> int:
        """Return the ordinal of the device, as this process counts.

        Raises
        ------
        DeviceMismatchError
            This process does not see the device.
        """
        for ordinal in range(runtime.device_count()):
            if runtime.uuid(ordinal) == self.device_uuid:
                return ordinal
        raise DeviceMismatchError(
            f"open_ipc: what process {self.process_id} lends is on the GPU of UUID {self.device_uuid.hex()}, which is "
            f"none of the {runtime.device_count()} that this process sees; look at CUDA_VISIBLE_DEVICES of both"
        )
