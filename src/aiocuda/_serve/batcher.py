"""Runs the batches of one function in one event loop.

Always true: it is used in the thread of its loop alone. A batch runs in the context of the function's decorator, not in
that of a caller. Each item gets one result or one error, unless its caller has given it up. While no item waits, there
is no timer, so nothing of it keeps a loop.
"""

from __future__ import annotations

import contextvars
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from aiocuda._errors.copies import copy_for_one
from aiocuda._loops import Cancellable, Tasks
from aiocuda._ops.operation import DeviceOp
from aiocuda._serve.counts import Counts
from aiocuda._serve.queue import NEVER, BatchQueue, Item, Times
from aiocuda._serve.taking import Accepted, accepted, taking_of
from aiocuda.errors import (
    AiocudaError,
    ArgumentIndexError,
    ArgumentTypeError,
    ArgumentValueError,
    DeadlineError,
    ItemError,
    QueueFullError,
)

__all__ = ["Batcher", "Limits", "Served"]

_SPARE_S: Final = 0.005  # a timer of a loop comes a millisecond late, and later where the loop is busy


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a batched function; see `batched`."""

    max_size: int
    max_wait_s: float
    max_in_flight: int
    max_waiting: int
    refuses: bool


@dataclass(frozen=True, eq=False)
class Served:
    """A function of a batch, and all that its loops have in common.

    Attributes
    ----------
    name
        The function's name.
    function
        It.
    limits, counts
        Its limits, and what it counts.
    context
        Batches run in copies of it.
    """

    name: str
    function: Callable[[list[Any]], Any]
    limits: Limits
    counts: Counts
    context: contextvars.Context


class _Batch:
    """Items that are given to the function together."""

    __slots__ = ("awaited", "begun_s", "function", "items", "task", "work")

    def __init__(self, items: list[Item], function: Callable[[list[Any]], Any]) -> None:
        self.items = items
        self.function = function
        self.awaited = len(items)  # whose callers still wait
        self.begun_s = time.perf_counter()
        self.task: Cancellable | None = None
        self.work = Accepted()  # what contexts keep of it


class Batcher:
    """The items of one function in one loop.

    Parameters
    ----------
    served
        The function. The loop keeps what this keeps, so this does not keep the function: callers that wait do.
    tasks
        The loop's.
    """

    def __init__(self, served: Served, tasks: Tasks) -> None:
        self._served = weakref.ref(served)
        self._name = served.name
        self._limits = limits = served.limits
        self._counts = served.counts
        self._tasks = tasks
        self._taking = taking_of(tasks)
        self._queue = BatchQueue(limits.max_size, limits.max_wait_s, limits.max_waiting)
        self._outside: OrderedDict[Item, None] = OrderedDict()  # they wait until they may wait in the queue
        self._in_flight: dict[_Batch, None] = {}
        self._deadlines = Times()  # of items that are awaited
        self._timer: Cancellable | None = None
        self._timer_at = NEVER

    async def submit(self, value: Any, key: Hashable, priority: int, within_s: float | None) -> Any:
        """Have an item be in a batch, and return its result; see `Batched.__call__`."""
        self._taking.require(self._name)
        now = self._tasks.time()
        item = Item(value, key, priority, now, since_s=time.perf_counter())
        if within_s is not None:
            item.within_s, item.deadline = within_s, now + within_s
            self._require_in_time(item)
            longest_s = self._counts.longest_run_s()  # not known: it does not wait for others
            item.leave_by = now if longest_s is None else item.deadline - longest_s - _SPARE_S
        is_full = self._queue.is_full
        if is_full and self._limits.refuses:
            self._counts.add("refused")
            raise QueueFullError(self._name, len(self._queue))
        waiter = item.waiter = self._tasks.make_waiter()
        self._counts.add("waiting")
        if within_s is not None:
            self._deadlines.add(item.deadline, item)
        if is_full or self._outside:
            self._outside[item] = None
        else:
            self._queue.add(item)
        self._go_on()
        try:
            return await waiter.wait()
        except GeneratorExit:  # the task is thrown away, with its loop as a rule: nothing can be asked of that
            if item.waiter is not None:
                self._counts.add("cancelled")
                self._drop(item)
            raise
        finally:
            if item.waiter is not None:  # the caller was cancelled
                self._counts.add("cancelled")
                self._leave(item)
                self._go_on()

    @property
    def left(self) -> str:
        """How many items are not done, in words; empty where there is none."""
        waiting, in_flight = len(self._queue) + len(self._outside), sum(batch.awaited for batch in self._in_flight)
        if not waiting and not self._in_flight:
            return ""
        return f"{self._name}: {waiting} items wait, and {in_flight} are in batches under way"

    def hurry(self) -> None:
        """Begin all batches that may begin: no more items will come."""
        self._go_on()

    # ----- Items

    def _require_in_time(self, item: Item) -> None:
        """Refuse an item that would not be done by its deadline, as far as it is known how long batches take."""
        expected_s = self._expected_s(item)
        if item.within_s >= expected_s and item.within_s > 0:
            return
        self._counts.add("late")
        if not self._in_flight and not self._queue:
            self._counts.forget_run()  # no batch is there to tell otherwise: else nothing would ever be let in again
        raise DeadlineError(self._name, item.within_s, expected_s)

    def _expected_s(self, item: Item) -> float:
        """Return how long a new item would take, with all that goes before it."""
        usual_s = self._counts.usual_run_s() or 0.0
        before = self._queue.batches_before(item.key, item.priority) + len(self._outside) // self._limits.max_size
        rounds, place = divmod(before, self._limits.max_in_flight)
        idle = self._limits.max_in_flight - len(self._in_flight)
        begins_s = 0.0
        if place >= idle:  # when that many of those under way have ended
            now_s = time.perf_counter()
            left_s = sorted(max(0.0, batch.begun_s + usual_s - now_s) for batch in self._in_flight)
            begins_s = left_s[place - idle]
        return begins_s + (rounds + 1) * usual_s

    def _leave(self, item: Item) -> None:
        """Nobody awaits an item any more. A batch of such items alone is cancelled."""
        self._drop(item)
        batch: _Batch | None = item.batch
        if batch is not None and batch.awaited == 0 and batch.task is not None:
            batch.task.cancel()

    def _drop(self, item: Item) -> None:
        item.waiter = None
        self._deadlines.discard(item)
        batch: _Batch | None = item.batch
        if batch is not None:
            batch.awaited -= 1
            return
        if not self._queue.drop(item):
            del self._outside[item]
        self._counts.add("waiting", -1)

    def _finish(self, item: Item, value: Any = None, error: BaseException | None = None) -> None:
        """Give an item's caller a value or an error, unless he has given it up."""
        waiter = item.waiter
        if waiter is None:
            return
        self._drop(item)
        if waiter.is_done:  # the caller was cancelled, and has yet to hear of it
            self._counts.add("cancelled")
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
        while self._deadlines.earliest() <= now:
            item = self._deadlines.pop()
            waiter = item.waiter
            self._counts.add("late")
            self._leave(item)
            if not waiter.is_done:
                waiter.set_error(DeadlineError(self._name, item.within_s))
        self._admit()
        by = NEVER if self._taking.is_stopped else now  # no more items will come
        while len(self._in_flight) < self._limits.max_in_flight and (items := self._queue.take(by)):
            self._begin(items)
            self._admit()
        if self._taking.when_idle is not None and not self.left:
            self._taking.when_idle()
        due = self._queue.due() if len(self._in_flight) < self._limits.max_in_flight else NEVER
        self._look_again_at(min(due, self._deadlines.earliest()))

    def _admit(self) -> None:
        while self._outside and not self._queue.is_full:
            self._queue.add(self._outside.popitem(last=False)[0])

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
        served = self._served()
        assert served is not None  # the items' callers have it
        batch = _Batch(items, served.function)
        for item in items:
            item.batch = batch
        self._in_flight[batch] = None
        self._counts.began([batch.begun_s - item.since_s for item in items])
        name = f"a batch of {self._name}"
        context = served.context.copy()
        batch.task = self._tasks.spawn(partial(self._run, batch), name, context, partial(self._end, batch))

    async def _run(self, batch: _Batch) -> None:
        accepted.set(batch.work)
        try:
            await self._work(batch)
        except Exception as error:  # noqa: BLE001 - it is each caller's
            for item in batch.items:
                self._finish(item, error=copy_for_one(error))

    def _end(self, batch: _Batch) -> None:
        batch.work.is_over = True
        for item in batch.items:
            self._finish(item, error=AiocudaError(f"the task of a batch of {self._name} was cancelled"))
        del self._in_flight[batch]
        self._counts.ended(time.perf_counter() - batch.begun_s)
        self._go_on()

    async def _work(self, batch: _Batch) -> None:
        """Have the function work on items; again without those that it says have failed alone."""
        items = batch.items
        while items:
            try:
                results = await self._results(batch.function, [item.value for item in items])
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

    async def _results(self, function: Callable[[list[Any]], Any], values: list[Any]) -> Sequence[Any]:
        found = function(values)
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
            return [row.copy() if isinstance(row, (np.ndarray, np.generic)) else row for row in found]
        return [found[i] for i in range(count)]


def _error_of(failed: ItemError) -> BaseException:
    """Return what an item's caller gets: his reason, where a coroutine can raise it without an end of its task."""
    reason = failed.reason
    return reason if isinstance(reason, Exception) and not isinstance(reason, StopIteration) else failed


def _all_item_errors(group: ExceptionGroup[Exception]) -> list[ItemError]:
    """Return the errors of a group of nothing else; raise the group where it has others."""
    if not all(isinstance(each, ItemError) for each in group.exceptions):
        raise group
    return [each for each in group.exceptions if isinstance(each, ItemError)]
