"""Callers await one item each; batches, their limits, errors, cancellations and deadlines, on every event loop."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import gc
import pickle
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _loops
from aiocuda._serve.batcher import Batcher

LONG_MS = 1e9  # longer than a test: such a batch begins when it is full


async def gather(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Make calls in tasks of their own, which begin in this order; return their results, or their errors."""
    results: list[Any] = [None] * len(calls)

    async def make(index: int) -> None:
        try:
            results[index] = await calls[index]()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            results[index] = error

    async with anyio.create_task_group() as group:
        for index in range(len(calls)):
            group.start_soon(make, index)
            await anyio.wait_all_tasks_blocked()  # trio begins tasks of one turn in any order
    return results


def collect() -> None:
    """Collect what is held by a loop that has to be collected before."""
    for _ in range(3):
        gc.collect()


def batcher_here() -> Batcher:
    """The only one of the loop that runs."""
    (found,) = [each for each in _loops.current_tasks().kept.values() if isinstance(each, Batcher)]
    return found


def calls_of(function: Any, *items: Any, **options: Any) -> list[Callable[[], Awaitable[Any]]]:
    return [lambda item=item: function(item, **options) for item in items]


class Held:
    """A function of a batch that notes its batches, and holds them until it is told to let one go."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.ended: list[list[Any]] = []
        self._begun = anyio.Semaphore(0)
        self._released = anyio.Semaphore(0)

    async def __call__(self, items: list[Any]) -> list[Any]:
        self.batches.append(items)
        self._begun.release()
        await self._released.acquire()
        self.ended.append(items)
        return [2 * item for item in items]

    async def until_begun(self) -> None:
        await self._begun.acquire()

    def release(self, count: int = 1) -> None:
        for _ in range(count):
            self._released.release()


# ----- Batches


def test_each_caller_gets_the_result_of_his_item(run: Any) -> None:
    sizes = []

    @ac.batched(max_size=4, max_wait_ms=LONG_MS)
    async def double(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return [2 * item for item in items]

    async def main() -> None:
        assert await gather(*calls_of(double, *range(8))) == [2 * i for i in range(8)]

    run(main)
    assert sizes == [4, 4]
    counts = double.statistics()
    assert (counts.items, counts.batches, counts.waiting, counts.in_flight) == (8, 2, 0, 0)
    assert counts.sizes == {4: 2}
    assert 0 <= counts.wait_p50_s <= counts.wait_p99_s
    assert 0 < counts.run_p50_s <= counts.run_p99_s


@pytest.mark.parametrize("max_wait_ms", [0, 1])
def test_a_batch_that_is_not_full_begins_when_its_item_has_waited(run: Any, max_wait_ms: float) -> None:
    @ac.batched(max_wait_ms=max_wait_ms)
    def same(items: list[int]) -> list[int]:
        return items

    async def main() -> None:
        assert [await same(i) for i in range(3)] == [0, 1, 2]

    run(main)
    assert same.statistics().sizes == {1: 3}


def test_a_batch_is_one_operation_of_the_device(run: Any, kernels: Any) -> None:
    @ac.batched(max_size=8, max_wait_ms=LONG_MS)
    def triple(items: list[np.ndarray]) -> ac.DeviceOp[np.ndarray]:
        x = np.stack(items)
        return ac.to_host(kernels.scale(3.0, ac.to_device(x), ac.empty(x.shape), x.size, threads=x.size))

    async def main() -> list[Any]:
        return await gather(*calls_of(triple, *(np.full(16, i, np.float32) for i in range(8))))

    found = run(main)
    assert [row.tolist() for row in found] == [[3.0 * i] * 16 for i in range(8)]
    assert all(row.base is None for row in found)  # nobody's memory but the caller's
    assert triple.statistics().batches == 1


def test_an_operation_of_a_tuple_gives_its_parts(run: Any) -> None:
    @ac.batched(max_size=3, max_wait_ms=LONG_MS)
    async def arrays(items: list[int]) -> Any:
        return ac.zip(*(ac.to_host(ac.full(2, item, np.int32)) for item in items))

    async def main() -> list[Any]:
        return await gather(*calls_of(arrays, 1, 2, 3))

    assert [each.tolist() for each in run(main)] == [[1, 1], [2, 2], [3, 3]]


def test_rows_of_memory_that_is_used_again_stay_as_they_were(run: Any) -> None:
    memory = np.zeros((2, 3))

    @ac.batched(max_size=2, max_wait_ms=LONG_MS)
    def refilled(items: list[float]) -> np.ndarray:
        memory[:] = np.array(items)[:, None]
        return memory

    async def main() -> None:
        first = await gather(*calls_of(refilled, 1.0, 2.0))
        await gather(*calls_of(refilled, 8.0, 9.0))
        assert [row.tolist() for row in first] == [[1.0] * 3, [2.0] * 3]

    run(main)


@pytest.mark.parametrize(
    ("results", "wanted"),
    [
        (np.array([1.5, 2.5]), [1.5, 2.5]),
        (np.array([(1, 2), (3, 4)], "i4, i4"), [(1, 2), (3, 4)]),
        (np.array([[1, 2], {"a": 3}], object), [[1, 2], {"a": 3}]),
        (np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]]), [[1, None], [3, 4]]),
    ],
    ids=["numbers", "records", "objects", "masked"],
)
def test_rows_are_what_the_array_has(run: Any, results: Any, wanted: list[Any]) -> None:
    function = ac.batched(max_size=2, max_wait_ms=LONG_MS)(lambda items: results)

    async def main() -> None:
        rows = await gather(*calls_of(function, 1, 2))
        assert [row.tolist() if isinstance(row, np.ndarray | np.generic) else row for row in rows] == wanted
        assert [type(row) for row in rows] == [type(row) for row in results]
        assert not any(np.shares_memory(row, results) for row in rows if isinstance(row, np.ndarray | np.void))

    run(main)


def test_items_of_equal_keys_make_a_batch(run: Any) -> None:
    batches = []

    @ac.batched(max_size=2, max_wait_ms=LONG_MS, key=len)
    def lengths(items: list[str]) -> list[int]:
        batches.append(items)
        return [len(item) for item in items]

    async def main() -> None:
        assert await gather(*calls_of(lengths, "a", "bb", "cc", "d")) == [1, 2, 2, 1]

    run(main)
    assert sorted(batches) == [["a", "d"], ["bb", "cc"]]


def test_as_many_batches_as_may_are_under_way_and_those_that_wait_grow(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=3, max_wait_ms=0, max_in_flight=2)(held)
        async with anyio.create_task_group() as group:
            for item in range(2):  # each in a batch of its own
                group.start_soon(function, item)
                await held.until_begun()
            assert function.statistics().in_flight == 2
            for item in range(2, 8):
                group.start_soon(function, item)
                await anyio.wait_all_tasks_blocked()
            assert held.batches == [[0], [1]]
            assert function.statistics().waiting == 6
            held.release()
            await held.until_begun()
            assert held.batches[2:] == [[2, 3, 4]]
            held.release(10)
        assert held.batches[3:] == [[5, 6, 7]]

    run(main)


def test_higher_priorities_go_first(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=2, max_wait_ms=0, max_in_flight=1)(held)
        async with anyio.create_task_group() as group:
            group.start_soon(function, 0)
            await held.until_begun()
            for item in range(1, 5):
                group.start_soon(lambda item=item: function(item, priority=item))
                await anyio.wait_all_tasks_blocked()
            held.release(10)
        assert held.batches == [[0], [4, 3], [2, 1]]

    run(main)


def test_an_item_has_the_priority_in_force_of_its_caller(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1)(held)

        async def call(item: int, in_force: int, **options: int) -> None:
            with ac.use(priority=in_force):
                await function(item, **options)

        async with anyio.create_task_group() as group:
            group.start_soon(call, 0, 0)
            await held.until_begun()
            for item, in_force, options in ((1, -1, {}), (2, 0, {}), (3, 2, {}), (4, 9, {"priority": 1})):
                group.start_soon(functools.partial(call, item, in_force, **options))
                await anyio.wait_all_tasks_blocked()
            held.release(10)
        assert held.batches == [[0], [3], [4], [2], [1]]

    run(main)


# ----- The bound


def test_more_than_may_wait_are_refused_where_that_is_asked_for(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1, max_waiting=2, overflow="raise")(held)
        async with anyio.create_task_group() as group:
            group.start_soon(function, 0)
            await held.until_begun()
            for item in (1, 2):
                group.start_soon(function, item)
                await anyio.wait_all_tasks_blocked()
            with pytest.raises(ac.QueueFullError) as caught:
                await function(3)
            assert caught.value.waiting == 2
            assert function.statistics().refused == 1
            held.release(10)
        assert held.ended == [[0], [1], [2]]

    run(main)


def test_more_than_may_wait_come_in_their_order(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=2, max_wait_ms=0, max_in_flight=1, max_waiting=2)(held)
        async with anyio.create_task_group() as group:
            group.start_soon(function, 0)
            await held.until_begun()
            for item in range(1, 8):
                group.start_soon(function, item)
                await anyio.wait_all_tasks_blocked()
            held.release(10)
        assert held.ended == [[0], [1, 2], [3, 4], [5, 6], [7]]
        assert function.statistics().waiting == 0

    run(main)


# ----- Errors


def test_an_exception_is_that_of_each_caller(run: Any) -> None:
    @ac.batched(max_size=3, max_wait_ms=LONG_MS)
    async def failing(items: list[int]) -> list[int]:
        raise ValueError("all of it")

    async def main() -> None:
        errors = await gather(*calls_of(failing, 1, 2, 3))
        assert [str(each) for each in errors] == ["all of it"] * 3
        assert len({id(each) for each in errors}) == 3
        assert {type(each) for each in errors} == {ValueError}

    run(main)
    assert failing.statistics().failed == 3


@pytest.mark.parametrize("way", ["raised", "returned", "grouped"])
def test_one_item_fails_alone(run: Any, way: str) -> None:
    calls = []

    @ac.batched(max_size=4, max_wait_ms=LONG_MS)
    async def picky(items: list[int]) -> list[Any]:
        calls.append(items)
        bad = [ac.ItemError(i, LookupError(str(item))) for i, item in enumerate(items) if item % 2]
        if way == "raised" and bad:
            raise bad[0]
        if way == "grouped" and bad:
            raise ExceptionGroup("odd", bad)
        return [bad.pop(0) if item % 2 else 10 * item for item in items]

    async def main() -> None:
        zero, one, two, three = await gather(*calls_of(picky, 0, 1, 2, 3))
        assert (zero, two) == (0, 20)
        assert [(type(each), str(each)) for each in (one, three)] == [(LookupError, "1"), (LookupError, "3")]

    run(main)
    again = {"raised": [[0, 2, 3], [0, 2]], "grouped": [[0, 2]], "returned": []}
    assert calls == [[0, 1, 2, 3], *again[way]]


class CodeError(Exception):
    """Its args are not what it is called with."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


