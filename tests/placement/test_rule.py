"""Random DAGs with placements at each level, against the rule of the documentation written down once more.

The model knows arrays as the devices they are on, and no streams, no arrays' contents and no walk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac

N = 4
LOOPS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}


# --- programs


@dataclass
class Make:
    device: int | None  # device=
    used: int | None  # built inside of `use`
    on: int | None


@dataclass
class Add:
    """Kernels work on one device: they read one array, and write another."""

    x: Any
    y: Any
    on: int | None


@dataclass
class Move:
    x: Any
    to: int


@dataclass
class Dup:
    x: Any
    on: int | None


@dataclass
class Then:
    """A function of the array's handle that says nothing of a device; of its complete value, where it `maps`."""

    x: Any
    makes: bool  # another array, and does not give back the one it got
    maps: bool
    on: int | None
    seen: list[int] = field(default_factory=list)


@dataclass
class Execution:
    device: int | None
    how: str  # `use`, `schedule`, `submit` or `sync_on`
    loop: str
    default: int


ordinals = st.sampled_from([None, None, 0, 1])
rarely = st.sampled_from([None, None, None, None, 0, 1])
makes = st.builds(Make, rarely, rarely, rarely)
eager = st.recursive(
    makes,
    lambda inner: st.one_of(
        st.builds(Add, inner, inner, rarely),
        st.builds(Move, inner, st.sampled_from([0, 1])),
        st.builds(Dup, inner, rarely),
        st.builds(Then, inner, st.booleans(), st.just(False), ordinals),
    ),
    max_leaves=6,
)


def behind_a_map(inner: Any) -> Any:
    return st.builds(Then, inner, st.just(True), st.just(True), ordinals)


# Arrays beside a map are made before what follows the map is known, so the maps are at the end.
programs = st.one_of(
    eager,
    behind_a_map(eager),
    behind_a_map(behind_a_map(eager)),
    st.builds(Dup, behind_a_map(eager), rarely),
    st.builds(Move, behind_a_map(eager), st.sampled_from([0, 1])),
)
executions = st.builds(
    Execution,
    ordinals,
    st.sampled_from(["use", "schedule", "submit", "sync_on"]),
    st.sampled_from(["sync", *LOOPS]),
    st.sampled_from([0, 0, 1]),
)


# --- the model


class Mismatch(Exception):
    pass


NOTHING = object()  # what a consumer says for which its argument may be anywhere


def first(*said: int | None) -> int | None:
    return next((device for device in said if device is not None), None)


def told_when_built(node: Any) -> int | None:
    """The place of the result, as far as the program says so before it runs."""
    match node:
        case Make():
            return first(node.device, node.used)
        case Add():
            return first(told_when_built(node.x), told_when_built(node.y))
        case Move():
            return node.to
        case Dup():
            return told_when_built(node.x)
    return None


def meet(*devices: int | None) -> int | None:
    known = {device for device in devices if device is not None}
    if len(known) > 1:
        raise Mismatch
    return known.pop() if known else None


def build_model(node: Any) -> None:
    """Raise an error if a program contradicts itself when it is built."""
    for child in (getattr(node, "x", None), getattr(node, "y", None)):
        if child is not None:
            build_model(child)
    if isinstance(node, Add):
        meet(told_when_built(node.x), told_when_built(node.y))
    if not isinstance(node, (Move, Then)) and node.on is not None:
        meet(told_when_built(node), node.on)


