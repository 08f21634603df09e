"""Functions of arrays that become CUDA graphs: traced once for each kind of arguments, replayed with new ones.

Always true: a call gives what the function itself would give. The graph is made for everything that the function looks
at while it is traced: shapes, dtypes, devices, numbers that it computes with. If something of that differs, another
graph is made.
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

import numpy as np

from aiocuda import _graphs, _native
from aiocuda._engine import held_up, placement
from aiocuda._graphs import result_template
from aiocuda._graphs.compiled_call import Call, described, is_number, is_plain, mapped
from aiocuda._graphs.result_template import ResultTemplate
from aiocuda._graphs.traced import TracedNumber
from aiocuda._later import aiocuda
from aiocuda._ops.composing import lift, value
from aiocuda._ops.operation import CallOp, DeviceOp, GatherOp, ReplayOp
from aiocuda._values import dtypes
from aiocuda._values.given import one_of
from aiocuda._verbs.copies import copy, dup
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["Compiled", "compile"]

P = ParamSpec("P")
R = TypeVar("R")
Results = Literal["buffers", "copy"]
_log = logging.getLogger("aiocuda.compile")


class _Graph:
    """One graph of a function: for arguments of one kind, and for the numbers that the function looked at."""

    __slots__ = (
        "arrays", "executables", "guards", "key", "known", "numbers", "outputs", "targets", "template", "turn",
    )  # fmt: skip

    def __init__(self, key: Any, native: _native.Graph, guards: dict[int, Any]) -> None:
        self.key = key
        self.executables = [native]
        self.turn = 0
        self.guards = guards  # number's index -> what the function saw
        # Its arguments are the call's distinct arrays.
        self.template = ResultTemplate(None, {})
        # The things that a call puts into it: its distinct arrays, its numbers, and memory for the outputs; and their
        # places.
        self.arrays: list[int] = []
        self.numbers: list[int] = []
        self.outputs: list[tuple[list[Any], _native.Array]] = []  # what was used for it before; what is like it
        self.targets: tuple[int, ...] = ()
        self.known: _native.KnownCall | None = None  # takes calls like the first one, where they are plain

    def know(self, device: int, given: tuple[Any, ...], names: tuple[str, ...], which: list[int]) -> None:
        """Let native code take calls like this one, whose arguments are plain; the last are given by name."""
        structure, sources = self.template.structure, self.template.sources
        leaves = structure if type(structure) is tuple else (structure,)
        if self.template.has_late or not all(isinstance(leaf, _native.Array) for leaf in leaves):
            return
        self.known = _native.KnownCall(
            ReplayOp, self.executables[0], device, given, names, which, self.guards, self.arrays, self.numbers,
            self.targets,
            [ring for ring, _ in self.outputs],
            tuple((leaf, *sources[id(leaf)]) if id(leaf) in sources else leaf for leaf in leaves),
            leaves is structure,
        )  # fmt: skip

    @property
    def native_hits(self) -> int:
        """How many calls native code has taken."""
        return self.known.hits if self.known is not None else 0


@_native.called_natively
class Compiled(_native.CompiledFace, Generic[P, R]):
    """A function that is replayed as a CUDA graph; made by `compile`. Any task and any thread may call it."""

    def __init__(
        self,
        function: Callable[P, DeviceOp[R]],
        max_graphs: int,
        results: Results,
        executables: int,
        capture_mode: Literal["global", "thread_local", "relaxed"],
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._title = f"a call of {self._name}"
        self._max_graphs = max_graphs
        self._results = results
        self._executables = executables
        self._capture_mode = capture_mode
        self._lock = threading.Lock()  # for a few steps at a time; never held while anything else is called
        self._graphs: OrderedDict[int, _Graph] = OrderedDict()  # by identity, the one used longest ago first
        self._by_key: dict[Any, list[_Graph]] = {}
        self._latest: _Graph | None = None  # the last of them
        self._hits = self._misses = 0

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> DeviceOp[R]:
        """Make an operation that replays the function's graph for these arguments; the first time, trace the function.

        The first graph for arguments of a kind is made when the operation is executed. Another thread has its kernels
        compiled and the driver make it, while an await leaves the event loop to others.

        Parameters
        ----------
        *args, **kwargs
            Arrays, operations that yield arrays or numbers, numbers, and tuples, lists, dicts and dataclasses of them;
            anything else must be hashable.

        Returns
        -------
        DeviceOp
            Yields what the function's operation would. *Stream*: as for a kernel. *Blocks*: while the function is
            traced. *On cancel*: as `CudaGraph.launch`; a graph that is being made is made for the next call.

        Raises
        ------
        CaptureError
            The function does something that cannot be a graph's.
        CompilationError, DriverError
            When the operation is executed: a kernel does not compile, or the driver refuses the graph.
        """
        if _native.is_recording() or placement.current.get().is_recording:
            return self._function(*args, **kwargs)  # into the graph that is recorded
        call = Call(args, kwargs)
        if call.has_tensors:
            at = functools.partial(as_array, where=self._title)
            return self(*mapped(args, at), **mapped(kwargs, at))
        if call.ops:  # what they yield decides, and is known at submission
            given = functools.partial(self._call_with, args, kwargs)
            return cast("DeviceOp[R]", CallOp("then", given, GatherOp(call.ops), title=self._title))
        return self._launch(self._graph_for(call, args, kwargs), call)

    def cache_info(self) -> aiocuda.CacheInfo:
        """Return the graphs in numbers.

        Returns
        -------
        CacheInfo
            How many calls found a graph, how many made one, and how many graphs there are.
        """
        with self._lock:
            hits = self._hits + sum(graph.native_hits for graph in self._graphs.values())
            return _graphs.CacheInfo(hits, self._misses, len(self._graphs), self._max_graphs)

    def cache_clear(self) -> None:
        """Let go of all graphs; they end behind their last launches."""
        with self._lock:
            graphs = list(self._graphs.values())
            self._hits += sum(graph.native_hits for graph in graphs)
            self._graphs.clear()
            self._by_key.clear()
            self._go_on_with(None)
        del graphs  # outside of the lock: what ends with them may come back here

    @property
    def _name(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def _call_with(self, args: tuple[Any, ...], kwargs: dict[str, Any], results: tuple[Any, ...]) -> DeviceOp[R]:
        given = iter(results)

        def known(leaf: Any) -> Any:
            return next(given) if isinstance(leaf, _native.Op) else leaf

        return self(*mapped(args, known), **mapped(kwargs, known))

    # --- the graphs

    def _graph_for(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Graph:
        for graph in self._by_key.get(call.key, ()):
            is_same = all(call.numbers[i] == seen for i, seen in graph.guards.items())
            if is_same and graph.executables[0].is_aligned(call.distinct):
                with self._lock:
                    self._hits += 1
                    if graph is not self._latest and id(graph) in self._graphs:
                        self._graphs.move_to_end(id(graph))
                        self._go_on_with(graph)
                return graph
        _log.info("%s: %s", self._name, self._reason(call))
        with held_up.Watched(f"making a graph of {self._name}"):
            graph = self._trace(call, args, kwargs)
        gone: list[_Graph] = []  # let go of without the lock: what ends with them may come back here
        with self._lock:
            self._misses += 1
            self._graphs[id(graph)] = graph
            self._go_on_with(graph)
            self._by_key[call.key] = [*self._by_key.get(call.key, ()), graph]
            while len(self._graphs) > self._max_graphs:
                oldest = self._graphs.popitem(last=False)[1]
                gone.append(oldest)
                self._hits += oldest.native_hits
                left = [other for other in self._by_key.pop(oldest.key) if other is not oldest]
                if left:
                    self._by_key[oldest.key] = left
        return graph

    def _go_on_with(self, graph: _Graph | None) -> None:
        """Have native code take calls for a graph, where it knows them. With the lock held."""
        self._latest = graph
        self._known = None if graph is None else graph.known

    def _reason(self, call: Call) -> str:
        """Say why a graph must be made: what is not as it was at the last call that made or found one."""
        with self._lock:
            last = next(reversed(self._graphs.values()), None)
        if last is None:
            return "traced, as there is no graph yet"
        if last.key == call.key:
            guards = last.guards.items()
            changes = [f"{call.numbers[i]!r} (was {seen!r})" for i, seen in guards if call.numbers[i] != seen]
            if not changes:
                return (
                    "traced anew: an array begins at an address that the kernels' alignments tell from the one before"
                )
            return "traced anew: it looks at numbers that are others now: " + ", ".join(changes)
        for before, now in zip(last.key[1:], call.key[1:], strict=False):
            if before != now:
                return f"traced anew: {described(now)} was given, {described(before)} before"
        return "traced anew: other arguments were given, or another device is in force"

    def _trace(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Graph:
        trace = _Trace(self, call, args, kwargs, {})
        if trace.captured:  # functions of call() have the address of these: the graph copies them to memory of its own
            trace = _Trace(self, call, args, kwargs, trace.captured)
        graph = trace.finish(self._results == "copy")
        given = (*args, *kwargs.values())
        if self._executables == 1 and all(is_plain(argument) for argument in given):
            graph.know(call.key[0], given, tuple(kwargs), call.which)
        return graph

    # --- the launches

    def _launch(self, graph: _Graph, call: Call) -> DeviceOp[R]:
        values = [call.distinct[i] for i in graph.arrays]
        values += [call.numbers[i] for i in graph.numbers]
        outputs = [_next_of(ring, model, self._title) for ring, model in graph.outputs]
        result = graph.template.filled(call.distinct, outputs)
        values += outputs
        if not graph.template.has_late:
            return cast("DeviceOp[R]", ReplayOp(self._next_executable(graph), graph.targets, values, result))
        op = ReplayOp(self._next_executable(graph), graph.targets, values)
        complete = functools.partial(_complete, result)
        return cast("DeviceOp[R]", CallOp("map", complete, op, title=self._title))

    def _next_executable(self, graph: _Graph) -> _native.Graph:
        """Take them in turn: calls that are in flight together then do not wait for one another."""
        if self._executables == 1:
            return graph.executables[0]
        with self._lock:
            turn, graph.turn = graph.turn, (graph.turn + 1) % self._executables
        if turn < len(graph.executables):
            return graph.executables[turn]
        another = graph.executables[0].clone()
        if another is None:  # it cannot be: calls queue
            return graph.executables[0]
        graph.executables.append(another)
        return another


class _Trace:
    """One call of the function with placeholders, and what came of it."""

    def __init__(
        self,
        compiled: Compiled[Any, Any],
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        captured: dict[int, bool],
    ) -> None:
        """Trace; `captured` says which of the arrays are copied to the graph's memory, and whether they are written."""
        self._call = call
        self._recorder = recorder = _native.Recorder(compiled._capture_mode)
        where = placement.current.get()
        self._where = where.recording(f"{compiled._name}, which is traced")
        inside = placement.current.set(self._where)
        try:
            self._placeholders = [
                recorder.add_placeholder(f"argument {i + 1}", array) for i, array in enumerate(call.distinct)
            ]
            arrays = list(self._placeholders)
            for i in captured:
                arrays[i] = self._record(dup(arrays[i]))
            self._numbers = [TracedNumber.of(number) for number in call.numbers]
            for i, number in enumerate(self._numbers):
                recorder.add_input(f"number {i + 1}", number)
            which, number_of = iter(call.which), iter(self._numbers)

            def stand_in(leaf: Any) -> Any:
                if isinstance(leaf, _native.Array):
                    return arrays[next(which)]
                return next(number_of) if is_number(leaf) else leaf

            returned = lift(compiled._function(*mapped(args, stand_in), **mapped(kwargs, stand_in)))
            template = self._record(returned if isinstance(returned, DeviceOp) else value(returned))
            for i, is_written in captured.items():
                if is_written:
                    self._record(copy(self._placeholders[i], arrays[i]))
        finally:
            placement.current.reset(inside)
        # If the function returns an array that it got a copy of, it means that array.
        copies = {arrays[i]._place[0]: self._placeholders[i] for i in captured}
        self._template = result_template.replaced(
            template, lambda array: copies[array._place[0]]._like_part(array) if array._place[0] in copies else array
        )
        self._arguments = {placeholder._place[0]: i for i, placeholder in enumerate(self._placeholders)}
        access = [recorder.input_access(i) for i in range(len(self._placeholders))]
        self.captured = {i: is_written for i, (is_captured, is_written) in enumerate(access) if is_captured}

    def _record(self, op: Any) -> Any:
        return self._recorder.record(op, self._where)

    def finish(self, copies_results: bool) -> _Graph:
        """Make the graph; where asked, and where a function of call() has their address, its results are copies."""
        copies: dict[int, Any] = {}  # by their memory, so that arrays that lie upon one another still do
        adopted: dict[int, Any] = {}  # each by itself: their memory is a framework's
        for array in result_template.arrays_in(self._template):
            if self._recorder.is_adopted(array):
                adopted[id(array)] = self._record(dup(array))
            elif copies_results or self._recorder.is_captured(array):
                whole = self._recorder.whole_of(array, dtypes.code_of(_BYTE))
                if whole is not None and array._place[0] not in copies:
                    copies[array._place[0]] = self._record(dup(whole))

        def own(array: _native.Array) -> Any:
            if id(array) in adopted:
                return adopted[id(array)]
            return copies[array._place[0]]._like_part(array) if array._place[0] in copies else array

        template = result_template.replaced(self._template, own)
        first_number = len(self._placeholders)
        observed = set(self._recorder.observed())
        guards = {
            i: self._call.numbers[i]
            for i, number in enumerate(self._numbers)
            if object.__getattribute__(number, "is_observed") or first_number + i in observed
        }
        native = self._recorder.finish(list(result_template.arrays_in(template)), template)
        graph = _Graph(self._call.key, native, guards)
        graph.arrays = [i for i in range(first_number) if native.input_access(i)[0]]
        graph.numbers = [
            i for i in range(len(self._numbers)) if i not in guards and native.input_access(first_number + i)[0]
        ]
        slots = self._find_sources(graph, native, template)
        graph.targets = (*graph.arrays, *(first_number + i for i in graph.numbers), *(~slot for slot in slots))
        return graph

    def _find_sources(self, graph: _Graph, native: _native.Graph, structure: Any) -> list[int]:
        """Find where the template's arrays lie; return the outputs among them, by their memory's slots."""
        memory = native.memory()
        slots: list[int] = []
        sources: dict[int, tuple[int, bool]] = {}
        for leaf in result_template.arrays_in(structure):
            found = native.output_of(leaf)
            if found is not None:
                slot = found[0]
                if slot not in slots:
                    slots.append(slot)
                    is_all = leaf._size_bytes == memory[slot][1] and leaf._is_contiguous
                    model = leaf if is_all else native.output_bytes(slot, dtypes.code_of(_BYTE))
                    graph.outputs.append(([], model))
                index = slots.index(slot)
                sources[id(leaf)] = ~index, leaf._layout == graph.outputs[index][1]._layout
            elif leaf._place[0] in self._arguments:
                index = self._arguments[leaf._place[0]]
                sources[id(leaf)] = index, leaf._layout == self._placeholders[index]._layout
        graph.template = ResultTemplate(structure, sources)
        return slots