def test_an_exception_says_the_same_to_each_caller_and_takes_the_notes_of_one(run: Any) -> None:
    @ac.batched(max_size=2, max_wait_ms=LONG_MS)
    def failing(items: list[int]) -> list[int]:
        error = CodeError(5)
        error.add_note("the function's")
        raise error

    async def main() -> None:
        one, other = await gather(*calls_of(failing, 1, 2))
        one.add_note("a caller's")
        assert [(str(each), each.code) for each in (one, other)] == [("code 5", 5)] * 2
        assert other.__notes__ == ["the function's"]

    run(main)


@pytest.mark.parametrize("reason", [StopIteration(), KeyboardInterrupt(), SystemExit(1)])
def test_what_an_items_caller_cannot_raise_is_told_by_the_item_error(run: Any, reason: BaseException) -> None:
    @ac.batched(max_size=2, max_wait_ms=LONG_MS)
    def picky(items: list[int]) -> list[Any]:
        return [ac.ItemError(0, reason), "fine"]

    async def main() -> None:
        failed, fine = await gather(*calls_of(picky, 1, 2))
        assert (type(failed), failed.reason, fine) == (ac.ItemError, reason, "fine")

    run(main)


def test_a_key_that_is_not_hashable_is_refused(run: Any) -> None:
    @ac.batched(key=lambda item: [item])
    def same(items: list[int]) -> list[int]:
        return items

    async def main() -> None:
        with pytest.raises(ac.ArgumentTypeError, match=r"key of an item of .*same is hashable.* returned a list"):
            await same(1)
        assert same.statistics().waiting == 0

    run(main)


