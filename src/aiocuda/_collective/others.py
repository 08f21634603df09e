"""The other processes of a group: what they and this one say, and the word on which this one's streams wait.

Always true: a stream goes beyond its wait when all who take part have said the same, or when the group has failed and
NCCL was told to abort.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from aiocuda._collective.agreement import Agreement, Key, brief
from aiocuda._collective.calls import Call
from aiocuda._collective.meeting import GONE, Line, Place
from aiocuda._driver import nccl
from aiocuda._verbs.create import empty_host

__all__ = ["Others"]

# A stream compares numbers of 32 bits as they lie on a circle. So the word of a group that failed is half of it beyond.
_FIRST: Final = 1 << 30
_ALL: Final = _FIRST + (1 << 31) - 1

_LONGEST_REASON: Final = 4000  # which a message of the channel can hold, whatever the characters


class Others:
    """One rank's dealings with all others.

    Parameters
    ----------
    place
        Where they meet.
    rank, size
        This process's number, and how many there are.
    failed
        Called on any thread when the group is to fail: with the reason, whether the others know it, and whether it
        names what ranks called.
    timeout_s
        How long the way to the meeting may take.
    """

    def __init__(
        self, place: Place, rank: int, size: int, failed: Callable[[str, bool, bool], object], timeout_s: float
    ) -> None:
        self._rank, self._size = rank, size
        self._failed = failed
        self._lock = threading.Lock()
        self._agreement = Agreement(rank, size)
        self._numbers: dict[Key, int] = {}  # of the last calls that this rank has built
        self._called = 0
        self._left: set[int] = set()
        self._is_over = False
        self._memory = empty_host(1, "uint32").sync()
        self._word = self._memory.numpy()
        self._word[0] = 0
        self._line = Line(place, rank, self._hear, timeout_s)

    def number(self, call: Call) -> Key:
        """Return what all ranks know this rank's next call by."""
        match call.kind:
            case "send":
                series = Key(0, self._rank, call.root)
            case "recv":
                series = Key(0, call.root, self._rank)
            case _:
                series = Key(0)
        with self._lock:
            self._numbers[series] = number = self._numbers.get(series, 0) + 1
        return series.in_series(number)

    def refuse(self, key: Key, error: Exception) -> None:
        """Say that a call of this rank is refused: if all ranks refuse it, it is none, and else the group fails."""
        words = brief(f"refuses its call ({type(error).__name__}: {error})")
        with self._lock:
            self._agreement.refuse(self._rank, key, words)
            self._line.say(["refused", key, words])
        self._settle()

    def agree(self, stream: int, key: Key, words: str) -> None:
        """Say what is called, and have a stream wait until all have said the same."""
        with self._lock:
            self._called += 1
            number = self._called
            self._agreement.call(self._rank, key, words)
            self._line.say(["call", key, words])
        nccl.wait_for_flag(stream, self._memory._address, _FIRST + number)
        self._settle()

    def waits_for(self) -> str | None:
        """Return for whom the first call waits that is not agreed on; None if there is none."""
        with self._lock:
            return self._agreement.waits_for()

    def tell(self, reason: str) -> None:
        """Say that the group has failed."""
        self._line.say(["failed", brief(reason, _LONGEST_REASON)])

    def let_go(self) -> None:
        """Let all streams go on: NCCL was told to abort."""
        with self._lock:
            self._is_over = True
            self._word[0] = _ALL

    def leave(self, *, in_peace: bool) -> None:
        """Hear and say no more."""
        with self._lock:
            self._left.add(self._rank)
        if in_peace:
            self._line.say(["bye"])
        self._line.close()

    def _hear(self, rank: int, said: Any) -> None:
        """On the thread of the line: another rank said something."""
        if rank >= self._size:
            self._failed(f"rank {rank} has joined, and this one was told that there are {self._size}", False, True)
            return
        match said:
            case ["call", [int(), int(), int()] as key, str(words)]:
                with self._lock:
                    self._agreement.call(rank, Key(*key), words)
                self._settle()
            case ["refused", [int(), int(), int()] as key, str(words)]:
                with self._lock:
                    self._agreement.refuse(rank, Key(*key), words)
                self._settle()
            case ["failed", str(reason)]:
                self._failed(reason, True, False)
            case ["bye"]:
                with self._lock:
                    self._left.add(rank)
                    self._agreement.leave(rank)
                self._settle()
            case [word] if word == GONE and not self._left.intersection((rank, self._rank)):
                who = f"rank {rank} is gone" if rank >= 0 else "the process that made the group's id is gone"
                self._failed(who, False, False)
            case _:
                pass

    def _settle(self) -> None:
        with self._lock:
            wrong = None if self._rank in self._left else self._agreement.wrong
            if wrong is None and not self._is_over:
                self._word[0] = _FIRST + self._agreement.agreed
        if wrong is not None:
            self._failed(wrong, False, True)
