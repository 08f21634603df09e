"""Callbacks of futures: once, in order, where they were added, whatever happens to the loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
import trio

import aiocuda as ac

LIBRARY_THREAD = "aiocuda callbacks"


class Boom(Exception):
    """The exception that callbacks raise."""


class Calls:
    """A callback that writes down who called it where, and what waits for the calls."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.futures: list[Any] = []
        self._called = threading.Semaphore(0)

    def __call__(self, future: Any) -> None:
        self.threads.append(threading.current_thread().name)
        self.futures.append(future)
        self._called.release()

    def wait(self, n: int = 1) -> None:
        for _ in range(n):
            assert self._called.acquire(timeout=60)

    async def wait_on_loop(self, n: int = 1) -> None:
        with anyio.fail_after(60):
            while len(self.futures) < n:
                await anyio.lowlevel.checkpoint()


def sevens() -> ac.DeviceOp[Any]:
    return ac.to_host(ac.full(3, 7, np.int32))


def test_it_is_called_on_the_loop_once_it_is_done(run, held):
    calls = Calls()
    future = sevens().submit()

    async def main() -> None:
        future.add_done_callback(calls)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert calls.futures == []
        assert held.is_holding
        held.release()
        await calls.wait_on_loop()
        await future
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

    run(main)
    assert calls.futures == [future]
    assert calls.threads == [threading.current_thread().name]


def test_where_no_loop_runs_the_library_s_thread_calls_it(held):
    calls = Calls()
    future = sevens().submit()
    future.add_done_callback(calls)
    future.add_done_callback(calls)
    held.release()
    calls.wait(2)
    assert calls.futures == [future, future]
    assert calls.threads == [LIBRARY_THREAD] * 2


def test_callbacks_are_called_in_the_order_in_which_they_were_added(run, held):
    order: list[int] = []
    calls = Calls()
    future = sevens().submit()

    async def main() -> None:
        for i in range(20):
            future.add_done_callback(lambda _, i=i: order.append(i))
        future.add_done_callback(calls)
        held.release()
        await calls.wait_on_loop()

    run(main)
    assert order == list(range(20))


def test_those_of_one_thread_are_called_in_order(held):
    order: list[int] = []
    calls = Calls()
    future = sevens().submit()
    for i in range(20):
        future.add_done_callback(lambda _, i=i: order.append(i))
    future.add_done_callback(calls)
    held.release()
    calls.wait()
    assert order == list(range(20))


def test_it_is_never_called_from_within_the_method_that_adds_it(run):
    future = sevens().submit()
    future.sync()
    calls = Calls()

    async def main() -> None:
        future.add_done_callback(calls)
        assert calls.futures == []
        await calls.wait_on_loop()

    run(main)
    assert calls.futures == [future]


def test_what_is_done_already_calls_soon_where_no_loop_runs():
    future = sevens().submit()
    future.sync()
    calls = Calls()
    future.add_done_callback(calls)
    calls.wait()
    assert calls.threads == [LIBRARY_THREAD]


def test_it_is_called_for_an_error(run, held):
    future = sevens().map(lambda _: 1 / 0).submit()
    calls = Calls()

    async def main() -> None:
        future.add_done_callback(calls)
        held.release()
        await calls.wait_on_loop()

    run(main)
    assert isinstance(calls.futures[0].exception(), ZeroDivisionError)


def test_it_is_called_at_once_for_a_cancelled_future(run, held):
    future = sevens().submit()
    calls = Calls()

    async def main() -> None:
        future.add_done_callback(calls)
        await anyio.lowlevel.checkpoint()
        future.cancel()
        await calls.wait_on_loop()
        assert held.is_holding
        held.release()
        await ac.to_host(ac.ones(1))

    run(main)
    assert calls.futures == [future]


