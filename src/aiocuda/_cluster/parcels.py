"""Packs objects for another process, with the arrays in them, and unpacks them there.

Always true: an array is found wherever it is: in a list, a dictionary, a dataclass, an object, a closure. It travels
behind the work that makes it. Host data stays host data.
"""

from __future__ import annotations

import contextvars
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from aiocuda._arrays.array import DeviceArray
from aiocuda._arrays.base import native_of
from aiocuda._cluster import ray
from aiocuda._cluster.held import Held
from aiocuda._cluster.leases import Leases
from aiocuda._cluster.messages import Carried, Facts, Lent, Parcel, Sent, way_of
from aiocuda._driver import runtime
from aiocuda._verbs.copies import copy, to_device, to_host
from aiocuda._verbs.create import empty
from aiocuda._verbs.done import done

__all__ = ["Carrier", "Place", "pack", "unpack"]

_arrived: Final[contextvars.ContextVar[Place]] = contextvars.ContextVar("aiocuda parcel")


class Place:
    """Where a parcel is opened: the arrays that came with it, and the objects that the process holds."""

    def __init__(self, arrays: Sequence[DeviceArray], held: Held) -> None:
        self.arrays, self.held = arrays, held


class Carrier(Protocol):
    """The ends of the links with the other process that are here."""

    async def send(self, arrays: Sequence[DeviceArray], carried: Sequence[Carried], words: str) -> bool:
        """Have arrays go by NCCL; return False where there is no link. `words`: what they belong to."""

    async def receive(self, carried: Sequence[Carried], words: str) -> Sequence[DeviceArray]:
        """Return arrays that go by NCCL; the work that brings them may be under way."""


def _array(index: int) -> DeviceArray:
    return _arrived.get().arrays[index]


def _held(number: int) -> Any:
    return _arrived.get().held.get(number, "an argument of the call")


def held_here(number: int) -> tuple[Callable[..., Any], tuple[int]]:
    """Return how an object that the receiver holds is pickled."""
    return _held, (number,)


async def pack(
    value: Any,
    call: str,
    leases: Leases,
    carrier: Carrier,
    sender: Facts,
    receiver: Facts,
    what: str,
    reduce_held: Callable[[Any], Any] = lambda _: NotImplemented,
    *,
    is_result: bool = False,
) -> Parcel:
    """Pickle a value for another process.

    Parameters
    ----------
    value
        Anything.
    call, leases, carrier
        The call that it belongs to, what the two processes lend each other, and the links between them.
    sender, receiver
        This process, and the other one.
    what
        The value in words, for errors.
    reduce_held
        Pickles objects that the receiver holds.
    is_result
        Whether the receiver lives on if this process dies. If so, it opens only arrays that are there: a device takes
        the events of a process that has died for passed.

    Raises
    ------
    ArgumentTypeError
        Something in it cannot be pickled.
    """
    found: list[DeviceArray] = []
    places: dict[int, int] = {}  # by identity: an array that occurs twice arrives as one

    def reduce(each: Any) -> Any:
        if isinstance(each, DeviceArray):
            place = places.setdefault(id(each), len(found))
            if place == len(found):
                found.append(each)
            return _array, (place,)
        return reduce_held(each)

    pickled, buffers = ray.dumps(value, reduce, what)
    arrays: list[Lent | Carried | Sent] = []
    by_nccl: list[tuple[Carried, DeviceArray]] = []
    try:
        for number, each in enumerate(found):
            device = runtime.uuid(each.device.ordinal)
            way = way_of(device, sender, receiver) if each.size else "host"
            if way == "handle":
                lendable = await _lendable(each)
                if is_result or native_of(lendable)._is_in_doubt:
                    await done(lendable)
                arrays.append(leases.lend((call, number), lendable))
            elif way == "nccl":
                carried = Carried((call, number), each.shape, each.dtype.name, device)
                by_nccl.append((carried, await _sendable(each)))
                arrays.append(carried)
            else:
                arrays.append(Sent(await to_host(each), device))
        if by_nccl and not await carrier.send([each for _, each in by_nccl], [each for each, _ in by_nccl], what):
            for carried, each in by_nccl:
                arrays[carried.lease[1]] = Sent(await to_host(each), carried.device)
    except BaseException:
        leases.end_call(call)
        raise
    return Parcel(pickled, buffers, arrays)


async def _lendable(array: DeviceArray) -> DeviceArray:
    """Return the array, or a copy of it, in memory that other processes can open."""
    return array if native_of(array)._is_interprocess else await _copied(array, interprocess=True)


async def _sendable(array: DeviceArray) -> DeviceArray:
    """Return the array, or a copy of it in one piece; raise where it cannot be read.

    The first half of a transfer is the other process', so this one's must not fail for a reason that is known before.
    """
    native = native_of(array)
    if native._is_in_doubt:
        await done(array)
    return array if native._is_contiguous and not native._is_closed else await _copied(array)


async def _copied(array: DeviceArray, *, interprocess: bool = False) -> DeviceArray:
    """Return a copy in one piece; what uses it comes behind it."""
    made = await empty(array.shape, array.dtype, device=array.device, interprocess=interprocess)
    copy(made, array).submit()
    return made


async def unpack(parcel: Parcel, leases: Leases, carrier: Carrier, receiver: Facts, held: Held, words: str) -> Any:
    """Return what was packed in another process. `words`: what that is."""
    arrays: list[DeviceArray] = []
    by_nccl = [each for each in parcel.arrays if isinstance(each, Carried)]
    try:
        came = iter(await carrier.receive(by_nccl, words) if by_nccl else ())
        for each in parcel.arrays:
            match each:
                case Lent():
                    arrays.append(leases.open(each))
                case Carried():
                    arrays.append(next(came))
                case _:
                    arrays.append(await uploaded(each, receiver))
    except BaseException:
        leases.discard(parcel.arrays[len(arrays) :])
        raise
    token = _arrived.set(Place(arrays, held))
    try:
        return pickle.loads(parcel.pickled, buffers=parcel.buffers)
    finally:
        _arrived.reset(token)


async def uploaded(sent: Sent, receiver: Facts) -> DeviceArray:
    """Bring host data to the device that the array was on, if the receiver has that; else to the one in force."""
    if sent.device not in receiver.devices:
        return await to_device(sent.data)
    ordinals = (each for each in range(runtime.device_count()) if runtime.uuid(each) == sent.device)
    return await to_device(sent.data, next(ordinals))
