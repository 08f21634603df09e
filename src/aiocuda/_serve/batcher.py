"""Runs the batches of one function in one event loop.

Always true: it is used in the thread of its loop alone. A batch runs in the context of the function's decorator, not in
that of a caller. Each item gets one result or one error, unless its caller has given it up. Where no item waits, there
is no timer, so nothing of it keeps a loop.
"""

from __future__ import annotations

import contextvars
import copy
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from aiocuda._loops import Cancellable, Tasks
from aiocuda._ops.operation import DeviceOp
from aiocuda._serve.counts import Counts
from aiocuda._serve.queue import NEVER, BatchQueue, Item
from aiocuda.errors import (
    AiocudaError,
    ArgumentIndexError,
    ArgumentTypeError,
    ArgumentValueError,
    DeadlineError,
    ItemError,
    QueueFullError,
)

__all__ = ["Batcher", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a batched function was asked for; see `batched`."""

    max_size: int
    max_wait_s: float
    max_in_flight: int
    max_waiting: int
    refuses: bool


class _Batch:
    """Items that are given to the function together."""

    __slots__ = ("awaited", "items", "task")

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.awaited = len(items)  # whose callers still wait
        self.task: Cancellable | None = None


class Batcher:
    """The items of one function in one loop.

    Parameters
    ----------
    name
        The function's name.
    function
        The function of a batch.
    limits, counts
        The function's.
    context
        Batches run in copies of it.
    tasks
        The loop's.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[list[Any]], Any],
        limits: Limits,
        counts: Counts,
        context: contextvars.Context,
        tasks: Tasks,
    ) -> None:
        self._name = name
        self._function = function
        self._limits = limits
        self._counts = counts
        self._context = context
        self._tasks = tasks
        self._queue = BatchQueue(limits.max_size, limits.max_wait_s)
        self._outside: deque[Item] = deque()  # callers who wait until they may wait in the queue
        self._in_flight = 0
        self._deadlines: list[tuple[float, int, Item]] = []  # a heap; also of items that nobody awaits any more
        self._numbers = itertools.count()
        self._timer: Cancellable | None = None
        self._timer_at = NEVER

    async def submit(self, value: Any, key: Hashable, priority: int, within_s: float | None) -> Any:
        """Have an item be in a batch, and return its result; see `Batched.__call__`."""
        now = self._tasks.time()
        item = Item(value, key, priority, now, since_s=time.perf_counter())
        if within_s is not None:
            item.within_s, item.deadline = within_s, now + within_s
            item.leave_by = item.deadline - self._require_in_time(item)
        is_full = len(self._queue) >= self._limits.max_waiting
        if is_full and self._limits.refuses:
            self._counts.add("refused")
            raise QueueFullError(self._name, len(self._queue))
        waiter = item.waiter = self._tasks.make_waiter()
        self._counts.add("waiting")
        if within_s is not None:
            heapq.heappush(self._deadlines, (item.deadline, next(self._numbers), item))
        if is_full or self._outside:
            self._outside.append(item)
        else:
            self._queue.add(item)
        self._go_on()
        try:
            return await waiter.wait()
        finally:
            if item.waiter is not None:  # the caller was cancelled
                self._counts.add("cancelled")
                self._leave(item)
                self._go_on()

    # ----- Items

    def _require_in_time(self, item: Item) -> float:
        """Refuse an item that would not be done by its deadline, and return how long its batch takes.

        Both as far as they are known.
        """
        usual_s = self._counts.usual_run_s() or 0.0
        before = self._queue.batches_before(item.key, item.priority) + self._in_flight
        expected_s = (before // self._limits.max_in_flight + 1) * usual_s
        if item.within_s < expected_s or item.within_s <= 0:
            self._counts.add("late")
            raise DeadlineError(self._name, item.within_s, expected_s)
        return usual_s

    def _leave(self, item: Item) -> None:
        """Nobody awaits an item any more. A batch of such items alone is cancelled."""
        item.waiter = None
        batch: _Batch | None = item.batch
        if batch is not None:
            batch.awaited -= 1
            if batch.awaited == 0 and batch.task is not None:
                batch.task.cancel()
            return
        if not self._queue.drop(item):
            self._outside.remove(item)
        self._counts.add("waiting", -1)

    def _finish(self, item: Item, value: Any = None, error: BaseException | None = None) -> None:
        """Give an item's caller a value or an error, unless he has given it up."""
        waiter, item.waiter = item.waiter, None
        if waiter is None or waiter.is_done:
            return
        self._counts.add("items")
        if error is None:
            waiter.set_value(value)
        else:
            self._counts.add("failed")
            waiter.set_error(error)

    # ----- Batches

    def _go_on(self) -> None:
        """Begin all batches that are due and may begin; have the rest looked at when its time has come."""
        now = self._tasks.time()
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2].waiter is None):
            item = heapq.heappop(self._deadlines)[2]
            if item.waiter is not None:
                waiter = item.waiter
                self._counts.add("late")
                self._leave(item)
                if not waiter.is_done:
                    waiter.set_error(DeadlineError(self._name, item.within_s))
        self._admit()
        while self._in_flight < self._limits.max_in_flight and (items := self._queue.take(now)):
            self._begin(items)
            self._admit()
        due = self._queue.due() if self._in_flight < self._limits.max_in_flight else NEVER
        self._look_again_at(min(due, self._deadlines[0][0] if self._deadlines else NEVER))

    def _admit(self) -> None:
        while self._outside and len(self._queue) < self._limits.max_waiting:
            self._queue.add(self._outside.popleft())

    def _look_again_at(self, when: float) -> None:
        if when == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._tasks.call_at(when, self._on_time) if when < NEVER else None

    def _on_time(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self._go_on()

    def _begin(self, items: list[Item]) -> None:
        batch = _Batch(items)
        for item in items:
            item.batch = batch
        self._in_flight += 1
        begun_s = time.perf_counter()
        self._counts.began([begun_s - item.since_s for item in items])
        context = self._context.copy()
        name = f"a batch of {self._name}"
        batch.task = self._tasks.spawn(partial(self._run, batch), name, context, partial(self._end, batch, begun_s))

    async def _run(self, batch: _Batch) -> None:
        try:
            await self._work(batch.items)
        except Exception as error:  # noqa: BLE001 - it is each caller's
            for item in batch.items:
                self._finish(item, error=_own(error))

    def _end(self, batch: _Batch, begun_s: float) -> None:
        for item in batch.items:
            self._finish(item, error=AiocudaError(f"the task of a batch of {self._name} was cancelled"))
        self._in_flight -= 1
        self._counts.ended(time.perf_counter() - begun_s)
        self._go_on()

    async def _work(self, items: list[Item]) -> None:
        """Have the function work on items; again without those that it says have failed alone."""
        while items:
            try:
                results = await self._results([item.value for item in items])
            except ItemError as error:
                failed = [error]
            except ExceptionGroup as group:
                failed = _all_item_errors(group)
            else:
                for item, result in zip(items, results, strict=True):
                    is_error = isinstance(result, ItemError)
                    self._finish(item, result, _error_of(result) if is_error else None)
                return
            places = {each.index: each for each in failed}
            outside = [index for index in places if not 0 <= index < len(items)]
            if outside:
                raise ArgumentIndexError(
                    f"{self._name} raised ItemError({outside[0]}, ...) for a batch of {len(items)} items"
                )
            for index, each in places.items():
                self._finish(items[index], error=_error_of(each))
            items = [item for index, item in enumerate(items) if index not in places and item.waiter is not None]

    async def _results(self, values: list[Any]) -> Sequence[Any]:
        found = self._function(values)
        if hasattr(found, "__await__"):
            found = await found
        if isinstance(found, DeviceOp):
            found = await found
        try:
            count = len(found)
        except TypeError:
            raise ArgumentTypeError(
                f"{self._name} returns the results of a batch as a list, an array or an operation of a tuple; it "
                f"returned {type(found).__name__}"
            ) from None
        if count != len(values):
            raise ArgumentValueError(f"{self._name} returned {count} results for a batch of {len(values)} items")
        if isinstance(found, np.ndarray):  # no caller's row shares memory that the function may write again
            return [np.array(found[i]) for i in range(count)]
        return [found[i] for i in range(count)]


def _error_of(failed: ItemError) -> BaseException:
    return failed.reason if isinstance(failed.reason, BaseException) else failed


def _all_item_errors(group: ExceptionGroup[Exception]) -> list[ItemError]:
    """Return the errors of a group of nothing else; raise the group where it has others."""
    if not all(isinstance(each, ItemError) for each in group.exceptions):
        raise group
    return [each for each in group.exceptions if isinstance(each, ItemError)]


def _own(error: Exception) -> Exception:
    """Return an error for one of several callers: each adds lines to his."""
    try:
        own = copy.copy(error)
    except Exception:  # noqa: BLE001 - a class that cannot be copied; all share the error then
        return error
    own.__cause__, own.__context__ = error.__cause__, error.__context__
    own.__suppress_context__ = error.__suppress_context__
    return own.with_traceback(error.__traceback__)
