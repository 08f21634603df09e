"""An operation whose kernel is not compiled yet waits for that, as for anything else, and holds up nobody."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._engine import background

STEP = 'extern "C" __global__ void {name}(int* x) {{ x[0] = {factor} * x[0] + {term}; }}'


def step(name: str, factor: int = 1, term: int = 1) -> Any:
    """Make a kernel that nobody has compiled."""
    return ac.kernel(STEP.format(name=name, factor=factor, term=term))


def launch(kernel: Any, x: Any) -> Any:
    return kernel(x, grid=1, block=1)


def value_of(x: Any) -> int:
    return int(ac.to_host(x).sync()[0])


@pytest.fixture
def x() -> Any:
    return ac.ones(1, np.int32).sync()


@pytest.fixture(scope="module")
def ready() -> Any:
    """A kernel that was loaded before any compiler is held."""
    kernel = step("ready_one", 3, 0)
    kernel.compile()
    return kernel


async def turns() -> None:
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


class Tasks:
    """Awaits that begin one after another, and what came of them, in the order in which they ended."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.ended: list[str] = []

    async def start(self, name: str, awaited: Callable[[], Awaitable[Any]]) -> None:
        async def wait() -> None:
            await awaited()
            self.ended.append(name)

        self._group.start_soon(wait)
        await turns()


def test_the_loop_and_the_operations_of_others_go_on(run, compiler, ready, x):
    kernel, other = step("awaited", 10, 5), ac.ones(1, np.int32).sync()

    async def program():
        async with anyio.create_task_group() as group:
            tasks = Tasks(group)
            await tasks.start("compiles", lambda: launch(kernel, x))
            await compiler.until_begun()
            await tasks.start("shares", lambda: launch(kernel, x))
            for _ in range(3):
                await launch(ready, other)
            assert not tasks.ended
            compiler.released.set()
        return tasks.ended

    assert sorted(run(program)) == ["compiles", "shares"]
    assert (value_of(x), value_of(other)) == (155, 27)
    assert len(compiler.threads) == 1
    assert compiler.threads[0] is not threading.current_thread()


def test_a_cancelled_await_leaves_the_compilation_for_the_next(run, compiler, x):
    kernel = step("cancelled")

    async def program():
        async with anyio.create_task_group() as group:
            await Tasks(group).start("cancelled", lambda: launch(kernel, x))
            await compiler.until_begun()
            group.cancel_scope.cancel()
        compiler.released.set()
        await launch(kernel, x)

    run(program)
    assert value_of(x) == 2
    assert len(compiler.threads) == 1


def test_a_time_out_ends_the_wait_and_the_operation_can_be_awaited_again(run, compiler, x):
    op = launch(step("late"), x)

    async def program():
        with pytest.raises(ac.DeviceTimeoutError, match=r"the launch of late .* for a kernel that is being compiled"):
            await op.within(0.01)
        await compiler.until_begun()
        compiler.released.set()
        await op

    run(program)
    assert value_of(x) == 2
    assert len(compiler.threads) == 1


def test_a_time_out_ends_a_wait_that_blocks(compiler, x):
    op = launch(step("late_too"), x)
    with pytest.raises(ac.DeviceTimeoutError):
        op.sync(timeout=0.01)
    future = op.schedule(ac.Device(0))
    with pytest.raises(ac.DeviceTimeoutError):
        future.sync(timeout=0.01)
    assert not future.done()
    compiler.released.set()
    future.sync()
    assert value_of(x) == 2
    assert len(compiler.threads) == 1


@pytest.mark.parametrize("form", ["scheduled", "within", "called back", "as_completed", "wait"])
def test_futures_go_on_when_their_kernel_is_there(run, compiler, ready, x, form):
    op, other = launch(step("of_a_future"), x), launch(ready, ac.ones(1, np.int32).sync())

    async def program():
        compiled = op.schedule(ac.Device(0))
        told = anyio.Event()
        match form:
            case "called back":
                compiled.add_done_callback(lambda _: told.set())
                await compiler.until_begun()
                assert not compiled.done()
                compiler.released.set()
                await told.wait()
            case "as_completed":
                futures = [compiled, other.schedule(ac.Device(0))]
                arrived = []
                async for future in ac.as_completed(futures):
                    arrived.append(futures.index(future))
                    compiler.released.set()
                assert arrived == [1, 0]
            case "wait":
                done, pending = await ac.wait([compiled, other], return_when="FIRST_COMPLETED")
                assert (len(done), pending) == (1, {compiled})
                compiler.released.set()
                await compiled
            case _:
                async with anyio.create_task_group() as group:
                    awaited = (lambda: compiled) if form == "scheduled" else (lambda: compiled.within(60))
                    await Tasks(group).start("first", awaited)
                    await Tasks(group).start("second", awaited)
                    await compiler.until_begun()
                    compiler.released.set()

    run(program)
    assert value_of(x) == 2
    assert len(compiler.threads) == 1


