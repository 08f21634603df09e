"""Graphs that are recorded step by step, in a block of ``with`` or ``async with``."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from aiocuda import _native
from aiocuda._devices.device import Stream, as_stream
from aiocuda._engine import placement
from aiocuda._graphs import recording
from aiocuda._graphs.graph import CudaGraph, graph_of, graph_of_async
from aiocuda._ops.above import CaptureMode
from aiocuda._ops.operation import DeviceOp
from aiocuda.errors import ArgumentTypeError, CaptureError

__all__ = ["GraphScope", "graph_scope"]

T = TypeVar("T")


class GraphScope:
    """Records operations into a graph, one after another; made by `graph_scope`.

    As ``with`` it makes the graph when the block ends, and blocks. As ``async with`` it has another thread do that.
    """

    __slots__ = ("_entered", "_graph", "_names", "_recorder", "_result", "_stream")

    def __init__(self, stream: Stream | None, capture_mode: CaptureMode, inputs: Mapping[str, Any]) -> None:
        self._stream = stream
        self._recorder: _native.Recorder | None = recording.recorder_of(capture_mode, inputs)
        self._names = tuple(inputs)
        self._result: Any = None
        self._graph: CudaGraph[Any] | None = None
        self._entered: Any = None

    def __enter__(self) -> Self:
        if self._recorder is None or self._entered is not None:
            raise CaptureError("a graph_scope is entered once; begin another one")
        before = placement.current.get()
        if self._stream is not None:
            before = before.on_device(self._stream.device.ordinal)
        what = f"the graph_scope that was entered at {self._recorder.place}"
        self._entered = placement.current.set(before.recording(what))
        return self

    def record(self, op: DeviceOp[T]) -> T:
        """Record an operation, and all that it needs; run nothing.

        Parameters
        ----------
        op
            Not executed and not recorded elsewhere.

        Returns
        -------
        T
            The handles of what it returns, for further operations of this scope.

        Raises
        ------
        ArgumentTypeError
            It is no operation.
        CaptureError
            The scope has ended; or the operation cannot be a graph's (see `DeviceOp.graph`), after which the scope
            records nothing any more.
        """
        recorder = self._recorder
        if recorder is None or self._entered is None:
            raise CaptureError(
                "record() belongs inside of the graph_scope: with ac.graph_scope() as scope: scope.record(op)"
            )
        if not isinstance(op, _native.Op):
            raise ArgumentTypeError(f"record() takes an operation, not {op!r:.80}")
        self._result = recorder.record(op, placement.current.get())
        return cast("T", self._result)

    @property
    def result(self) -> Any:
        """The result of the graph: handles, and tuples, lists and dicts of them.

        It is what the last `record` returned, unless it was assigned. Other arrays share memory where they can.
        """
        return self._result

    @result.setter
    def result(self, handles: Any) -> None:
        self._result = handles

    @property
    def graph(self) -> CudaGraph[Any]:
        """The graph, once the scope has ended.

        Raises
        ------
        CaptureError
            It has not, or it ended with an exception.
        """
        if self._graph is None:
            raise CaptureError(
                "the graph is there when its graph_scope has ended without an exception; ask for it after the block"
            )
        return self._graph

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        placement.current.reset(self._entered)
        recorder, self._recorder = self._recorder, None
        if kind is None and recorder is not None:
            recording.require_straight(recorder, self._names)
            self._graph = graph_of(recorder, self._result, self._stream, self._names)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        placement.current.reset(self._entered)
        recorder, self._recorder = self._recorder, None
        if kind is None and recorder is not None:
            recording.require_straight(recorder, self._names)
            self._graph = await graph_of_async(recorder, self._result, self._stream, self._names)


def graph_scope(
    stream: Stream | Any = None, *, capture_mode: CaptureMode = "thread_local", **inputs: Any
) -> GraphScope:
    """Record a graph step by step: ``with ac.graph_scope() as scope: y = scope.record(op)``; then `GraphScope.graph`.

    Parameters
    ----------
    stream
        The place of the graph's launches, if they name none: of the graph's device, or it is a `DeviceMismatchError`
        when the scope ends. Arrays that are built inside are made on its device. None: the device in force, and the
        stream that the policy chooses at each launch.
    capture_mode, **inputs
        As for `DeviceOp.graph`.

    Returns
    -------
    GraphScope
        A context manager, for ``with`` and for ``async with``: the latter blocks no event loop while kernels are
        compiled and the driver makes the graph. Inside, executing an operation raises `CaptureError`, in this task or
        thread and in tasks started there; others are not affected. An exception leaves nothing behind.
    """
    return GraphScope(None if stream is None else as_stream(stream), capture_mode, inputs)
