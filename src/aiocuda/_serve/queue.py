"""The items that wait for a batch, and which of them make the next one.

Always true: nothing here knows a clock, a loop or a device; whoever asks says what time it is. An item is in one
bucket, that of its key, until it is taken or dropped.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["BatchQueue", "Item"]

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


@dataclass(slots=True)
class _Bucket:
    arrivals: dict[Item, None] = field(default_factory=dict)  # in their order
    ranked: list[Item] = field(default_factory=list)  # by priority, then by arrival
    leave_by: float = NEVER  # the earliest of its items

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
    """

    def __init__(self, max_size: int, max_wait_s: float) -> None:
        self.max_size = max_size
        self.max_wait_s = max_wait_s
        self._buckets: dict[Hashable, _Bucket] = {}
        self._count = 0
        self._added = 0

    def __len__(self) -> int:
        return self._count

    def add(self, item: Item) -> None:
        """Have an item wait."""
        item.number = self._added
        self._added += 1
        bucket = self._buckets.setdefault(item.key, _Bucket())
        bucket.arrivals[item] = None
        bucket.leave_by = min(bucket.leave_by, item.leave_by)
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
        self._note_removal(item.key, bucket)
        return True

    def due(self) -> float:
        """Return when the next batch is due: long ago where one is full, infinity where no item waits."""
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
        self._count -= len(taken)
        self._note_removal(key, bucket)
        return taken

    def batches_before(self, key: Hashable, priority: int) -> int:
        """Return how many batches go before that of a new item."""
        before = 0
        for each, bucket in self._buckets.items():
            ahead = bisect.bisect_right(bucket.ranked, (-priority, self._added), key=_rank)
            before += ahead // self.max_size if each == key else -(-ahead // self.max_size)
        return before

    def _due_of(self, bucket: _Bucket) -> float:
        if len(bucket.ranked) >= self.max_size:
            return -NEVER
        return min(bucket.oldest.arrived + self.max_wait_s, bucket.leave_by)

    def _note_removal(self, key: Hashable, bucket: _Bucket) -> None:
        if not bucket.arrivals:
            del self._buckets[key]
        elif bucket.leave_by < NEVER:
            bucket.leave_by = min(item.leave_by for item in bucket.ranked)
