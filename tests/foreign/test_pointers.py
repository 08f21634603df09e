"""What is traced back to parameters: no program of some that were made at random writes what was not found."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from aiocuda._interop.pointers import Step, written_of

PARAMETERS = 4
ANYWHERE = None  # where a pointer leads that was read from memory


class Place(NamedTuple):
    """A block that operations are put into."""

    region: int
    block: int
    arguments: tuple[int, ...]


class Run:
    """A run of a program: what its pointers lead to, by value, and what was written through them."""

    def __init__(self, random: Any) -> None:
        self.random = random
        self.leads: dict[int, int | None] = {}
        self.stored: set[int | None] = set()


Action = Callable[[Run], None]


class Maker:
    """Makes functions, each as operations and as what runs them."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.number = itertools.count()
        self.steps: list[Step] = []
        self.functions: list[tuple[str, Callable[[Run, list[int | None]], list[int | None]]]] = []
        self.reads_pointers = False

    def fresh(self, count: int) -> list[int]:
        return [next(self.number) for _ in range(count)]

    def place(self, arguments: list[int]) -> Place:
        return Place(*self.fresh(2), tuple(arguments))

    def add(
        self, at: Place, name: str, operands: Any = (), results: Any = (), regions: Any = (), symbol: str = ""
    ) -> None:
        step = Step(name, tuple(operands), tuple(results), tuple(regions), at.block, at.region, at.arguments, symbol)
        self.steps.append(step)

    def choose(self, values: list[int], count: int) -> list[int]:
        return [int(each) for each in self.random.choice(values, count)]

    def body(self, at: Place, values: list[int], depth: int) -> Callable[[Run], None]:
        """Make some operations, which may use `values`; they are added to it."""
        kinds = [self.move, self.move, self.select, self.store, self.call]
        if depth:
            kinds += [self.loop, self.branch, self.repeat]
        if self.random.random() < 0.05:
            kinds.append(self.read)
        actions = [
            kinds[self.random.integers(len(kinds))](at, values, depth) for _ in range(self.random.integers(1, 5))
        ]

        def run(state: Run) -> None:
            for action in actions:
                action(state)

        return run

    def move(self, at: Place, values: list[int], depth: int) -> Action:
        (source,), (result,) = self.choose(values, 1), self.fresh(1)
        self.add(at, "tt.addptr", (source, *self.fresh(1)), (result,))
        values.append(result)
        return lambda run: run.leads.__setitem__(result, run.leads[source])

    def select(self, at: Place, values: list[int], depth: int) -> Action:
        sources, (result,) = self.choose(values, 2), self.fresh(1)
        self.add(at, "arith.select", (*self.fresh(1), *sources), (result,))
        values.append(result)
        return lambda run: run.leads.__setitem__(result, run.leads[sources[run.random.integers(2)]])

    def read(self, at: Place, values: list[int], depth: int) -> Action:
        (source,), (result,) = self.choose(values, 1), self.fresh(1)
        self.add(at, "tt.load", (source,), (result,))
        values.append(result)
        self.reads_pointers = True
        return lambda run: run.leads.__setitem__(result, ANYWHERE)

    def store(self, at: Place, values: list[int], depth: int) -> Action:
        (to,) = self.choose(values, 1)
        self.add(at, "tt.store" if self.random.random() < 0.5 else "tt.atomic_rmw", (to, *self.fresh(1)))
        return lambda run: run.stored.add(run.leads[to])

    def call(self, at: Place, values: list[int], depth: int) -> Action:
        if not self.functions:
            return self.move(at, values, depth)
        symbol, function = self.functions[self.random.integers(len(self.functions))]
        given, results = self.choose(values, PARAMETERS), self.fresh(2)
        self.add(at, "tt.call", given, results, symbol=symbol)
        values += results

        def run(state: Run) -> None:
            outer, state.leads = state.leads, {}
            returned = function(state, [outer[each] for each in given])
            state.leads = outer | dict(zip(results, returned, strict=True))

        return run

    def loop(self, at: Place, values: list[int], depth: int) -> Action:
        inits, carried, results = self.choose(values, 2), self.fresh(2), self.fresh(2)
        inside = self.place([*self.fresh(1), *carried])
        seen = [*values, *carried]
        body = self.body(inside, seen, depth - 1)
        given = self.choose(seen, 2)
        self.add(inside, "scf.yield", given)
        self.add(at, "scf.for", (*self.fresh(3), *inits), results, (inside.region,))
        values += results

        def run(state: Run) -> None:
            now = [state.leads[each] for each in inits]
            for _ in range(state.random.integers(4)):
                state.leads |= dict(zip(carried, now, strict=True))
                body(state)
                now = [state.leads[each] for each in given]
            state.leads |= dict(zip(results, now, strict=True))

        return run

    def repeat(self, at: Place, values: list[int], depth: int) -> Action:
        inits, before, after, results = (*[self.choose(values, 2)], *(self.fresh(2) for _ in range(3)))
        asking, inside = self.place(before), self.place(after)
        seen_first = [*values, *before]
        first = self.body(asking, seen_first, depth - 1)
        passed = self.choose(seen_first, 2)
        self.add(asking, "scf.condition", (*self.fresh(1), *passed))
        seen = [*values, *after]
        then = self.body(inside, seen, depth - 1)
        given = self.choose(seen, 2)
        self.add(inside, "scf.yield", given)
        self.add(at, "scf.while", inits, results, (asking.region, inside.region))
        values += results

        def run(state: Run) -> None:
            now = [state.leads[each] for each in inits]
            for turns in range(int(state.random.integers(3)), -1, -1):
                state.leads |= dict(zip(before, now, strict=True))
                first(state)
                out = [state.leads[each] for each in passed]
                if turns:
                    state.leads |= dict(zip(after, out, strict=True))
                    then(state)
                    now = [state.leads[each] for each in given]
            state.leads |= dict(zip(results, out, strict=True))

        return run

    def branch(self, at: Place, values: list[int], depth: int) -> Action:
        results = self.fresh(2)
        sides = []
        for inside in (self.place([]), self.place([])):
            seen = [*values]
            body = self.body(inside, seen, depth - 1)
            given = self.choose(seen, 2)
            self.add(inside, "scf.yield", given)
            sides.append((inside.region, body, given))
        self.add(at, "scf.if", self.fresh(1), results, [region for region, *_ in sides])
        values += results

        def run(state: Run) -> None:
            _, body, given = sides[state.random.integers(2)]
            body(state)
            state.leads |= {result: state.leads[each] for result, each in zip(results, given, strict=True)}

        return run

    def function(self, symbol: str) -> None:
        parameters = self.fresh(PARAMETERS)
        inside = self.place(parameters)
        values = [*parameters]
        body = self.body(inside, values, 2)
        given = self.choose(values, 2)
        self.add(inside, "tt.return", given)
        self.add(self.place([]), "tt.func", regions=(inside.region,), symbol=symbol)

        def run(state: Run, arguments: list[int | None]) -> list[int | None]:
            state.leads |= dict(zip(parameters, arguments, strict=True))
            body(state)
            return [state.leads[each] for each in given]

        self.functions.append((symbol, run))


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_no_program_writes_what_was_not_found(first):
    found_of_all = 0
    for seed in range(first, first + 100):
        maker = Maker(seed)
        for symbol in ("one", "two", "kernel"):
            maker.function(symbol)
        found = written_of(maker.steps, "kernel")
        assert maker.reads_pointers or not found.unclear
        stored: set[int | None] = set()
        for turn in range(30):
            run = Run(np.random.default_rng([seed, turn]))
            maker.functions[-1][1](run, [*range(PARAMETERS)])
            stored |= run.stored
        assert stored - {ANYWHERE} <= found.surely | found.unclear, maker.steps
        if ANYWHERE in stored:
            assert found.surely | found.unclear == {*range(PARAMETERS)}
        found_of_all += len(found.surely)
    assert 0 < found_of_all < 100 * PARAMETERS