def test_an_item_error_with_a_text_is_the_callers(run: Any) -> None:
    @ac.batched(max_size=1)
    def bad(items: list[int]) -> list[int]:
        raise ac.ItemError(0, "no number")

    async def main() -> None:
        with pytest.raises(ac.ItemError, match="no number"):
            await bad(1)

    run(main)


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        ([1], ac.ArgumentValueError, "returned 1 results for a batch of 2"),
        (None, ac.ArgumentTypeError, "returned NoneType"),
        (ac.ItemError(5, "x"), ac.ArgumentIndexError, r"ItemError\(5, ...\) for a batch of 2"),
    ],
)
def test_results_that_are_none_are_told(run: Any, result: Any, kind: type[Exception], text: str) -> None:
    @ac.batched(max_size=2, max_wait_ms=LONG_MS)
    def wrong(items: list[int]) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    async def main() -> None:
        for each in await gather(*calls_of(wrong, 1, 2)):
            with pytest.raises(kind, match=text):
                raise each

    run(main)


# ----- Cancellation and deadlines


def test_a_caller_that_is_cancelled_before_the_batch_drops_his_item(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=2, max_wait_ms=LONG_MS)(held)
        held.release(10)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(function, 1)
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        assert function.statistics().cancelled == 1
        assert await gather(*calls_of(function, 2, 3)) == [4, 6]
        assert held.batches == [[2, 3]]

    run(main)


