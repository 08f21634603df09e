"""Placement: the device, stream or policy in force, and the functions that put another one in force.

Always true: what is in force is a ContextVar's, so each task and thread has its own; the process has a default.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from aiocuda import _native
from aiocuda._devices.device import Device, DeviceLike, Stream, as_ordinal, as_stream, current_ordinal
from aiocuda._engine import placement
from aiocuda._engine.placement import Placement
from aiocuda._later import aiocuda
from aiocuda._values import given
from aiocuda.errors import ArgumentTypeError

__all__ = ["as_policy", "current_device", "place_of", "placement_for", "set_device", "use"]


def current_device() -> Device:
    """Return the device in force: of the innermost `use`, else that of `set_device`, else device 0.

    In a function of `then`, `inspect`, `map` and `call` it is that of the execution, or of the operation's `on`.

    Returns
    -------
    Device
        Nothing is opened for the question.
    """
    return Device(current_ordinal())


def set_device(device: DeviceLike) -> Device:
    """Choose the device in force where no `use` says otherwise, for the whole process.

    Parameters
    ----------
    device
        A `Device` or its ordinal.

    Returns
    -------
    Device
        The one that was chosen before, to be put back.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        It is no device, or there is none of that number.
    """
    if device is None:
        raise ArgumentTypeError("set_device takes a Device or its ordinal; None was given")
    ordinal = Device(as_ordinal(device)).ordinal
    before = Device(_native.default_device())
    _native.set_default_device(ordinal)
    return before


def place_of(device: DeviceLike | None) -> int | None:
    """Return the ordinal of where an array is to be made: as given, or of the `use` in force; else None.

    None leaves it to the execution, whose walk knows who needs the array.
    """
    return placement.current.get().device if device is None else as_ordinal(device)


def placement_for(target: Any, before: Placement | None = None) -> Placement:
    """Return a placement, by default the one in force, changed by a target: a device, a stream, or a policy.

    Raises
    ------
    ArgumentTypeError
        It is none of them.
    """
    if before is None:
        before = placement.current.get()
    if isinstance(target, _native.Policy):
        return before.with_policy(as_policy(target))
    if isinstance(target, (Device, int, str)):
        return before.on_device(as_ordinal(target))
    if not isinstance(target, Stream) and not hasattr(target, "__cuda_stream__"):
        raise ArgumentTypeError(
            "work is put on a device (a Device, its ordinal, or a name such as 'cuda:1'), on a stream (a Stream, or "
            f"what has __cuda_stream__), or where a policy says; {given.shown(target)} was given"
        )
    stream = as_stream(target)
    return before.on_stream(stream._index, stream.device.ordinal, stream)


def as_policy(policy: _native.Policy) -> _native.Policy:
    """Return a policy that can be asked.

    Raises
    ------
    ArgumentTypeError
        Its class' ``__init__`` has not called that of its base class.
    """
    if not _native.is_made(policy):
        raise ArgumentTypeError(
            f"{type(policy).__name__}.__init__() has not called super().__init__(streams=…), without which it is no "
            "policy; call that first"
        )
    return policy


@contextlib.contextmanager
def use(
    target: Device | Stream | aiocuda.Policy | int | Any = None,
    *,
    spin_us: int | None = None,
    max_in_flight: int | None = None,
    priority: int | None = None,
) -> Iterator[None]:
    """Put what is built and executed inside on a device, on a stream of one, or where a policy says.

    Parameters
    ----------
    target
        A `Device`, its ordinal, a `Stream`, anything with ``__cuda_stream__``, or a policy such as
        `aiocuda.RoundRobin`. A device leaves the policy in force as it is, a policy the device; either
        ends a stream's being in force. None leaves all three.
    spin_us
        How long an await may spin, in microseconds, before it gives the event loop back; 0: not at all. It
        spins only while waits have been short of late. 20 where nothing is said.
    max_in_flight
        The most submissions that a stream may hold, from 1 to 250; where it holds them, an await waits for room
        without blocking the loop, ``.sync()`` and ``.submit()`` wait with the GIL released. 250 where nothing is said.
    priority
        How urgent the work is, from -2**31 to 2**31: higher numbers go first. Without it, work has priority 0, and a
        policy's streams have the policy's own. *Streams*: the policy in force chooses among streams of that priority,
        and has as many for each. CUDA counts from 0 down, so ``priority=3`` means streams of -3, or the device's most
        urgent ones; below 0 it means those of 0. A stream that is named stays. *Lines*: those of a higher priority go
        first where tasks and threads wait for a turn of their loop, for room in a stream, or for memory. One turn in
        eight goes to whoever has waited longest. *Batches*: items of a `batched` function have it, if their caller says
        nothing else.

    Returns
    -------
    context manager
        It holds for as long as its ``with`` block runs.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        The target is none of these, or a number is out of range.

    Notes
    -----
    It holds for this task or thread (a ContextVar), and for tasks started inside.

    An operation runs on the device of the arrays that it works on. Some operations are not tied to a device by an
    array, and new arrays have to be made somewhere. The first of these that says something decides:

    1. ``device=`` of the creation.
    2. The device of the `use` in force where the creation was *built*.
    3. `DeviceOp.on` of the operation itself.
    4. The operations that need the result, the nearest first: the `DeviceOp.on` of each, else the device of its other
       arrays. Copies between devices (`to_device`, `copy`) and functions of `map` say nothing of what they take.
    5. The device that the execution was given: by the `use` in force where it is awaited, waited for or submitted, by
       `DeviceOp.schedule` or by `DeviceOp.sync_on`.
    6. For the destination of a `copy`: the device of its source.
    7. `set_device`, the process's default; device 0 where nobody called it.

    Two places that were both said are a `DeviceMismatchError`, which names them. The placement of an execution, or of
    `on`, is in force in the functions of `then`, `inspect`, `map` and `call`: it counts there as a `use`.
    """
    is_empty = target is None and spin_us is None and max_in_flight is None and priority is None
    chosen = placement.current.get() if target is None and not is_empty else placement_for(target)
    if spin_us is not None:
        chosen = chosen.with_spin_us(given.between(spin_us, "spin_us", 0, 1_000_000))
    if max_in_flight is not None:
        chosen = chosen.with_max_in_flight(given.between(max_in_flight, "max_in_flight", 1, placement.MOST_IN_FLIGHT))
    if priority is not None:
        chosen = chosen.with_priority(given.between(priority, "priority", *placement.PRIORITIES))
    token = placement.current.set(chosen)
    try:
        yield
    finally:
        placement.current.reset(token)
