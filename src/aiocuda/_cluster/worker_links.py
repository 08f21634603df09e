"""A worker's ends of the links with the driver.

Always true: the driver says what goes when. It asks for one transfer of a link after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aiocuda._arrays.array import DeviceArray
from aiocuda._cluster.crossing import in_thread
from aiocuda._cluster.leases import Leases
from aiocuda._cluster.links import Link, transfer_failed
from aiocuda._cluster.messages import Carried, Connection, Raised, Transfer, Transferred
from aiocuda._cluster.raised import raised_of
from aiocuda._devices.device import Device
from aiocuda._driver import runtime
from aiocuda._verbs.copies import to_host
from aiocuda._verbs.create import empty
from aiocuda.errors import ClusterError

__all__ = ["WorkerLinks"]


class WorkerLinks:
    """Those of one worker.

    Parameters
    ----------
    leases
        What it keeps for the driver.
    devices
        The ordinals of its devices. Arrays come to the first.
    """

    def __init__(self, leases: Leases, devices: Sequence[int]) -> None:
        self._leases = leases
        self._devices = devices
        self._links: dict[int, tuple[Link, bool]] = {}
        self._ended: set[int] = set()

    async def send(self, arrays: Sequence[DeviceArray], carried: Sequence[Carried], _: str) -> bool:
        """Keep arrays until the driver asks for them."""
        for each, array in zip(carried, arrays, strict=True):
            self._leases.keep(each.lease, array)
        return True

    async def receive(self, carried: Sequence[Carried], _: str) -> list[DeviceArray]:
        """Return arrays that came before the call."""
        return [self._leases.take_arrived(each) for each in carried]

    async def connect(self, asked: Connection) -> Raised | None:
        """Make this end of a link."""
        try:
            await in_thread(self._connect, asked)
        except Exception as error:  # noqa: BLE001 - the driver gets it
            return raised_of(error)
        return None

    async def transfer(self, asked: Transfer) -> Transferred:
        """Submit this half of a transfer."""
        link: Link | None = None
        try:
            link, receives = self._link(asked.link)
            if receives:
                arrays = [
                    await empty(each.shape, each.dtype, device=self._devices[0]).on(link.stream)
                    for each in asked.arrays
                ]
            else:
                arrays = self._leases.take_kept(asked.arrays)
            await in_thread(link.transfer, arrays, asked.words)
            if receives:
                self._leases.arrive(asked.arrays, arrays)
        except Exception as error:  # noqa: BLE001 - the driver gets it
            return Transferred(raised_of(error), has_ended=link is None or link.has_ended)
        return Transferred(None, has_ended=False)

    async def disconnect(self, number: int, reason: str) -> None:
        """End a link, if it is there: what was under way on it fails."""
        self._ended.add(number)  # also where it is not there yet
        if number in self._links:
            link, _ = self._links.pop(number)
            await in_thread(link.end, reason)

    async def fetch(self, asked: Sequence[Carried]) -> list[np.ndarray[Any, Any]] | Raised:
        """Return arrays as host data, for which there is no link."""
        try:
            return [await to_host(each) for each in self._leases.take_kept(asked)]
        except Exception as error:  # noqa: BLE001 - the driver gets it
            return raised_of(error)

    def _connect(self, asked: Connection) -> None:
        devices = [each for each in self._devices if asked.device in (b"", runtime.uuid(each))]
        receives = asked.is_to_worker
        link = Link(
            Device(devices[0]).stream(),
            asked.identity,
            sends=not receives,
            failed=lambda wrong: link.end(wrong),  # noqa: PLW0108 - the link is made by this very call
            error_of=transfer_failed,
        )
        self._links[asked.link] = link, receives  # before it begins: the driver may end it
        try:
            link.begin(asked.timeout_s, lambda: "the driver has ended it" if asked.link in self._ended else None).sync(
                asked.timeout_s
            )
        except BaseException as error:
            self._links.pop(asked.link, None)
            link.end(f"it did not begin: {error}")
            raise

    def _link(self, number: int) -> tuple[Link, bool]:
        try:
            return self._links[number]
        except KeyError:
            raise ClusterError(f"the worker has no link {number} any more") from None