def test_a_caller_that_is_cancelled_within_a_batch_changes_nothing_for_others(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=2, max_wait_ms=LONG_MS)(held)
        scope = anyio.CancelScope()
        results = []

        async def give_up() -> None:
            with scope:
                await function(1)

        async def stay() -> None:
            results.append(await function(2))

        async with anyio.create_task_group() as group:
            group.start_soon(give_up)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(stay)
            await held.until_begun()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            held.release()
        assert results == [4]
        assert held.ended == [[1, 2]]

    run(main)


def test_a_caller_that_is_cancelled_before_he_may_wait_drops_his_item(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1, max_waiting=1)(held)
        async with anyio.create_task_group() as group:
            group.start_soon(function, 0)
            await held.until_begun()
            group.start_soon(function, 1)
            await anyio.wait_all_tasks_blocked()
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as outside:
                    outside.start_soon(lambda: function(2, within_s=LONG_MS))
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            batcher = batcher_here()
            assert batcher._deadlines.earliest() == float("inf")
            held.release(10)
        assert held.ended == [[0], [1]]
        assert function.statistics().waiting == 0

    run(main)


def test_a_batch_that_nobody_awaits_is_cancelled(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=2, max_wait_ms=LONG_MS, max_in_flight=1)(held)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                for item in (1, 2):
                    group.start_soon(function, item)
                await held.until_begun()
                scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert held.ended == []
        assert function.statistics().in_flight == 0
        held.release()
        assert await gather(*calls_of(function, 3, 4)) == [6, 8]

    run(main)


def test_a_batch_whose_other_items_have_failed_is_cancelled_with_its_last_caller(run: Any) -> None:
    async def main() -> None:
        held = Held()

        @ac.batched(max_size=2, max_wait_ms=LONG_MS)
        async def picky(items: list[int]) -> list[int]:
            if len(items) == 2:
                raise ac.ItemError(0, "bad")
            return await held(items)

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(gather, *calls_of(picky, 1, 2))
                await held.until_begun()
                scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert picky.statistics().in_flight == 0

    run(main)


