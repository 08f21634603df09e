"""Every kind of loop: several at once, one after another, ending at any time; and what runs tasks in them."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
import sniffio
import trio
import uvloop

import aiocuda as ac

RUNNERS: dict[str, Callable[..., Any]] = {
    "asyncio": lambda function, *arguments: asyncio.run(function(*arguments)),
    "uvloop": lambda function, *arguments: uvloop.run(function(*arguments)),
    "trio": trio.run,
}


def open_files() -> int:
    """Count open files, but no sockets: loops close theirs, and threads of other libraries open some when they like."""
    gc.collect()
    ac.Device(0).memory_info()  # what was told to loops that are gone is dropped
    return sum(not each.is_socket() for each in Path("/proc/self/fd").iterdir())


async def ask(op: Any) -> Any:
    return await op


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


@pytest.fixture(params=list(RUNNERS))
def run_plain(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Run a function on a loop as its own library does."""
    return RUNNERS[request.param]


def test_several_loops_of_each_kind_at_once(lane, kernels):
    """Each awaits operations of its own, and one that they all await."""
    shared = ac.to_host(lane.op(41))
    kinds = [*RUNNERS] * 2
    found: dict[int, Any] = {}
    started = threading.Barrier(len(kinds) + 1)

    async def main(index: int) -> None:
        mine = [ac.to_host(kernels.increment(ac.full(4, index * 100 + i, np.int32), 4, threads=4)) for i in range(20)]
        values = [int((await op)[0]) for op in mine]
        future = shared.submit()
        started.wait(60)
        found[index] = (values, int((await future)[0]))

    threads = [threading.Thread(target=RUNNERS[kind], args=(main, index)) for index, kind in enumerate(kinds)]
    for thread in threads:
        thread.start()
    started.wait(60)
    lane.release()
    for thread in threads:
        thread.join(60)
    assert found == {i: ([i * 100 + k + 1 for k in range(20)], 42) for i in range(len(kinds))}


@pytest.mark.parametrize(("first", "second"), list(itertools.product(RUNNERS, RUNNERS)))
def test_a_future_is_awaited_under_another_loop_than_it_was_submitted_from(lane, first, second):
    """The first loop awaits it too, and ends before it is complete; the second one is there already."""
    handed: list[Any] = []
    is_handed, has_ended = threading.Event(), threading.Event()
    found: list[Any] = []

    async def submit() -> None:
        handed.append(ac.to_host(lane.op(6)).submit())
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(ask, handed[0])
                await turns()
                is_handed.set()
                scope.cancel()

    async def wait() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(release)
            found.append(await handed[0])
        found.append(await handed[0])

    async def release() -> None:
        await turns()
        assert has_ended.wait(60)
        lane.release()

    def run_second() -> None:
        assert is_handed.wait(60)
        RUNNERS[second](wait)

    thread = threading.Thread(target=run_second)
    thread.start()
    RUNNERS[first](submit)
    has_ended.set()
    thread.join(60)
    assert [list(each) for each in found] == [[7] * 4] * 2


@pytest.mark.parametrize("loop", RUNNERS)
def test_a_thousand_loops_leave_no_file_open(lines_of, loop):
    """In a process of its own: threads of other libraries, such as Ray's, open sockets when they like."""
    lines = lines_of(
        """
        import asyncio, gc, os
        import trio, uvloop
        import aiocuda as ac

        def open_files():
            gc.collect()
            ac.Device(0).memory_info()  # what was told to loops that are gone is dropped
            return len(os.listdir("/proc/self/fd"))

        async def main():
            global array
            array = await ac.fill(array, 7)

        run = {
            "asyncio": lambda: asyncio.run(main()), "uvloop": lambda: uvloop.run(main()), "trio": lambda: trio.run(main)
        }[LOOP]
        array = ac.zeros(4, "int32").sync()
        for _ in range(3):
            run()
        before = open_files()
        for _ in range(1000):
            run()
        for _ in range(100):  # other threads may be about to drop what they hold
            ac.Device(0).synchronize().sync()
            if open_files() <= before:
                break
        print(open_files() - before, ac.to_host(array).sync())
        """.replace("LOOP", repr(loop))
    )
    assert lines == ["0 [7 7 7 7]"]


