"""The channel beside NCCL, on which ranks of several processes say what they are about to do: a rank's end of it.

Always true: what a rank says comes to the hub in the order in which it was said, and so do the hub's answers. Nobody
waits for one who hears slowly. An end is told if the other one is gone, or silent for too long. The hub lets in nobody
who does not know the secret of the group's id. Text of bounded length comes, and never code.
"""

from __future__ import annotations

import contextlib
import functools
import json
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiocuda._collective.outbox import Outbox, keep_from_children
from aiocuda._collective.silence import BEAT, Silence, between_looks_s
from aiocuda._values.given import shown
from aiocuda._version import __version__
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, CollectiveError

__all__ = ["JOINED", "Line", "Place", "Reader", "encoded", "lines_of"]

JOINED: Final = ["joined"]  # the first that a rank hears, unless it may not join

_MOST_BYTES: Final = 1 << 16  # of a line
_FULL_BYTES: Final = 1 << 15  # of several messages in one
_FLUSH_S: Final = 1.0
_VERSION: Final = f"aiocuda {__version__}"
_MAKER: Final = "aiocuda.collective.unique_id()"
_SOMEBODY: Final = "the process that made the group's id"
_IDENTITY_BYTES: Final = 128  # of NCCL's part of an id


class Place:
    """Where the hub of a group and its board are, the secret, and how long an end of the channel may say nothing."""

    def __init__(
        self, host: str, port: int, secret: str, answers_within_s: float, board: list[Any] | None = None
    ) -> None:
        self.host, self.port, self.secret, self.answers_within_s = host, port, secret, answers_within_s
        self.board = board

    def to_id(self, identity: bytes) -> bytes:
        """Return a group's id, which `from_id` reads: a line with all of this, and NCCL's part."""
        what = [_VERSION, self.host, self.port, self.secret, self.answers_within_s, self.board]
        return lines_of([encoded(what)]) + identity

    @classmethod
    def from_id(cls, given: object) -> tuple[Place, bytes]:
        """Return the place, and NCCL's part of an id.

        Raises
        ------
        ArgumentTypeError
            It is no bytes.
        ArgumentValueError
            It is no id, or not the whole of one, or one that another version of aiocuda made.
        """
        if not isinstance(given, (bytes, bytearray)):
            raise ArgumentTypeError(f"unique_id is the bytes that {_MAKER} gave; {shown(given)} was given")
        head, _, identity = bytes(given).partition(b"\n")
        match _value_of(head):
            case [str(version), *parts] if version.startswith("aiocuda "):
                pass
            case _:
                raise ArgumentValueError(
                    f"unique_id is none that {_MAKER} made: {len(given)} bytes were given, and an id is a line of "
                    f"text, and {_IDENTITY_BYTES} bytes behind it; pass all of it on, as it is"
                )
        if version != _VERSION:
            raise ArgumentValueError(
                f"unique_id was made by {version}, and this is {_VERSION}; all processes of a group need the same one"
            )
        if len(identity) != _IDENTITY_BYTES:
            wanted = len(head) + 1 + _IDENTITY_BYTES
            raise ArgumentValueError(
                f"unique_id is of {wanted} bytes, and {len(given)} were given; pass all of it on, as it is"
            )
        return cls(*parts), identity


