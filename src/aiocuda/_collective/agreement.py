"""Whether ranks do the same: what each of them has said about each call, as the hub hears it. Pure.

Always true: a rank comes to its calls in the order in which it said them. A call is agreed on when all who take part
have come to it, and have said the same. What is wrong once stays so.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final, NamedTuple

__all__ = ["Agreement", "Key", "brief"]

_LONGEST_WORDS: Final = 1000  # so that an error that names two calls fits into a message of the channel's


def brief(words: str, longest: int = _LONGEST_WORDS) -> str:
    """Return words of bounded length, which differ if the words do."""
    if len(words) <= longest:
        return words
    digest = hashlib.sha256(words.encode("utf-8", "backslashreplace")).hexdigest()
    return f"{words[: longest - 100]}… ({len(words):,} characters, sha256 {digest[:32]})"


class Key(NamedTuple):
    """By which ranks know a call: its number among the collectives, or among the messages from one rank to another."""

    number: int
    source: int = -1
    to: int = -1

    def __str__(self) -> str:
        if self.is_of_all:
            return f"call {self.number}"
        return f"message {self.number} from rank {self.source} to rank {self.to}"

    @property
    def is_of_all(self) -> bool:
        """Whether all ranks take part."""
        return self.source < 0

    def ranks(self, size: int) -> range | tuple[int, int]:
        """Return who takes part, of so many ranks."""
        return range(size) if self.is_of_all else (self.source, self.to)

    def in_series(self, number: int) -> Key:
        """Return another one among the same."""
        return self._replace(number=number)


class Agreement:
    """What all ranks have said.

    Parameters
    ----------
    size
        How many there are.

    Attributes
    ----------
    wrong
        Why the ranks can never agree, in words; None so far.
    """

    def __init__(self, size: int) -> None:
        self.wrong: str | None = None
        self._size = size
        self._agreed: list[Key] = []  # that nobody has taken yet
        self._called: dict[Key, dict[int, str]] = {}  # by whom, and in which words
        self._refused: dict[Key, dict[int, str]] = {}  # and who has not, and never will
        self._queues: list[deque[Key]] = [deque() for _ in range(size)]  # calls that are not agreed on
        self._coming: dict[Key, int] = {}  # how many ranks have come to a call
        self._busy = 0  # how many ranks have come to one
        self._last: dict[tuple[Key, int], int] = {}  # the number of a rank's last call in a series
        self._left: set[int] = set()

    def call(self, rank: int, key: Key, words: str) -> None:
        """Note what a rank calls, behind what it has called before."""
        called = self._called.setdefault(key, {})
        called[rank] = words
        self._note_skipped(rank, key)
        self._compare(key, rank)
        gone = [each for each in self._left if each in key.ranks(self._size) and each not in called]
        if gone:
            self._note_gone(key, min(gone))
        queue = self._queues[rank]
        queue.append(key)
        if len(queue) == 1:
            self._busy += 1
            self._come(rank)

    def refuse(self, rank: int, key: Key, words: str) -> None:
        """Note that a rank does not make the call of this number. `words`: why, as in "rank 1 …"."""
        if key.number <= self._last.get((key.in_series(0), rank), 0):
            return  # a later call of the rank's has said so
        refused = self._refused.setdefault(key, {})
        refused[rank] = words
        if key in self._called:
            self._compare(key, next(iter(self._called[key])))
        elif len(refused) == len(key.ranks(self._size)):
            del self._refused[key]

    def leave(self, rank: int) -> None:
        """Note that a rank calls nothing more."""
        self._left.add(rank)
        for key, called in self._called.items():
            if rank in key.ranks(self._size) and rank not in called:
                self._note_gone(key, rank)
                return

    def take_agreed(self) -> list[Key]:
        """Return the calls on which all who take part have agreed since the last time."""
        taken, self._agreed = self._agreed, []
        return taken

    def waits_for(self, rank: int) -> str | None:
        """Return for whom the first call of a rank waits that is not agreed on; None if there is none."""
        if not self._queues[rank]:
            return None
        key = self._queues[rank][0]
        called = self._called[key]
        absent = self.absent_from(key)
        reasons = [f"rank {', '.join(map(str, absent))} has not called it"] if absent else []
        for each in key.ranks(self._size):
            queue = self._queues[each]
            if queue and queue[0] != key:
                reasons.append(f"rank {each} waits in {queue[0]}, {self._called[queue[0]][each]}")
        return f"{key}, {called[rank]}: {'; '.join(reasons)}"

    def first_of(self, rank: int) -> Key | None:
        """Return the first call of a rank that is not agreed on."""
        return self._queues[rank][0] if self._queues[rank] else None

    def absent_from(self, key: Key) -> list[int]:
        """Return the ranks that take part in a call, which some have called, and have not called it."""
        return [each for each in key.ranks(self._size) if each not in self._called[key]]

    def _note(self, wrong: str) -> None:
        if self.wrong is None:
            self.wrong = f"the ranks of the group do not call the same: {wrong}"

    def _compare(self, key: Key, rank: int) -> None:
        """Compare what a rank has called with one other: those before it were compared with each other."""
        called, refused = self._called[key], self._refused.get(key)
        one, other = sorted((next(iter(called)), rank))
        if called[one] != called[other]:
            self._note(f"as {key}, rank {one} calls {called[one]}, rank {other} calls {called[other]}")
        elif refused:
            who, words = next(iter(refused.items()))
            self._note(f"as {key}, rank {rank} calls {called[rank]}, rank {who} {words}")

    def _note_skipped(self, rank: int, key: Key) -> None:
        series = (key.in_series(0), rank)
        last = self._last.get(series, 0)
        if key.number <= last:
            self._note(f"rank {rank} calls {key}, {self._called[key][rank]}, behind {key.in_series(last)}")
        for number in range(last + 1, key.number):
            skipped = key.in_series(number)
            if rank not in self._refused.get(skipped, ()):
                self.refuse(rank, skipped, f"has dropped it, or it failed before, and goes on with {key}")
        self._last[series] = key.number

    def _note_gone(self, key: Key, gone: int) -> None:
        rank, words = next(iter(self._called[key].items()))
        self._note(f"as {key}, rank {rank} calls {words}, rank {gone} has closed the group")

    def _come(self, rank: int) -> None:
        """Note that a rank has come to the first call of its queue."""
        coming, moved = [rank], set[int]()
        while coming:
            rank = coming.pop()
            moved.add(rank)
            key = self._queues[rank][0]
            self._coming[key] = self._coming.get(key, 0) + 1
            ranks = key.ranks(self._size)
            if self._coming[key] < len(ranks):
                continue
            del self._coming[key], self._called[key]
            for each in ranks:
                queue = self._queues[each]
                queue.popleft()
                if queue:
                    coming.append(each)
                else:
                    self._busy -= 1
            self._agreed.append(key)
        for each in sorted(moved):
            # All who have come to something have come to the same: nobody waits in another call.
            if self._queues[each] and self._coming[self._queues[each][0]] < self._busy:
                self._look_for_circle(each)

    def _look_for_circle(self, rank: int) -> None:
        """Look whether a rank waits for ranks that wait for it."""
        path, ways = [rank], [self._waited_for(rank)]
        seen = {rank}
        while path:
            if not ways[-1]:
                path.pop()
                ways.pop()
                continue
            following = ways[-1].pop()
            if following == rank:
                first = path.index(min(path))
                parts = [f"rank {each} calls {self._words_of(each)}" for each in path[first:] + path[:first]]
                self._note(f"{', '.join(parts)}, and each waits for the next; let one of them go first elsewhere")
                return
            if following not in seen:
                seen.add(following)
                path.append(following)
                ways.append(self._waited_for(following))

    def _words_of(self, rank: int) -> str:
        key = self._queues[rank][0]
        return f"{self._called[key][rank]} ({key})"

    def _waited_for(self, rank: int) -> list[int]:
        """Return the ranks that must come to a rank's call, and have come to another one."""
        key = self._queues[rank][0]
        return [each for each in key.ranks(self._size) if self._queues[each] and self._queues[each][0] != key]
