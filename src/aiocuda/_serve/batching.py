"""`batched`: a function of a batch becomes a function of one item, which many tasks await."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, Final, Generic, Literal, TypeVar, overload

from aiocuda import _loops
from aiocuda._engine.execution import checked_timeout
from aiocuda._engine.placement import PRIORITIES, priority_in_force
from aiocuda._ops.operation import DeviceOp
from aiocuda._serve.batcher import Batcher, Limits, Served
from aiocuda._serve.counts import BatchStatistics, Counts
from aiocuda._values.given import between, one_of
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["Batched", "batched"]

T = TypeVar("T")
R = TypeVar("R")
Function = Callable[[list[T]], Awaitable[Sequence[R] | DeviceOp[Any]] | DeviceOp[Any] | Sequence[R]]

_MOST: Final = 1 << 31


class Batched(Generic[T, R]):
    """A function whose callers await one item each, as `batched` makes it.

    Attributes
    ----------
    function
        The function of a batch.
    """

    def __init__(self, function: Function[T, R], limits: Limits, key: Callable[[T], Hashable] | None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._key = key
        name = getattr(function, "__qualname__", repr(function))
        self._served = Served(name, function, limits, Counts(), contextvars.copy_context())
        self._of_object = f"<batched {name}>"  # in the object's __dict__: no attribute, so that each access comes here
        self._owner: type | None = None
        self._attribute = getattr(function, "__name__", name)

    def __call__(
        self, item: T, /, *, priority: int | None = None, within_s: float | None = None
    ) -> Coroutine[Any, Any, R]:
        """Have an item be in a batch; await its result.

        Parameters
        ----------
        item
            The item.
        priority
            From -2**31 to 2**31; items of higher ones go first. None: that of ``use(priority=…)``, or 0.
        within_s
            How many seconds its caller has. None: as long as it takes.

        Returns
        -------
        Coroutine[R]
            The function's result for the item. It waits in the event loop that awaits it. *On cancel*: the item is
            dropped, if its batch has not begun; else the batch goes on for the others, and is cancelled where there
            are none.

        Raises
        ------
        QueueFullError
            As many items wait as may, and ``overflow="raise"``.
        ArgumentTypeError
            The item's key is not hashable.
        DeadlineError
            The time is over; or, at once, the item would take longer behind those that wait.
        """
        if priority is None:
            priority = priority_in_force()
        else:
            priority = between(priority, "the priority of an item", *PRIORITIES)
        if within_s is not None:
            within_s = checked_timeout(within_s)
        key = None if self._key is None else self._key(item)
        try:
            hash(key)
        except TypeError as error:
            raise ArgumentTypeError(
                f"the key of an item of {self._served.name} is hashable, such as a number, a text or a tuple of those; "
                f"key={self._key!r} returned a {type(key).__name__} ({error})"
            ) from None
        return self._submit(item, key, priority, within_s)

    async def _submit(self, item: T, key: Hashable, priority: int, within_s: float | None) -> R:
        tasks = _loops.current_tasks()
        batcher = tasks.kept.get(self._served)
        if batcher is None:
            batcher = tasks.kept[self._served] = Batcher(self._served, tasks)
        result: R = await batcher.submit(item, key, priority, within_s)
        return result

    def statistics(self) -> BatchStatistics:
        """Return the function in numbers, of all event loops, as they are now.

        Returns
        -------
        BatchStatistics
            Counts since the function was made.
        """
        return self._served.counts.read()

    def __set_name__(self, owner: type, name: str) -> None:
        self._of_object = f"<batched {owner.__qualname__}.{name}>"
        self._owner, self._attribute = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Batched[T, R]:
        """Return the function of an object, of whose items each batch is."""
        # A partial has __get__ from Python 3.13 on, and binds from 3.14 on; here it is of no object in any version.
        if instance is None or isinstance(self.function, functools.partial) or not hasattr(self.function, "__get__"):
            return self
        try:
            kept = instance.__dict__
        except AttributeError:
            raise ArgumentTypeError(
                f"{self._served.name} is batched for each object of its class, and keeps its items in the object's "
                "__dict__, which this class with __slots__ has not; add '__dict__' to its slots"
            ) from None
        known: _BatchedOfObject[T, R] = kept.get(self._of_object) or kept.setdefault(
            self._of_object, _BatchedOfObject(self, instance)
        )
        if known.instance is not instance:  # it came with the object's copy
            known = kept[self._of_object] = _BatchedOfObject(self, instance)
        return known

    def __repr__(self) -> str:
        served = self._served
        wait_ms = served.limits.max_wait_s * 1000
        return f"<batched {served.name}: up to {served.limits.max_size} items, {wait_ms:g} ms>"


class _BatchedOfObject(Batched[T, R]):
    """A batched method of one object. A copy of the object gets its own, also by pickle."""

    def __init__(self, method: Batched[T, R], instance: Any) -> None:
        of_class = method._served
        super().__init__(method.function.__get__(instance), of_class.limits, method._key)
        self._served = dataclasses.replace(self._served, context=of_class.context)
        self.instance = instance
        self._owner, self._attribute = method._owner or type(instance), method._attribute

    def __reduce__(self) -> Any:
        return _method_of, (self.instance, self._owner, self._attribute)


def _method_of(instance: object, owner: type, attribute: str) -> Any:
    return vars(owner)[attribute].__get__(instance)


@overload
def batched(function: Function[T, R], /) -> Batched[T, R]: ...
@overload
def batched(
    *,
    max_size: int = ...,
    max_wait_ms: float = ...,
    max_in_flight: int = ...,
    max_waiting: int = ...,
    overflow: Literal["wait", "raise"] = ...,
    key: Callable[[Any], Hashable] | None = ...,
) -> Callable[[Function[T, R]], Batched[T, R]]: ...
def batched(
    function: Any = None,
    /,
    *,
    max_size: int = 32,
    max_wait_ms: float = 2.0,
    max_in_flight: int = 2,
    max_waiting: int = 1024,
    overflow: Literal["wait", "raise"] = "wait",
    key: Callable[[Any], Hashable] | None = None,
) -> Any:
    """Have the callers of a function of a batch await one item each.

    Parameters
    ----------
    function
        Called with a list of items, ``async`` or not. It returns as many results in the same order: a list, whose items
        the callers get as they are, a NumPy array, of which each caller gets a copy of his row, or an operation that
        yields either, which is awaited. It may be a method; each object then has batches of its own. An exception goes
        to all callers of the batch. It may raise `ItemError`, or a group of them: these items fail, and it is called
        again with the others. It may also return `ItemError` in the place of a result.
    max_size
        The most items of a batch.
    max_wait_ms
        How many milliseconds an item waits at most for others to come. A batch that is full begins at once.
    max_in_flight
        How many batches are under way at once, in each event loop. While one downloads, the next computes.
    max_waiting
        How many items may wait in each event loop. While so many do, no batch waits for others to come.
    overflow
        ``"wait"``: more callers wait until there is room. ``"raise"``: they get a `QueueFullError`.
    key
        Items of a batch have equal keys: ``key=lambda x: x.shape``, for instance.

    Returns
    -------
    Batched
        To be called with one item, and awaited. Without a function: a decorator.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        A limit is no number of its kind, or out of bounds.

    Notes
    -----
    Each event loop has batches of its own. A batch is a task, in the context in which the function was decorated: no
    caller's context variables reach it. It begins when it is full, when its first item has waited for `max_wait_ms`, or
    when a deadline of its items asks for it, and never while `max_in_flight` others are under way.
    *Stream* and *Blocks*: as for what the function does.

    Examples
    --------
    >>> import asyncio
    >>> import numpy as np
    >>> import aiocuda as ac
    >>> @ac.batched(max_size=4)
    ... def double(numbers):
    ...     return ac.to_host(ac.algorithms.transform("2 * x", x=ac.to_device(np.array(numbers))))
    >>> async def main():
    ...     return await asyncio.gather(*(double(i) for i in range(4)))
    >>> [int(each) for each in asyncio.run(main())]
    [0, 2, 4, 6]
    """
    try:
        is_time = 0 <= max_wait_ms < float("inf")
    except TypeError:
        raise ArgumentTypeError(f"max_wait_ms is a number of milliseconds; {max_wait_ms!r} was given") from None
    if not is_time:
        raise ArgumentValueError(f"max_wait_ms is from 0 on, and ends; {max_wait_ms!r} was given")
    if key is not None and not callable(key):
        raise ArgumentTypeError(f"key is a function of an item; {key!r} was given")
    limits = Limits(
        between(max_size, "max_size", 1, _MOST),
        max_wait_ms / 1000,
        between(max_in_flight, "max_in_flight", 1, _MOST),
        between(max_waiting, "max_waiting", 1, _MOST),
        one_of(overflow, "overflow", ("wait", "raise")) == "raise",
    )

    def decorate(function: Any) -> Batched[Any, Any]:
        if not callable(function) or inspect.isclass(function):
            raise ArgumentTypeError(f"batched: a function of a list of items is expected; {function!r} was given")
        return Batched(function, limits, key)

    return decorate if function is None else decorate(function)