class Reader:
    """Lines of JSON from a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")

    def next(self) -> list[Any] | None:
        """Return the messages of the next line; None at the end, or where it is no such line."""
        try:
            line = self._file.readline(_MOST_BYTES)
        except (OSError, ValueError):
            return None
        match _value_of(line) if line.endswith(b"\n") else None:
            case None:
                return None
            case ["each", list(messages)]:
                return messages
            case said:
                return [said]


def _value_of(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # lists in lists in lists
        return None


def encoded(what: Any) -> bytes:
    """Return a message as `lines_of` takes it."""
    return json.dumps(what, ensure_ascii=False).encode("utf-8", "backslashreplace")  # 6 bytes a character at most


def lines_of(messages: Sequence[bytes]) -> bytes:
    """Return messages as lines that a `Reader` reads; several in a line, which takes less of both ends."""
    if len(messages) == 1:
        return messages[0] + b"\n"
    lines, of_line, size = bytearray(), list[bytes](), 0
    for each in messages:
        if of_line and size + len(each) > _FULL_BYTES:
            lines += _line(of_line)
            of_line, size = [], 0
        of_line.append(each)
        size += len(each) + 2
    return bytes(lines + _line(of_line))


def _line(messages: list[bytes]) -> bytes:
    return b'["each", [' + b", ".join(messages) + b"]]\n"


class Line:
    """One rank's line to the hub, from `begin` on.

    Parameters
    ----------
    place
        Where the hub is.
    rank, size
        The rank, and how many it was told that there are.
    heard
        Called on a thread of the line's with what the hub says, and with ``["gone", reason]`` at its end.
    timeout_s
        How long the way to the hub may take.
    has_board
        Whether the rank has opened the board of the place.
    has_hub
        Whether the hub is in the rank's process. The other ranks are told, and name the rank if the hub is gone.
    """

    def __init__(
        self,
        place: Place,
        rank: int,
        size: int,
        heard: Callable[[Any], None],
        timeout_s: float,
        *,
        has_board: bool = False,
        has_hub: bool = False,
    ) -> None:
        try:
            self._connection = socket.create_connection((place.host, place.port), timeout=timeout_s)
        except OSError as error:
            raise CollectiveError(
                f"rank {rank} does not reach {place.host}:{place.port}, where the group's id was made ({error}); the "
                "process that called unique_id() must be there, and its host= an address that all ranks reach; an id "
                "whose group has ended is of no use"
            ) from error
        keep_from_children(self._connection)
        self._connection.settimeout(None)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._place, self._rank = place, rank
        self._hub_rank: int | None = None  # the rank whose process has the hub, once it is known
        self._outbox = Outbox(self._connection)
        self._heard = heard
        self._silence = Silence()
        self._has_answer = threading.Event()
        self._saying = threading.Lock()
        self._later: deque[Any] = deque()  # both take no lock, also if a finalizer comes in the middle
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: the line has ended
        self._hello = {"secret": place.secret, "rank": rank, "size": size, "board": has_board, "hub": has_hub}

    def begin(self) -> None:
        """Say who this is, and hear from now on. From now on the line must be closed."""
        self.say(self._hello)
        for run, name in ((self._listen, "aiocuda-collective-line"), (self._beat, "aiocuda-collective-beats")):
            threading.Thread(target=run, name=name, daemon=True).start()

    def wait_for_answer(self, timeout_s: float) -> None:
        """Wait until the rank has joined, or has heard why not.

        Raises
        ------
        CollectiveError
            The hub says nothing in that time.
        """
        if not self._has_answer.wait(timeout_s):
            raise CollectiveError(self._heard_nothing(timeout_s))

    def say(self, what: Any) -> None:
        """Send a message, behind all that was to be said before."""
        with self._saying:
            self._say_what_waits()
            self._outbox.put(lines_of([encoded(what)]))

    def say_soon(self, what: Any) -> None:
        """Send a message before all that is said from now on, and by the next `flush`."""
        self._later.append(what)

    def flush(self) -> None:
        """Send what was to be said soon."""
        if self._later:
            with self._saying:
                self._say_what_waits()

    @property
    def say_later(self) -> Callable[[Any], None]:
        """A function that has another thread send a message at once.

        Finalizers may call it, in the middle of anything: it takes no lock, and does not keep the line.
        """
        return functools.partial(_say_later, self._later, self._wake)

    def look(self) -> None:
        """Say a sign of life; if the hub was silent for too long, it is gone."""
        self._outbox.put(lines_of([encoded(BEAT)]))
        if self._silence.look():
            self._end(self._heard_nothing(self._place.answers_within_s))

    def close(self) -> None:
        """Say what is still to be said, and end. *Blocks*: for a second at most."""
        self._wake.put(False)
        self._outbox.flush(_FLUSH_S)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _say_what_waits(self) -> None:
        waiting = []
        while self._later:
            waiting.append(encoded(self._later.popleft()))
        if waiting:
            self._outbox.put(lines_of(waiting))

    def _listen(self) -> None:
        reader = Reader(self._connection)
        while (said := reader.next()) is not None:
            self._silence.hear()
            for each in said:
                match each:
                    case ["hub", int(rank)]:
                        self._hub_rank = rank
                    case _ if each not in (BEAT, JOINED):
                        self._heard(each)
            self._has_answer.set()
        if self._has_answer.is_set():
            maker = self._maker()
            gone = f"{maker} is gone, whose process made the group's id" if maker else f"{_SOMEBODY} is gone"
            self._end(f"{gone}, or rank {self._rank} is cut off from it")
        else:
            self._end(
                f"{self._place.host}:{self._place.port} does not know the id that rank {self._rank} has: the process "
                "that made it, or the group that it was for, has ended"
            )
            self._has_answer.set()

    def _beat(self) -> None:
        between_s = between_looks_s(self._place.answers_within_s)
        due = time.monotonic() + between_s
        while True:
            try:
                if not self._wake.get(timeout=max(due - time.monotonic(), 0)):
                    return
                with self._saying:
                    self._say_what_waits()
            except queue.Empty:
                due = time.monotonic() + between_s
                self.look()

    def _heard_nothing(self, for_s: float) -> str:
        """Return in words that the hub is silent."""
        maker, where = self._maker(), f"{self._place.host}:{self._place.port}"
        return (
            f"rank {self._rank} has heard nothing for {for_s:g} s from {maker and f'{maker} at '}{where}, where the "
            "group's id was made: that process is stopped, or the network is cut"
        )

    def _maker(self) -> str:
        """Return which other rank's process has the hub, in words; empty if that is not known."""
        return "" if self._hub_rank in (None, self._rank) else f"rank {self._hub_rank}"

    def _end(self, reason: str) -> None:
        self._wake.put(False)
        self._heard(["gone", reason])


def _say_later(later: deque[Any], wake: queue.SimpleQueue[bool], what: Any) -> None:
    later.append(what)
    wake.put(True)