def test_it_drives_what_stands_behind_a_map(run, held):
    """Nobody else asks: the callback's waiter calls the map, where the callback is called."""
    threads: list[str] = []
    calls = Calls()

    def add_one(host: Any) -> Any:
        threads.append(threading.current_thread().name)
        return host + 1

    op = ac.to_host(ac.to_device(sevens().map(add_one))).map(add_one)
    future = op.submit()

    async def main() -> None:
        future.add_done_callback(calls)
        held.release()
        await calls.wait_on_loop()

    run(main)
    np.testing.assert_array_equal(future.result(), [9, 9, 9])
    assert threads == [threading.current_thread().name] * 2


def test_it_drives_what_stands_behind_a_map_where_no_loop_runs(held):
    calls = Calls()
    future = ac.to_host(ac.to_device(sevens().map(lambda host: host + 1))).submit()
    future.add_done_callback(calls)
    held.release()
    calls.wait()
    np.testing.assert_array_equal(future.result(), [8, 8, 8])


def test_a_cancelled_future_with_callbacks_goes_no_further(held, settle):
    maps: list[Any] = []
    calls = Calls()
    future = sevens().map(maps.append).submit()
    future.add_done_callback(calls)
    future.cancel()
    calls.wait()
    held.release()
    settle()
    assert maps == []


def test_callbacks_added_on_several_loops_and_none_are_called_on_each(held):
    future = sevens().submit()
    here, on_asyncio, on_trio = Calls(), Calls(), Calls()
    added = threading.Barrier(3)

    async def main(calls: Calls) -> None:
        future.add_done_callback(calls)
        await anyio.to_thread.run_sync(added.wait)
        await calls.wait_on_loop()

    threads = [
        threading.Thread(target=lambda: asyncio.run(main(on_asyncio)), name="one"),
        threading.Thread(target=trio.run, args=(main, on_trio), name="two"),
    ]
    for thread in threads:
        thread.start()
    future.add_done_callback(here)
    added.wait(60)
    held.release()
    here.wait()
    for thread in threads:
        thread.join(60)
    assert (here.threads, on_asyncio.threads, on_trio.threads) == ([LIBRARY_THREAD], ["one"], ["two"])


def test_what_a_callback_raises_is_reported_by_asyncio_and_disturbs_nobody(run_asyncio, held):
    future = sevens().submit()
    calls = Calls()
    reported: list[dict[str, Any]] = []

    def fail(_: Any) -> None:
        raise Boom("no")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        future.add_done_callback(fail)
        future.add_done_callback(calls)
        held.release()
        await calls.wait_on_loop()

    run_asyncio(main)
    assert [type(context["exception"]) for context in reported] == [Boom]


@pytest.fixture
def excepthook(monkeypatch):
    """The errors that reach the program's `threading.excepthook`."""
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: told.append(arguments.exc_value))
    return told


def test_what_a_callback_raises_is_reported_under_trio_and_ends_nothing(held, excepthook):
    future = sevens().submit()
    calls = Calls()

    def fail(_: Any) -> None:
        raise Boom("no")

    async def main() -> None:
        future.add_done_callback(fail)
        future.add_done_callback(calls)
        held.release()
        await calls.wait_on_loop()

    trio.run(main)
    assert [type(error) for error in excepthook] == [Boom]


@pytest.mark.parametrize("kind", [Boom, SystemExit, KeyboardInterrupt])
def test_what_a_callback_raises_on_the_thread_is_reported_and_the_thread_goes_on(kind, held, excepthook):
    future = sevens().submit()
    calls = Calls()

    def fail(_: Any) -> None:
        raise kind("no")

    future.add_done_callback(fail)
    future.add_done_callback(calls)
    held.release()
    calls.wait()
    assert [type(error) for error in excepthook] == [kind]


def test_a_hook_that_fails_itself_does_not_end_the_thread(monkeypatch, capfd):
    def hook(_: Any) -> None:
        raise Boom("the hook")

    monkeypatch.setattr(threading, "excepthook", hook)
    future = ac.value(1).submit()
    calls = Calls()
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(calls)
    calls.wait()
    assert "Boom: the hook" in capfd.readouterr().err


