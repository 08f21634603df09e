"""With ``AIOCUDA_DEBUG`` a process tells what held its event loop up for long, with the line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._engine import held_up


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[str]]]:
    """Have everything told, however short; return the lines."""
    capsys.readouterr()
    held_up.watch(0.0)
    yield lambda: capsys.readouterr().err.splitlines()
    held_up.restore(None)


def line() -> str:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno}"


def test_awaits_and_submissions(run, told):
    async def program():
        places = []
        op, _ = ac.full(4, 1, np.int32).then(lambda x: x), places.append(line())
        await op
        op, _ = ac.full(4, 1, np.int32), places.append(line())
        op.submit()
        op, _ = ac.full(4, 1, np.int32), places.append(line())
        op.sync()
        return places

    places = run(program)
    lines = told()
    for place in places:
        assert any(f"built at {place}, held the event loop up for" in each for each in lines), place


def test_compilations_and_graphs(run, told):
    kernel = ac.kernel('extern "C" __global__ void held_up(int* x) {}')

    async def program():
        places = []
        kernel.compile(), places.append(line())
        ac.full(4, 1, np.int32).graph(), places.append(line())
        return places

    compiled, made = run(program)
    lines = told()
    assert any(each.startswith(f"aiocuda: loading kernel held_up on device 0, at {compiled}, held") for each in lines)
    assert any(each.startswith(f"aiocuda: making a graph, at {made}, held") for each in lines)


def test_threads_without_a_loop_are_not_told_of(told):
    ac.full(4, 1, np.int32).sync()
    assert told() == []


def test_the_environment_variable_asks_for_it(in_process):
    program = """
import asyncio, time
import aiocuda as ac
def slow(x):
    until = time.monotonic() + 0.06
    while time.monotonic() < until: pass
async def main():
    await ac.value(1).map(slow)
asyncio.run(main())
"""
    done: Any = in_process(program, AIOCUDA_DEBUG="1")
    assert "built at <string>:8, held the event loop up for" in done.stderr