def test_a_cancelled_batch_with_tasks_of_its_own_is_no_error(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = []
    monkeypatch.setattr(threading, "excepthook", reported.append)

    async def main() -> None:
        held = Held()

        @ac.batched(max_size=1, max_in_flight=1)
        async def nested(items: list[int]) -> list[int]:
            if items == [2]:
                return items
            async with anyio.create_task_group() as group:
                group.start_soon(held, items)
                group.start_soon(anyio.sleep_forever)
            raise AssertionError

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(nested, 1)
                await held.until_begun()
                scope.cancel()
        assert await nested(2) == 2  # the first batch has ended

    run(main)
    assert reported == []


def test_a_deadline_ends_the_wait_for_a_batch_and_in_a_batch(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1)(held)
        errors: list[Exception] = [ValueError(), ValueError()]

        async def call(index: int, within_s: float) -> None:
            with pytest.raises(ac.DeadlineError) as caught:
                await function(index + 1, within_s=within_s)
            errors[index] = caught.value

        # The one that waits is late first: else the end of the batch before it would have it begin.
        async with anyio.create_task_group() as group:
            group.start_soon(call, 0, 0.3)
            await held.until_begun()
            group.start_soon(call, 1, 0.01)
        assert [type(each) for each in errors] == [ac.DeadlineError] * 2
        assert all(isinstance(each, TimeoutError) for each in errors)
        assert "not done within 0.3 s" in str(errors[0])
        assert "not done within 0.01 s" in str(errors[1])
        await anyio.wait_all_tasks_blocked()
        assert held.batches == [[1]]
        counts = function.statistics()
        assert (counts.late, counts.waiting, counts.in_flight) == (2, 0, 0)

    run(main)


def test_what_cannot_be_done_in_time_is_refused_at_once(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1)(held)
        monkeypatch.setattr(function._served.counts, "usual_run_s", lambda: 100.0)
        with pytest.raises(ac.DeadlineError, match="would take about 100 s"):
            await function(1, within_s=99.0)
        async with anyio.create_task_group() as group:
            group.start_soon(function, 2)
            await held.until_begun()
            with pytest.raises(ac.DeadlineError, match="would take about 200 s"):
                await function(3, within_s=199.0)
            held.release()
        assert held.batches == [[2]]

    run(main)


def test_a_deadline_has_a_batch_begin_early(run: Any) -> None:
    @ac.batched(max_size=8, max_wait_ms=LONG_MS)
    def same(items: list[int]) -> list[int]:
        return items

    async def main() -> None:
        monkeypatched = same._served.counts
        monkeypatched.usual_run_s = lambda: 1.0  # type: ignore[method-assign]
        monkeypatched.longest_run_s = lambda: 999.98  # type: ignore[method-assign]
        assert await same(1, within_s=1000.0) == 1  # it leaves 15 ms after it came

    run(main)


def test_one_slow_batch_does_not_have_all_items_refused_for_ever(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0)(held)
        with pytest.raises(ac.DeadlineError, match="not done within"):
            await function(1, within_s=0.01)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ac.DeadlineError, match="was refused"):
            await function(2, within_s=0.001)
        held.release()
        assert await function(3, within_s=60.0) == 6
        assert held.batches == [[1], [3]]

    run(main)


def test_refusals_while_nothing_runs_have_times_forgotten(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1)(held)
        function._served.counts._latest_s.extend([100.0] * 3)
        async with anyio.create_task_group() as group:
            group.start_soon(function, 0)
            await held.until_begun()
            for _ in range(9):
                with pytest.raises(ac.DeadlineError, match="was refused"):
                    await function(1, within_s=99.0)
            held.release()
        function._served.counts._latest_s.pop()
        for _ in range(3):
            with pytest.raises(ac.DeadlineError, match="was refused"):
                await function(1, within_s=99.0)
        held.release()
        assert await function(1, within_s=99.0) == 2

    run(main)


