"""Promise 1: whatever a program does on whatever streams and devices, its result is the sequential one.

Random programs run twice: by aiocuda, with pieces awaited, submitted or left lazy as they come, and by
a NumPy interpreter, one step after another. `AIOCUDA_HYPOTHESIS=long` runs thousands.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac

N = 512
SLOTS = 5

# (what, slot, slot, number, stream); slots and streams are taken modulo what there is.
Step = tuple[str, int, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "full",
                "upload",
                "accumulate",
                "accumulate",
                "increment",
                "increment",
                "copy",
                "dup",
                "read",
                "free",
                "move",
                "host",
                "run",
            ]
        ),
        st.integers(0, SLOTS - 1),
        st.integers(0, SLOTS - 1),
        st.integers(-5, 5),
        st.integers(0, 5),
    ),
    min_size=5,
    max_size=40,
)


@dataclass
class Machine:
    """What the program runs on: the streams of all devices, and the kernels."""

    kernels: Any
    streams: list[ac.Stream]


@pytest.fixture(scope="module")
def machine(kernels) -> Machine:
    streams = []
    for device in ac.devices()[:2]:
        streams += [device.default_stream, device.stream(), device.stream(-1)]
    return Machine(kernels, streams)


class Program:
    """The state of one run: an array (or an operation that yields it) and NumPy's idea of it, by slot."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.device = [0] * SLOTS
        self.value: list[Any] = [ac.full(N, slot, np.int32, device=0) for slot in range(SLOTS)]
        self.expected = [np.full(N, slot, np.int32) for slot in range(SLOTS)]
        self.reads: list[tuple[Any, np.ndarray]] = []

    def stream_of(self, device: int, number: int) -> ac.Stream:
        own = [stream for stream in self.machine.streams if stream.device.ordinal == device]
        return own[number % len(own)]

    def submit(self, slot: int, op: Any, number: int) -> None:
        """Put the slot's next state on a stream; now and then leave it lazy."""
        op = op.on(self.stream_of(self.device[slot], number))
        # What writes in place must not be overtaken by a lazy reader of the old state: submitted.
        op.submit()
        self.value[slot] = op

    def step(self, what: str, a: int, b: int, number: int, stream: int) -> None:
        k = self.machine.kernels
        device = self.device[a]
        match what:
            case "full":
                self.submit(a, ac.full(N, number, np.int32, device=device), stream)
                self.expected[a] = np.full(N, number, np.int32)
            case "upload":
                data = np.arange(N, dtype=np.int32) * number
                self.value[a] = ac.to_device(data, device)
                if stream % 2:
                    self.value[a].submit()
                self.expected[a] = data
            case "accumulate":
                if self.device[b] != device:
                    self.step("move", b, b, number, device)
                self.submit(a, k.accumulate(number, self.value[b], self.value[a], N, threads=N), stream)
                source = self.expected[b]
                self.expected[a] = 3 * self.expected[a] + number * source
            case "increment":
                self.submit(a, k.increment(self.value[a], N, threads=N), stream)
                self.expected[a] = self.expected[a] + 1
            case "copy":
                self.submit(a, ac.copy(self.value[a], self.value[b]), stream)
                self.expected[a] = self.expected[b].copy()
            case "dup":
                self.device[a] = self.device[b]
                self.value[a] = ac.dup(self.value[b])
                self.value[a].submit()
                self.expected[a] = self.expected[b].copy()
            case "read":
                self.reads.append((ac.to_host(self.value[a]).submit(), self.expected[a].copy()))
            case "free":
                self.value[a] = ac.zeros(N, np.int32, device=device)
                self.expected[a] = np.zeros(N, np.int32)
                gc.collect(0)
            case "move":
                target = stream % len(ac.devices()[:2])
                self.value[a] = ac.to_device(self.value[a], target)
                self.value[a].submit()
                self.device[a] = target
            case "host":
                host = ac.copy(ac.empty_host(N, np.int32), self.value[b])
                self.submit(a, ac.copy(self.value[a], host), stream)
                self.expected[a] = self.expected[b].copy()
            case "run":
                with ac.use(self.stream_of(device, stream)):
                    np.testing.assert_array_equal(ac.to_host(self.value[a]).sync(), self.expected[a])

    def check(self) -> None:
        for future, expected in self.reads:
            np.testing.assert_array_equal(future.sync(), expected)
        for value, expected in zip(self.value, self.expected, strict=True):
            np.testing.assert_array_equal(ac.to_host(value).sync(), expected)


@given(steps=STEPS)
def test_random_programs_have_their_sequential_meaning(machine, steps):
    with np.errstate(over="ignore"):
        program = Program(machine)
        for step in steps:
            program.step(*step)
        program.check()


@given(steps=STEPS, held=st.integers(0, 5))
def test_random_programs_behind_a_latch_have_their_sequential_meaning(machine, latches, steps, held):
    """One stream is held while all is submitted: what does not wait for it overtakes what does."""
    latch = latches()
    latch.hold(machine.streams[held % len(machine.streams)])
    try:
        with np.errstate(over="ignore"):
            program = Program(machine)
            for step in steps:
                if step[0] != "run":
                    program.step(*step)
    finally:
        latch.release()
    program.check()


EXPRESSIONS = st.recursive(
    st.integers(-3, 3),
    lambda inner: st.one_of(
        st.tuples(st.just("accumulate"), inner, inner, st.integers(-3, 3), st.integers(0, 5)),
        st.tuples(st.just("increment"), inner, st.integers(0, 5)),
        st.tuples(st.just("dup"), inner, st.integers(0, 5)),
        st.tuples(st.just("then"), inner),
        st.tuples(st.just("map"), inner),
        st.tuples(st.just("pick"), inner, inner),
    ),
    max_leaves=20,
)


@given(expression=EXPRESSIONS)
def test_random_expressions_have_their_meaning_in_one_execution(machine, expression):
    """Nested operations, lazy to the end, on several streams of one device."""
    streams = [stream for stream in machine.streams if stream.device.ordinal == 0]
    k = machine.kernels

    def build(e: Any) -> tuple[Any, np.ndarray]:
        if isinstance(e, int):
            return ac.full(N, e, np.int32, device=0), np.full(N, e, np.int32)
        match e:
            case ("accumulate", left, right, number, stream):
                (x, x_value), (y, y_value) = build(left), build(right)
                op = k.accumulate(number, x, y, N, threads=N).on(streams[stream % len(streams)])
                return op, 3 * y_value + number * x_value
            case ("increment", inner, stream):
                x, value = build(inner)
                return k.increment(x, N, threads=N).on(streams[stream % len(streams)]), value + 1
            case ("dup", inner, stream):
                x, value = build(inner)
                return ac.dup(x).on(streams[stream % len(streams)]), value
            case ("then", inner):
                x, value = build(inner)
                return x.then(lambda array: k.increment(array, N, threads=N)), value + 1
            case ("map", inner):
                x, value = build(inner)
                return ac.to_host(x).map(lambda host: host * 2).then(ac.to_device), value * 2
            case _:
                (x, _), (y, value) = build(e[1]), build(e[2])
                return ac.zip(x, y).last(), value

    with np.errstate(over="ignore"):
        op, expected = build(expression)
    np.testing.assert_array_equal(ac.to_host(op).sync(), expected)
