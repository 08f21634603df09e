"""CUDA graphs: made of operations, launched as an operation, again and again.

Always true: a launch is an operation like any other: ordered after all earlier work on the memory that its nodes touch,
and before all later work. Nothing is captured but what functions of `call` put on their private streams, so other
threads, other tasks and the garbage collector cannot disturb the making of a graph.
"""

from __future__ import annotations

import functools
from collections.abc import Coroutine, Mapping
from typing import Any, Generic, Self, TypeVar, cast

from aiocuda import _graphs, _native
from aiocuda._devices.device import Stream, as_stream
from aiocuda._devices.placing import placement_for
from aiocuda._engine import held_up, opening, placement
from aiocuda._graphs import making, recording, result_template
from aiocuda._graphs.result_template import ResultTemplate
from aiocuda._later import aiocuda
from aiocuda._ops.above import CaptureMode
from aiocuda._ops.operation import CallOp, CreateOp, DeviceOp, ReplayOp
from aiocuda._values import dtypes
from aiocuda.errors import ArgumentValueError, DeviceMismatchError

__all__ = ["CudaGraph", "graph_of", "graph_of_async", "make_graph", "make_graph_async"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class CudaGraph(_native.GraphFace, Generic[T_co]):
    """A CUDA graph: made by `DeviceOp.graph`, `DeviceOp.graph_on` and `graph_scope`.

    It is launched with `launch`, which is an operation. Its memory, and all that its nodes use, live as long as the
    graph; closing or dropping it is fine while launches are on the device. Any thread may use it.
    """

    __slots__ = (
        "__weakref__",
        "_inputs",
        "_late_outputs",
        "_stream",
        "_template",
    )

    def __init__(
        self, native: _native.Graph, inputs: tuple[str, ...], template: Any, stream: Stream | None = None
    ) -> None:
        self._native = native
        self._inputs = inputs
        self._stream = stream
        self._put = None if stream is None else placement_for(stream, placement.Placement())
        self._take(template)

    def _take(self, structure: Any) -> None:
        # Host memory that a late value is made of: the value may be a view of it, so each launch gets its own.
        memory = self._native.memory()
        sources: dict[int, tuple[int, bool]] = {}
        self._late_outputs: dict[int, int] = {}  # the slots of that memory, and their sizes in bytes
        for array in result_template.late_arrays_in(structure):
            found = self._native.output_of(array) if array._device == _native.HOST else None
            if found is not None:
                slot = found[0]
                self._late_outputs[slot] = memory[slot][1]
                sources[id(array)] = ~list(self._late_outputs).index(slot), False
        self._template = ResultTemplate(structure, sources)
        self._is_plain = not self._template.has_late  # then native code makes its launches

    @property
    def result(self) -> T_co:
        """The handles of what the operation returned: arrays that each launch writes, undefined before the first.

        If the operation ends in a `map`, or holds one (as `to_host` does), the value that the map gets stands in its
        place.
        """
        return cast("T_co", result_template.without_late(self._template.structure))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of what launches may replace."""
        return self._inputs

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._native.is_closed

    @property
    def handle(self) -> int:
        """The driver's executable graph (``CUgraphExec``), as a number; a launch or `update` may make another."""
        return self._native.executable

    @_native.launched_natively(ReplayOp)
    def launch(self, **bindings: Any) -> DeviceOp[T_co]:
        """Make an operation that runs the graph: await it, wait for it, compose it, or record it into another graph.

        Parameters
        ----------
        **bindings
            The replacements of this launch, by the names that the graph was made with: arrays of the same dtype, shape,
            strides and device, numbers, or operations that yield them. Inputs that are not named are as they were when
            the graph was made.

        Returns
        -------
        DeviceOp[T]
            Yields what the graph's operation returned. Its arrays are the graph's own (`result`), and the next launch
            overwrites them; late values (of `map` and `to_host`) are each launch's own. *Stream*: as for a kernel on
            the graph's device; that of `graph_on`, where it was made so. *Blocks*: no. *On cancel*: a launch that was
            submitted runs to its end, and keeps its memory.

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            A name is not an input's; an array is not like the one that it replaces, or lies upon other memory of the
            graph where one of the two is written.
        CaptureError
            A function of `call` was captured with the address of what is to be replaced.
        ClosedError
            The graph, or an array that it uses, was closed before this launch.
        OwnershipError
            An array may not be used so any more: it was moved, shared or partitioned.

        Notes
        -----
        Launches of one graph run one after another; what they replace they set in the nodes concerned, which takes some
        0.15 microseconds a node on the host, and copies nothing.
        """
        targets = tuple(map(self._index, bindings))
        given = list(bindings.values())
        if not self._template.has_late:
            op: DeviceOp[T_co] = ReplayOp(self._native, targets, given)
            return op if self._stream is None else op.on(self._stream)
        given.extend(CreateOp((size,), dtypes.code_of(_BYTE), _native.HOST) for size in self._late_outputs.values())
        op = ReplayOp(self._native, (*targets, *(~slot for slot in self._late_outputs)), given)
        if self._stream is not None:
            op.on(self._stream)
        complete = functools.partial(_complete, self._template, len(self._late_outputs))
        return cast("DeviceOp[T_co]", CallOp("map", complete, op, title="a launch of a graph"))

    def _index(self, name: str) -> int:
        try:
            return self._inputs.index(name)
        except ValueError:
            known = ", ".join(self._inputs) or "none: name them as in op.graph(x=x)"
            raise ArgumentValueError(f"launch: the graph has no input {name!r}; it has {known}") from None

    def update(
        self,
        op: DeviceOp[Any],
        *,
        capture_mode: CaptureMode = "thread_local",
        **inputs: Any,
    ) -> None:
        """Take another operation's arrays, numbers and launch shapes, without making the graph anew.

        Parameters
        ----------
        op
            Of the same shape as the one that the graph was made of: the same kinds of nodes, kernels of the same names,
            the same order between them.
        capture_mode
            As for `DeviceOp.graph`.
        **inputs
            What launches may replace, by the same names as before.

        Raises
        ------
        CaptureError
            It has another shape; the error names the first difference. The graph stays as it is.
        ClosedError
            The graph was closed.

        Notes
        -----
        Launches that were submitted are not affected; `result` is the new operation's from now on. *Blocks*: as
        `DeviceOp.graph`.
        """
        recorder, template = recording.recorded(op, capture_mode, inputs)
        recorder.finish_into(self._native, list(result_template.arrays_in(template)), template)
        self._take(template)

    def upload(self, stream: Stream | Any) -> None:
        """Bring the graph to the device ahead of its first launch, which is then as fast as any other.

        Parameters
        ----------
        stream
            Where; it is work like other work on that stream. Does not block.
        """
        self._native.upload(as_stream(stream)._index)

    def close(self) -> None:
        """End the graph: no launch any more; what it holds is freed behind those that were submitted.

        Its results stay as long as somebody holds them. Closing again is fine. Does not block.
        """
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def statistics(self) -> aiocuda.GraphStatistics:
        """Return the graph in numbers, as they are now.

        Returns
        -------
        GraphStatistics
            A value of that moment: nodes, bytes of memory, launches.
        """
        return _graphs.GraphStatistics(**self._native.counts())

    def draw(self) -> aiocuda.Picture:
        """Draw the graph: a box for each node, with what it touches and where it was built.

        Returns
        -------
        Picture
            A notebook shows it; `Picture.save` writes it.

        Raises
        ------
        MissingPackageError
            igraph, which lays the picture out, is not installed: ``pip install 'aiocuda[draw]'``.
        """
        return _graphs.drawing.draw(self._native)

    def to_dot(self) -> str:
        """Return the graph in Graphviz's language: a box for each node, with what it touches and where it was built.

        Returns
        -------
        str
            A ``digraph``, which ``dot -Tsvg`` draws.
        """
        return _graphs.drawing.dot(self._native)

    def __repr__(self) -> str:
        if self.is_closed:
            return f"<CudaGraph made at {self._native.place}, closed>"
        counts = self.statistics()
        return f"<CudaGraph made at {self._native.place}: {counts.nodes} nodes, {counts.launches} launches>"


_BYTE = dtypes.to_dtype("uint8")


def _complete(template: ResultTemplate, late_outputs: int, given: Any) -> Any:
    """Make a launch's late values, of the memory that it was given for them."""
    outputs = given if late_outputs > 1 else (given,)
    return result_template.complete(template.filled((), outputs))


def make_graph(
    op: DeviceOp[T], stream: Stream | None, capture_mode: CaptureMode, inputs: Mapping[str, Any]
) -> CudaGraph[T]:
    """Make a graph of an operation; see `DeviceOp.graph`."""
    with held_up.Watched("making a graph"):
        recorder, template = recording.recorded(op, capture_mode, inputs)
        return graph_of(recorder, template, stream, tuple(inputs))


def make_graph_async(
    op: DeviceOp[T], capture_mode: CaptureMode, inputs: Mapping[str, Any]
) -> Coroutine[Any, Any, CudaGraph[T]]:
    """Record an operation now, and return a coroutine that makes a graph of it; see `DeviceOp.graph_async`."""
    recorder, template = recording.recorded(op, capture_mode, inputs)
    return graph_of_async(recorder, template, None, tuple(inputs))


def graph_of(
    recorder: _native.Recorder, template: Any, stream: Stream | None, names: tuple[str, ...]
) -> CudaGraph[Any]:
    graph = _finished(recorder, template, stream, names)
    graph._native.make()  # in this thread, which may have the right to submit
    return graph


async def graph_of_async(
    recorder: _native.Recorder, template: Any, stream: Stream | None, names: tuple[str, ...]
) -> CudaGraph[Any]:
    for ordinal in recorder.missing_devices():
        await opening.opened(ordinal, f"making a graph on device {ordinal}")
    graph = _finished(recorder, template, stream, names)
    await making.made(graph._native)
    return graph


def _finished(
    recorder: _native.Recorder, template: Any, stream: Stream | None, names: tuple[str, ...]
) -> CudaGraph[Any]:
    native = recorder.finish(list(result_template.arrays_in(template)), template)
    if stream is not None and native.device >= 0 and native.device != stream.device.ordinal:
        raise DeviceMismatchError(
            f"the graph made at {native.place} works on device {native.device}, and its launches were to go to "
            f"{stream._title}; give a stream of device {native.device}, or bring what it works on over with "
            f".to({stream.device.ordinal})"
        )
    for index, name in enumerate(names):
        if not native.input_access(index)[0]:
            raise ArgumentValueError(
                f"graph: nothing in the graph uses the input {name}; leave it out, or use that very array"
            )
    return CudaGraph(native, names, template, stream)
