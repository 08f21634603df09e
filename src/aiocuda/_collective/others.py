"""The other processes of a group: what this one says to them, and the word on which its streams wait.

Always true: a stream goes beyond its wait when all who take part have said the same, or when the group has failed and
NCCL was told to abort. A call that was built is made or refused, or the others are told that it was dropped. If ranks
agree on their board, the hub is told all the same, somewhat later: it compares, and says who waits for whom.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

from aiocuda import _native
from aiocuda._collective.agreement import Key, brief
from aiocuda._collective.board import Board, opened
from aiocuda._collective.calls import Call
from aiocuda._collective.coordinator import LONGEST_REASON
from aiocuda._collective.hub import has_hub, wait_until_told
from aiocuda._collective.meeting import Line, Place
from aiocuda._verbs.create import empty_host
from aiocuda.errors import DriverError

__all__ = ["Others", "Promise"]

_log = logging.getLogger("aiocuda.collective")

# A stream compares numbers of 32 bits as they lie on a circle. So the word of a group that failed is half of it beyond.
_FIRST: Final = 1 << 30
_ALL: Final = _FIRST + (1 << 31) - 1

_ANSWER_S: Final = 1.0


class Promise:
    """A call that this rank has built. If nobody has it any more before it is kept, the other ranks are told."""

    __slots__ = ("__weakref__", "_dropped", "key", "origin")

    def __init__(self, key: Key, origin: str, say_later: Callable[[Any], None]) -> None:
        self.key = key
        self.origin = origin
        self._dropped = weakref.finalize(self, say_later, ["refused", key, "has dropped it, or it failed before"])
        self._dropped.atexit = False

    def keep(self) -> None:
        """Note that the call was made, or refused."""
        self._dropped.detach()

    @property
    def is_kept(self) -> bool:
        """Whether the call was made, or refused."""
        return not self._dropped.alive


class _Asked:
    """A question to other ranks: how many have not answered, and what those have said that found something."""

    def __init__(self) -> None:
        self.left = 1  # the hub, which says how many it asks
        self.found: list[str] = []


class Others:
    """One rank's dealings with all others.

    Parameters
    ----------
    place
        Where they meet.
    rank, size
        This process's number, and how many there are.
    device
        That of the rank.
    failed
        Called on any thread when the group is to fail: with the reason, whether the others know it, and for whom this
        rank waits.
    timeout_s
        How long the way to the meeting may take.
    """

    def __init__(
        self,
        place: Place,
        rank: int,
        size: int,
        device: int,
        failed: Callable[[str, bool, str], object],
        timeout_s: float,
    ) -> None:
        self._place, self._rank, self._device = place, rank, device
        self._failed = failed
        self._changed = threading.Condition()
        self._promises: weakref.WeakValueDictionary[Key, Promise] = weakref.WeakValueDictionary()
        self._kept: dict[int, _Asked] = {}  # questions that are under way
        self._kept_s = place.answers_within_s  # how long the first call waits before they are asked
        self._first: Key | None = None  # call that is not agreed on
        self._since = 0.0
        self._numbers: dict[Key, int] = {}  # of the last calls that this rank has built
        self._calls: dict[Key, str] = {}  # that were made, and are not agreed on
        self._called = self._agreed = 0
        self._asked = 0
        self._answers: dict[int, str | None] = {}  # to questions that are under way
        self._has_left = self._is_over = False
        self._memory = empty_host(1, "uint32").sync()
        self._word = self._memory.numpy()
        self._word[0] = 0
        self._board = _board(place, rank, size, device)
        self._is_board_used = False  # from the second call on, by all ranks or by none
        self._on_board: dict[Key, int] = {}  # their numbers there, of calls that the hub has not answered
        has_board = self._board is not None
        self._line = Line(place, rank, size, self._hear, timeout_s, has_board=has_board, has_hub=has_hub(place))

    def join(self, timeout_s: float) -> None:
        """Wait until the hub has let this rank in, or the group has failed. From now on the rank must leave.

        Raises
        ------
        CollectiveError
            The hub says nothing in that time.
        """
        self._line.begin()
        self._line.wait_for_answer(timeout_s)

    def promise(self, call: Call, origin: str) -> Promise:
        """Give this rank's next call the number that all ranks know it by. `origin`: where it was built, if known."""
        match call.kind:
            case "send":
                series = Key(0, self._rank, call.root)
            case "recv":
                series = Key(0, call.root, self._rank)
            case _:
                series = Key(0)
        with self._changed:
            self._numbers[series] = number = self._numbers.get(series, 0) + 1
        promise = Promise(series.in_series(number), origin, self._line.say_later)
        self._promises[promise.key] = promise
        return promise

    def refuse(self, promise: Promise, error: Exception) -> None:
        """Say that a call of this rank is refused: if all ranks refuse it, it is none, and else the group fails."""
        promise.keep()
        self._line.say(["refused", promise.key, brief(f"refuses its call ({type(error).__name__}: {error})")])

    def agree(self, stream: int, promise: Promise, words: str) -> None:
        """Say what is called, and have a stream wait until all have said the same."""
        promise.keep()
        key, board = promise.key, self._board
        with self._changed:
            self._calls[key] = words
            # The first call of all ranks is made before all know that the board is used.
            if board is not None and self._is_board_used and self._called > 0 and key.is_of_all:
                self._on_board[key] = number = board.put(key, words)
                self._line.say_soon(["call", key, words])
                address = board.word
            else:
                self._called += 1
                address, number = self._memory._address, _FIRST + self._called
                self._line.say(["call", key, words])
        _native.wait_for_word(self._device, stream, address, number)

    def look(self) -> None:
        """Tell the hub of the calls since the last look. To be called often while work is under way."""
        if self._board is not None:
            self._board.look()
        self._line.flush()
        self._look_for_kept()

    def waits_for(self, answer_s: float = _ANSWER_S) -> str:
        """Ask the hub for whom the first call waits that is not agreed on; empty if there is none.

        *Blocks*: until it has answered, so long at most. Not to be called by the line's threads.
        """
        with self._changed:
            if not self._calls:
                return ""
        answer = self._ask("waits", answer_s)
        return self._waits_by_itself() if answer is None else answer

    def absent(self) -> str | None:
        """Ask the hub which ranks have not joined. None: it does not say.

        *Blocks*: until it has answered, a second at most. Not to be called by the line's threads.
        """
        return self._ask("absent?", _ANSWER_S)

    def kept_by(self) -> str:
        """Ask the ranks that the first call waits for whether they have built it, and nobody has executed it.

        *Blocks*: until all have answered, a second at most. Not to be called by the line's threads.

        Returns
        -------
        str
            Which have, in words; empty where none has.
        """
        with self._changed:
            self._asked = number = self._asked + 1
            self._kept[number] = asked = _Asked()
            self._line.say(["kept?", number])
            self._changed.wait_for(lambda: asked.left == 0 or self._is_over, _ANSWER_S)
            del self._kept[number]
            return "; ".join(asked.found)

    def tell(self, reason: str) -> None:
        """Say that the group has failed. *Blocks*: for a moment, if the hub is here."""
        self._line.say(["failed", brief(reason, LONGEST_REASON)])
        wait_until_told(self._place, _ANSWER_S)  # or the others hear that this process has ended, and not why

    def let_go(self) -> None:
        """Let all streams go on: NCCL was told to abort."""
        with self._changed:
            self._is_over = True
            self._word[0] = _ALL
            if self._board is not None:
                self._board.let_go()
            self._changed.notify_all()

    def leave(self, *, in_peace: bool) -> None:
        """Hear and say no more."""
        with self._changed:
            self._has_left = True
        if in_peace:
            self._line.say(["bye"])
        self._line.close()

    def _ask(self, question: str, answer_s: float) -> str | None:
        with self._changed:
            self._asked = number = self._asked + 1
            self._answers[number] = None
            try:
                self._line.say([question, number])
                self._changed.wait_for(lambda: self._answers[number] is not None or self._is_over, answer_s)
            finally:
                answer = self._answers.pop(number)
            return answer

    def _waits_by_itself(self) -> str:
        with self._changed:
            for key, words in self._calls.items():
                if self._board is None or key not in self._on_board or not self._board.has(self._on_board[key]):
                    return f"{key}, {words}: not all ranks have called it"
        return ""

    def _hear(self, said: Any) -> None:
        """On a thread of the line: the hub said something."""
        match said:
            case ["agreed", list(keys)]:
                with self._changed:
                    for each in keys:
                        key = Key(*each)
                        del self._calls[key]
                        self._note_agreed(self._on_board.pop(key, None))
            case ["board"]:
                self._is_board_used = True
            case ["waits", int(number), str(words)]:
                with self._changed:
                    if number in self._answers:
                        self._answers[number] = words
                        self._changed.notify_all()
            case ["kept?", int(number), int(left)]:
                self._note_asked(number, left, "")
            case ["built", int(number), str(words)]:
                self._note_asked(number, 0, words)
            case ["built?", int(asker), int(number), [int(), int(), int()] as key]:
                self._line.say(["built", asker, number, self._kept_in_words(Key(*key))])
            case ["ended", str(reason), str(waiting)] if not self._has_left:
                self._failed(reason, True, waiting)
            case ["gone", str(reason)] if not self._has_left:
                self._failed(reason, False, self._waits_by_itself())
            case _:
                pass

    def _note_asked(self, number: int, more: int, words: str) -> None:
        with self._changed:
            if (asked := self._kept.get(number)) is not None:
                asked.left += more - 1
                asked.found += [words] if words else []
                self._changed.notify_all()

    def _kept_in_words(self, key: Key) -> str:
        promise = self._promises.get(key)
        if promise is None or promise.is_kept:
            return ""
        return f"rank {self._rank} has built it{promise.origin}, and nobody has executed it"

    def _look_for_kept(self) -> None:
        """Log, once for each call, that others wait in it for a rank that has it, and does not execute it."""
        with self._changed:
            first = next(iter(self._calls.items()), None)
        now = time.monotonic()
        if first is None or first[0] != self._first:
            self._first, self._since = first[0] if first is not None else None, now
        elif now - self._since > self._kept_s:
            self._since = now
            if kept := self.kept_by():
                self._since = math.inf
                _log.warning(
                    "rank %d has waited for %g s in %s, %s: %s; execute it there, or drop it",
                    self._rank, self._kept_s, *first, kept,
                )  # fmt: skip

    def _note_agreed(self, on_board: int | None) -> None:
        if on_board is None:
            self._agreed += 1
        if self._is_over:
            return
        if on_board is None:
            self._word[0] = _FIRST + self._agreed
        elif self._board is not None:
            self._board.raise_to(on_board)


def _board(place: Place, rank: int, size: int, device: int) -> Board | None:
    """Return this rank's end of the board; None where it cannot have one, so that nobody uses it."""
    if place.board is None or not 0 <= rank < size <= _native.Board.most_ranks:
        return None
    memory = opened(place.board)
    try:
        return None if memory is None else Board(memory, rank, size, device)
    except DriverError:
        return None