def test_a_batch_that_is_about_to_end_holds_an_item_up_for_as_long_as_is_left(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1)(held)
        monkeypatch.setattr(function._served.counts, "usual_run_s", lambda: 0.0)
        async with anyio.create_task_group() as group:
            group.start_soon(function, 1)
            await held.until_begun()
            batcher = batcher_here()
            monkeypatch.setattr(function._served.counts, "usual_run_s", lambda: 100.0)
            for batch in batcher._in_flight:
                batch.begun_s -= 60.0
            with pytest.raises(ac.DeadlineError, match="would take about 140 s"):
                await function(2, within_s=139.0)
            held.release(10)
            assert await function(3, within_s=141.0) == 6

    run(main)


def test_a_deadline_of_a_first_item_waits_for_no_others(run: Any) -> None:
    @ac.batched(max_size=8, max_wait_ms=LONG_MS)
    def same(items: list[int]) -> list[int]:
        return items

    async def main() -> None:
        assert await same(1, within_s=LONG_MS) == 1

    run(main)


# ----- Loops, threads, contexts, objects


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="the decorator's")


def test_a_batch_has_the_context_of_the_decorator(run: Any) -> None:
    @ac.batched(max_size=1)
    async def variable(items: list[int]) -> list[str]:
        return [VARIABLE.get()]

    async def main() -> None:
        VARIABLE.set("a caller's")
        assert await variable(1) == "the decorator's"

    run(main)


