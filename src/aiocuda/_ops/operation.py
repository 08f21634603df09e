"""Lazy operations: what `DeviceOp` can do, and the native operations that it is of.

Always true: nothing here runs anything; what runs an operation is `aiocuda._ops.executing`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast, overload

from aiocuda import _engine, _native
from aiocuda._devices.device import Device, DeviceLike, Stream, as_stream
from aiocuda._devices.placing import placement_for
from aiocuda._engine import placement
from aiocuda._later import aiocuda
from aiocuda._ops import above
from aiocuda._ops.executing import Executable, native_op
from aiocuda._ops.views import OpViews
from aiocuda._values.functions import checked_function
from aiocuda._values.given import between
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, DeviceMismatchError

if TYPE_CHECKING:
    from aiocuda._arrays.array import DeviceArray
    from aiocuda._graphs.graph import CudaGraph

__all__ = ["DeviceOp"]

_MOST_ITEMS: Final = 1 << 20

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
T7 = TypeVar("T7")
T8 = TypeVar("T8")


class DeviceOp(Executable[T_co], OpViews[T_co], Generic[T_co]):
    """A lazy value: device work that yields a ``T`` when it is executed, and is described until then.

    It runs at most once, however many consumers, tasks and threads ask; asking again gives the result at
    once. To run it again, build it again. An operation that failed keeps its error.

    Operations are accepted wherever arrays are. ``await op`` submits the operation and all that it needs
    to the stream in force (see `aiocuda.use`) and waits without blocking the event loop; cancelling the
    await leaves what was submitted to the device and keeps its memory alive. Building is not thread-bound:
    any thread may build, await or wait for any operation.
    """

    __slots__ = ()

    def __init__(self, *_: object, **__: object) -> None:
        raise ArgumentTypeError(
            "operations are made by functions, such as aiocuda.zeros(shape), aiocuda.value(x), or the call of a kernel"
        )

    def to(self, device: DeviceLike) -> DeviceOp[DeviceArray]:
        """Bring the array that this operation yields to a device.

        Parameters
        ----------
        device
            Where to. An array that is there already is given as it is.

        Returns
        -------
        DeviceOp[DeviceArray]
            As for `aiocuda.to_device`.
        """
        return above.to_device(self, device)

    def graph(
        self, *, capture_mode: Literal["global", "thread_local", "relaxed"] = "thread_local", **inputs: Any
    ) -> CudaGraph[T_co]:
        """Make a CUDA graph of this operation and all that it needs; run nothing.

        Each operation becomes a node (a kernel, a copy, a fill, or what a function of `call` captures) that comes after
        the nodes whose memory it touches, and after no others. Arrays that are made inside become the graph's; what
        exists already is used as it is by each launch.

        Parameters
        ----------
        capture_mode
            How functions of `aiocuda.call` are captured, which put work on a private stream; as of
            ``cuStreamBeginCapture``: what other work of this thread ("thread_local") or of all threads ("global") the
            driver refuses meanwhile, because it might disturb a capture; or none ("relaxed").
        **inputs
            Inputs that launches may replace, by name: arrays that exist, and numbers as operations (`aiocuda.value`)
            that go straight to kernels.

        Returns
        -------
        CudaGraph[T]
            To be launched as often as you like.

        Raises
        ------
        CaptureError
            The operation cannot be a graph's: it needs the host in the middle (`map`), or one of its functions executes
            something.
        ArgumentTypeError, ArgumentValueError
            An input is no such thing, is not used, or lies upon another one; or this operation has run already.

        Notes
        -----
        The operations belong to the graph afterwards: executing them raises `CaptureError`. The functions of `then`,
        `inspect` and `call` are called once, now; those of `map` at each launch, on its result.
        *Stream*: none. *Blocks*: while kernels are compiled and the driver makes the graph; `graph_async` does not.
        """
        return above.make_graph(self, None, capture_mode, inputs)

    def graph_async(
        self, *, capture_mode: Literal["global", "thread_local", "relaxed"] = "thread_local", **inputs: Any
    ) -> Coroutine[Any, Any, CudaGraph[T_co]]:
        """Make a CUDA graph as `graph` does, without blocking the event loop: await it.

        The operations are recorded now, and belong to the graph. Another thread opens their devices, compiles and loads
        their kernels, and has the driver make the graph.

        Parameters
        ----------
        capture_mode, **inputs
            As for `graph`.

        Returns
        -------
        Coroutine[CudaGraph[T]]
            Yields the graph.

        Raises
        ------
        CaptureError, ArgumentTypeError, ArgumentValueError
            As for `graph`.
        CompilationError, DriverError
            When it is awaited: a kernel does not compile, or the driver refuses.

        Notes
        -----
        *Stream*: none. *Blocks*: while the operations are recorded, which calls the functions of `then`, `inspect` and
        `call`, and reads host data. *On cancel*: the other thread finishes, and the graph is dropped.
        """
        return above.make_graph_async(self, capture_mode, inputs)

    def graph_on(
        self,
        stream: Stream | Any,
        *,
        capture_mode: Literal["global", "thread_local", "relaxed"] = "thread_local",
        **inputs: Any,
    ) -> CudaGraph[T_co]:
        """Make a CUDA graph whose launches go to a stream, where they say nothing else; otherwise as `graph`.

        Parameters
        ----------
        stream
            A `Stream`, or anything with ``__cuda_stream__``, of the graph's device.
        capture_mode, **inputs
            As for `graph`.

        Returns
        -------
        CudaGraph[T]
            To be launched as often as you like.

        Raises
        ------
        DeviceMismatchError
            The graph works on another device than the stream's. Its operations have been recorded: build them again.
        """
        return above.make_graph(self, as_stream(stream), capture_mode, inputs)

    @overload
    def then(self, function: Callable[[T_co], DeviceOp[R]]) -> DeviceOp[R]: ...
    @overload
    def then(self, function: Callable[[T_co], R]) -> DeviceOp[R]: ...
    def then(self, function: Callable[[T_co], Any]) -> DeviceOp[Any]:
        """Go on with what a function makes of the result's handle.

        Parameters
        ----------
        function
            Called once, when this operation has been submitted and without waiting for it: an array it
            gets is a handle whose contents are still being made. It runs within the submission, so it must not
            wait for another thread that submits. It returns an operation, a value, or a
            tuple, list or dict of both.

        Returns
        -------
        DeviceOp[R]
            The operation's result, or the value. An exception in the function is this operation's error.

        Notes
        -----
        *Stream*: what the function returns runs on the stream in force, or where it says; `then` itself is no work of
        the device. *Blocks*: as long as the function runs. *On cancel*: a function that has been called is not undone.
        """
        return CallOp("then", _callable(function, "then"), self)

    def map(self, function: Callable[[T_co], R]) -> DeviceOp[R]:
        """Go on with what a function makes of the value, on the host.

        Parameters
        ----------
        function
            Called once, on the thread that waits for the result, when the value is complete. It may take its
            time, and may wait for other threads; an event loop that awaits it stands still meanwhile. The result is
            what it returns, as it is. Operations that depend on it are submitted when the loop has come round, unless
            nobody wants them any more.

        Returns
        -------
        DeviceOp[R]
            What the function returned.

        Notes
        -----
        *Stream*: none; the value is complete before the function is called. *Blocks*: while the function runs, the
        thread that waits. *On cancel*: before the value is complete, the function is not called; a function that runs
        ends first.
        """
        return cast("DeviceOp[R]", CallOp("map", _callable(function, "map"), self))

    def inspect(self, function: Callable[[T_co], object]) -> DeviceOp[T_co]:
        """Show the result's handle to a function, at submission, and go on with the result.

        Parameters
        ----------
        function
            As for `then`; what it returns is dropped.

        Returns
        -------
        DeviceOp[T]
            The same result. *Stream*, *Blocks* and *On cancel*: as for `then`.
        """
        return cast("DeviceOp[T_co]", CallOp("inspect", _callable(function, "inspect"), self))

    @overload
    def unzip(self: DeviceOp[tuple[T1]], n: int | None = None) -> tuple[DeviceOp[T1]]: ...
    @overload
    def unzip(self: DeviceOp[tuple[T1, T2]], n: int | None = None) -> tuple[DeviceOp[T1], DeviceOp[T2]]: ...
    @overload
    def unzip(
        self: DeviceOp[tuple[T1, T2, T3]], n: int | None = None
    ) -> tuple[DeviceOp[T1], DeviceOp[T2], DeviceOp[T3]]: ...
    @overload
    def unzip(
        self: DeviceOp[tuple[T1, T2, T3, T4]], n: int | None = None
    ) -> tuple[DeviceOp[T1], DeviceOp[T2], DeviceOp[T3], DeviceOp[T4]]: ...
    @overload
    def unzip(
        self: DeviceOp[tuple[T1, T2, T3, T4, T5]], n: int | None = None
    ) -> tuple[DeviceOp[T1], DeviceOp[T2], DeviceOp[T3], DeviceOp[T4], DeviceOp[T5]]: ...
    @overload
    def unzip(
        self: DeviceOp[tuple[T1, T2, T3, T4, T5, T6]], n: int | None = None
    ) -> tuple[DeviceOp[T1], DeviceOp[T2], DeviceOp[T3], DeviceOp[T4], DeviceOp[T5], DeviceOp[T6]]: ...
    @overload
    def unzip(
        self: DeviceOp[tuple[T1, T2, T3, T4, T5, T6, T7]], n: int | None = None
    ) -> tuple[DeviceOp[T1], DeviceOp[T2], DeviceOp[T3], DeviceOp[T4], DeviceOp[T5], DeviceOp[T6], DeviceOp[T7]]: ...
    @overload
    def unzip(
        self: DeviceOp[tuple[T1, T2, T3, T4, T5, T6, T7, T8]], n: int | None = None
    ) -> tuple[
        DeviceOp[T1], DeviceOp[T2], DeviceOp[T3], DeviceOp[T4], DeviceOp[T5], DeviceOp[T6], DeviceOp[T7], DeviceOp[T8]
    ]: ...
    @overload
    def unzip(self, n: int | None = None) -> tuple[DeviceOp[Any], ...]: ...
    def unzip(self, n: int | None = None) -> tuple[DeviceOp[Any], ...]:
        """Return an operation for each item of a result that is a tuple.

        Parameters
        ----------
        n
            The number of items; needed where it is known only at submission (after `then`).

        Returns
        -------
        tuple of DeviceOp
            One for each item. *Stream*, *Blocks*, *On cancel*: those of this operation, which runs once for all.

        Raises
        ------
        ArgumentValueError
            The number of items is not known and not given, or is another, or is negative.
        """
        known = native_op(self)._arity()
        if n is not None:
            n = between(n, "the number of items that unzip() is given", 0, _MOST_ITEMS)
        if known < 0 and n is None:
            raise ArgumentValueError(
                f"how many items {native_op(self)._title} yields is known only when it runs; give unzip(n)"
            )
        if known >= 0 and n is not None and n != known:
            raise ArgumentValueError(f"{native_op(self)._title} yields {known} items; unzip({n}) was asked")
        return tuple(PickOp(self, index) for index in range(known if n is None else n))

    @overload
    def first(self: DeviceOp[tuple[T1, *tuple[Any, ...]]]) -> DeviceOp[T1]: ...
    @overload
    def first(self) -> DeviceOp[Any]: ...
    def first(self) -> DeviceOp[Any]:
        """Return an operation for the first item of a result that is a tuple.

        Returns
        -------
        DeviceOp
            *Stream*, *Blocks*, *On cancel*: those of this operation, which runs once for all of its items.
        """
        return PickOp(self, 0)

    @overload
    def last(self: DeviceOp[tuple[*tuple[Any, ...], T1]]) -> DeviceOp[T1]: ...
    @overload
    def last(self) -> DeviceOp[Any]: ...
    def last(self) -> DeviceOp[Any]:
        """Return an operation for the last item of a result that is a tuple.

        Returns
        -------
        DeviceOp
            *Stream*, *Blocks*, *On cancel*: those of this operation, which runs once for all of its items.
        """
        return PickOp(self, -1)

    def __iter__(self) -> Iterator[DeviceOp[Any]]:
        """Return an operation for each item of a result whose items are known to be several: ``a, b = kernel(...)``.

        Raises
        ------
        ArgumentTypeError
            The result is one, or how many it is is known only at submission: then `unzip` takes the number.
        """
        op = native_op(self)
        if op._arity() < 0:
            what = {"device_array": "one array", "host_array": "one array", "host_value": "one value"}.get(op._spec[0])
            raise ArgumentTypeError(
                f"{op._title} yields {what}, and cannot be taken apart: `await` it for its items, or use it as it is"
                if what
                else f"how many items {op._title} yields is known only when it runs: take apart what .unzip(n) returns"
            )
        return iter(self.unzip())

    def on(self, target: Stream | DeviceLike | aiocuda.Policy | Any) -> DeviceOp[T_co]:
        """Put this operation on a stream, on a device, or where a policy says; return it.

        Arrays that are made for it, and name no device themselves, are made on the device; other work that it needs
        stays where it is. In the function of a `then`, `inspect`, `map` or `call`, this is in force as by
        `aiocuda.use`; what a function of `then` returns goes there too, unless it was put somewhere itself.

        Parameters
        ----------
        target
            A `Stream` of the device that the operation works on, anything with ``__cuda_stream__``, a policy,
            or a device, for an operation that no array ties to one. Other work waits for it where it must, and
            only there.

        Returns
        -------
        DeviceOp[T]
            This operation itself. *Stream*: the one that is named, or one of the policy's. *Blocks*, *On cancel*: as
            before; it is only put somewhere.

        Raises
        ------
        ArgumentValueError
            The operation was submitted already.
        DeviceMismatchError
            The operation works on another device.
        """
        op = native_op(self)
        named = placement_for(target, _native.Placement())
        if isinstance(target, (Device, int, str)) and op._device not in {named.device, None, _native.HOST}:
            raise DeviceMismatchError(
                f"on({named.device}): {op._title} works on device {op._device}; bring what it works on over "
                f"with .to({named.device}), or leave on() out"
            )
        op._put_on(named)
        return self

    def explain(self, *, costs: bool = False) -> str:
        """Say what executing this would do, in order: streams, waits, launches, copies. Runs nothing.

        Parameters
        ----------
        costs
            Say too how many bytes each step moves, and how long the device needs for that at least. The time is an
            estimate: each byte that a kernel reads or writes counts once, and computing takes no time. It comes from
            the clock and the width of the device's memory, as the driver tells them, and from 25 GB/s for copies to
            and from a device, which is assumed.

        Returns
        -------
        str
            One line for each step: where, what, and the line of the program that asked for it. With `costs`, two more
            for each device: what all steps move and need, and what that was estimated with.
        """
        return _engine.explain.explain(native_op(self), placement.current.get(), costs=costs)

    def draw(self) -> aiocuda.Picture:
        """Draw what executing this would do: its steps, and which of them come after which. Runs nothing.

        Returns
        -------
        Picture
            A box for each step of `explain`, with its stream and the line of the program that asked for it. An arrow
            leads to what comes after: because it touches the same bytes, or needs the result. A dashed arrow is a wait
            for another stream.

        Raises
        ------
        MissingPackageError
            igraph, which lays the picture out, is not installed: ``pip install 'aiocuda[draw]'``.

        Notes
        -----
        *Blocks*: to lay the picture out, some tenths of a second for 2,000 steps; and, as `explain` does, until the
        driver has opened devices that nobody has used yet.
        """
        return _engine.drawing.draw(native_op(self), placement.current.get())

    def _then(self, function: Callable[[Any], Any], spec: tuple[str, int, int | None], title: str) -> DeviceOp[Any]:
        yields, dtype, device = spec
        return CallOp("then", function, self, yields=yields, dtype=dtype, device=device, title=title)

    def __repr__(self) -> str:
        origin = native_op(self)._origin
        at = "" if origin is None else f", built at {origin[0]}:{origin[1]}"
        return f"<DeviceOp: {native_op(self)._title}, {native_op(self)._state}{at}>"

    def __bool__(self) -> bool:
        raise ArgumentTypeError("an operation has no truth value before it has run; await it, or wait with .sync()")


class LaunchOp(_native.LaunchOp, DeviceOp[Any]):
    """A kernel's launch; made by calling a kernel."""

    __slots__ = ()


class CreateOp(_native.CreateOp, DeviceOp[Any]):
    """The allocation of an array, and its fill."""

    __slots__ = ()


class FillOp(_native.FillOp, DeviceOp[Any]):
    """The fill of an array that is there."""

    __slots__ = ()


class CopyOp(_native.CopyOp, DeviceOp[Any]):
    """A copy between arrays."""

    __slots__ = ()


class CallOp(_native.CallOp, DeviceOp[Any]):
    """A function of a result."""

    __slots__ = ()


class GatherOp(_native.GatherOp, DeviceOp[Any]):
    """Several results as one."""

    __slots__ = ()


class ForeignOp(_native.ForeignOp, DeviceOp[Any]):
    """Work that a function puts on a stream."""

    __slots__ = ()


class ReplayOp(_native.ReplayOp, DeviceOp[Any]):
    """A launch of a graph."""

    __slots__ = ()


class PickOp(_native.PickOp, DeviceOp[Any]):
    """One item of a result."""

    __slots__ = ()


def _callable(function: Any, method: str) -> Any:
    return checked_function(function, f"{method}() takes a function of the result")