class Model:
    def __init__(self, execution: Execution) -> None:
        self.default = execution.default

    def run(self, node: Any, placement: int | None, consumers: tuple[Any, ...] = ()) -> int:
        """Return the device of the result. `consumers`: what they say, the nearest first, when they are asked."""
        match node:
            case Make():
                return self.place(first(node.device, node.used, node.on), placement, consumers)
            case Add():
                return self.add(node, placement, consumers)
            case Move():
                self.run(node.x, placement, (lambda: NOTHING,))
                return node.to
            case Dup():
                return self.agree(self.run(node.x, placement, (lambda: node.on, *consumers)), node.on)
        assert isinstance(node, Then)
        given = self.run(node.x, placement, (lambda: NOTHING if node.maps else node.on, *consumers))
        inside = first(node.on, placement)
        node.seen.append(first(inside, self.default))
        if not node.makes and not node.maps:
            return given
        return self.place(inside, inside, (lambda: node.on, *consumers))

    def place(self, said: int | None, placement: int | None, consumers: tuple[Any, ...]) -> int:
        if said is not None:
            return said
        for consumer in consumers:
            says = consumer()
            if says is NOTHING:
                break
            if says is not None:
                return says
        return first(placement, self.default)

    def agree(self, *devices: int | None) -> int:
        found = meet(*devices)
        assert found is not None
        return found

    def add(self, node: Add, placement: int | None, consumers: tuple[Any, ...]) -> int:
        arguments = [node.x, node.y]
        # One that is made for the kernel alone, nowhere in particular, is made when all others are known.
        waiting = [a for a in arguments if isinstance(a, Make) and first(a.device, a.used) is None]
        known = {id(a): first(told_when_built(a), a.on if isinstance(a, Make) else None) for a in arguments}

        def ties() -> int | None:
            return first(node.on, *known.values())

        for argument in arguments:
            if not any(argument is each for each in waiting):
                known[id(argument)] = self.run(argument, placement, (ties, *consumers))
        where = self.place(first(*known.values()), placement, (lambda: node.on, *consumers))
        return self.agree(where, node.on, *known.values())


# --- the programs themselves


KERNEL = ac.kernel(
    'extern "C" __global__ void add(const int* x, int* y, unsigned n) '
    "{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += x[i]; }"
)


def built(node: Any, seen: dict[int, list[int]]) -> Any:
    match node:
        case Make():
            if node.used is None:
                op = ac.full(N, 1, np.int32, device=node.device)
            else:
                with ac.use(node.used):
                    op = ac.full(N, 1, np.int32, device=node.device)
        case Add():
            op = KERNEL(built(node.x, seen), built(node.y, seen), N, threads=N)
        case Move():
            return built(node.x, seen).to(node.to)
        case Dup():
            op = ac.dup(built(node.x, seen))
        case Then():
            found = seen.setdefault(id(node), [])

            def look(value: Any) -> Any:
                found.append(ac.current_device().ordinal)
                return ac.full(N, 1, np.int32) if node.makes or node.maps else value

            given = built(node.x, seen)
            op = (ac.to_host(given).map(lambda _: None) if node.maps else given).then(look)
    return op if node.on is None else op.on(node.on)


def executed(op: Any, execution: Execution) -> Any:
    def finished(future: Any) -> Any:
        async def main() -> Any:
            return await future

        return future.sync() if execution.loop == "sync" else anyio.run(main, **LOOPS[execution.loop])

    if execution.device is None:
        return finished(op)
    if execution.how == "schedule":
        return finished(op.schedule(execution.device))
    if execution.how == "sync_on":
        return op.sync_on(ac.Device(execution.device).default_stream)
    with ac.use(execution.device):
        if execution.how == "use":
            return finished(op)
        future = op.submit()
    return finished(future)


def nodes_of(node: Any) -> list[Any]:
    children = [getattr(node, name) for name in ("x", "y") if hasattr(node, name)]
    return [node, *(each for child in children for each in nodes_of(child))]


@pytest.mark.needs_devices(2)
@given(programs, executions)
def test_programs_go_where_the_rule_says(program, execution):
    for node in nodes_of(program):
        if isinstance(node, Then):
            node.seen = []
    try:
        build_model(program)
        expected: int | None = Model(execution).run(program, execution.device)
    except Mismatch:
        expected = None
    seen: dict[int, list[int]] = {}
    before = ac.set_device(execution.default)
    try:
        op = built(program, seen)
        if execution.device is None and not any(isinstance(node, Then) for node in nodes_of(program)):
            op.explain()  # which decides nothing
        found: int | None = executed(op, execution).device.ordinal
    except ac.DeviceMismatchError:
        found = None
    finally:
        ac.set_device(before)
    assert found == expected
    if expected is not None:
        assert seen == {id(node): node.seen for node in nodes_of(program) if isinstance(node, Then)}
