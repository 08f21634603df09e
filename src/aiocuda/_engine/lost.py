"""Lost devices: which operation was the first to fail on each, and what later ones are told.

Always true: the first who hears of a fault is told of it as its own; who comes later is told who was first. CUDA does
not say which operation caused a fault. So one that was on the device then is preferred to one that was refused.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import ReferenceType, ref

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda.errors import DeviceLostError, DriverError

__all__ = ["error_of", "renamed"]

_UNKNOWN = -2  # in place of a device's ordinal


class _First(NamedTuple):
    """The first failure on a device that was lost, and how far its streams had been given work by then."""

    operation: str
    origin: str
    code: int
    was_in_flight: bool
    submitted: dict[int, int]
    asked: ReferenceType[_native.Op] | None  # the operation itself, where it was one


_first: dict[int, _First] = {}  # by device


def error_of(
    operation: str,
    origin: str,
    error: DriverError,
    device: int,
    ready: list[tuple[int, int]],
    blocks: str = "",
    asked: _native.Op | None = None,
) -> DeviceLostError:
    """Return the error for something that failed because a device was lost.

    Parameters
    ----------
    operation, origin, error, blocks
        As of `DeviceLostError`.
    device
        The ordinal; -2 where it is not known.
    ready
        What the operation had been submitted as: pairs of a stream and the number of a submission. Empty for one that
        was refused.
    asked
        The operation; None where it was no operation.
    """
    place = f"device {device}" if device >= 0 else ""
    first = _first_on(device, error.code)
    if first is None:
        mine = _First(operation, origin, error.code, bool(ready), _submitted(), None if asked is None else ref(asked))
        first = _first.setdefault(device, mine)  # another thread may have come before
        if first is mine:
            return DeviceLostError(operation, origin, error, place, blocks=blocks)
    is_same = asked is not None and first.asked is not None and first.asked() is asked
    is_like_it = (first.operation, first.origin) == (operation, origin) and first.was_in_flight and bool(ready)
    if is_same or is_like_it:
        return DeviceLostError(operation, origin, error, place, blocks=blocks)  # asked again
    was_in_flight = any(count <= first.submitted.get(stream, 0) for stream, count in ready)
    if was_in_flight and not first.was_in_flight:
        same = None if asked is None else ref(asked)
        _take_the_place_of(first, _First(operation, origin, first.code, True, first.submitted, same))
        return DeviceLostError(operation, origin, error, place, blocks=blocks)
    return DeviceLostError(operation, origin, error, place, first.operation, first.origin, not was_in_flight, blocks)


def renamed(error: DeviceLostError, operation: str, origin: str, blocks: str = "") -> DeviceLostError:
    """Return an error that names an operation in the place of what was asked for its sake."""
    if not error.first_operation:
        for first in list(_first.values()):
            if (first.operation, first.origin) == (error.operation, error.origin):
                _take_the_place_of(first, first._replace(operation=operation, origin=origin))
    again = DeviceLostError(
        operation,
        origin,
        error.error,
        error.device,
        error.first_operation,
        error.first_origin,
        error.is_earlier,
        blocks,
    )
    again._decisions = error._decisions
    return again


def _first_on(device: int, code: int) -> _First | None:
    """Return the first failure that a device's answer is of.

    Once one device has had a fault, NVIDIA's driver gives that fault's answer for all devices of the process.
    """
    found = _first.get(device)
    if found is not None:
        return found
    is_any = device < 0 or not runtime.driver_info().is_emulated
    others = [each for where, each in _first.items() if each.code == code and (is_any or where == _UNKNOWN)]
    return others[0] if others else None


def _take_the_place_of(before: _First, now: _First) -> None:
    for device, each in list(_first.items()):
        if each is before:
            _first[device] = now


def _submitted() -> dict[int, int]:
    streams = [stream for device in runtime.open_devices() for stream in _native.streams_of(device)]
    return {stream: _native.stream_submitted(stream) for stream in streams}
