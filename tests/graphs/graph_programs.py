"""Functions of arrays and numbers, as random steps: what graphs and compiled functions are made of, and what they mean.

Always true: a `Body` is one call of such a function, built of aiocuda's operations and, step by step, of NumPy's
effects; so of whatever is made of the one, the other says what it does, in submission order (`interpreter`). Each
array that a test holds has NumPy's beside it, views of one memory have views of one memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from interpreter import Interpreter, Node
from machine import Machine
from programs import TIMEOUT_S, N, Program

import aiocuda as ac

# Its number goes to parameters of two types.
SOURCE = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void add_to_first(int a, aiocuda::View<int, 1> x, unsigned first, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < first && i < n) x(i) = (int)((unsigned)x(i) + (unsigned)a);
}
"""


class GraphMachine(Machine):
    """The machine that these programs run on."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels["add_to_first"] = kernel = ac.kernel(SOURCE, "add_to_first")
        for device in self.devices:
            kernel.compile(device)


# --- what a function is given, and gives


@dataclass(eq=False)
class Held:
    """An array that somebody holds, and NumPy's."""

    array: ac.DeviceArray
    view: np.ndarray

    @property
    def layout(self) -> tuple[Any, ...]:
        return self.array.device.ordinal, self.view.shape, self.view.strides

    def check(self) -> None:
        np.testing.assert_array_equal(ac.to_host(self.array).sync(TIMEOUT_S), self.view)


class Form(NamedTuple):
    """The description of an argument."""

    kind: str  # "whole", "part", "strided", or "again": the array before it
    size: int
    device: int


def arguments(machine: Machine, forms: Sequence[Form], seed: int) -> list[Held]:
    """Make new arrays of these forms; those of kind "part" are disjoint parts of one array on each device."""
    most = max(1, *(form.size for form in forms))
    wholes: dict[int, Held] = {}
    made: list[Held] = []

    def fresh(size: int, device: int) -> Held:
        data = np.arange(size, dtype=np.int32) * (seed + 1) + 7 * len(made)
        handles: list[Any] = []
        ac.to_device(data, device).inspect(handles.append).submit()  # it may stand behind a latch
        return Held(handles[0], data.copy())

    for i, form in enumerate(forms):
        device = form.device % len(machine.devices)
        key = slice(i * most, i * most + form.size)
        if form.kind == "again" and made:
            made.append(made[-1])
            continue
        if form.kind == "part":
            whole = wholes.setdefault(device, fresh(most * len(forms), device))
        elif form.kind == "strided":
            whole, key = fresh(2 * form.size + 1, device), slice(1, None, 2)
        else:
            whole, key = fresh(form.size, device), slice(None)
        made.append(Held(whole.array[key], whole.view[key]))
    return made


@dataclass(eq=False)
class Number:
    """A number as a function is given it, what it stands for, and what it was where it was looked at."""

    real: Any
    value: int
    seen: int | None = None

    def look(self) -> int:
        return int(self.real) if self.seen is None else self.seen


@dataclass(eq=False)
class Late:
    """A step on the host, at the end, with an array that has arrived there."""

    landed: Node
    function: Callable[[np.ndarray], Any]

    @property
    def real(self) -> Any:
        return self.landed.real.map(self.function)

    @property
    def value(self) -> Any:
        return self.function(self.landed.view)


def leaves(structure: Any) -> Iterator[Any]:
    """Yield what is in a structure, from left to right."""
    if isinstance(structure, dict):
        structure = list(structure.values())
    if not isinstance(structure, (tuple, list)):
        yield structure
        return
    for item in structure:
        yield from leaves(item)


def mapped(structure: Any, function: Callable[[Any], Any]) -> Any:
    """Put a structure together anew."""
    if isinstance(structure, dict):
        return {key: mapped(item, function) for key, item in structure.items()}
    if isinstance(structure, (tuple, list)):
        return type(structure)(mapped(item, function) for item in structure)
    return function(structure)


# --- functions


@dataclass(frozen=True)
class Script:
    """A function, as numbers."""

    steps: list[tuple[str, int, int, int, int]]
    returns: list[tuple[str, int]]  # in what form, and which slot
    rest: str  # the form in which all slots are returned, so that all steps are done; or "none"
    more: int = 0  # slots beside those of the arguments


