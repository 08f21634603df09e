"""What the hub of a group answers to what ranks say. Pure.

Always true: on a call of all ranks, each rank gets one answer, when all have said the same; one for several calls that
are agreed on at once. The group ends once, and each rank is told why, and for whom it waited then. A rank that closed
it is told nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from aiocuda._collective.agreement import Agreement, Key, brief

__all__ = ["LONGEST_REASON", "Answer", "Coordinator"]

LONGEST_REASON: Final = 4000  # which a message of the channel can hold twice, whatever the characters
_MOST_KEYS: Final = 1000  # which one can hold, whatever the numbers

Answer: TypeAlias = tuple[Sequence[int], list[Any]]
"""Ranks, and what they are told."""


class Coordinator:
    """Hears all ranks of one group.

    Parameters
    ----------
    rank, size
        The first rank that has joined, and how many it was told that there are.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._first = rank
        self.size = size
        self._agreement = Agreement(size)
        self._absent = set(range(size))  # ranks that have not joined yet
        self._present: set[int] = set()  # ranks that have joined, and are neither gone nor have left
        self._without_board = size  # how many ranks have not joined with the board
        self._reason: str | None = None

    def join(self, rank: int, size: int, has_board: bool = False) -> list[Answer]:
        """Note that a rank has joined, which was told that there are so many.

        If all ranks have the group's board, they are told to use it, before they have agreed on their first call.
        """
        self._absent.discard(rank)
        self._present.add(rank)
        self._without_board -= has_board
        if self._reason is not None:
            return [([rank], ["ended", self._reason, ""])]
        if size == self.size:
            return [(range(size), ["board"])] if self._without_board == 0 else []
        return self._end(
            f"rank {rank} has joined, and was told that there are {size} ranks; rank {self._first} was told that there "
            f"are {self.size}",
            self._present,
        )

    @property
    def has_ended(self) -> bool:
        """Whether the group has failed."""
        return self._reason is not None

    def hear(self, rank: int, messages: Iterable[Any]) -> list[Answer]:
        """Note what a rank says; return what is to be told."""
        answers = [answer for each in messages for answer in self._hear(rank, each)]
        if self._reason is None:
            answers += self._settled()
        return answers

    def _hear(self, rank: int, said: Any) -> list[Answer]:
        match said:
            case ["waits", int(number)]:
                return [([rank], ["waits", number, self._waits_for(rank)])]
            case ["absent?", int(number)]:
                return [([rank], ["waits", number, brief(", ".join(map(str, sorted(self._absent))))])]
            case ["kept?", int(number)]:
                return self._ask_absent(rank, number)
            case ["built", int(asker), int(number), str(words)]:
                return [([asker], ["built", number, words])] if asker in self._present else []
            case ["bye"]:
                self._present.discard(rank)
                self._agreement.leave(rank)
            case _ if self._reason is not None:
                pass
            case ["call", [int(), int(), int()] as key, str(words)]:
                self._agreement.call(rank, Key(*key), words)
            case ["refused", [int(), int(), int()] as key, str(words)]:
                self._agreement.refuse(rank, Key(*key), words)
            case ["failed", str(reason)]:
                return self._end(reason, self._present - {rank})
            case _:
                return self._end(f"rank {rank} says {said!r:.200}, which is not understood", self._present)
        return []

    def lose(self, rank: int, why: str) -> list[Answer]:
        """Note that a rank is not there any more; `why`: as in "rank 1 …"."""
        if rank not in self._present:
            return []  # it has closed the group
        answers = self._end(f"rank {rank} {why}", self._present)
        self._present.discard(rank)
        return answers

    def _settled(self) -> list[Answer]:
        if self._agreement.wrong is not None:
            return self._end(self._agreement.wrong, self._present, is_complete=True)
        agreed: dict[Sequence[int], list[Key]] = {}
        for key in self._agreement.take_agreed():
            agreed.setdefault(key.ranks(self.size), []).append(key)
        return [
            (ranks, ["agreed", keys[at : at + _MOST_KEYS]])
            for ranks, keys in agreed.items()
            for at in range(0, len(keys), _MOST_KEYS)
        ]

    def _end(self, reason: str, ranks: Iterable[int], *, is_complete: bool = False) -> list[Answer]:
        """End the group, once. `is_complete`: the reason says already who waits for whom."""
        if self._reason is not None:
            return []
        self._reason = reason = brief(reason, LONGEST_REASON)
        return [([each], ["ended", reason, "" if is_complete else self._waits_for(each)]) for each in sorted(ranks)]

    def _ask_absent(self, rank: int, number: int) -> list[Answer]:
        """Ask those for whom a rank waits whether they have built the call; tell the rank how many are asked."""
        key = self._agreement.first_of(rank) if rank < self.size else None
        absent = [each for each in self._agreement.absent_from(key) if each in self._present] if key is not None else []
        return [([rank], ["kept?", number, len(absent)]), (absent, ["built?", rank, number, key])]

    def _waits_for(self, rank: int) -> str:
        words = self._agreement.waits_for(rank) if rank < self.size else None
        return brief(words or "", LONGEST_REASON)
