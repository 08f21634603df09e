"""The things that a driver and its workers tell each other, as plain values.

Always true: a message holds bytes, numbers and handles, and no object of the user's; those are pickled within. Messages
are tuples: those are read in half the time that dataclasses take. A call and its reply are bytes where they hold no
host data: Ray passes bytes on as they are, and what it pickles itself takes Python code on both sides.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from aiocuda._arrays.ipc_handle import IpcHandle

__all__ = [
    "Carried", "Connection", "Facts", "Lease", "Lent", "Parcel", "Pong", "Raised", "Reply", "Request", "Sent",
    "Transfer", "Transferred", "decoded", "encoded", "way_of",
]  # fmt: skip

Lease: TypeAlias = tuple[str, int]
"""One array that one process keeps for the other: the call that it belongs to, and its place there."""


class Facts(NamedTuple):
    """What decides how arrays come to a process.

    Attributes
    ----------
    host
        The Ray node that it runs on.
    process_id, began
        The process, and when it began, as the system counts: another process may get the same number later.
    devices
        The UUIDs of the devices that it sees.
    can_open
        Whether its driver opens memory of other processes.
    has_nccl
        Whether nccl4py is installed there, and finds NCCL.
    """

    host: str
    process_id: int
    began: int
    devices: frozenset[bytes]
    can_open: bool
    has_nccl: bool


def way_of(device: bytes, sender: Facts, receiver: Facts) -> Literal["handle", "nccl", "host"]:
    """Decide how an array on a device goes from one process to another.

    By handle, which copies nothing, where both are on one host, the receiver sees the device, and both drivers lend
    memory. By NCCL where the two have different devices, and both have NCCL. Else through the host's memory and Ray's
    object store.
    """
    if sender.host == receiver.host and device in receiver.devices:
        return "handle" if sender.can_open and receiver.can_open else "host"
    return "nccl" if receiver.devices and sender.has_nccl and receiver.has_nccl else "host"


class Lent(NamedTuple):
    """An array that travels by handle. The sender keeps it until the receiver says that it has passed."""

    lease: Lease
    handle: IpcHandle


class Carried(NamedTuple):
    """An array that travels by NCCL; `device` is where it was.

    In a request, the worker has it by now. In a reply, the worker keeps it until the driver has it sent.
    """

    lease: Lease
    shape: tuple[int, ...]
    dtype: str
    device: bytes


class Sent(NamedTuple):
    """An array that travels as host data; `device` is where it was."""

    data: np.ndarray[Any, Any]
    device: bytes


class Parcel(NamedTuple):
    """Objects of the user's, pickled, and the arrays that were in them."""

    pickled: bytes
    buffers: Sequence[Any]
    arrays: Sequence[Lent | Carried | Sent]


class Request(NamedTuple):
    """A call.

    Attributes
    ----------
    call
        Its name, different from all others.
    kind
        ``"run"``: the parcel has a function, its arguments and its keywords. ``"create"``: a class, and these.
        ``"method"``: a method's name, and these.
    target
        The number of an object: which one the method is of, or which one is created.
    parcel
        The function and its arguments.
    closed
        Leases of the worker's that have ended.
    """

    call: str
    kind: Literal["run", "create", "method"]
    target: int
    parcel: Parcel
    closed: Sequence[Lease]


class Raised(NamedTuple):
    """An exception: pickled, if that works, and in words."""

    pickled: bytes | None
    words: str
    traceback: str


class Reply(NamedTuple):
    """The result of a call, or the exception; and leases of the driver's that have ended."""

    result: Parcel | Raised
    closed: Sequence[Lease]


def encoded(message: Request | Reply) -> Any:
    """Return a message as Ray gets it: as it is, if it has host data, which Ray then does not copy once more."""
    parcel = message.parcel if isinstance(message, Request) else message.result
    if not isinstance(parcel, Parcel):
        return pickle.dumps(message, 5)
    pickled, buffers, arrays = parcel
    if buffers or any(isinstance(each, Sent) for each in arrays):
        return message
    # In a plain tuple: each class costs more to read than all the rest.
    if isinstance(message, Request):
        return pickle.dumps((message.call, message.kind, message.target, pickled, arrays, message.closed), 5)
    return pickle.dumps((pickled, arrays, message.closed), 5)


def decoded(given: Any) -> Any:
    """Return the message."""
    found = pickle.loads(given) if isinstance(given, bytes) else given
    if type(found) is not tuple:
        return found
    *asked, pickled, arrays, closed = found
    parcel = Parcel(pickled, [], arrays)
    if not asked:
        return Reply(parcel, closed)
    call, kind, target = asked
    return Request(call, kind, target, parcel, closed)


class Pong(NamedTuple):
    """A sign of life: leases of the driver's that have ended, and calls whose arrays the worker will not open."""

    closed: Sequence[Lease]
    unopened: Sequence[str]


class Connection(NamedTuple):
    """What a worker is told of a link that the driver begins.

    Attributes
    ----------
    link
        Its number, which no other one of the worker's process has.
    identity
        NCCL's id.
    is_to_worker
        Whether the worker receives.
    device
        The UUID of the worker's device; empty: its first one.
    timeout_s
        How long it may take.
    """

    link: int
    identity: bytes
    is_to_worker: bool
    device: bytes
    timeout_s: float


class Transfer(NamedTuple):
    """What a worker is told of a transfer: the link, the arrays, in their order, and both in words."""

    link: int
    arrays: Sequence[Carried]
    words: str


class Transferred(NamedTuple):
    """A worker's answer to that: why its half was not submitted, if so, and whether the link has ended."""

    raised: Raised | None
    has_ended: bool
