"""The items that wait for a batch, and which of them make the next one.

Always true: nothing here knows a clock, a loop or a device; whoever asks says what time it is. An item is in one
bucket, that of its key, until it is taken or dropped.
"""

from __future__ import annotations

import bisect
import heapq
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["NEVER", "BatchQueue", "Item", "Times"]

NEVER: Final = float("inf")


@dataclass(eq=False, slots=True)
class Item:
    """An item that somebody awaits.

    Attributes
    ----------
    value
        It.
    key
        Items of one batch have the same.
    priority
        Items of higher ones go first.
    arrived, deadline
        When it came, and until when it must be done, in seconds of the loop's clock.
    within_s
        The time that it was given, in seconds.
    leave_by
        When its batch must begin, so that it is done by its deadline.
    since_s
        When it came, by a finer clock than some loops have.
    waiter
        Who awaits it; for whoever runs batches. None: nobody does any more.
    batch
        The batch that it is in, once it was taken.
    """

    value: Any
    key: Hashable
    priority: int
    arrived: float
    deadline: float = NEVER
    within_s: float = NEVER
    leave_by: float = NEVER
    since_s: float = 0.0
    waiter: Any = None
    batch: Any = None
    number: int = 0


class Times:
    """Items, each with a time, of which the earliest is asked for.

    Always true: it holds no more than twice its items, and a few.
    """

    __slots__ = ("_added", "_heap", "_items")

    _FEW: Final = 32

    def __init__(self) -> None:
        self._items: set[Item] = set()
        self._heap: list[tuple[float, int, Item]] = []  # also of items that were taken out
        self._added = 0

    def add(self, when: float, item: Item) -> None:
        """Put an item in, once."""
        self._items.add(item)
        self._added += 1
        heapq.heappush(self._heap, (when, self._added, item))

    def discard(self, item: Item) -> None:
        """Take an item out, if it is there."""
        self._items.discard(item)
        if len(self._heap) > 2 * len(self._items) + self._FEW:
            self._heap = [each for each in self._heap if each[2] in self._items]
            heapq.heapify(self._heap)

    def earliest(self) -> float:
        """Return the earliest time; infinity where there is no item."""
        while self._heap and self._heap[0][2] not in self._items:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def pop(self) -> Item:
        """Take the item of the earliest time out. There is one."""
        self.earliest()
        item = heapq.heappop(self._heap)[2]
        self._items.remove(item)
        return item


@dataclass(slots=True)
class _Bucket:
    arrivals: OrderedDict[Item, None] = field(default_factory=OrderedDict)
    ranked: list[Item] = field(default_factory=list)  # by priority, then by arrival
    leaving: Times = field(default_factory=Times)  # those that have a deadline

    @property
    def oldest(self) -> Item:
        return next(iter(self.arrivals))


def _rank(item: Item) -> tuple[int, int]:
    return (-item.priority, item.number)


class BatchQueue:
    """Items by their keys.

    Parameters
    ----------
    max_size
        The most items of a batch.
    max_wait_s
        How long an item waits for others at most, in seconds.
    max_waiting
        How many items may wait. The batcher keeps to it. While so many wait, no batch can grow, so none waits.
    """

    def __init__(self, max_size: int, max_wait_s: float, max_waiting: float = NEVER) -> None:
        self.max_size = max_size
        self.max_wait_s = max_wait_s
        self.max_waiting = max_waiting
        self._buckets: dict[Hashable, _Bucket] = {}
        self._count = 0
        self._added = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether as many items wait as may."""
        return self._count >= self.max_waiting

    def add(self, item: Item) -> None:
        """Have an item wait."""
        item.number = self._added
        self._added += 1
        bucket = self._buckets.setdefault(item.key, _Bucket())
        bucket.arrivals[item] = None
        if item.leave_by < NEVER:
            bucket.leaving.add(item.leave_by, item)
        bisect.insort(bucket.ranked, item, key=_rank)
        self._count += 1

    def drop(self, item: Item) -> bool:
        """Have an item wait no more; False: it does not."""
        bucket = self._buckets.get(item.key)
        if bucket is None or item not in bucket.arrivals:
            return False
        del bucket.arrivals[item]
        del bucket.ranked[bisect.bisect_left(bucket.ranked, _rank(item), key=_rank)]
        self._count -= 1
        bucket.leaving.discard(item)
        if not bucket.arrivals:
            del self._buckets[item.key]
        return True

    def due(self) -> float:
        """Return when the next batch is due: long ago where one can grow no more, infinity where no item waits."""
        return min(map(self._due_of, self._buckets.values()), default=NEVER)

    def take(self, now: float) -> list[Item]:
        """Return the next batch that is due, and have its items wait no more; an empty list where none is due.

        Of several batches that are due, that of the item of the highest priority goes first, then that of the item
        that waits longest.
        """
        due = [key for key, bucket in self._buckets.items() if self._due_of(bucket) <= now]
        if not due:
            return []
        key = min(due, key=lambda key: (-self._buckets[key].ranked[0].priority, self._buckets[key].oldest.number))
        bucket = self._buckets[key]
        taken = bucket.ranked[: self.max_size]
        del bucket.ranked[: self.max_size]
        for item in taken:
            del bucket.arrivals[item]
            bucket.leaving.discard(item)
        self._count -= len(taken)
        if not bucket.arrivals:
            del self._buckets[key]
        return taken

    def batches_before(self, key: Hashable, priority: int) -> int:
        """Return how many batches go before that of a new item."""
        before = 0
        for each, bucket in self._buckets.items():
            ahead = bisect.bisect_right(bucket.ranked, (-priority, self._added), key=_rank)
            before += ahead // self.max_size if each == key else -(-ahead // self.max_size)
        return before

    def _due_of(self, bucket: _Bucket) -> float:
        if len(bucket.ranked) >= self.max_size or self.is_full:
            return -NEVER
        return min(bucket.oldest.arrived + self.max_wait_s, bucket.leaving.earliest())