def test_a_cancelled_future_does_not_launch(run, compiler, x):
    kernel = step("given_up")
    future = launch(kernel, x).schedule(ac.Device(0))

    async def program():
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                with pytest.raises(ac.CancelledError):
                    await future

            group.start_soon(wait)
            await compiler.until_begun()
            future.cancel()
        compiler.released.set()
        await kernel.compile_async()

    run(program)
    assert value_of(x) == 1


def test_an_error_of_the_compiler_reaches_all_who_wait_with_a_line_of_their_own(run, compiler, x):
    broken = ac.kernel('extern "C" __global__ void broken(int* x) {\n    x[0] = missing;\n}\n')
    first = broken(x, grid=1, block=1)
    second = broken(x, grid=1, block=1)

    async def program():
        errors: dict[str, ac.CompilationError] = {}

        async def wait(name: str, awaited: Any) -> None:
            with pytest.raises(ac.CompilationError, match=r"broken\.cu") as caught:
                await awaited
            errors[name] = caught.value

        async with anyio.create_task_group() as group:
            group.start_soon(wait, "first", first)
            group.start_soon(wait, "second", ac.dup(second))
            group.start_soon(wait, "asked for", broken.compile_async())
            await compiler.until_begun()
            await turns()
            compiler.released.set()
        return errors

    errors = run(program)
    assert len({id(each) for each in errors.values()}) == 3
    lines = [op._origin[1] for op in (first, second)]
    for name, line in zip(("first", "second"), lines, strict=True):
        (note,) = errors[name].__notes__
        assert note.startswith("The kernel was needed by the launch of broken")
        assert note.endswith(f"{__file__}:{line}.")
    assert not hasattr(errors["asked for"], "__notes__")
    assert (first._state, second._state) == ("failed", "failed")
    assert len(compiler.threads) == 1
    with pytest.raises(ac.CompilationError, match=r"broken\.cu") as again:
        first.sync()
    assert again.value is errors["first"]


def test_what_touches_the_same_memory_comes_behind_whatever_is_compiled(run_asyncio, compiler, ready, x):
    y, z = (ac.ones(1, np.int32).sync() for _ in range(2))
    kernel = step("adds", 1, 1)

    async def program():
        async with anyio.create_task_group() as group:
            tasks = Tasks(group)
            await tasks.start("compiles", lambda: launch(kernel, x))
            await compiler.until_begun()
            await tasks.start("behind it", lambda: ac.zip(launch(ready, x), launch(ready, y)))
            await tasks.start("behind that", lambda: ac.fill(y, 7))
            await tasks.start("reads", lambda: ac.to_host(x))
            await launch(ready, z)  # touches nothing of that
            assert not tasks.ended
            compiler.released.set()

    run_asyncio(program)
    assert [value_of(each) for each in (x, y, z)] == [6, 7, 3]


def test_the_operations_of_one_dag_keep_their_order(compiler, ready, x):
    compiler.released.set()
    ac.zip(launch(step("goes_first"), x), launch(ready, x), launch(step("goes_last"), x)).sync()
    assert value_of(x) == 7
    launch(step("outer", 2, 0), launch(step("inner"), x)).sync()
    assert value_of(x) == 16


def test_nobody_waits_behind_an_await_that_was_cancelled_for_longer_than_the_compiler_takes(run, compiler, ready, x):
    async def program():
        async with anyio.create_task_group() as group:
            await Tasks(group).start("cancelled", lambda: launch(step("gone"), x))
            await compiler.until_begun()
            group.cancel_scope.cancel()
        await launch(ready, x)  # it has claimed nothing any more
        compiler.released.set()

    run(program)
    assert value_of(x) == 3


@pytest.mark.parametrize("how", ["sync", "submit", "graph"])
def test_a_thread_that_blocks_holds_up_nobody(run, compiler, ready, x, how):
    op, other = launch(step(f"blocks_{how}"), x), ac.ones(1, np.int32).sync()
    made = []
    thread = threading.Thread(target=lambda: made.append(getattr(op, how)()))

    async def program():
        thread.start()
        await compiler.until_begun()
        for _ in range(3):
            await launch(ready, other)
        assert not made
        compiler.released.set()

    run(program)
    thread.join()
    if how == "submit":
        made[0].sync()
    if how == "graph":
        made[0].launch().sync()
    assert (value_of(x), value_of(other)) == (2, 27)


def test_what_is_submitted_is_on_the_device_in_the_order_of_the_program(ready, x):
    first = launch(step("submitted_first"), x).submit()
    second = launch(ready, x).submit()
    ac.current_device().synchronize().sync()
    assert (first.done(), second.done()) == (True, True)
    assert value_of(x) == 6


