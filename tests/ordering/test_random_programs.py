"""Promise 1: whatever a program does on whatever streams and devices, its result is the sequential one.

Random programs run twice: by aiocuda, in pieces that are awaited, submitted, scheduled, cancelled or left lazy as they
come, and by an interpreter in NumPy (`interpreter`, which says what submission order is), one operation after another.
`AIOCUDA_HYPOTHESIS=long` runs ten thousand of each kind.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreter import Interpreter
from machine import Machine
from programs import Program

import aiocuda as ac
from aiocuda._driver import checking

ROOT = Path(__file__).parents[2]
CHECKS_RACES = "AIOCUDA_EMULATOR_CHECK"
IS_LONG = settings().max_examples > 1000
pytestmark = pytest.mark.timeout(0 if IS_LONG else 120)

MAKE = ["full", "upload"]
CHANGE = [
    "increment",
    "accumulate",
    "accumulate",
    "mix",
    "copy",
    "fill",
    "dup",
    "to",
    "part",
    "part",
    "zip",
    "then",
    "call",
]
RUN = ["submit", "sync", "sync_on", "schedule", "await", "task", "cancelled", "unstarted", "read", "handle"]
NUMBERS = (st.integers(0, 3), st.integers(0, 3), st.integers(-5, 5), st.integers(0, 5))


def steps(kinds: list[str], most: int) -> st.SearchStrategy[list[tuple[str, int, int, int, int]]]:
    """Say what to do, with which slots, a number, and where; the numbers count modulo what there is."""
    return st.lists(st.tuples(st.sampled_from(["pass", *kinds]), *NUMBERS), min_size=most // 3, max_size=most)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.close()


def check_races() -> None:
    """Raise what the driver found, where it looks for it: after each program, so that it is shrunk."""
    if CHECKS_RACES in os.environ:
        for device in ac.devices():
            device.synchronize().sync()
        checking.raise_races()


def times(factor: float) -> settings:
    """Run more, or fewer, examples than others, as long as they are not thousands; where races are looked for, half."""
    examples = int(factor * settings().max_examples) // (1 + (CHECKS_RACES in os.environ))
    return settings(max_examples=min(10_000, examples))


def run_program(machine: Machine, latches, policy: int, watched: bool, devices: list[int], program) -> None:
    interpreter = Interpreter()
    running = Program(machine, interpreter, latches, watched=watched, predicts=True)
    try:
        with ac.use(machine.policy(policy)):
            running.start(devices)
            for step in program:
                running.step(*step)
            running.finish()
    finally:
        running.release()
    running.check()
    check_races()
    if watched:
        assert interpreter.seen == interpreter.order


@times(4)
@given(
    policy=st.integers(0, 9),
    watched=st.booleans(),
    devices=st.lists(st.integers(0, 1), min_size=4, max_size=4),
    program=steps([*MAKE, *CHANGE, *CHANGE, *RUN, "map", "hold", "hold", "fail"], 30),
)
def test_a_program_has_its_sequential_meaning(machine, latches, policy, watched, devices, program):
    run_program(machine, latches, policy, watched, devices, program)


@times(2)
@given(
    policy=st.integers(0, 9),
    program=steps([*CHANGE, "part", "part", "copy", "call", "submit", "submit", "handle", "hold"], 30),
)
def test_views_of_one_array_have_their_sequential_meaning(machine, latches, policy, program):
    """All slots are parts of one array, and whatever is done is done behind a latch."""
    interpreter = Interpreter()
    running = Program(machine, interpreter, latches, watched=False, predicts=True)
    try:
        with ac.use(machine.policy(policy)):
            whole = running.handle_of(running.upload(0, 1))
            keys = [slice(None), slice(0, 12), slice(6, 18), slice(1, None, 3)]
            running.slots = [running.part(whole, key) for key in keys]
            running.hold(0, policy)
            for step in program:
                running.step(*step)
            running.read(whole)
            running.finish()
    finally:
        running.release()
    running.check()
    check_races()


TOGETHER = [*CHANGE, "submit", "submit", "sync", "handle", "handle", "read", "map"]


@given(policy=st.integers(0, 9), shares=st.lists(steps(TOGETHER, 10), min_size=2, max_size=3))
def test_threads_that_share_arrays_have_the_meaning_of_what_was_submitted_first(machine, policy, shares):
    interpreter = Interpreter()
    programs = [Program(machine, interpreter, None, watched=True, predicts=False) for _ in shares]
    shared = shared_slots(programs[0])
    barrier = threading.Barrier(len(shares))
    failures: list[BaseException] = []

    def work(program: Program, share) -> None:
        try:
            with ac.use(machine.policy(policy)):
                program.slots = list(shared)
                barrier.wait(60)
                for step in share:
                    program.step(*step)
        except BaseException as error:  # noqa: BLE001 - raised below, where pytest sees it
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(programs, shares, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    check_together(interpreter, programs)


@given(
    policy=st.integers(0, 9),
    shares=st.lists(steps([*TOGETHER, "yield", "background", "background", "cancel"], 10), min_size=2, max_size=3),
)
def test_tasks_that_share_arrays_have_the_meaning_of_what_was_submitted_first(machine, latches, policy, shares):
    interpreter = Interpreter()
    programs = [Program(machine, interpreter, latches, watched=True, predicts=False) for _ in shares]
    shared = shared_slots(programs[0])

    async def work(program: Program, share) -> None:
        program.slots = list(shared)
        going: list[asyncio.Task[object]] = []
        for what, a, b, c, where in share:
            op = program.slots[a % len(program.slots)].op
            if what == "background":
                going.append(asyncio.ensure_future(awaited(op)))
            elif what == "cancel" and going:
                going[c % len(going)].cancel()
            elif what == "sync":
                await op
            elif what not in {"yield", "cancel"}:
                program.step(what, a, b, c, where)
            await asyncio.sleep(0)
        await asyncio.gather(*going, return_exceptions=True)

    with ac.use(machine.policy(policy)):
        machine.await_(lambda: asyncio.gather(*[work(*pair) for pair in zip(programs, shares, strict=True)]))
    check_together(interpreter, programs)


async def awaited(op) -> object:
    return await op


def shared_slots(program: Program) -> list:
    """Return two arrays, a view of one, and a lazy operation that whoever comes first submits."""
    first, second = (program.handle_of(program.full(0, value)) for value in (1, 2))
    return [first, second, program.part(first, slice(4, 20)), program.accumulated(first, second, 3, 0)]


def check_together(interpreter: Interpreter, programs: list[Program]) -> None:
    for program in programs:
        program.finish()
    interpreter.replay()
    for program in programs:
        program.check()
    check_races()


@times(0.5)
@given(program=steps([*MAKE, *CHANGE, "submit", "handle"], 25), policy=st.integers(0, 9))
def test_what_is_dropped_is_freed(machine, latches, used_bytes, program, policy):
    """Handles, operations and views go as they come, in the middle of the work; in the end nothing is left."""
    before = used_bytes()
    run_program(machine, latches, policy, False, [0, 1, 0, 1], program)
    assert used_bytes() == before


@pytest.mark.emulated_only
@pytest.mark.skipif(CHECKS_RACES in os.environ, reason="this is the run that checks")
@pytest.mark.timeout(0 if IS_LONG else 300)  # more than its program has
def test_the_driver_sees_no_race_in_these_programs():
    """All this again, where the driver has its own account of what is ordered, and reorders what it may."""
    environment = {**os.environ, CHECKS_RACES: "races", "AIOCUDA_EMULATOR_SHUFFLE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "meaning", __file__]
    limit_s = None if IS_LONG else 100
    found = subprocess.run(
        command, env=environment, cwd=ROOT, timeout=limit_s, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
