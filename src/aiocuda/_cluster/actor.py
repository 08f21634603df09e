"""A worker's side: an async actor of Ray's, which does what it is asked on its event loop.

Always true: what a function raises goes back as a value. Only cancellations and the end of the process are Ray's.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from aiocuda._cluster import ray
from aiocuda._cluster.crossing import in_thread
from aiocuda._cluster.held import Held
from aiocuda._cluster.leases import Leases
from aiocuda._cluster.messages import Facts, Lease, Parcel, Pong, Raised, Reply, Request
from aiocuda._cluster.parcels import pack, unpack
from aiocuda._cluster.process import began
from aiocuda._devices.device import Device
from aiocuda._devices.placing import use
from aiocuda._driver import runtime
from aiocuda.errors import MissingAttributeError

__all__ = ["Created", "WorkerActor", "facts_of_this_process"]


def facts_of_this_process(ordinals: Iterable[int]) -> Facts:
    """Return what decides how arrays come to this process, which uses these devices."""
    devices = frozenset(map(runtime.uuid, ordinals))
    return Facts(ray.node_id(), os.getpid(), began(os.getpid()) or 0, devices, can_open=bool(devices))


class Created:
    """The number of an object that stays on the worker, in place of the object itself."""

    def __init__(self, number: int) -> None:
        self.number = number


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

    async def call(self, request: Request) -> Reply:
        """Do what was asked."""
        self._leases.end(request.closed)
        result: Parcel | Raised
        try:
            with use(self._device):
                value = await self._do(request)
            what = "the result of the function"
            result = await pack(value, request.call, self._leases, self._facts, self._driver, what)
            del value
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the caller gets it
            result = _raised(error)
        return Reply(result, self._leases.take_closed())

    async def _do(self, request: Request) -> Any:
        what, arguments, keywords = await unpack(request.parcel, self._leases, self._facts, self._held)
        if request.kind == "method":
            target = self._held.get(request.target, f"a call of its method {what}()")
            try:
                what = getattr(target, what)
            except AttributeError as error:
                raise MissingAttributeError(f"a remote object of {type(target).__qualname__}: {error}") from error
        value = await _called(what, arguments, keywords)
        if request.kind == "create":
            return Created(self._held.keep(value))
        return value


def _own_devices() -> list[int]:
    """Return the ordinals of the devices that Ray gave to this process.

    CUDA hides the others. The emulated driver does not.
    """
    return ray.gpus_of_this_process() if runtime.driver_info().is_emulated else list(range(runtime.device_count()))


async def _called(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call an async function on the loop, and any other one in a thread, so that the loop goes round."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments, **keywords)
    value = await in_thread(function, *arguments, **keywords)
    return await value if inspect.isawaitable(value) else value


def _raised(error: BaseException) -> Raised:
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    pickled: bytes | None = None
    if isinstance(error, Exception):
        with contextlib.suppress(Exception):  # one that cannot be pickled is told in words
            pickled, _ = ray.dumps(error, lambda _: NotImplemented, "an exception")
            pickle.loads(pickled)  # many can be pickled, and not be made of that again
    return Raised(pickled, words, "".join(traceback.format_exception(error)).rstrip())
