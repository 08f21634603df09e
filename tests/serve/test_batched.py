"""Callers await one item each; batches, their limits, errors, cancellations and deadlines, on every event loop."""

from __future__ import annotations

import contextvars
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _loops

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


def test_a_deadline_ends_the_wait_for_a_batch_and_in_a_batch(run: Any) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1)(held)
        errors = await gather(*calls_of(function, 1, 2, within_s=0.01))
        assert [type(each) for each in errors] == [ac.DeadlineError] * 2
        assert all(isinstance(each, TimeoutError) for each in errors)
        assert "not done within 0.01 s" in str(errors[0])
        await anyio.wait_all_tasks_blocked()
        assert held.batches == [[1]]
        counts = function.statistics()
        assert (counts.late, counts.waiting, counts.in_flight) == (2, 0, 0)

    run(main)


def test_what_cannot_be_done_in_time_is_refused_at_once(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        held = Held()
        function = ac.batched(max_size=1, max_wait_ms=0, max_in_flight=1)(held)
        monkeypatch.setattr(function._counts, "usual_run_s", lambda: 100.0)
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
        monkeypatched = same._counts
        monkeypatched.usual_run_s = lambda: 999.99  # type: ignore[method-assign]
        assert await same(1, within_s=1000.0) == 1  # it leaves 10 ms after it came

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