def test_loops_that_end_with_waits_of_every_kind_leave_nothing(run_plain, lanes, used_bytes):
    before = used_bytes()
    (lane,) = lanes(1)
    ops = [lane.op(i) for i in range(60)]

    async def iterate(mine: list[Any]) -> None:
        async for _ in ac.as_completed(mine):
            raise AssertionError("nothing completes")

    async def main(op: Any) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(ask, op)
                group.start_soon(ask, op.submit())
                group.start_soon(ask, op.within(3600))
                group.start_soon(ask, op.submit().within(3600))
                group.start_soon(ac.wait, [op, op.submit()])
                group.start_soon(iterate, [op, op.submit()])
                await turns()
                scope.cancel()

    run_plain(main, ops[0])
    files = open_files()
    for op in ops:
        run_plain(main, op)
    lane.release()
    for op in ops:
        op.sync()
    lane.stream.synchronize().sync()
    assert open_files() <= files
    ops.clear()
    del op
    assert used_bytes() == before


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_complete", [False, True])
def test_a_loop_closed_while_tasks_wait_disturbs_nobody(lane, new_loop, is_complete):
    """The tasks are not even cancelled; the completion comes before the loop closes, or after."""
    op = ac.to_host(lane.op(3))
    loop = new_loop()
    loop.set_exception_handler(lambda *_: None)  # it complains, rightly, of tasks that it had to drop
    tasks = [loop.create_task(each) for each in (ask(op), ask(op.submit()), op.within(3600), ac.wait([op]))]
    loop.call_soon(loop.stop)
    loop.run_forever()
    if is_complete:
        lane.release()
        op.sync()
    loop.close()
    lane.release()
    del tasks, loop
    gc.collect()
    for runner in RUNNERS.values():
        np.testing.assert_array_equal(runner(ask, op), [4] * 4)


def test_a_future_outlives_its_loop(run_plain):
    async def submit() -> Any:
        return ac.to_host(ac.full(3, 5, np.int32)).submit()

    future = run_plain(submit)
    np.testing.assert_array_equal(future.sync(timeout=60), [5, 5, 5])
    np.testing.assert_array_equal(run_plain(ask, future), [5, 5, 5])


WAITS: dict[str, Callable[[Any], Any]] = {
    "await": ask,
    "await of a future": lambda op: ask(op.schedule(0)),
    "within": lambda op: op.within(1),
    "within of a future": lambda op: op.schedule(0).within(1),
    "wait": lambda op: ac.wait([op]),
    "as_completed": lambda op: first_of(op),
    "a device": lambda _: ask(ac.Device(0).synchronize()),
    "a stream": lambda _: ask(ac.Device(0).default_stream.synchronize()),
}


async def first_of(op: Any) -> Any:
    return [each async for each in ac.as_completed([op])]


@pytest.mark.parametrize("wait", WAITS)
def test_a_coroutine_driven_by_hand_is_told_which_loops_are_known(wait):
    op = ac.to_host(ac.ones(3))
    with pytest.raises(ac.AiocudaError, match=r"no event loop runs in this thread; .*asyncio .*uvloop.* trio.*\.sync"):
        WAITS[wait](op).send(None)
    assert op.sync().sum() == 3


def test_a_thread_without_a_loop_is_told_so_while_another_has_one(run):
    op = ac.to_host(ac.ones(3))
    caught: list[BaseException] = []

    def by_hand() -> None:
        try:
            ask(op).send(None)
        except ac.AiocudaError as error:
            caught.append(error)

    async def main() -> Any:
        thread = threading.Thread(target=by_hand)
        thread.start()
        thread.join(60)
        return await op

    assert run(main).sum() == 3
    assert "no event loop runs in this thread" in str(caught[0])


def test_an_unknown_loop_is_named(monkeypatch):
    """Such a loop tells sniffio who it is, as curio's does."""
    monkeypatch.setattr(sniffio.thread_local, "name", "curio")
    with pytest.raises(ac.AiocudaError, match=r"no event loop runs .* that aiocuda knows, only one of curio; .*trio"):
        ask(ac.ones(3)).send(None)


# What runs tasks