def test_it_is_called_in_the_context_in_which_it_was_added(run, held, device):
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="elsewhere")
    found: list[str] = []
    calls = Calls()
    future = sevens().submit()

    async def main() -> None:
        variable.set("here")
        future.add_done_callback(lambda _: found.append(variable.get()))
        variable.set("later")
        future.add_done_callback(calls)
        held.release()
        await calls.wait_on_loop()

    run(main)
    future.add_done_callback(lambda _: found.append(variable.get()))
    future.add_done_callback(calls)
    calls.wait(2)
    assert found == ["here", "elsewhere"]


def test_a_callback_may_ask_the_future_and_add_another(run, held):
    results: list[Any] = []
    calls = Calls()
    future = sevens().submit()

    def ask(done: ac.DeviceFuture[Any]) -> None:
        results.append((done.done(), done.result().sum(), done.sync().sum(), done.cancel()))
        done.add_done_callback(calls)

    async def main() -> None:
        future.add_done_callback(ask)
        held.release()
        await calls.wait_on_loop()

    run(main)
    assert results == [(True, 21, 21, False)]


def test_a_loop_that_closed_before_leaves_its_callbacks_to_the_thread(run, held):
    calls = Calls()
    future = sevens().map(lambda host: host + 1).submit()

    async def main() -> None:
        future.add_done_callback(calls)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()

    run(main)
    held.release()
    calls.wait()
    assert calls.threads == [LIBRARY_THREAD]
    assert future.result().sum() == 24


def test_a_loop_that_closed_before_it_began_leaves_its_callbacks_to_the_thread(run_asyncio, held):
    calls = Calls()
    future = sevens().submit()

    async def main() -> None:
        future.add_done_callback(calls)

    run_asyncio(main)
    held.release()
    calls.wait()
    assert calls.threads == [LIBRARY_THREAD]


def test_a_call_that_a_closing_loop_drops_is_made_by_the_thread(held):
    """The loop took the call, and is closed before its next turn."""
    posted = threading.Event()

    class Loop(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *arguments: Any, **keywords: Any) -> Any:
            handle = super().call_soon_threadsafe(*arguments, **keywords)
            if threading.current_thread().name == LIBRARY_THREAD:
                posted.set()
            return handle

    calls = Calls()
    future = sevens().submit()

    async def main() -> None:
        future.add_done_callback(calls)
        for _ in range(5):
            await asyncio.sleep(0)

    loop = Loop()
    loop.run_until_complete(main())
    held.release()
    assert posted.wait(60)
    assert calls.futures == []
    loop.close()
    calls.wait()
    assert calls.threads == [LIBRARY_THREAD]


def test_a_future_that_was_dropped_calls_back_and_is_let_go(held):
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    calls = Calls()
    future = sevens().submit()
    future.add_done_callback(lambda _, thing=thing: None)
    future.add_done_callback(lambda _: calls(None))
    del future, thing
    gc.collect()
    assert gone() is not None
    held.release()
    calls.wait()
    after = Calls()
    ac.value(1).submit().add_done_callback(lambda _: after(None))  # the thread has put away the one before
    after.wait()
    gc.collect()
    assert gone() is None


def test_a_callback_must_be_callable():
    with pytest.raises(ac.ArgumentTypeError, match="add_done_callback"):
        ac.value(1).submit().add_done_callback(3)  # type: ignore[arg-type]


def test_a_process_ends_though_a_callback_never_does(in_process):
    done = in_process(
        """
        import threading, aiocuda as ac
        entered = threading.Event()
        def block(_):
            entered.set()
            threading.Event().wait()
        ac.value(1).submit().add_done_callback(block)
        entered.wait()
        print("end")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_process_ends_though_a_callback_is_still_to_come(in_process):
    done = in_process(
        """
        import asyncio, aiocuda as ac
        op = ac.to_host(ac.ones(1 << 22)).map(lambda host: host.sum())
        op.submit().add_done_callback(lambda _: None)
        async def main():
            ac.to_host(ac.ones(1 << 22)).submit().add_done_callback(lambda _: None)
        asyncio.run(main())
        print("end")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