_BYTE = np.dtype(np.uint8)


def _next_of(ring: list[_native.Array], model: _native.Array, asked: str) -> Any:
    """Return memory for an output: such that nobody holds any more, else new."""
    for array in ring:
        if array._holders == 1:
            return array._like_part(array)
    array = _native.allocate_like(model, asked)
    ring.append(array)
    if len(ring) > 2:  # one is being written while the caller has the other; what is held longer is the caller's own
        del ring[0]
    return array._like_part(array)


def _complete(result: Any, _: Any) -> Any:
    return result_template.complete(result)


@overload
def compile(function: Callable[P, DeviceOp[R]], /) -> Compiled[P, R]: ...
@overload
def compile(
    *,
    max_graphs: int = ...,
    results: Results = ...,
    executables: int = ...,
    capture_mode: Literal["global", "thread_local", "relaxed"] = ...,
) -> Callable[[Callable[P, DeviceOp[R]]], Compiled[P, R]]: ...
def compile(
    function: Callable[..., Any] | None = None,
    /,
    *,
    max_graphs: int = 16,
    results: Results = "buffers",
    executables: int = 1,
    capture_mode: Literal["global", "thread_local", "relaxed"] = "thread_local",
) -> Any:
    """Make a function of arrays that runs as a CUDA graph: ``ac.compile(f)``, or ``@ac.compile(max_graphs=4)`` on it.

    The first call with arrays of certain shapes, strides, dtypes and devices calls the function with placeholders
    (sometimes twice), makes a graph of the operation that it returns, and launches it; later calls put their arrays and
    numbers into the graph's nodes and launch it again, with one call of the driver.

    Parameters
    ----------
    function
        Returns an operation, or a tuple, list or dict of them. Numbers that it gives straight to kernels are replaced
        at each call; for those that it computes with, decides by, or gives as a launch's size, it is traced anew when
        they change, as for other arguments that do not compare equal. Everything else that it does happens when it is
        traced, and not again.
    max_graphs
        The most graphs that are kept, 1 or more.
    results
        Arrays that a call yields are the caller's, and later calls leave them alone. ``"buffers"``: the graph's nodes
        write to memory that changes from call to call; that of results which nobody holds any more is used again, so
        two are enough where each result is let go of before the next but one. ``"copy"``: the nodes write to the
        graph's own memory, and its last nodes make copies of that for the caller; fewer nodes have to be set, and the
        copies take their time.
    executables
        Calls of one graph run one after another, as they share its memory. With more than one of these they take turns
        over so many copies of it, which overlap. A graph with functions of `call` in it cannot be copied.
    capture_mode
        As for `DeviceOp.graph`.

    Returns
    -------
    Compiled
        Called like the function.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        It is not a function, or a coroutine function; a setting is out of range.

    Notes
    -----
    Why a function is traced is told to the logger ``aiocuda.compile``, at level INFO.
    """
    numbers: dict[str, Any] = {"max_graphs": max_graphs, "executables": executables}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ArgumentValueError(f"compile: {name} is a number of 1 or more; {number!r} was given")
    one_of(results, "compile: results", ("buffers", "copy"))
    one_of(capture_mode, "capture_mode", ("global", "thread_local", "relaxed"))

    def of(function: Callable[..., Any]) -> Compiled[Any, Any]:
        if not callable(function):
            raise ArgumentTypeError(f"compile takes a function that returns an operation, not {function!r:.80}")
        if inspect.iscoroutinefunction(function):
            raise ArgumentTypeError(
                f"compile takes a function that returns an operation; {function.__qualname__} is a coroutine function, "
                "whose awaits no graph can hold"
            )
        return Compiled(function, max_graphs, results, executables, capture_mode)

    return of if function is None else of(function)
