"""With ``AIOCUDA_DEBUG``, an operation that was built and never executed is told at its end."""

from __future__ import annotations

import textwrap

import pytest

PRELUDE = """
import asyncio, gc, sys, threading
import numpy as np
import aiocuda as ac
SOURCE = r'''
extern "C" __global__ void increment(int* x) { x[0] += 1; }
extern "C" __global__ void both(int* x, int* y) { x[0] = y[0] = 1; }
'''
increment, both = ac.kernel(SOURCE, "increment"), ac.kernel(SOURCE, "both")
x, y = ac.zeros(4, np.int32).sync(), ac.zeros(4, np.int32).sync()
"""


@pytest.fixture
def told(in_process):
    """Run a program with or without the variable; return what it says of operations."""

    def run_program(program: str, debug: str = "1") -> list[str]:
        done = in_process(PRELUDE + textwrap.dedent(program), AIOCUDA_DEBUG=debug)
        assert done.returncode == 0, done.stderr
        lines = done.stderr.splitlines()
        assert all(line.startswith(("aiocuda: ", "  ")) for line in lines), done.stderr
        return [line for line in lines if "never executed" in line]

    return run_program


UNUSED = {
    "ac.ones(3)": "the creation of an array",
    "increment(x, threads=1)": "the launch of increment",
    "ac.fill(x, 1)": "a fill",
    "ac.to_host(increment(x, threads=1))": "a copy to the host",
    "ac.zip(ac.ones(3), ac.zeros(3))": "a zip",
    "ac.ones(3).then(ac.dup)": "a then() callback",
    "ac.ones(3).map(print)": "a map() callback",
    "ac.call(print, x, writes=[x])": "a call of print",
    "x.to(0).first()": None,
    "ac.zip(ac.ones(3), ac.ones(3)).unzip()": "a zip",
    "both(x, y, threads=1).first()": "the launch of both",
    "ac.ones(3).schedule(0)": "the creation of an array",
    "kept.append(ac.ones(3))": "the creation of an array",
    "kept.append((lambda op: (op, kept.append(op)))(ac.fill(x, 1)))": "a fill",
    "ac.zeros(3).graph().launch()": "a launch of a graph",
}


def test_what_is_never_executed_is_told_with_its_line(told):
    lines = told(f"kept = []\nline = sys._getframe().f_lineno\nprint(line)\n{chr(10).join(UNUSED)}\ndel line")
    first = PRELUDE.count("\n") + 4
    for number, (built, title) in enumerate(UNUSED.items(), first):
        found = [line for line in lines if f"<string>:{number}," in line]
        assert len(found) == 1, (built, found, lines)
        if title is not None:
            assert found[0] == (
                f"aiocuda: {title}, built at <string>:{number}, was never executed; await it, or call its sync() or "
                "submit()"
            )
    assert len(lines) == len(UNUSED)


ASKED = """
async def awaited(op):
    return await op
ac.ones(3).sync()
increment(ac.zeros(3, np.int32), threads=1).submit()
asyncio.run(awaited(ac.to_host(ac.ones(3))))
a, b = ac.zip(ac.ones(3), ac.zeros(3)).unzip()
b.sync()
first, second = both(x, y, threads=1).unzip()
first.sync()
kept = ac.ones(3)
ac.dup(kept).sync()
constant = ac.value(3)
constant.map(lambda value: value).sync()
recorded = ac.dup(x)
graph = ac.zip(recorded, number := ac.value(3)).graph()
graph.launch().sync()
scalar = ac.value(np.int32(7))
with ac.graph_scope() as scope:
    scope.record(ac.fill(x, 1))
compiled = ac.compile(lambda array, number: increment(ac.dup(array), threads=1))
compiled(x, 3).sync()
compiled(ac.dup(x), 4).sync()
ac.fill(x, 1).explain()
ac.ones(3).schedule(0).cancel()
scalar.sync()
failing = ac.zip(ac.ones(2), ac.value(1).then(lambda _: 1 / 0), ac.zeros(2))
picking = ac.ones(3).then(lambda _: ac.zip(1, ac.ones(2)).unzip()[0])
for op in (failing, picking):
    try:
        op.sync()
    except ZeroDivisionError:
        pass
fail_to_build = lambda: increment(1, threads=1), lambda: ac.ones(-1), lambda: ac.fill(x, "x"), lambda: ac.copy(x, y[1:])
for bad in fail_to_build:
    try:
        bad()
    except ac.AiocudaError:
        pass
async def main():
    await ac.wait([ac.ones(3), ac.zeros(3)])
    async for _ in ac.as_completed([ac.ones(3)]):
        pass
    task = asyncio.ensure_future(awaited(ac.to_host(ac.ones(3)).map(lambda value: value)))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
asyncio.run(main())
"""


def test_what_was_asked_for_is_not_told(told):
    assert told(ASKED) == []


def test_nothing_is_told_where_nobody_debugs(told):
    assert told("\n".join(["kept = []", *UNUSED]), "") == []
    assert told("assert not hasattr(ac.DeviceOp, '__del__')", "0") == []


def test_a_program_without_stderr_is_told_nothing_and_keeps_its_stdout(in_process):
    program = PRELUDE + "sys.stderr = None\nkept = ac.ones(3)\nac.zeros(3)\nprint('end')"
    done = in_process(program, AIOCUDA_DEBUG="1")
    assert (done.returncode, done.stdout) == (0, "end\n")


def test_what_outlives_the_interpreter_is_told_once(told):
    lines = told("import ctypes\nop = ac.ones(3)\nctypes.pythonapi.Py_IncRef(ctypes.py_object(op))")
    assert len(lines) == 1
