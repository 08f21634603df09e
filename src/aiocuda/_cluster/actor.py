"""A worker's side: an async actor of Ray's, which does what it is asked on its event loop.

Always true: what a function raises goes back as a value. Only cancellations and the end of the process are Ray's.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from aiocuda._cluster import ray
from aiocuda._cluster.crossing import in_thread
from aiocuda._cluster.held import Held
from aiocuda._cluster.leases import Leases
from aiocuda._cluster.messages import (
    Carried,
    Connection,
    Facts,
    Lease,
    Parcel,
    Pong,
    Raised,
    Reply,
    Request,
    Transfer,
    Transferred,
    decoded,
    encoded,
)
from aiocuda._cluster.parcels import pack, unpack
from aiocuda._cluster.process import began
from aiocuda._cluster.raised import raised_of
from aiocuda._cluster.worker_links import WorkerLinks
from aiocuda._devices.device import Device
from aiocuda._devices.placing import use
from aiocuda._driver import nccl, runtime
from aiocuda._loops import current_tasks
from aiocuda.errors import MissingAttributeError

__all__ = ["EMULATED_DEVICES", "WorkerActor", "facts_of_this_process"]

EMULATED_DEVICES: Final = "AIOCUDA_EMULATED_DEVICES"


def facts_of_this_process(ordinals: Iterable[int]) -> Facts:
    """Return what decides how arrays come to this process, which uses these devices."""
    devices = frozenset(map(runtime.uuid, ordinals))
    return Facts(ray.node_id(), os.getpid(), began(os.getpid()) or 0, devices, bool(devices), nccl.is_installed())


class WorkerActor:
    """One process of a cluster.

    Parameters
    ----------
    number
        The worker's number.
    driver
        The process that started the cluster.
    environment
        Variables that are set before the process uses its devices.
    """

    def __init__(self, number: int, driver: Facts, environment: dict[str, str]) -> None:
        os.environ.update(environment)
        self._number = number
        self._driver = driver
        ordinals = _own_devices()
        for each in ordinals:
            # Now: a device takes a second and more to open, in which the loop would give no sign of life.
            Device(each).synchronize().sync()
        self._device = Device(ordinals[0])
        self._facts = facts_of_this_process(ordinals)
        self._leases = Leases()
        self._links = WorkerLinks(self._leases, ordinals)
        self._held = Held(f"worker {number}")

    async def facts(self) -> Facts:
        """Return what decides how arrays come here."""
        return self._facts

    async def ping(self, closed: Sequence[Lease], abandoned: Sequence[str], deleted: Sequence[int]) -> Pong:
        """Answer that the loop goes round; take note of what has ended at the driver."""
        self._leases.end(closed)
        for number in deleted:
            self._held.delete(number)
        for call in abandoned:
            self._leases.end_call(call)
        unopened = [call for call in abandoned if self._leases.refuse(call)]
        return Pong(self._leases.take_closed(), unopened)

    async def call(self, asked: Any) -> Any:
        """Do what a `Request` asks for; return the `Reply`. Both are encoded."""
        request: Request = decoded(asked)
        self._leases.end(request.closed)
        result: Parcel | Raised
        try:
            with use(self._device):
                value = await self._do(request)
            result = await pack(
                value,
                request.call,
                self._leases,
                self._links,
                self._facts,
                self._driver,
                "the result of the function",
                is_result=True,
            )
            del value
        except current_tasks().cancelled:
            raise  # which is Ray's to tell
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            result = raised_of(error)
        finally:
            self._leases.forget_arrived(request.call)
        return encoded(Reply(result, self._leases.take_closed()))

    async def connect(self, asked: Connection) -> Raised | None:
        """Make this end of a link."""
        return await self._links.connect(asked)

    async def transfer(self, asked: Transfer) -> Transferred:
        """Submit this half of a transfer."""
        return await self._links.transfer(asked)

    async def disconnect(self, asked: tuple[int, str]) -> None:
        """End a link of a number, for a reason."""
        await self._links.disconnect(*asked)

    async def fetch(self, asked: Sequence[Carried]) -> list[np.ndarray[Any, Any]] | Raised:
        """Return kept arrays as host data."""
        return await self._links.fetch(asked)

    async def _do(self, request: Request) -> Any:
        words = "the arguments of the call"
        what, arguments, keywords = await unpack(
            request.parcel, self._leases, self._links, self._facts, self._held, words
        )
        if request.kind == "method":
            target = self._held.get(request.target, f"a call of its method {what}()")
            try:
                what = getattr(target, what)
            except AttributeError as error:
                raise MissingAttributeError(f"a remote object of {type(target).__qualname__}: {error}") from error
        value = await _called(what, arguments, keywords)
        if request.kind == "create":
            self._held.keep(request.target, value)
            return None
        return value


def _own_devices() -> list[int]:
    """Return the ordinals of the devices that Ray gave to this process.

    CUDA hides the others. The emulated driver does not, and has as many as is said before it starts: Ray counts those
    of its node, of which other clusters may have the first ones.
    """
    if not runtime.driver_info().is_emulated:
        return list(range(runtime.device_count()))
    ordinals = ray.gpus_of_this_process()
    os.environ[EMULATED_DEVICES] = str(max(int(os.environ[EMULATED_DEVICES]), max(ordinals) + 1))
    return ordinals


async def _called(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call an async function on the loop, and any other one in a thread, so that the loop goes round."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments, **keywords)
    value = await in_thread(function, *arguments, **keywords)
    return await value if inspect.isawaitable(value) else value