def test_a_function_that_is_not_there_may_write_all_that_it_gets():
    inside, outside = Place(100, 101, (1, 2)), Place(200, 201, ())
    step = Step("tt.call", (1,), (), (), inside.block, inside.region, inside.arguments, "elsewhere")
    func = Step("tt.func", (), (), (inside.region,), outside.block, outside.region, (), "kernel")
    assert written_of([step, func], "kernel") == (frozenset(), frozenset({0, 1}))


def made(*lines: Any) -> list[Step]:
    """Operations of functions: (name, operands, results), and (parameters, symbol) at the end of each."""
    steps: list[Step] = []
    inner: list[Any] = []
    for number, line in enumerate(lines):
        if len(line) == 2:
            parameters, symbol = line
            steps += [
                Step(name, operands, results, (), 0, number, parameters, to) for name, operands, results, to in inner
            ]
            steps.append(Step("tt.func", (), (), (number,), 0, 1000, (), symbol))
            inner = []
        else:
            inner.append((*line, "") if len(line) == 3 else line)
    return steps


def test_a_pointer_made_of_a_number_leads_anywhere():
    steps = made(
        ("arith.constant", (), (3,)), ("tt.int_to_ptr", (3,), (4,)), ("tt.store", (4, 5), ()), ((1, 2), "kernel")
    )
    assert written_of(steps, "kernel") == (frozenset(), frozenset({0, 1}))


def test_a_pointer_that_a_function_has_read_leads_anywhere():
    steps = made(
        ("tt.load", (10,), (11,)),
        ("tt.return", (11,), ()),
        ((10,), "reads"),
        ("tt.call", (1,), (3,), "reads"),
        ("arith.select", (5, 3, 2), (4,)),
        ("tt.store", (4, 6), ()),
        ((1, 2), "kernel"),
    )
    assert written_of(steps, "kernel") == (frozenset({1}), frozenset({0}))


def test_a_pointer_made_of_a_number_that_is_a_parameter_leads_anywhere():
    steps = made(("tt.int_to_ptr", (2,), (3,)), ("tt.store", (3, 4), ()), ((1, 2), "kernel"))
    assert written_of(steps, "kernel") == (frozenset({1}), frozenset({0}))


@pytest.mark.parametrize("atomic", ["tt.atomic_rmw", "tt.atomic_cas"])
def test_a_pointer_that_an_atomic_operation_has_read_leads_anywhere(atomic):
    steps = made((atomic, (1, 5), (3,)), ("tt.store", (3, 4), ()), ((1, 2), "kernel"))
    assert written_of(steps, "kernel") == (frozenset({0}), frozenset({1}))


def test_a_distance_of_pointers_leads_from_one_array_into_another():
    steps = made(
        ("tt.addptr", (20, 21), (22,)),
        ("tt.store", (22, 23), ()),
        ((20, 21), "moves"),
        ("tt.ptr_to_int", (1,), (3,)),
        ("tt.ptr_to_int", (2,), (4,)),
        ("arith.subi", (4, 3), (5,)),
        ("tt.call", (1, 5), (), "moves"),
        ((1, 2), "kernel"),
    )
    assert written_of(steps, "kernel") == (frozenset({0}), frozenset({1}))
