"""Packs objects for another process, with the arrays in them, and unpacks them there.

Always true: an array is found wherever it is: in a list, a dictionary, a dataclass, an object, a closure. It travels
behind the work that makes it. Host data stays host data.
"""

from __future__ import annotations

import contextlib
import contextvars
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from aiocuda._arrays.array import DeviceArray
from aiocuda._arrays.base import native_of
from aiocuda._cluster import ray
from aiocuda._cluster.held import Held
from aiocuda._cluster.leases import Leases
from aiocuda._cluster.messages import Facts, Lent, Parcel, Sent, way_of
from aiocuda._driver import runtime
from aiocuda._verbs.copies import copy, to_device, to_host
from aiocuda._verbs.create import empty

__all__ = ["Place", "pack", "unpack"]

_arrived: Final[contextvars.ContextVar[Place]] = contextvars.ContextVar("aiocuda parcel")


class Place:
    """Where a parcel is opened: the arrays that came with it, and the objects that the process holds."""

    def __init__(self, arrays: Sequence[DeviceArray], held: Held) -> None:
        self.arrays, self.held = arrays, held


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
    sender: Facts,
    receiver: Facts,
    what: str,
    reduce_held: Callable[[Any], Any] = lambda _: NotImplemented,
) -> Parcel:
    """Pickle a value for another process.

    Parameters
    ----------
    value
        Anything.
    call, leases
        The call that it belongs to, and what the two processes lend each other.
    sender, receiver
        This process, and the other one.
    what
        The value in words, for errors.
    reduce_held
        Pickles objects that the receiver holds.

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
    arrays: list[Lent | Sent] = []
    try:
        for number, each in enumerate(found):
            device = runtime.uuid(each.device.ordinal)
            if each.size and way_of(device, sender, receiver) == "handle":
                arrays.append(leases.lend((call, number), await _lendable(each)))
            else:
                arrays.append(Sent(await to_host(each), device))
    except BaseException:
        leases.end_call(call)
        raise
    return Parcel(pickled, buffers, arrays)


async def _lendable(array: DeviceArray) -> DeviceArray:
    """Return the array, or a copy of it, in memory that other processes can open."""
    if native_of(array)._is_interprocess:
        return array
    made = await empty(array.shape, array.dtype, device=array.device, interprocess=True)
    copy(made, array).submit()  # the handle comes behind it
    return made


async def unpack(parcel: Parcel, leases: Leases, receiver: Facts, held: Held) -> Any:
    """Return what was packed in another process."""
    arrays: list[DeviceArray] = []
    try:
        for each in parcel.arrays:
            arrays.append(leases.open(each) if isinstance(each, Lent) else await _uploaded(each, receiver))
    except BaseException:
        leases.discard(parcel.arrays[len(arrays) :])
        raise
    with _opening(Place(arrays, held)):
        return pickle.loads(parcel.pickled, buffers=parcel.buffers)


async def _uploaded(sent: Sent, receiver: Facts) -> DeviceArray:
    """Bring host data to the device that the array was on, if the receiver has that; else to the one in force."""
    if sent.device not in receiver.devices:
        return await to_device(sent.data)
    ordinals = (each for each in range(runtime.device_count()) if runtime.uuid(each) == sent.device)
    return await to_device(sent.data, next(ordinals))


@contextlib.contextmanager
def _opening(place: Place) -> Iterator[None]:
    token = _arrived.set(place)
    try:
        yield
    finally:
        _arrived.reset(token)
