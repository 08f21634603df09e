"""Devices and streams.

Always true: a device is its ordinal, and equal to itself from every thread; streams of it may be used from any
thread.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterator
from typing import Any, Final, NoReturn, TypeAlias

from aiocuda import _native
from aiocuda._devices.device_limits import ContextSettings
from aiocuda._devices.device_memory import DeviceMemory
from aiocuda._devices.event import Event
from aiocuda._driver import runtime, streams
from aiocuda._engine import faults, placement
from aiocuda._engine.placement import Placement
from aiocuda._engine.stream_wait import StreamWait
from aiocuda._values import given
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, ClosedError

__all__ = [
    "Device",
    "DeviceLike",
    "Stream",
    "as_ordinal",
    "as_policy",
    "as_stream",
    "current_device",
    "current_ordinal",
    "devices",
    "known_stream",
    "place_of",
    "placement_for",
    "priority_of",
    "set_device",
    "use",
]

_HOST_NAMES: Final = frozenset({"cpu", "host"})
_PER_THREAD: Final = 2  # CU_STREAM_PER_THREAD


class Device(ContextSettings, DeviceMemory):
    """One GPU, or one emulated device, by its ordinal.

    Parameters
    ----------
    ordinal
        Its number, from 0, in the driver's order; or a name: ``"cuda:1"`` is device 1, ``"cuda"`` the one in force.

    Raises
    ------
    ArgumentTypeError
        It is neither a number nor a name.
    ArgumentValueError
        There is no such device, or the name is none of a device.
    DriverNotFoundError
        There is no driver (see `aiocuda.errors`).
    """

    __slots__ = ("_ordinal",)

    def __init__(self, ordinal: int | str = 0) -> None:
        if isinstance(ordinal, bool) or not isinstance(ordinal, (int, str)):
            raise ArgumentTypeError(
                f"a device is given by its ordinal, an int, or a name such as 'cuda:1'; {ordinal!r} was given"
            )
        if isinstance(ordinal, str):
            ordinal = _ordinal_named(ordinal)
        runtime.open_device(ordinal)
        self._ordinal = ordinal

    @property
    def ordinal(self) -> int:
        """The device's number."""
        return self._ordinal

    @property
    def name(self) -> str:
        """The driver's name of the device."""
        return runtime.properties(self._ordinal).name

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor number of what the device can do."""
        return runtime.properties(self._ordinal).compute_capability

    @property
    def multiprocessor_count(self) -> int:
        """Streaming multiprocessors; on an emulated device, the threads that run blocks."""
        return runtime.properties(self._ordinal).multiprocessor_count

    @property
    def is_emulated(self) -> bool:
        """Whether kernels run on the CPU."""
        return runtime.driver_info().is_emulated

    @property
    def default_stream(self) -> Stream:
        """The device's first stream: of `SingleStream`, and the first of those that `Dataflow` chooses from."""
        return Stream._known(_native.default_stream(self._ordinal), self)

    def stream(self, priority: int = 0) -> Stream:
        """Make a stream.

        Parameters
        ----------
        priority
            Lower numbers are more urgent, as CUDA counts: 0 is the least, -5 the most on most devices.
            What is out of the device's range is brought into it.

        Raises
        ------
        ArgumentTypeError
            `priority` is no whole number.
        """
        return Stream._known(_native.create_stream(self._ordinal, priority_of(priority)), self, owned=True)

    def synchronize(self) -> StreamWait:
        """Return a wait for all streams of this device that aiocuda knows: await it, or ``.sync()`` it."""
        return StreamWait(_native.streams_of(self._ordinal), f"synchronizing device {self._ordinal}")

    def __eq__(self, other: object) -> bool:
        return self._ordinal == other._ordinal if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash((Device, self._ordinal))

    def __index__(self) -> int:
        return self._ordinal

    def __reduce__(self) -> tuple[type[Device], tuple[int]]:
        return Device, (self._ordinal,)

    def __repr__(self) -> str:
        return f"<Device {self._ordinal}: {self.name}>"


DeviceLike: TypeAlias = Device | int | str  # a device, its ordinal, or its name, such as "cuda:1"