def test_each_loop_has_batches_of_its_own(run: Any) -> None:
    names = []

    @ac.batched(max_size=2, max_wait_ms=LONG_MS)
    async def thread_name(items: list[int]) -> list[str]:
        names.append(threading.current_thread().name)
        return [threading.current_thread().name] * len(items)

    async def main() -> None:
        own = threading.current_thread().name
        assert await gather(*calls_of(thread_name, 1, 2)) == [own, own]

    threads = [threading.Thread(target=run, args=(main,), name=f"loop {i}") for i in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(names) == ["loop 0", "loop 1", "loop 2"]
    assert thread_name.statistics().items == 6


def test_nothing_keeps_a_loop_that_has_ended(run: Any) -> None:
    @ac.batched(max_size=2, max_wait_ms=LONG_MS)
    async def never(items: list[int]) -> list[int]:
        raise AssertionError

    async def main() -> weakref.ref[Any]:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(never, 1)
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        return weakref.ref(_loops.current_tasks())

    tasks = run(main)
    collect()
    assert tasks() is None
    assert never.statistics().waiting == 0


def test_each_object_has_batches_of_its_own(run: Any) -> None:
    class Model:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        @ac.batched(max_size=2, max_wait_ms=LONG_MS)
        async def times(self, items: list[int]) -> list[int]:
            """Multiply."""
            return [self.factor * item for item in items]

    async def main() -> None:
        two, three = Model(2), Model(3)
        calls = [*calls_of(two.times, 1), *calls_of(three.times, 1), *calls_of(two.times, 2), *calls_of(three.times, 2)]
        assert await gather(*calls) == [2, 3, 4, 6]
        assert two.times is two.times
        assert two.times.statistics().batches == 1

    run(main)
    assert Model.times.__doc__ == "Multiply."
    assert "up to 2 items" in repr(Model.times)


def test_an_object_without_a_dict_is_refused() -> None:
    class Slotted:
        __slots__ = ()

        @ac.batched
        def same(self, items: list[int]) -> list[int]:
            return items

    with pytest.raises(ac.ArgumentTypeError, match="__slots__"):
        _ = Slotted().same


def test_an_object_is_not_kept_by_its_batches(run: Any) -> None:
    class Model:
        @ac.batched(max_size=1)
        def same(self, items: list[int]) -> list[int]:
            return items

    models = [Model()]

    async def main() -> None:
        assert await models[0].same(1) == 1

    run(main)
    kept = weakref.ref(models.pop())
    collect()
    assert kept() is None


def test_an_object_is_not_kept_by_a_loop_that_goes_on(run: Any) -> None:
    class Model:
        @ac.batched(max_size=1)
        def same(self, items: list[int]) -> list[int]:
            return items

    async def main() -> None:
        model = Model()
        assert await model.same(1) == 1
        kept = weakref.ref(model)
        del model
        await anyio.wait_all_tasks_blocked()
        collect()
        assert kept() is None

    run(main)


def test_a_loop_that_was_closed_with_a_caller_in_it_is_let_go(caplog: pytest.LogCaptureFixture) -> None:
    @ac.batched(max_size=2, max_wait_ms=LONG_MS)
    def same(items: list[int]) -> list[int]:
        return items

    def leave_one() -> weakref.ref[Any]:
        loop = asyncio.new_event_loop()
        task = loop.create_task(same(1))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        return weakref.ref(task)

    async def next_one() -> None:
        assert await gather(*calls_of(same, 2, 3)) == [2, 3]

    task = leave_one()
    anyio.run(next_one)
    collect()
    assert task() is None
    assert (same.statistics().waiting, same.statistics().cancelled) == (0, 1)
    assert "destroyed but it is pending" in caplog.text


class Summing:
    def __init__(self, add: int) -> None:
        self.add = add

    @ac.batched(max_size=1)
    def sum(self, items: list[int]) -> list[int]:
        return [item + self.add for item in items]


class SummingTwice(Summing):
    @ac.batched(max_size=1)
    async def sum(self, items: list[int]) -> list[int]:
        return [await super(SummingTwice, self).sum(item) + self.add for item in items]


def test_a_method_of_a_base_class_does_not_take_the_place_of_its_own(run: Any) -> None:
    async def main() -> None:
        both = SummingTwice(10)
        assert [await both.sum(i) for i in range(3)] == [20, 21, 22]

    run(main)


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("kind", [Summing, SummingTwice])
def test_a_copy_of_an_object_has_batches_of_its_own(run: Any, make: Callable[[Any], Any], kind: type[Any]) -> None:
    async def main() -> None:
        one = kind(10)
        before = await one.sum(0)
        other = make(one)
        other.add = 20
        assert (await other.sum(0), await one.sum(0)) == (2 * before, before)
        assert other.sum is other.sum
        assert other.sum is not one.sum
        assert make(one.sum).statistics().batches in (0, 2)

    run(main)


def test_a_callable_that_is_no_function_is_of_no_object(run: Any) -> None:
    class Model:
        same = ac.batched(max_size=1)(functools.partial(sorted, reverse=True))

    async def main() -> None:
        assert await Model().same(1) == 1
        assert Model.same.statistics().batches == 1

    run(main)


def test_without_a_loop_it_is_refused() -> None:
    @ac.batched
    def same(items: list[int]) -> list[int]:
        return items

    coroutine = same(1)
    with pytest.raises(ac.AiocudaError, match="no event loop runs"):
        coroutine.send(None)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"max_size": 0}, ac.ArgumentValueError),
        ({"max_size": 1.5}, ac.ArgumentTypeError),
        ({"max_wait_ms": -1}, ac.ArgumentValueError),
        ({"max_wait_ms": float("nan")}, ac.ArgumentValueError),
        ({"max_wait_ms": "2"}, ac.ArgumentTypeError),
        ({"max_in_flight": 0}, ac.ArgumentValueError),
        ({"max_waiting": 0}, ac.ArgumentValueError),
        ({"overflow": "drop"}, ac.ArgumentValueError),
        ({"key": 3}, ac.ArgumentTypeError),
    ],
)
def test_limits_that_are_none_are_refused(options: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=next(iter(options))):
        ac.batched(**options)
    with pytest.raises(ac.ArgumentTypeError, match="a function of a list"):
        ac.batched(3)  # type: ignore[call-overload]


def test_batches_are_in_traces(run: Any, tmp_path: Any) -> None:
    pytest.importorskip("perfetto")

    @ac.batched(max_size=2, max_wait_ms=LONG_MS)
    async def ones(items: list[int]) -> Any:
        return ac.zip(*(ac.to_host(ac.ones(item)) for item in items))

    async def main() -> None:
        await gather(*calls_of(ones, 1, 2))

    with ac.trace("batches", output=tmp_path, report=False) as traced:
        run(main)
    assert any("a batch of" in each.who and "ones" in each.who for each in traced.result.asked)
