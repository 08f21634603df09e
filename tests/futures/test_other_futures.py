"""Ways into what expects coroutines, or futures of its own: asyncio's tasks, `concurrent.futures`, trio's nurseries."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import sys
import threading
import weakref
from typing import Any

import anyio
import numpy as np
import pytest
import trio

import aiocuda as ac


class Boom(Exception):
    """The exception that functions of operations raise."""


def sevens() -> ac.DeviceOp[Any]:
    return ac.to_host(ac.full(3, 7, np.int32))


def fails(_: Any) -> Any:
    raise Boom


def test_as_coroutine_makes_tasks(run_asyncio, device):
    async def main() -> Any:
        event = device.stream().record()
        others = [event, device.synchronize(), sevens().submit()]
        async with asyncio.timeout(60):
            tasks = [asyncio.create_task(ac.as_coroutine(each)) for each in (sevens(), *others)]
            done, _ = await asyncio.wait(tasks)
            assert len(done) == len(tasks)
            async with asyncio.TaskGroup() as group:
                grouped = group.create_task(ac.as_coroutine(sevens()))
        return tasks[0].result(), tasks[3].result(), grouped.result()

    for result in run_asyncio(main):
        np.testing.assert_array_equal(result, [7, 7, 7])


def test_asyncio_runs_a_coroutine_of_an_operation():
    np.testing.assert_array_equal(asyncio.run(ac.as_coroutine(sevens())), [7, 7, 7])


def test_as_coroutine_starts_in_a_task_group(run):
    x = ac.zeros(3, np.int32).sync()

    async def main() -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(ac.as_coroutine, ac.fill(x, 7))
        return await ac.to_host(x)

    np.testing.assert_array_equal(run(main), [7, 7, 7])


def test_as_coroutine_refuses_what_is_no_work(run):
    async def main() -> None:
        for wrong in (1, ac.zeros(1).sync(), asyncio.sleep):
            with pytest.raises(ac.ArgumentTypeError, match="as_coroutine"):
                await ac.as_coroutine(wrong)

    run(main)


def test_what_takes_coroutines_alone_says_of_operations_what_the_docs_say(run_asyncio):
    async def main() -> None:
        with pytest.raises(TypeError, match=r"^a coroutine was expected, got <DeviceOp: "):
            await asyncio.create_task(sevens())
        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.TaskGroup() as group:
                group.create_task(sevens())
        assert str(raised.value.exceptions[0]).startswith("a coroutine was expected, got <DeviceOp: ")
        with pytest.raises(TypeError, match=r"^A coroutine object is required$"):
            asyncio.run_coroutine_threadsafe(sevens(), asyncio.get_running_loop())

    run_asyncio(main)
    if sys.version_info < (3, 14):  # which takes awaitables
        with pytest.raises(ValueError, match=r"^a coroutine was expected, got <DeviceOp: "):
            asyncio.run(sevens())


def test_trio_says_of_operations_what_the_docs_say(kernels):
    op = kernels.increment(ac.zeros(3, np.int32), 3, threads=3)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(op)

    with pytest.raises(ExceptionGroup) as raised:
        trio.run(main)
    assert [str(each) for each in raised.value.exceptions] == ["'LaunchOp' object is not callable"]
    op.sync()


def test_asyncio_waits_for_what_ensure_future_gives(run_asyncio):
    async def main() -> None:
        tasks = [asyncio.ensure_future(sevens()), asyncio.ensure_future(sevens().submit())]
        done, pending = await asyncio.wait(tasks, timeout=60)
        assert (len(done), len(pending)) == (2, 0)

    run_asyncio(main)


def test_a_concurrent_future_has_the_result_or_the_error(held, stream):
    futures = [sevens().submit(), sevens().map(fails).submit(), sevens().schedule(stream)]
    concurrent_futures = [future.as_concurrent() for future in futures]
    assert all(isinstance(each, concurrent.futures.Future) for each in concurrent_futures)
    done, pending = concurrent.futures.wait(concurrent_futures, timeout=0)
    assert (len(done), len(pending)) == (0, 3)
    held.release()
    done, pending = concurrent.futures.wait(concurrent_futures, timeout=60)
    assert (len(done), len(pending)) == (3, 0)
    for i in (0, 2):
        np.testing.assert_array_equal(concurrent_futures[i].result(0), [7, 7, 7])
        assert concurrent_futures[i].result(0) is futures[i].result()
    assert isinstance(concurrent_futures[1].exception(0), Boom)
    assert not concurrent_futures[0].cancel()


def test_a_loops_thread_may_block_for_it(run):
    """It is told by a thread of the library, though an event loop runs here."""

    async def main() -> Any:
        return sevens().submit().as_concurrent().result(60)

    np.testing.assert_array_equal(run(main), [7, 7, 7])


def test_asyncio_wraps_it(run_asyncio):
    async def main() -> Any:
        return await asyncio.wait_for(asyncio.wrap_future(sevens().submit().as_concurrent()), 60)

    np.testing.assert_array_equal(run_asyncio(main), [7, 7, 7])


def test_what_asyncio_makes_of_it_ends_with_a_stop_iteration_too(run_asyncio, held):
    def stops(_: Any) -> None:
        raise StopIteration(7)

    async def main() -> None:
        future = sevens().map(stops).submit().as_concurrent()
        held.release()  # else `submit` may be the one that raises
        with pytest.raises(RuntimeError, match="the operation raised StopIteration") as caught:
            await asyncio.wait_for(asyncio.wrap_future(future), 60)
        assert isinstance(caught.value.__cause__, StopIteration)

    run_asyncio(main)


def test_cancelling_it_cancels_the_future(held):
    future = sevens().submit()
    one, other = future.as_concurrent(), future.as_concurrent()
    assert one.cancel()
    assert one.cancelled()
    assert future.cancelled()
    assert concurrent.futures.wait([one, other], timeout=60).not_done == set()
    assert other.cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        other.result(0)
    assert one.cancel()  # again: it is


def test_cancelling_the_future_cancels_it(held):
    future = sevens().submit()
    concurrent_future = future.as_concurrent()
    assert future.cancel()
    assert concurrent.futures.wait([concurrent_future], timeout=60).not_done == set()
    assert concurrent_future.cancelled()


def test_one_of_a_cancelled_future_is_cancelled(held):
    future = sevens().submit()
    future.cancel()
    concurrent_future = future.as_concurrent()
    assert concurrent.futures.wait([concurrent_future], timeout=60).not_done == set()
    assert concurrent_future.cancelled()


def test_cancelling_what_asyncio_wrapped_cancels_the_future(run_asyncio, held):
    async def main() -> None:
        future = sevens().submit()
        wrapped = asyncio.wrap_future(future.as_concurrent())
        wrapped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wrapped
        with pytest.raises(ac.CancelledError):
            await future

    run_asyncio(main)


def test_its_callbacks_are_called_once_by_the_librarys_thread(held):
    called = threading.Semaphore(0)
    threads: list[str] = []

    def note(_: Any) -> None:
        threads.append(threading.current_thread().name)
        called.release()

    concurrent_future = sevens().submit().as_concurrent()
    concurrent_future.add_done_callback(note)
    held.release()
    assert called.acquire(timeout=60)
    assert threads == ["aiocuda callbacks"]


def test_cancelling_from_many_threads_ends_it_once(held, in_threads):
    for _ in range(50):
        concurrent_future = sevens().submit().as_concurrent()
        found = in_threads(*[concurrent_future.cancel] * 4)
        assert found == [True] * 4
        assert concurrent.futures.wait([concurrent_future], timeout=60).not_done == set()


def test_it_keeps_nothing_once_it_is_dropped():
    future = sevens().submit()
    concurrent_future = future.as_concurrent()
    concurrent_future.result(60)
    gone = weakref.ref(concurrent_future)
    reached = threading.Event()  # the thread has come round: what it held of the call before is let go of
    future.as_concurrent().add_done_callback(lambda _: reached.set())
    assert reached.wait(60)
    del concurrent_future
    gc.collect()
    assert gone() is None
