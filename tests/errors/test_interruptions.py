"""An interruption of a user's function goes to whoever ran the function. An error of aiocuda's tells others of it."""

from __future__ import annotations

import asyncio
import pickle
import threading

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _loops, _native

INTERRUPTIONS = [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit]


class Choosing(ac.SchedulingPolicy):
    """A policy whose `choose` is given."""

    def __init__(self, function):
        super().__init__(streams=2)
        self.choose = function


def compiled(function):
    return ac.compile(lambda x: function(x))(ac.ones(3))


def late(function):
    return ac.to_host(ac.ones(3)).map(function).graph().launch()


MAKERS = {
    "then": lambda function: ac.ones(3).then(function),
    "then, deep": lambda function: ac.zip(ac.ones(3), ac.ones(3).then(lambda x: ac.dup(x).then(function))),
    "inspect": lambda function: ac.ones(3).inspect(function),
    "map": lambda function: ac.to_host(ac.ones(3)).map(function),
    "map, in the middle": lambda function: ac.to_device(ac.to_host(ac.ones(3)).map(function)),
    "call": lambda function: ac.call(lambda stream, x: function(x), x := ac.ones(3), writes=[x]),
    "compile": compiled,
    "choose": lambda function: ac.ones(3).on(Choosing(function)),
    "a graph's map": late,
}
TITLES = {
    "then": "a then() callback",
    "then, deep": "a then() callback",
    "inspect": "an inspect() callback",
    "map": "a map() callback",
    "map, in the middle": "a map() callback",
    "call": "a call of",
    "compile": "a call of compiled.",
    "choose": "the creation of an array",
    "a graph's map": "a launch of a graph",
}


def interrupting(interruption):
    def function(*_):
        raise interruption

    return function


def asked_again(future):
    """Ask a future for its result until it is there: what a function of map() needs comes by itself."""
    while True:
        try:
            return future.result()
        except ac.ArgumentValueError:
            future.done()


def check(error, interruption, maker):
    assert type(error) is ac.OperationInterruptedError
    assert error.__cause__ is interruption
    assert error.interruption == type(interruption).__name__
    assert TITLES[maker] in error.operation
    assert __file__ in error.origin
    assert str(error).startswith(f"{error.operation} (built at {error.origin}) was interrupted: {error.interruption} ")


@pytest.mark.parametrize("kind", INTERRUPTIONS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("way", ["sync", "submit", "future", "result"])
def test_who_runs_the_function_is_interrupted_and_others_are_told(maker, kind, way):
    interruption = kind("mine")
    op = MAKERS[maker](interrupting(interruption))
    behind = ac.zip(op, ac.ones(3))
    run = {
        "sync": op.sync,
        "submit": lambda: op.submit().sync(),
        "future": (future := op.schedule(0)).sync,
        "result": lambda: asked_again(future),
    }[way]
    with pytest.raises(kind) as raised:
        run()
    assert raised.value is interruption
    for ask in (op.sync, behind.sync, op.submit, lambda: ac.dup(op).sync(), future.sync, future.result):
        with pytest.raises(ac.OperationInterruptedError) as told:
            ask()
        check(told.value, interruption, maker)
    assert future.exception() is told.value
    assert not future.cancelled()


@pytest.mark.parametrize("kind", INTERRUPTIONS)
@pytest.mark.parametrize("maker", MAKERS)
def test_of_several_tasks_one_is_interrupted(run, maker, kind, latch, device):
    interruption = kind("mine")
    ended = []

    async def wait(awaitable):
        try:
            await awaitable
        except BaseException as error:
            ended.append(error)
            if isinstance(error, asyncio.CancelledError) and error is not interruption:
                raise

    async def main():
        op = MAKERS[maker](interrupting(interruption))
        latch.hold(device)
        async with anyio.create_task_group() as group:
            for awaitable in (op, op, ac.zip(op, ac.ones(3)), op.schedule(device)):
                group.start_soon(wait, awaitable)
            await anyio.lowlevel.checkpoint()
            latch.release()

    run(main)
    assert ended.count(interruption) == 1
    others = [error for error in ended if error is not interruption]
    assert len(others) == 3
    for error in others:
        check(error, interruption, maker)


@pytest.mark.parametrize("kind", INTERRUPTIONS)
def test_of_several_threads_one_is_interrupted(kind):
    interruption = kind("mine")
    begun, go_on = threading.Event(), threading.Event()

    def function(_):
        begun.set()
        go_on.wait()
        raise interruption

    op = ac.to_host(ac.ones(3)).map(function)
    behind = ac.to_device(op)
    ended = []

    def wait(op):
        try:
            op.sync()
        except BaseException as error:  # noqa: BLE001 - looked at below
            ended.append(error)

    threads = [threading.Thread(target=wait, args=(each,)) for each in (op, op, behind, behind)]
    threads[0].start()
    begun.wait()
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert ended[0] is interruption or interruption in ended
    others = [error for error in ended if error is not interruption]
    assert len(others) == 3
    for error in others:
        check(error, interruption, "map")


@pytest.mark.parametrize("kind", INTERRUPTIONS)
def test_a_graph_in_the_making(kind):
    interruption = kind("mine")
    op = ac.ones(3).then(interrupting(interruption))
    with pytest.raises(kind) as raised:
        ac.dup(op).graph()
    assert raised.value is interruption
    with pytest.raises(ac.OperationInterruptedError) as told:
        op.sync()
    check(told.value, interruption, "then")


def test_callbacks_are_called_after_an_interruption(run_asyncio, latch):
    async def main():
        loop = asyncio.get_running_loop()
        reported, called = [], loop.create_future()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        interruption = asyncio.CancelledError("mine")
        latch.hold()  # else who adds the callback may run the function
        future = ac.to_host(ac.ones(3)).map(interrupting(interruption)).schedule(0)
        future.add_done_callback(called.set_result)
        latch.release()
        assert await called is future
        check(future.exception(), interruption, "map")
        assert reported == [interruption]

    run_asyncio(main)


def test_wait_and_as_completed_go_on_after_an_interruption(run):
    async def main():
        interruption = SystemExit("mine")
        good, bad = ac.ones(3).schedule(0), ac.to_host(ac.ones(3)).map(interrupting(interruption)).schedule(0)
        with pytest.raises(SystemExit):
            await ac.wait([bad, good])
        done, pending = await ac.wait([bad, good])
        assert (done, pending) == ({bad, good}, set())
        check(bad.exception(), interruption, "map")
        assert {future async for future in ac.as_completed([bad, good])} == {bad, good}

    run(main)


def test_the_rest_is_undisturbed():
    with pytest.raises(KeyboardInterrupt):
        ac.ones(3).then(interrupting(KeyboardInterrupt())).sync()
    assert np.array_equal(ac.to_host(ac.ones(3)).sync(), np.ones(3))


def test_the_error_is_pickled():
    error = ac.OperationInterruptedError("a map() callback", "file.py:3", "KeyboardInterrupt")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_that_comes_as_native_code_asks_python_is_not_lost(capsys):
    """It comes in the function of aiocuda's that says whether an event loop runs, and can be raised by no one there."""
    asked = []

    def interrupted():
        if not asked:
            asked.append(None)
            raise KeyboardInterrupt
        return False

    _native.set_loop_runs(interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it comes behind the call
            _native.note_stall(60)  # of so many seconds, as a wait tells it
            assert asked
    finally:
        _native.set_loop_runs(_loops.is_running)
    assert asked
    assert capsys.readouterr().err == ""