def test_so_many_kernels_are_compiled_at_once_and_no_more(run, compiler):
    count = 2 * background._MOST_THREADS
    kernels = [step(f"one_of_{count}_{index}", 1, index) for index in range(count)]
    arrays = [ac.ones(1, np.int32).sync() for _ in kernels]

    async def program():
        async with anyio.create_task_group() as group:
            for kernel, array in zip(kernels, arrays, strict=True):
                await Tasks(group).start("one of many", lambda kernel=kernel, array=array: launch(kernel, array))
            for _ in range(background._MOST_THREADS):
                await compiler.until_begun()
            await turns()
            assert len(compiler.threads) == background._MOST_THREADS
            compiler.released.set()

    run(program)
    assert [value_of(each) for each in arrays] == [1 + index for index in range(count)]
    assert len(compiler.threads) == count


HOLDS = """
import os, signal, sys, threading
import numpy as np
import aiocuda as ac
from aiocuda import _driver
compile_sources = _driver.compile_sources
begun, released = threading.Event(), threading.Event()
def held(*given):
    begun.set()
    meanwhile()
    assert released.wait(60)
    return compile_sources(*given)
_driver.compile_sources = held
x = ac.ones(1, np.int32).sync()
kernel = ac.kernel('extern "C" __global__ void add(int* x) { x[0] += 1; }')
def launch(): return kernel(x, grid=1, block=1)
"""


@pytest.mark.parametrize(
    "waits",
    [
        "launch().sync()",
        "launch().submit()",
        "launch().schedule(ac.Device(0)).sync()",
        "kernel.compile()",
        "launch().graph()",
    ],
)
def test_ctrl_c_ends_a_wait_at_once(in_process, waits):
    program = f"""
signal.signal(signal.SIGINT, signal.default_int_handler)
def meanwhile(): os.kill(os.getpid(), signal.SIGINT)
try:
    {waits}
except KeyboardInterrupt:
    print("interrupted")
meanwhile = lambda: None
released.set()
launch().sync()
print(ac.to_host(x).sync())
"""
    assert in_process(HOLDS + program).stdout.split("\n")[:2] == ["interrupted", "[2]"]


def test_ctrl_c_ends_an_await_at_once(in_process):
    program = """
import asyncio
signal.signal(signal.SIGINT, signal.default_int_handler)
def meanwhile(): os.kill(os.getpid(), signal.SIGINT)
async def main(): await launch()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", released.is_set())
released.set()
"""
    assert in_process(HOLDS + program).stdout == "interrupted False\n"


def test_the_process_ends_when_the_compilation_has_ended(in_process):
    program = """
def meanwhile(): pass
def wait():
    launch().sync()
    print("launched", ac.to_host(x).sync())
threading.Thread(target=wait).start()
threading.Thread(target=lambda: launch().sync(), daemon=True).start()
begun.wait()
threading.Thread(target=lambda: (threading.main_thread().join(), released.set())).start()
"""
    done = in_process(HOLDS + program)
    assert done.stdout.startswith("launched [")


def test_a_process_that_is_forked_while_a_kernel_is_compiled(in_process):
    program = """
def meanwhile(): pass
waiting = threading.Thread(target=lambda: launch().sync())
waiting.start()
begun.wait()
child = os.fork()
if child == 0:
    asked = kernel.compile_async().__await__()
    for refused in (lambda: launch().sync(), kernel.compile, kernel.attributes, asked.__next__):
        try:
            refused()
        except ac.ForkedProcessError:
            pass
        else:
            os._exit(1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
released.set()
waiting.join()
print(ac.to_host(x).sync())
"""
    assert in_process(HOLDS + program).stdout == "[2]\n"


def test_who_asks_again_when_he_is_told_of_a_failure_begins_anew(monkeypatch):
    again, told = [], threading.Event()
    works = background.Background()

    def end(work):
        _native.HostWork.end(work)
        if not again:
            again.append(works.begin("key", lambda: None, "the second time"))
            told.set()

    monkeypatch.setattr(background.Work, "end", end, raising=False)
    first = works.begin("key", lambda: 1 / 0, "the first time")
    assert told.wait(60)
    with pytest.raises(ZeroDivisionError):
        first.require_done()
    assert again[0] is not first
    again[0].require_done()


def test_work_that_exits_its_thread_leaves_room_for_later_work(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    threads = background._Threads(1)
    done = threading.Event()

    def leave() -> None:
        raise SystemExit

    assert threads.do(leave, "leaving")
    assert threads.do(done.set, "later")
    assert done.wait(20)
    assert [each.exc_type for each in reported] == [SystemExit]
