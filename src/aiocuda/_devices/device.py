"""Devices and streams.

Always true: a device is its ordinal, and equal to itself from every thread; streams of it may be used from any
thread.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final, NoReturn, TypeAlias

from aiocuda import _native
from aiocuda._devices.device_limits import ContextSettings
from aiocuda._devices.device_memory import DeviceMemory
from aiocuda._devices.event import Event
from aiocuda._driver import runtime, streams
from aiocuda._engine import faults, placement
from aiocuda._engine.stream_wait import StreamWait
from aiocuda._values import given
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, ClosedError

__all__ = [
    "Device",
    "DeviceLike",
    "Stream",
    "as_ordinal",
    "as_stream",
    "current_ordinal",
    "device_of_handle",
    "device_of_stream",
    "devices",
    "known_stream",
    "priority_of",
]

_HOST_NAMES: Final = frozenset({"cpu", "host"})
_PER_THREAD: Final = 2  # CU_STREAM_PER_THREAD


class Device(ContextSettings, DeviceMemory):
    """One GPU, or one emulated device, by its ordinal.

    Making one opens nothing. The driver opens a device for its first operation, its first stream, or what else needs
    it; `synchronize` asks for that early.

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
        runtime.require_device(ordinal)
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
            A number out of the device's range is brought into it.

        Returns
        -------
        Stream
            A new one, which nothing else uses.

        Raises
        ------
        ArgumentTypeError
            `priority` is no whole number.
        """
        return Stream._known(_native.create_stream(self._ordinal, priority_of(priority)), self, owned=True)

    def synchronize(self) -> StreamWait:
        """Return a wait for all streams of this device that aiocuda knows: await it, or ``.sync()`` it.

        Of streams of other libraries it waits for the work that aiocuda put there.

        Nobody has used the device yet: then another thread opens it, and the wait is for that. A program that awaits
        this at its start has its devices open before their first operations.

        Returns
        -------
        StreamWait
            It waits for what the streams hold now, and for nothing that comes later.

        Raises
        ------
        DriverError
            When it is waited for: the driver could not open the device. It can be tried again.

        Notes
        -----
        *Blocks*: no. *On cancel*: the work, and the opening, go on.
        """
        doing = "synchronizing" if _native.is_open(self._ordinal) else "opening"
        return StreamWait(_native.streams_of(self._ordinal), f"{doing} device {self._ordinal}", device=self._ordinal)

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

    Work on one stream runs in order; work on different streams may overlap. aiocuda knows which arrays an operation
    reads and writes, so waits between streams are placed by the library.
    """

    __slots__ = ("__weakref__", "_adopted", "_device", "_index", "_is_closed", "_owned")

    _adopted: bool
    _device: Device
    _index: int
    _is_closed: bool
    _owned: bool

    def __init__(self) -> None:
        raise ArgumentTypeError("streams are made by Device.stream()")

    @classmethod
    def _known(cls, index: int, device: Device, *, owned: bool = False, adopted: bool = False) -> Stream:
        stream = cls.__new__(cls)
        stream._adopted = adopted
        stream._index = index
        stream._device = device
        stream._owned = owned
        stream._is_closed = False
        return stream

    @classmethod
    def from_external(cls, stream: Any, device: DeviceLike | None = None) -> Stream:
        """Return the `Stream` for another library's stream. It stays that library's: closing this one does nothing.

        Parameters
        ----------
        stream
            Anything with ``__cuda_stream__``, a stream of PyTorch, or a raw handle (a ``CUstream`` as an `int`). A
            default stream is that of the device which the object says, else of CUDA's current device. An object is
            kept as long as this one, and a while longer. Its owner may destroy it when aiocuda has submitted what is
            to run there.
        device
            The device of a raw handle, as a `Device`, its ordinal or its name.

        Returns
        -------
        Stream
            To be used as one of aiocuda's own.

        Raises
        ------
        ArgumentTypeError
            It is no stream, or the per-thread default stream; a raw handle without a device; or a default stream that
            does not say its device, where CUDA has no current one.
        ArgumentValueError
            The stream is one of another device.
        DriverError
            The handle is no stream's, and the driver says so. NVIDIA's ends the process where it is no stream's.
        ClosedError
            It is a `Stream` that was closed.
        CaptureError
            Somebody captures the stream into a graph, and aiocuda has not seen it before.

        Notes
        -----
        Wherever aiocuda takes a stream, it takes such an object as well. *Blocks*: no.
        """
        if isinstance(stream, int) and not isinstance(stream, bool):
            return _adopted(stream, device_of_handle(stream, device), None)
        if device is not None:
            raise ArgumentTypeError(f"device= is for raw handles; {given.shown(stream)} knows its device")
        return as_stream(stream, is_placed=False)

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
        """Return a wait for all that the stream holds now, whoever submitted it: await it, or ``.sync()`` it.

        Returns
        -------
        StreamWait
            It waits for what the stream holds now, and for nothing that comes later.
        """
        self._require_open()
        _native.look_again(self._index)
        return StreamWait([self._index], f"synchronizing {self._title}", self)

    def record(self, *, timing: bool = True, interprocess: bool = False) -> Event:
        """Record an event behind all that the stream holds now. Does not block.

        Parameters
        ----------
        timing
            Whether `Event.elapsed` will be asked; without it an event is cheaper.
        interprocess
            Whether other processes may open it (`Event.ipc_handle`); such an event has no timing.

        Returns
        -------
        Event
            To be awaited, asked or waited for by other streams.

        Raises
        ------
        ClosedError
            The stream was closed.
        DriverError
            The driver refused: it lends other processes nothing, or is out of memory for that.
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

        Parameters
        ----------
        other
            The stream, or the event, to come after; of any device.
        """
        self._require_open()
        if isinstance(other, Event):
            _native.order_after_event(self._index, other)
        else:
            _native.order_streams(self._index, as_stream(other)._index)

    def fork(self) -> Stream:
        """Make another stream of this device, ordered after what this one holds now.

        Returns
        -------
        Stream
            A new one. Work that this stream gets later does not hold it up.
        """
        self._require_open()
        forked = self._device.stream()
        forked.wait(self)
        return forked

    def join(self, other: Stream) -> None:
        """Order all later work of this stream after what another holds now; the counterpart of `fork`.

        Parameters
        ----------
        other
            The stream to come after.
        """
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
        """Its name in messages and in `DeviceOp.explain`; a closed stream's number is used again."""
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
        elif getattr(self, "_adopted", False) and _native is not None:
            _native.leave_stream(self._index)

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
    """Return all devices of the driver, by ordinal.

    Returns
    -------
    list of Device
        Empty, if the driver has none. ``devices()[n]`` is ``Device(n)``.
    """
    return [Device(ordinal) for ordinal in range(runtime.device_count())]


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