class Stream:
    """An in-order queue of one device; made by `Device.stream`.

    What is put on a stream runs in order; what is on different streams may overlap. Which arrays an
    operation reads and writes is known, so waits between streams are placed by the library.
    """

    __slots__ = ("__weakref__", "_device", "_index", "_is_closed", "_owned")

    _device: Device
    _index: int
    _is_closed: bool
    _owned: bool

    def __init__(self) -> None:
        raise ArgumentTypeError("streams are made by Device.stream()")

    @classmethod
    def _known(cls, index: int, device: Device, *, owned: bool = False) -> Stream:
        stream = cls.__new__(cls)
        stream._index = index
        stream._device = device
        stream._owned = owned
        stream._is_closed = False
        return stream

    @property
    def device(self) -> Device:
        """The stream's device."""
        return self._device

    @property
    def handle(self) -> int:
        """The driver's handle, a ``CUstream`` as a number."""
        self._require_open()
        return _native.stream_handle(self._index)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version and the handle, for other libraries."""
        return 0, self.handle

    def synchronize(self) -> StreamWait:
        """Return a wait for all that the stream holds now, whoever submitted it: await it, or ``.sync()`` it."""
        self._require_open()
        return StreamWait([self._index], f"synchronizing {self._title}", self)

    def record(self, *, timing: bool = True, interprocess: bool = False) -> Event:
        """Record an event behind all that the stream holds now. Does not block.

        Parameters
        ----------
        timing
            Whether `Event.elapsed` will be asked; without it an event is cheaper.
        interprocess
            Whether other processes may open it (`Event.ipc_handle`); such an event has no timing.

        Raises
        ------
        ClosedError
            The stream was closed.
        DriverError
            The driver refused: the emulated one lends other processes nothing.
        """
        self._require_open()
        timing, interprocess = given.flag(timing, "timing"), given.flag(interprocess, "interprocess")
        with faults.told_what_instead("tell the other process in a message, when the event has been awaited here"):
            return Event._recorded(
                self._device,
                f"on {self._title}",
                self._index,
                timing=timing and not interprocess,
                interprocess=interprocess,
            )

    def wait(self, other: Stream | Event) -> None:
        """Order all later work of this stream after what another stream holds now, or after an event.

        For work that aiocuda does not know of; its own operations need no such call. Does not block.
        """
        self._require_open()
        if isinstance(other, Event):
            _native.order_after_event(self._index, other)
        else:
            _native.order_streams(self._index, as_stream(other)._index)

    def fork(self) -> Stream:
        """Make another stream of this device, ordered after what this one holds now."""
        self._require_open()
        forked = self._device.stream()
        forked.wait(self)
        return forked

    def join(self, other: Stream) -> None:
        """Order all later work of this stream after what another holds now; the counterpart of `fork`."""
        self.wait(other)

    def close(self) -> None:
        """Give the stream back when its work has passed; does not wait. Closing twice is fine.

        A device's default stream, and a stream that is somebody else's, stay as they are.
        """
        if self._owned and not self._is_closed:
            self._is_closed = True
            _native.close_stream(self._index)

    @property
    def _number(self) -> int:
        """What it is called in messages and in `DeviceOp.explain`; a closed stream's number is used again."""
        return self._index & 0xFFFFFFFF

    @property
    def _title(self) -> str:
        return f"stream {self._number} of device {self._device.ordinal}"

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"{self._title} was closed before this use of it; use an open stream")

    def __del__(self) -> None:
        # Operations that are put on a stream hold it, so nothing can come to it any more. When the interpreter
        # goes away the native module may have gone first, and the driver's objects go with the process.
        if getattr(self, "_owned", False) and _native is not None:
            self.close()

    def __reduce__(self) -> NoReturn:
        # A second owner would close the stream under the first one; another process has streams of its own.
        raise ArgumentTypeError("a Stream is neither copied nor pickled: pass it as it is, or make one there")

    def __eq__(self, other: object) -> bool:
        return self._index == other._index if isinstance(other, Stream) else NotImplemented

    def __hash__(self) -> int:
        return hash((Stream, self._index))

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{_native.stream_submitted(self._index)} submitted"
        return f"<Stream {self._number} of device {self._device.ordinal}, {state}>"


def devices() -> list[Device]:
    """Return all devices of the driver, by ordinal."""
    return [Device(ordinal) for ordinal in range(runtime.device_count())]


def current_device() -> Device:
    """Return the device in force: of the innermost `use`, else that of `set_device`, else device 0.

    In a function of `then`, `inspect`, `map` and `call` it is that of the execution, or of the operation's `on`.
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
    ordinal = Device(as_ordinal(device)).ordinal  # opens it: a device that cannot be used is told here
    before = Device(_native.default_device())
    _native.set_default_device(ordinal)
    return before


def current_ordinal() -> int:
    """Return the ordinal of the device in force. Does not open the device."""
    named = placement.current.get().device
    return _native.default_device() if named is None else named


def as_ordinal(device: DeviceLike | None) -> int:
    """Return a device's ordinal; of None, the one in force. Does not open the device."""
    if device is None:
        return current_ordinal()
    if isinstance(device, bool) or not isinstance(device, (Device, int, str)):
        raise ArgumentTypeError(
            f"a device is a Device, its ordinal, or a name such as 'cuda:1'; {given.shown(device)} was given"
        )
    if isinstance(device, str):
        device = _ordinal_named(device)
    if isinstance(device, int) and device not in range(runtime.device_count()):
        Device(device)  # raises, saying which there are
    return int(device.__index__())


