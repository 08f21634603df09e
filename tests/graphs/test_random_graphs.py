"""A graph, and a compiled function, mean what the operations mean that they were made of, whatever these are.

Random functions of arrays and numbers (`graph_programs`) become graphs, and NumPy says what each launch and each call
yields and leaves behind. `AIOCUDA_HYPOTHESIS=long` runs ten thousand of each kind.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_programs import Body, Form, GraphMachine, Held, Late, Made, Node, Number, Script, arguments, leaves
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import TIMEOUT_S

import aiocuda as ac
from aiocuda._driver import checking

ROOT = Path(__file__).parents[2]
CHECKS_RACES = "AIOCUDA_EMULATOR_CHECK"
IS_LONG = settings().max_examples > 1000
pytestmark = pytest.mark.timeout(0 if IS_LONG else 120)

MAKE = ["full", "upload", "wide", "outside", "outside"]
CHANGE = [
    "increment",
    "accumulate",
    "mix",
    "copy",
    "fill",
    "dup",
    "to",
    "part",
    "zip",
    "then",
    "call",
    "add",
    "add",
    "look",
]
SIZES = [24, 24, 16, 9, 4, 0]
FORMS = ["whole", "whole", "part", "part", "strided", "again"]


def scripts(kinds: list[str], most: int = 16) -> st.SearchStrategy[Script]:
    number = st.integers(0, 5)
    step = st.tuples(st.sampled_from(["pass", *kinds]), number, number, st.integers(-5, 5), number)
    form = st.sampled_from(["plain", "plain", "copy", "copy", "part", "nested", "host", "sum"])
    return st.builds(
        Script,
        st.lists(step, min_size=most // 4, max_size=most),
        st.lists(st.tuples(form, number), min_size=1, max_size=3),
        st.sampled_from(["none", "plain", "copy", "copy"]),
        st.integers(0, 3),
    )


def forms(least: int = 1) -> st.SearchStrategy[list[Form]]:
    form = st.builds(Form, st.sampled_from(FORMS), st.sampled_from(SIZES), st.integers(0, 1))
    return st.lists(form, min_size=least, max_size=4)


NUMBERS = st.lists(st.integers(0, 9), min_size=2, max_size=2)
# Of a launch: which inputs it replaces (a bit each), with what numbers, and whether with operations.
LAUNCH = st.tuples(st.integers(0, 15), NUMBERS, st.booleans())
LAUNCHES = st.lists(LAUNCH, min_size=1, max_size=4)
POLICIES = st.integers(0, 9)


@pytest.fixture(scope="module")
def machine() -> Iterator[GraphMachine]:
    made = GraphMachine()
    yield made
    made.close()


def times(factor: float) -> settings:
    """Run more, or fewer, examples than others, as long as they are not thousands; where races are looked for, half."""
    examples = int(factor * settings().max_examples) // (1 + (CHECKS_RACES in os.environ))
    return settings(max_examples=min(10_000, examples))


def leaving_nothing(test: Callable[..., None]) -> Callable[..., None]:
    """See to it that after an example no memory is in use that was not before; no race was found, where they are."""

    @functools.wraps(test)
    def checked(*, used_bytes: Callable[[], int], **given: Any) -> None:
        before = used_bytes()
        test(used_bytes=used_bytes, **given)
        assert used_bytes() == before
        if CHECKS_RACES in os.environ:
            checking.raise_races()

    return checked


@contextlib.contextmanager
def held_back(machine: GraphMachine, latches: Any, is_held: bool) -> Iterator[None]:
    """Hold what is submitted on all devices until the end of the block.

    Devices that never rest have no time to make room for graphs. So they do what they have to do first. aiocuda does
    not know how many streams of others take places in the driver's store. A graph of many branches has it enlarged.
    """
    if not is_held:
        yield
        return
    for device in machine.devices:
        device.synchronize().sync()
        ac.zip([ac.zeros(1, np.int32, device=device) for _ in range(64)]).graph().close()
    latch = latches()
    try:
        for device in machine.devices:
            latch.hold(device.ordinal)
        yield
    finally:
        latch.close()


def looks_at_numbers(script: Script) -> bool:
    return any(what == "look" for what, *_ in script.steps)


def constants_of(machine: GraphMachine) -> list[Held]:
    """Make what a function finds outside."""
    return arguments(machine, [Form("whole", 24, 0), Form("part", 20, 1)], 50)


# --- graphs


class Launches:
    """Launches of graphs, submitted one after another, and what they should have yielded."""

    def __init__(self, machine: GraphMachine, *held: Held) -> None:
        self._machine = machine
        self._futures: list[tuple[Any, list[Any], list[Any]]] = []
        self._copies: list[tuple[Any, np.ndarray]] = []
        self.held = list(held)

    def launch(self, made: Made, forms: list[Form], replaced: int, numbers: list[int], are_ops: bool) -> None:
        """Launch; the bits of a number say which inputs are replaced, all of which are of these forms."""
        fresh = list(dict.fromkeys(arguments(self._machine, forms, 100 + len(self.held))))
        arrays = {f"x{i}": x for i, x in enumerate(fresh) if replaced >> i & 1 and f"x{i}" in made.inputs}
        for name in made.captured & arrays.keys():
            with pytest.raises(ac.CaptureError, match="whose captured work has its address"):
                made.graph.launch(**{name: arrays.pop(name).array}).sync(TIMEOUT_S)
        given = {f"n{i}": number for i, number in enumerate(numbers) if replaced >> i & 1 and f"n{i}" in made.numbers}
        bindings = {**{name: x.array for name, x in arrays.items()}, **given}
        if are_ops:
            bindings = {name: self._yielding(x) for name, x in bindings.items()}
            for x in arrays.values():
                x.view[...] += 1
        future = made.graph.launch(**bindings).submit()
        made.play({name: x.view for name, x in arrays.items()}, given)
        self._futures.append((future, [x.array for x in made.results()], made.others()))
        # The next launch overwrites them.
        self._copies += [(ac.dup(x.array).submit(), x.view.copy()) for x in made.results()]
        self.held += [*arrays.values(), *made.results()]

    def _yielding(self, given: Any) -> Any:
        """Make an operation of what is given, which increments it where it is an array."""
        if isinstance(given, int):
            return ac.value(given).then(lambda number: number)
        return self._machine.kernels["strided_increment"](given, given.size, threads=given.size, block=32)

    def check(self) -> None:
        for future, arrays, others in self._futures:
            found = list(leaves(future.sync(TIMEOUT_S)))
            assert [x for x in found if isinstance(x, ac.DeviceArray)] == arrays
            np.testing.assert_equal([x for x in found if not isinstance(x, ac.DeviceArray)], others)
        for copy, expected in self._copies:
            np.testing.assert_array_equal(ac.to_host(copy.sync(TIMEOUT_S)).sync(TIMEOUT_S), expected)
        for held in self.held:
            held.check()


@given(
    forms=forms(),
    script=scripts([*MAKE, *CHANGE, *CHANGE]),
    launches=LAUNCHES,
    policy=POLICIES,
    is_held=st.booleans(),
)
@leaving_nothing
def test_launches_of_a_graph_have_its_meaning(machine, latches, used_bytes, forms, script, launches, policy, is_held):
    held, constants = arguments(machine, forms, 0), constants_of(machine)
    made = Made(machine, script, held, [2, 5], constants)
    done = Launches(machine, *held, *constants)
    with ac.use(machine.policy(policy)), held_back(machine, latches, is_held):
        for launch in launches:
            done.launch(made, forms, *launch)
    done.check()


@times(0.5)
@given(forms=forms(), script=scripts([*MAKE, *CHANGE, *CHANGE, *["handle"] * 6]), launches=LAUNCHES)
@leaving_nothing
def test_a_graph_recorded_step_by_step_has_its_meaning(machine, latches, used_bytes, forms, script, launches):
    held, constants = arguments(machine, forms, 0), constants_of(machine)
    made = Made(machine, script, held, [2, 5], constants, in_steps=True)
    done = Launches(machine, *held, *constants)
    with held_back(machine, latches, True):
        for launch in launches:
            done.launch(made, forms, *launch)
    done.check()


@times(0.5)
@given(
    forms=forms(),
    script=scripts([*MAKE, *CHANGE, *CHANGE]),
    other_forms=st.one_of(st.none(), forms()),
    other_script=st.one_of(st.none(), scripts([*MAKE, *CHANGE, *CHANGE])),
    launches=LAUNCHES,
    is_held=st.booleans(),
)
@leaving_nothing
def test_an_updated_graph_has_the_meaning_of_what_it_took(
    machine, latches, used_bytes, forms, script, other_forms, other_script, launches, is_held
):
    """The same operations with other arrays are always taken; others, or arrays of other forms, as a whole or not."""
    held, constants = arguments(machine, forms, 0), constants_of(machine)
    made = Made(machine, script, held, [2, 5], constants)
    done = Launches(machine, *held, *constants)
    with held_back(machine, latches, is_held):
        for i, (replaced, numbers, are_ops) in enumerate(launches):
            done.launch(made, forms, replaced, numbers, are_ops)
            again = arguments(machine, other_forms or forms, 20 + i)
            done.held += again
            try:
                made.update(other_script or script, again, numbers)
                forms = other_forms or forms
            except ac.CaptureError:
                assert other_script or other_forms or looks_at_numbers(script)
            done.launch(made, forms, replaced, numbers, are_ops)
    done.check()


INNER = scripts([*MAKE, *CHANGE, *CHANGE], 8)


@times(0.5)
@given(
    forms=forms(),
    inner=INNER,
    script=scripts([*MAKE, *CHANGE, *["launch"] * 10], 10),
    launches=st.lists(st.tuples(st.booleans(), LAUNCH), min_size=1, max_size=5),
    policy=POLICIES,
    is_held=st.booleans(),
)
@leaving_nothing
def test_a_graph_in_a_graph_has_its_meaning(
    machine, latches, used_bytes, forms, inner, script, launches, policy, is_held
):
    """Launched by itself too, in between."""
    constants = constants_of(machine)
    arrays = [arguments(machine, forms, seed) for seed in (0, 1)]
    within = Made(machine, inner, arrays[0], [2, 5], constants)
    around = Made(machine, script, arrays[1], [1, 7], constants, within)
    done = Launches(machine, *arrays[0], *arrays[1], *constants)
    with ac.use(machine.policy(policy)), held_back(machine, latches, is_held):
        for is_inner, launch in launches:
            done.launch(within if is_inner else around, forms, *launch)
    if within.was_launched:
        done.held += within.results()
    done.check()


# --- compiled functions


class Calls:
    """Calls of a compiled function, and what they should have yielded; the program drops some of it at once."""

    def __init__(
        self,
        machine: GraphMachine,
        script: Script,
        constants: list[Held],
        results: Any,
        executables: int,
        inner: Made | None = None,
    ) -> None:
        self._machine = machine
        self._script = script
        self._constants = constants
        self._inner = inner
        self._pending: list[tuple[Any, list[Any]]] = []
        self._compiled = ac.compile(results=results, executables=executables)(self._function)
        self._held = list(constants)
        self._kept: list[Held] = []  # of results

    def _body(self, arrays: Any, numbers: Any) -> Body:
        return Body(self._machine, self._script, arrays, numbers, self._constants, self._inner)

    def _function(self, arrays: list[Any], numbers: list[Any]) -> Any:
        return self._body([(x, view_like(x)) for x in arrays], [Number(n, 0) for n in numbers]).build()

    def call(self, held: list[Held], numbers: list[int], are_ops: bool, is_kept: bool) -> None:
        """Submit a call; where its arguments are operations, those that yield arrays yield copies."""
        given = {x: x for x in held}
        if are_ops:
            copies: list[Any] = []
            ops = {x: ac.dup(x.array).inspect(copies.append) for x in given}
            future = self._compiled([ops[x] for x in held], [ac.value(n).then(lambda n: n) for n in numbers]).submit()
            given = {x: Held(copy, x.view.copy()) for x, copy in zip(given, copies, strict=True)}
        else:
            future = self._compiled([x.array for x in held], numbers).submit()
        body = self._body([(given[x].array, given[x].view) for x in held], [Number(n, n, n) for n in numbers])
        body.build()
        for effect in body.effects():
            effect()
        self._held += held
        if is_kept:
            self._pending.append((future, [self._expected(leaf) for leaf in leaves(body.returned)]))

    def call_all(self, forms: list[Form], calls: Any, is_held: bool) -> None:
        """Call with fresh arrays and, as far as bits of a number say so, with results of earlier calls."""
        for i, (reused, numbers, are_ops, is_kept) in enumerate(calls):
            held = arguments(self._machine, forms, i)
            for at, x in enumerate(held):
                if reused >> at & 1 and x.view.size:
                    other = self._kept_like(x, [each.view for each in held])
                    held = [other if each is x else each for each in held]
            self.call(held, numbers, are_ops, is_kept)
            if not is_held:
                self.settle()

    def _kept_like(self, x: Held, taken: list[np.ndarray]) -> Held:
        """Return a result that was kept and can stand in the place of an array; else that."""
        taken = [*taken, *(held.view for held in self._constants), *(self._inner.memory() if self._inner else ())]
        for other in self._kept:
            if other.layout == x.layout and not any(np.shares_memory(other.view, view) for view in taken):
                return other
        return x

    def _expected(self, leaf: Any) -> Any:
        if isinstance(leaf, Late):
            return leaf.value
        if isinstance(leaf, Node):
            return leaf.view
        return leaf

    def settle(self) -> None:
        """Look at what the calls yielded so far."""
        for future, expected in self._pending:
            found = list(leaves(future.sync(TIMEOUT_S)))
            arrays = [(x, y) for x, y in zip(found, expected, strict=True) if isinstance(x, ac.DeviceArray)]
            self._kept += [Held(x, y) for x, y in arrays]
            others = [(x, y) for x, y in zip(found, expected, strict=True) if not isinstance(x, ac.DeviceArray)]
            np.testing.assert_equal([x for x, _ in others], [y for _, y in others])
        self._pending.clear()

    def check(self) -> None:
        self.settle()
        for held in (*self._held, *self._kept):
            held.check()

    def misses(self) -> int:
        return self._compiled.cache_info().misses


def view_like(array: ac.DeviceArray) -> np.ndarray:
    """Return an array of NumPy's with the same strides."""
    reach = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
    memory = np.zeros(max(reach, 0) // 4 + 1, np.int32)
    return np.lib.stride_tricks.as_strided(memory, array.shape, array.strides)


CALLS = st.lists(st.tuples(st.integers(0, 15), NUMBERS, st.booleans(), st.booleans()), min_size=1, max_size=5)


@times(0.75)
@given(
    forms=forms(),
    script=scripts([*MAKE, *CHANGE, *CHANGE]),
    results=st.sampled_from(["buffers", "copy"]),
    executables=st.integers(1, 2),
    calls=CALLS,
    policy=POLICIES,
    is_held=st.booleans(),
)
@leaving_nothing
def test_calls_of_a_compiled_function_have_its_meaning(
    machine, latches, used_bytes, forms, script, results, executables, calls, policy, is_held
):
    """With fresh arrays and with results of earlier calls; and later calls leave results alone."""
    done = Calls(machine, script, constants_of(machine), results, executables)
    with ac.use(machine.policy(policy)), held_back(machine, latches, is_held):
        done.call_all(forms, calls, is_held)
    done.check()
    # It is traced anew for other numbers, where it looks at them, and for copies that have not the original's strides.
    looks = looks_at_numbers(script)
    differing = {
        (tuple(numbers) if looks else (), are_ops and any(form.kind == "strided" for form in forms))
        for _, numbers, are_ops, _ in calls
    }
    if all(form.size for form in forms):  # two that are empty may be the same
        assert done.misses() <= len(differing)


@times(0.5)
@given(
    forms=forms(),
    inner=INNER,
    script=scripts([*MAKE, *CHANGE, *["launch"] * 10], 10),
    results=st.sampled_from(["buffers", "copy"]),
    executables=st.integers(1, 2),
    calls=CALLS,
    is_held=st.booleans(),
)
@leaving_nothing
def test_a_compiled_function_that_launches_a_graph_has_its_meaning(
    machine, latches, used_bytes, forms, inner, script, results, executables, calls, is_held
):
    constants = constants_of(machine)
    held = arguments(machine, forms, 70)
    within = Made(machine, inner, held, [2, 5], constants)
    done = Calls(machine, script, constants, results, executables, within)
    with held_back(machine, latches, is_held):
        done.call_all(forms, calls, is_held)
    done.check()


@pytest.mark.emulated_only
@pytest.mark.skipif(CHECKS_RACES in os.environ, reason="this is the run that checks")
@pytest.mark.timeout(0 if IS_LONG else 620)  # more than its program has
def test_the_driver_sees_no_race_in_these_graphs():
    """All this again, where the driver has its own account of what is ordered, and reorders what it may."""
    environment = {**os.environ, CHECKS_RACES: "races", "AIOCUDA_EMULATOR_SHUFFLE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "meaning", __file__]
    limit_s = None if IS_LONG else 600  # it takes 10 s; where 10 others want each processor, minutes
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            told, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler tells where its threads stand
            told, _ = process.communicate()
    assert process.returncode == 0, told[-12000:]