def as_stream(stream: Any, *, is_placed: bool = True) -> Stream:
    """Return the `Stream` for one of another library's, by its ``__cuda_stream__``.

    A default stream of no known device is that of the device in force, where work is placed.

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
    handle = streams.stream_handle(stream)
    if handle is None:
        raise ArgumentTypeError(
            f"a stream is a Stream, or has __cuda_stream__; {given.shown(stream)} is neither. A raw handle becomes one "
            "by Stream.from_external(handle, device)"
        )
    if is_placed and streams.device_of_stream(handle, stream) is None:
        return _adopted(handle, Device(current_ordinal()), stream)
    return _adopted(handle, device_of_stream(handle, stream), stream)


def _adopted(handle: int, device: Device, owner: object) -> Stream:
    if handle == _PER_THREAD:
        raise ArgumentTypeError(
            "handle 2 is CUDA's per-thread default stream, another one in each thread, which nobody can tell apart: "
            "make a stream with Device.stream()"
        )
    return Stream._known(_native.adopt_stream(handle, device.ordinal, owner), device, adopted=True)


def device_of_stream(handle: int, stream: Any = None) -> Device:
    """Return the device of a stream by its handle; of a default stream, the one that it says, or CUDA's current one.

    Raises
    ------
    ArgumentTypeError
        It is a default stream that does not say its device, and CUDA has no current one in this thread.
    DriverError
        The handle is no stream's.
    """
    ordinal = streams.device_of_stream(handle, stream)
    if ordinal is None:
        raise ArgumentTypeError(
            f"handle {handle} is a default stream, which each device has; {given.shown(stream)} does not say its "
            "device, and CUDA has no current one in this thread: pass the handle itself, with device="
        )
    return Device(ordinal)


def device_of_handle(handle: int, device: DeviceLike | None) -> Device:
    """Return the device of a raw handle of a stream, which the program has to name.

    Raises
    ------
    ArgumentTypeError
        None was named.
    ArgumentValueError
        It is a handle of no stream, or of another device's.
    DriverError
        The handle is no stream's.
    """
    if device is None:
        raise ArgumentTypeError(f"a raw handle needs its device: write device= beside {given.shown(handle)}")
    named = Device(as_ordinal(device))
    if not 0 <= handle < 2**64:
        raise ArgumentValueError(f"a handle is an address of the driver's, or 1 for the default stream, not {handle}")
    if handle > _PER_THREAD and (actual := device_of_stream(handle)) != named:
        raise ArgumentValueError(
            f"the stream of handle {handle:#x} is one of device {actual.ordinal}, and not of device {named.ordinal}"
        )
    return named


def priority_of(priority: Any) -> int:
    """Return a stream's priority as the driver can be told it; its own range is narrower."""
    bound = 2**31 - 1
    return min(max(given.between(priority, "a priority", -math.inf, math.inf), -bound), bound)


@functools.lru_cache(maxsize=256)
def known_stream(index: int, ordinal: int) -> Stream:
    """Return the stream of an index, for native code."""
    return Stream._known(index, Device(ordinal))
