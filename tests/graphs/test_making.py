"""Graphs that another thread makes, while the event loop goes on.

The emulated driver holds the call that makes a graph executable. The setting that says so is read when the driver
starts, so each test has a process of its own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import errno, faulthandler, os, signal, threading
faulthandler.dump_traceback_later(100, exit=True)  # where the lock of the interpreter is kept, nothing else would
import anyio
import numpy as np
import aiocuda as ac

PATH = os.environ["AIOCUDA_EMULATOR_HOLD"] + "/cuGraphInstantiateWithFlags.0"
STEP = ac.kernel('extern "C" __global__ void step(int* x) { x[0] = 3 * x[0] + 2; }')
STEP.compile()
pipe = None


def step(x):
    return STEP(x, grid=1, block=1)


@ac.compile
def twice(x):
    return step(step(x))


def hold():
    os.mkfifo(PATH)


def has_begun():
    global pipe
    try:
        pipe = os.open(PATH, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO, error
        return False
    return True


def release(answer=""):
    os.write(pipe, answer.encode())
    os.close(pipe)


async def until_begun():
    while not has_begun():
        await anyio.lowlevel.checkpoint()


async def starts(group, name, awaited, ended):
    async def wait():
        try:
            ended.append((name, await awaited))
        except ac.AiocudaError as error:
            ended.append((name, error))

    group.start_soon(wait)
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


def run(program):
    loop = os.environ["LOOP"]
    options = {"use_uvloop": True} if loop == "uvloop" else {}
    anyio.run(program, backend="trio" if loop == "trio" else "asyncio", backend_options=options)


def ones():
    return ac.ones(1, np.int32).sync()


def value_of(x):
    return int(ac.to_host(x).sync()[0])


x, y, other = ones(), ones(), ones()
step(ones()).graph()  # the driver has room for graphs from here on: making room is a call as well
"""

Program = Callable[[str], Any]

pytestmark = pytest.mark.emulated_only


@pytest.fixture
def program(in_process: Callable[..., Any], tmp_path: Path) -> Program:
    """Run a program that holds the making of a graph; it fails the test, or ends well."""

    def run(text: str, **environment: str) -> Any:
        said = in_process(PROGRAM + textwrap.dedent(text), AIOCUDA_EMULATOR_HOLD=str(tmp_path), **environment)
        assert said.returncode == 0, said.stderr
        return said

    return run


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def on_loop(request: pytest.FixtureRequest, program: Any) -> Program:
    """Run an async program on each kind of loop."""
    return lambda text: program(text, LOOP=request.param)


def test_the_loop_goes_on_while_the_graph_of_a_compiled_function_is_made(on_loop):
    on_loop("""
        async def main():
            hold()
            ended = []
            async with anyio.create_task_group() as group:
                await starts(group, "first", twice(x), ended)
                await until_begun()
                await starts(group, "another", twice(y), ended)
                await starts(group, "of an operation", twice(ac.dup(other)), ended)
                for _ in range(3):
                    await step(other)
                assert ended == [], ended
                release()
            assert {name for name, _ in ended} == {"first", "another", "of an operation"}
            assert [value_of(each) for each in (x, y, dict(ended)["of an operation"])] == [17, 17, 17], ended
            assert value_of(other) == 53
            assert twice.cache_info().graphs == 1

        run(main)
    """)


def test_a_time_out_and_a_cancellation_leave_the_making_for_the_next(on_loop):
    on_loop("""
        async def main():
            hold()
            late = twice(x)
            try:
                await late.within(0.01)
            except ac.DeviceTimeoutError as error:
                assert "a graph that is being made" in str(error), error
            else:
                raise AssertionError
            async with anyio.create_task_group() as group:
                await starts(group, "cancelled", twice(y), [])
                await until_begun()
                group.cancel_scope.cancel()
            release()
            await late
            assert (value_of(x), value_of(y)) == (17, 1)
            await twice(y)
            assert value_of(y) == 17

        run(main)
    """)


def test_a_refusal_is_the_error_of_each_who_waits_and_the_next_makes_it_anew(on_loop):
    on_loop("""
        async def main():
            hold()
            ended = []
            async with anyio.create_task_group() as group:
                await starts(group, "first", twice(x), ended)
                await starts(group, "second", twice(y), ended)
                await until_begun()
                release("2")
            errors = [error for _, error in ended]
            assert len({id(error) for error in errors}) == 2
            for error in errors:
                assert isinstance(error, ac.DriverError) and error.code == 2, error
                assert "cuGraphInstantiateWithFlags" in str(error), error
            await twice(x)
            assert (value_of(x), value_of(y)) == (17, 1)

        run(main)
    """)


@pytest.mark.parametrize("form", ["graph_async", "graph_scope"])
def test_a_graph_is_made_without_blocking_the_loop(on_loop, form):
    on_loop(f"""
        async def scoped():
            async with ac.graph_scope(x=x) as scope:
                scope.record(step(x))
                scope.record(step(x))
            return scope.graph

        async def main():
            hold()
            ended = []
            making = scoped() if "{form}" == "graph_scope" else step(step(x)).graph_async(x=x)
            async with anyio.create_task_group() as group:
                await starts(group, "graph", making, ended)
                await until_begun()
                for _ in range(3):
                    await step(other)
                assert ended == []
                release()
            graph = ended[0][1]
            assert value_of(x) == 1
            await graph.launch()
            await graph.launch(x=y)
            assert (value_of(x), value_of(y), value_of(other)) == (17, 17, 53)
            assert graph.statistics().instantiations == 1

        run(main)
    """)


def test_a_graph_that_a_thread_makes_holds_up_no_submission(on_loop):
    on_loop("""
        async def main():
            hold()
            made = []
            thread = threading.Thread(target=lambda: made.append(step(step(x)).graph()))
            thread.start()
            await until_begun()
            for _ in range(3):
                await step(other)
            assert not made
            release()
            thread.join()
            await made[0].launch()
            assert (value_of(x), value_of(other)) == (17, 53)

        run(main)
    """)


def test_a_function_within_a_submission_makes_or_awaits_the_graph(program):
    program("""
        ac.value(0).then(lambda _: twice(x).sync()).sync()  # makes it itself
        assert value_of(x) == 17

        @ac.compile
        def thrice(x):
            return step(step(step(x)))

        hold()
        first = threading.Thread(target=lambda: thrice(x).sync())
        first.start()
        while not has_begun():
            pass
        second = threading.Thread(target=lambda: ac.value(0).then(lambda _: thrice(y).sync()).sync())
        second.start()
        release()
        first.join()
        second.join()
        assert (value_of(x), value_of(y)) == (3**3 * 17 + 26, 3**3 + 26)
    """)


def test_ctrl_c_ends_a_wait_at_once(program):
    program("""
        hold()
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def interrupt():
            while not has_begun():
                pass
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            twice(x).sync()
        except KeyboardInterrupt:
            assert value_of(x) == 1
        else:
            raise AssertionError
        release()
        twice(x).sync()
        assert value_of(x) == 17
    """)


def test_the_process_ends_when_the_graph_is_made(program):
    program("""
        hold()
        threading.Thread(target=lambda: twice(x).sync(), daemon=True).start()
        while not has_begun():
            pass
        threading.Thread(target=lambda: (threading.main_thread().join(), release())).start()
    """)