class Order(Interpreter):
    """Finds out the order of the effects, and leaves them undone."""

    def set_effect(self, node: Node, effect: Callable[[], None] | None) -> Node:
        super().set_effect(node, effect)
        node.effect = None if effect is None else _nothing
        return node

    def effect(self, node: Node) -> Callable[[], None]:
        return self._effects[node.number]

    def effects(self) -> list[Callable[[], None]]:
        return [self._effects[number] for number in self.order]


class Body(Program):
    """One call of a function.

    Parameters
    ----------
    given
        The arrays, and NumPy's for each.
    constants
        What the function finds outside.
    inner
        A graph that it may launch.

    Attributes
    ----------
    record
        Makes a handle of an operation, where the function is recorded step by step: at each step "handle".
    returned
        What the function returns, of nodes; once it is built.
    """

    record: Callable[[Any], Any] | None = None
    returned: Any = None

    def __init__(
        self,
        machine: Machine,
        script: Script,
        given: Sequence[tuple[Any, np.ndarray]],
        numbers: Sequence[Number],
        constants: Sequence[Held],
        inner: Made | None = None,
    ) -> None:
        self._order = Order()
        super().__init__(machine, self._order, None, watched=False, predicts=True)
        self._script = script
        self._numbers = numbers
        self._inner = inner
        self._seen_by_calls: dict[int, list[np.ndarray]] = {}  # by the number of the operation
        # Of what does not lie in one piece, no part may be used where it is a graph's input.
        self._whole = [view for _, view in given if not view.flags.c_contiguous]
        nodes: dict[int, Node] = {}  # an array that is given twice is one
        for real, view in given:
            if id(real) not in nodes:
                nodes[id(real)] = self.node(real, view, real.device.ordinal, [])
        self.slots = [nodes[id(real)] for real, _ in given]
        self.slots += [self.full(i % len(machine.devices), 10 * i) for i in range(script.more)]
        self._constants = [self.node(held.array, held.view, held.array.device.ordinal, []) for held in constants]

    def build(self) -> Any:
        """Do all steps, and give what the function returns."""
        for step in self._script.steps:
            self.step(*step)
        found = [self.returned_as(form, self.slots[i % len(self.slots)]) for form, i in self._script.returns]
        if self._script.rest != "none":
            found.append({"rest": [self.returned_as(self._script.rest, x) for x in self.slots]})
        self.returned = found[0] if len(found) == 1 else tuple(found)
        return mapped(self.returned, _real)

    def op(self) -> ac.DeviceOp[Any]:
        """Do all steps, and give what the function returns as an operation."""
        returned = self.build()
        return ac.value(None).then(lambda _: returned)

    def returned_as(self, form: str, x: Node) -> Any:
        match form:
            case "copy":
                return self.dup(x)  # so that itself it is between the graph's nodes
            case "part":
                return self.part(x, slice(2, 7))
            case "nested":
                return {"x": [x, (3, self.part(x, slice(0, None, 2)))], "n": None}
            case "host":
                return Late(self.brought(x), np.array)
            case "sum":
                return Late(self.brought(x), _sum)
        return x

    def effects(self) -> list[Callable[[], None]]:
        """Return what the function does to NumPy's arrays, in order; once it is built."""
        nodes = [leaf.landed if isinstance(leaf, Late) else leaf for leaf in leaves(self.returned)]
        self._order.execute(Node(None, None, 0, [node for node in nodes if isinstance(node, Node)]))
        return self._order.effects()

    def captured(self) -> list[np.ndarray]:
        """Return what functions of `call` see, once the order is known."""
        return [view for number in self._order.order for view in self._seen_by_calls.get(number, ())]

    # --- what is other than in programs that run at once

    def full(self, device: int, value: int) -> Node:
        view = np.empty(N, np.int32)
        return self.node(ac.full(N, value, np.int32, device=device), view, device, [], lambda: view.fill(value))

    def upload(self, device: int, value: int) -> Node:
        view, data = np.empty(N, np.int32), np.arange(N, dtype=np.int32) * value
        return self.node(ac.to_device(data, device), view, device, [], lambda: np.copyto(view, data))

    def part(self, x: Node, key: Any) -> Node:
        return super().part(self._in_one_piece(x), key)

    def then(self, x: Node, kind: int) -> Node:
        return super().then(self._in_one_piece(x), kind)

    def _in_one_piece(self, x: Node) -> Node:
        return self.dup(x) if any(x.view is view for view in self._whole) else x

    def called(self, to: Node, source: Node, value: int) -> Node:
        if to.view.size == 0 or source.view.size == 0:  # whose memory it would be, nobody can tell
            return to
        node = super().called(to, source, value)
        if node is not to:
            self._seen_by_calls[node.number] = [child.view for child in node.children]
        return node

    def handle_of(self, x: Node) -> Node:
        if self.record is None or isinstance(x.real, ac.DeviceArray):
            return x
        handle = self.record(x.real)
        self.interpret(x)
        return self.node(handle, x.view, x.device, [])

    # --- what these programs have besides

    def wide(self, device: int, value: int) -> Node:
        """Fill with a pattern that takes the driver several fills."""
        view, pattern = np.empty(N, np.int32), value * 0x1_0000_0003 + 1
        op = ac.full(N // 2, pattern, np.int64, device=device)
        wide = self.node(op, view, device, [], lambda: view.view(np.int64).fill(pattern))
        return self.node(op.then(lambda array: array.view(np.int32)), view, device, [wide])

    def brought(self, x: Node) -> Node:
        """Bring it to the host, in the end."""
        view, source = np.empty_like(x.view), x.view
        return self.node(ac.to_host(x.real), view, x.device, [x], lambda: np.copyto(view, source))

    def added(self, x: Node, number: Number) -> Node:
        """Give a number straight to a kernel."""
        view, n = x.view, x.view.size
        op = self.machine.kernels["add_to_first"](number.real, x.real, number.real, n, threads=n, block=32)

        def effect() -> None:
            view[: number.value] += number.value

        return self.node(op, view, x.device, [x], effect)

    def looked(self, x: Node, number: Number, kind: int) -> Node:
        """Look at a number: it decides what is built."""
        n = number.look()
        if kind == 0:
            return self.full(x.device, n)
        if kind == 1:
            return self.accumulated(x, x, n + 1, 0)
        for _ in range(n % 3):
            x = self.incremented(x, 0)
        return x

    def launched(self, a: int, b: int, c: int) -> None:
        """Launch the inner graph with slots in the place of inputs; go on with these, and with one of its results."""
        inner = self._inner
        assert inner is not None
        bound: dict[str, tuple[int, Node]] = {}
        for i, (name, held) in enumerate(inner.inputs.items()):
            at = (a + i) % len(self.slots)
            x = self.slots[at]
            taken = [*inner.memory(), *(node.view for _, node in bound.values())]
            if name in inner.captured or b >> i & 1 or (x.device, x.view.shape, x.view.strides) != held.layout:
                continue
            if any(np.shares_memory(x.view, view) for view in taken):
                x = self.dup(x)
            if (x.device, x.view.shape, x.view.strides) == held.layout:
                bound[name] = at, x
        numbers = {name: self._numbers[c % len(self._numbers)] for name in inner.numbers if c > 0 and self._numbers}
        arrays = {name: x for name, (_, x) in bound.items()}
        op = inner.graph.launch(
            **{name: x.real for name, x in arrays.items()}, **{name: number.real for name, number in numbers.items()}
        )

        def effect() -> None:
            views = {name: x.view for name, x in arrays.items()}
            inner.play(views, {name: number.value for name, number in numbers.items()})

        launch = self.node(op, None, 0, list(arrays.values()), effect)

        def put_behind(at: int, x: Node) -> None:
            self.slots[at] = self.node(ac.zip(op, x.real).last(), x.view, x.device, [launch, x])

        for at, x in bound.values():
            put_behind(at, x)
        results = inner.results()
        if results:
            held = results[b % len(results)]
            put_behind(c % len(self.slots), self.node(held.array, held.view, held.array.device.ordinal, []))

    def step(self, what: str, a: int, b: int, c: int, where: int) -> None:
        at = a % len(self.slots)
        x = self.slots[at]
        device = where % len(self.machine.devices)
        match what:
            case "wide":
                self.slots[at] = self.wide(device, c)
            case "outside":
                self.slots[at] = self._constants[c % len(self._constants)]
            case "add" if self._numbers:
                self.slots[at] = self.added(x, self._numbers[b % len(self._numbers)])
            case "look" if self._numbers:
                self.slots[at] = self.looked(x, self._numbers[b % len(self._numbers)], c % 3)
            case "launch" if self._inner is not None:
                self.launched(a, b, c)
            case "add" | "look" | "launch":
                pass
            case _:
                super().step(what, a, b, c, where)


# --- graphs


@dataclass(eq=False)
class Version:
    """The program that a graph was made of, or updated from."""

    inputs: dict[str, Held]
    numbers: dict[str, Number]
    body: Body

    @property
    def given(self) -> dict[str, Any]:
        arrays = {name: held.array for name, held in self.inputs.items()}
        return {**arrays, **{name: number.real for name, number in self.numbers.items()}}


class Made:
    """A graph of a function, and what its launches do to NumPy's arrays.

    Its inputs are what the function is given and uses: the arrays x0, x1, ... and the numbers n0, n1, ...
    """

    was_launched = False

    def __init__(
        self,
        machine: Machine,
        script: Script,
        held: Sequence[Held],
        numbers: Sequence[int],
        constants: Sequence[Held],
        inner: Made | None = None,
        *,
        in_steps: bool = False,
    ) -> None:
        self._machine = machine
        self._constants = constants
        self._inner = inner
        unused: set[str] = set()
        while True:
            version = self._version(script, held, numbers, lambda name: name not in unused)
            try:
                graph = _recorded(version) if in_steps else version.body.op().graph(**version.given)
                break
            except ac.ArgumentValueError as error:
                found = re.search(r"nothing in the graph uses the input (\w+)", str(error))
                if found is None:
                    raise
                unused.add(found[1])
        self._take(graph, version)

    def update(self, script: Script, held: Sequence[Held], numbers: Sequence[int]) -> None:
        """Take another function, or other arguments; where the graph cannot, raise CaptureError and change nothing."""
        version = self._version(script, held, numbers, {*self.inputs, *self.numbers}.__contains__)
        self.graph.update(version.body.op(), **version.given)
        self._take(self.graph, version)

    def _version(
        self, script: Script, held: Sequence[Held], numbers: Sequence[int], is_input: Callable[[str], bool]
    ) -> Version:
        given = [Number(ac.value(number), number, number) for number in numbers]
        body = Body(self._machine, script, [(x.array, x.view) for x in held], given, self._constants, self._inner)
        distinct = {f"x{i}": x for i, x in enumerate(dict.fromkeys(held))}
        return Version(
            {name: x for name, x in distinct.items() if is_input(name)},
            {f"n{i}": number for i, number in enumerate(given) if is_input(f"n{i}")},
            body,
        )

    def _take(self, graph: ac.CudaGraph[Any], version: Version) -> None:
        self.graph = graph
        self.inputs, self.numbers, self.body = version.inputs, version.numbers, version.body
        self._effects = self.body.effects()
        seen = self.body.captured()
        self.captured = {
            name for name, x in self.inputs.items() if any(np.shares_memory(x.view, view) for view in seen)
        }

    def play(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, int]) -> None:
        """Do what a launch does that replaces these: with their contents in the place of the inputs'."""
        self.was_launched = True
        mine = [self.inputs[name].view for name in arrays]
        before, given = [view.copy() for view in mine], [view.copy() for view in arrays.values()]
        _write(mine, given)
        for name, number in self.numbers.items():
            number.value = numbers.get(name, number.seen)
        for effect in self._effects:
            effect()
        after = [view.copy() for view in mine]
        _write(mine, before)
        _write(arrays.values(), after)

    def results(self) -> list[Held]:
        """Return the arrays that launches yield; not those that are brought to the host."""
        found = zip(leaves(self.graph.result), leaves(self.body.returned), strict=True)
        return [Held(array, node.view) for array, node in found if isinstance(node, Node)]

    def others(self) -> list[Any]:
        """Return what the last launch yields besides."""
        return [_value(leaf) for leaf in leaves(self.body.returned) if not isinstance(leaf, Node)]

    def memory(self) -> list[np.ndarray]:
        """Return all that a launch may touch and somebody else can see."""
        return [held.view for held in (*self.inputs.values(), *self._constants, *self.results())]


def _recorded(version: Version) -> ac.CudaGraph[Any]:
    with ac.graph_scope(**version.given) as scope:
        version.body.record = scope.record
        returned = version.body.build()
        scope.result = mapped(returned, lambda x: scope.record(x) if isinstance(x, ac.DeviceOp) else x)
    return scope.graph


def _write(views: Iterable[np.ndarray], contents: Iterable[np.ndarray]) -> None:
    for view, content in zip(views, contents, strict=True):
        view[...] = content


def _real(leaf: Any) -> Any:
    return leaf.real if isinstance(leaf, (Node, Late)) else leaf


def _value(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Late) else leaf


def _sum(array: np.ndarray) -> int:
    return int(array.sum(dtype=np.int64))


def _nothing() -> None:
    pass