def test_a_task_group_cancels_the_others_and_leaves_the_work(run_asyncio, lane):
    ops = [lane.op(i) for i in range(3)]

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def main() -> None:
        tasks: list[asyncio.Task[Any]] = []

        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                tasks.extend(group.create_task(ask(op)) for op in ops)
                group.create_task(fail())

        with pytest.raises(ExceptionGroup) as caught:
            await together()
        assert caught.group_contains(ZeroDivisionError)
        assert all(task.cancelled() for task in tasks)
        lane.release()
        assert [int((await ac.to_host(await op))[0]) for op in ops] == [1, 2, 3]

    run_asyncio(main)


def test_a_nursery_cancels_the_others_and_leaves_the_work(lane):
    ops = [lane.op(i) for i in range(3)]

    async def fail() -> None:
        await turns()
        raise ZeroDivisionError

    async def main() -> None:
        async def together() -> None:
            async with trio.open_nursery() as nursery:
                for op in ops:
                    nursery.start_soon(ask, op)
                nursery.start_soon(fail)

        with pytest.raises(ExceptionGroup) as caught:
            await together()
        assert caught.group_contains(ZeroDivisionError)
        lane.release()
        assert [int((await ac.to_host(await op))[0]) for op in ops] == [1, 2, 3]

    trio.run(main)


def test_a_device_error_comes_out_of_a_task_group(run):
    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, ac.to_host(ac.ones(3)).map(lambda _: 1 / 0))
            group.start_soon(ask, ac.to_host(ac.ones(3)))

    with pytest.raises(ExceptionGroup) as caught:
        run(main)
    assert caught.group_contains(ZeroDivisionError)


def test_asyncio_s_timeout_ends_the_wait_alone(run_asyncio, lane):
    op = ac.to_host(lane.op(1))

    async def main() -> Any:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await op
        lane.release()
        async with asyncio.timeout(60):
            return await op

    np.testing.assert_array_equal(run_asyncio(main), [2] * 4)


def test_trio_s_move_on_after_ends_the_wait_alone(lane):
    op = ac.to_host(lane.op(1))

    async def main() -> Any:
        with trio.move_on_after(0.01) as scope:
            await op
        assert scope.cancelled_caught
        with pytest.raises(trio.TooSlowError), trio.fail_after(0.01):
            await op.submit()
        lane.release()
        with trio.move_on_after(60):
            return await op

    np.testing.assert_array_equal(trio.run(main), [2] * 4)


def test_the_shorter_of_two_limits_counts(lane):
    op = lane.op()

    async def main() -> None:
        with trio.move_on_after(3600):
            with pytest.raises(ac.DeviceTimeoutError):
                await op.within(0.01)
        with trio.move_on_after(0.01) as scope:
            await op.within(3600)
        assert scope.cancelled_caught

    trio.run(main)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks(run_asyncio, lane):
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        held = [
            asyncio.eager_task_factory(loop, each)
            for each in (ask(op), ask(op.submit()), op.within(60), ask(lane.op(2)))
        ]
        assert "submitted" in repr(op)  # it has run up to its first wait
        assert not any(task.done() for task in held)
        done = ac.value(5)
        await done
        assert asyncio.eager_task_factory(loop, ask(done)).result() == 5
        lane.release()
        return [await task for task in held[:3]]

    op = lane.op(1)
    for array in run_asyncio(main):
        np.testing.assert_array_equal(ac.to_host(array).sync(), [2] * 4)


@pytest.mark.emulated_only  # how many completions one look finds is a matter of time on a device of its own
def test_ten_thousand_operations_that_are_awaited_at_once_all_wake(run, lanes, kernels):
    held = lanes(4)
    arrays = [ac.full(1, i, np.int32).sync() for i in range(100)]
    before = ac.statistics()

    async def one(i: int) -> None:
        await kernels.increment(arrays[i % 100], 1, threads=1).on(held[i % 4].stream)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for i in range(10_000):
                group.start_soon(one, i)
            await turns()
            for lane in held:
                assert lane.latch.is_holding
                lane.release()

    run(main)
    after = ac.statistics()
    assert [int(ac.to_host(array).sync()[0]) for array in arrays] == [i + 100 for i in range(100)]
    assert after.completed - before.completed >= 2000
    # How many come at once is the device's doing; that what has come wakes as one batch, the units' tests show.
    assert 0 < after.batches - before.batches <= after.completed - before.completed