def _ordinal_named(name: str) -> int:
    """Return the ordinal that a name such as "cuda:1" says; of "cuda", that of the device in force."""
    if name == "cuda":
        return current_ordinal()
    kind, colon, number = name.partition(":")
    if kind == "cuda" and colon and number.isascii() and number.isdecimal():
        return int(number[:10])  # no machine has so many
    instead = "; host memory is no device: empty_host() and to_host() make arrays there" if kind in _HOST_NAMES else ""
    raise ArgumentValueError(
        f"a device is named 'cuda' (the one in force) or 'cuda:' and its number, as 'cuda:1'; {name!r:.40} was given"
        + instead
    )


def place_of(device: DeviceLike | None) -> int | None:
    """Return the ordinal of where an array is to be made: as given, or of the `use` in force; else None.

    None leaves it to the execution, whose walk knows who needs the array.
    """
    return placement.current.get().device if device is None else as_ordinal(device)


def as_stream(stream: Any) -> Stream:
    """Return the `Stream` for one of another library's, by its ``__cuda_stream__``.

    Raises
    ------
    ArgumentTypeError
        It is no stream, or the per-thread default stream.
    ClosedError
        It was closed.
    """
    if isinstance(stream, Stream):
        stream._require_open()
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise ArgumentTypeError(f"a stream is a Stream, or has __cuda_stream__; {stream!r:.80} is neither")
    version_and_handle = protocol() if callable(protocol) else protocol
    try:
        handle = operator.index(version_and_handle[1])
    except (TypeError, LookupError):
        raise ArgumentTypeError(
            f"__cuda_stream__ of {stream!r:.80} gives {version_and_handle!r:.80}; it is to give (version, handle)"
        ) from None
    if handle == _PER_THREAD:
        raise ArgumentTypeError(
            "handle 2 is CUDA's per-thread default stream, another one in each thread, which nobody can tell apart: "
            "make a stream with Device.stream()"
        )
    ordinal = streams.device_of_stream(handle)
    device = current_device() if ordinal is None else Device(ordinal)
    return Stream._known(_native.adopt_stream(handle, device.ordinal, stream), device)


def placement_for(target: Any, before: Placement | None = None) -> Placement:
    """Return a placement, by default the one in force, but for what a target says: a device, a stream, or a policy.

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
    target: Device | Stream | _native.Policy | int | Any = None,
    *,
    spin_us: int | None = None,
    max_in_flight: int | None = None,
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

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        The target is none of these, or a number is out of range.

    Notes
    -----
    It holds for this task or thread (a ContextVar), and for tasks started inside.

    An operation runs on the device of the arrays that it works on. Where a new array is made, or an operation runs that
    no array ties to a device, the first of these decides that says something:

    1. ``device=`` of the creation.
    2. The device of the `use` in force where the creation was *built*.
    3. `DeviceOp.on` of the operation itself.
    4. What needs the result, the nearest first: its `DeviceOp.on`, else the device of its other arrays. Copies between
       devices (`to_device`, `copy`) and functions of `map` say nothing of what they take.
    5. The device that the execution was given: by the `use` in force where it is awaited, waited for or submitted, by
       `DeviceOp.schedule` or by `DeviceOp.sync_on`.
    6. For the destination of a `copy`: the device of its source.
    7. `set_device`, the process's default; device 0 where nobody called it.

    Two places that were both said are a `DeviceMismatchError`, which names them. What an execution was given, or `on`
    says, is in force in the functions of `then`, `inspect`, `map` and `call`: it counts there as a `use`.
    """
    is_empty = target is None and spin_us is None and max_in_flight is None
    chosen = placement.current.get() if target is None and not is_empty else placement_for(target)
    if spin_us is not None:
        chosen = chosen.with_spin_us(given.between(spin_us, "spin_us", 0, 1_000_000))
    if max_in_flight is not None:
        chosen = chosen.with_max_in_flight(given.between(max_in_flight, "max_in_flight", 1, placement.MOST_IN_FLIGHT))
    token = placement.current.set(chosen)
    try:
        yield
    finally:
        placement.current.reset(token)


def priority_of(priority: Any) -> int:
    """Return a stream's priority as the driver can be told it; its own range is narrower."""
    bound = 2**31 - 1
    return min(max(given.between(priority, "a priority", -math.inf, math.inf), -bound), bound)


def known_stream(index: int, ordinal: int) -> Stream:
    """Return the stream of an index, for native code."""
    return Stream._known(index, Device(ordinal))
