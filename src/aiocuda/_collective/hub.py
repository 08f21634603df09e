"""The hub of a group: a thread for each rank's connection, in the process that made the group's id.

Always true: what a rank says is answered as the coordinator says, in the order in which it came. Nobody waits for one
who hears slowly. One that says nothing for the time of the group's id is gone. A hub ends when all ranks have come and
gone, or with its process.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import threading
from collections.abc import Iterable, Mapping
from typing import Final

from aiocuda._collective.board import BoardFile
from aiocuda._collective.coordinator import Answer, Coordinator
from aiocuda._collective.meeting import JOINED, Place, Reader, encoded, lines_of
from aiocuda._collective.outbox import NO_SIGNAL, Outbox, keep_from_children
from aiocuda._collective.silence import BEAT, Silence, between_looks_s
from aiocuda._values.given import shown
from aiocuda.errors import ArgumentValueError

__all__ = ["Hub", "has_hub", "open_hub", "wait_until_told"]

_SECRET_BYTES: Final = 16
_TRIES_AGAIN_S: Final = 0.05
_REFUSED_S: Final = 10.0  # in which one that may not join reads why

_hubs: set[Hub] = set()  # of the ids that this process has made

os.register_at_fork(after_in_child=_hubs.clear)  # a child has not made them


class Hub:
    """Hears what each rank of one group says, and answers.

    Parameters
    ----------
    host
        The address of this machine.
    answers_within_s
        How long a rank may say nothing.
    """

    def __init__(self, host: str, answers_within_s: float) -> None:
        try:
            host.encode("idna")  # sockets make a TypeError of what is none
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, 0), family=family)
        except (OSError, UnicodeError) as error:
            raise ArgumentValueError(
                f"host is an address of this machine at which all ranks reach it; {shown(host)} is none ({error})"
            ) from error
        keep_from_children(self._listener)
        port = self._listener.getsockname()[1]
        self._board = _board_file()
        board = self._board.place if self._board is not None else None
        self.place = Place(host, port, secrets.token_hex(_SECRET_BYTES), answers_within_s, board)
        self._lock = threading.Lock()
        self._coordinator: Coordinator | None = None  # once a rank has come
        self._outboxes: dict[int, Outbox] = {}  # of all that have come
        self._there: dict[int, Silence] = {}  # those that are still there
        self._here: int | None = None  # the first rank of this process
        self.has_told = threading.Event()  # all ranks that the group has failed
        self._is_over = threading.Event()
        for run, name in ((self._accept, "aiocuda-meeting"), (self._beat, "aiocuda-beats")):
            threading.Thread(target=run, name=name, daemon=True).start()

    def look(self) -> None:
        """Say a sign of life to each rank; those that were silent for too long are gone."""
        with self._lock:
            self._tell([(list(self._there), BEAT)])
            silent = [rank for rank, each in self._there.items() if each.look()]
        for rank in silent:
            self._lose(rank, f"has said nothing for {self.place.answers_within_s:g} s")

    def _beat(self) -> None:
        while not self._is_over.wait(between_looks_s(self.place.answers_within_s)):
            self.look()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the hub has ended; or there is no room for one more file now, or who came is gone again
                if self._is_over.wait(_TRIES_AGAIN_S):
                    return
                continue
            keep_from_children(connection)
            threading.Thread(target=self._serve, args=(connection,), name="aiocuda-rank", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = Reader(connection)
        match reader.next():
            case [{"secret": str(secret), "rank": int(rank), "size": int(size), **more}] if (
                self._is_ours(secret) and 0 <= rank < size
            ):
                silence = self._let_in(rank, size, more, connection)
            case _:
                connection.close()
                return
        if isinstance(silence, str):
            _refuse(connection, reader, silence)
            return
        while (said := reader.next()) is not None:
            silence.hear()
            with self._lock:
                if self._coordinator is not None:
                    self._tell(self._coordinator.hear(rank, [each for each in said if each != BEAT]))
        self._lose(rank, "is gone")
        connection.close()

    def _is_ours(self, secret: str) -> bool:
        return hmac.compare_digest(secret.encode("utf-8", "backslashreplace"), self.place.secret.encode())

    def _let_in(self, rank: int, size: int, more: Mapping[object, object], connection: socket.socket) -> Silence | str:
        """Have a rank join, which says more of itself; else return why it may not."""
        with self._lock:
            if rank in self._outboxes:
                return self._why_not(rank)
            self._outboxes[rank] = Outbox(connection)
            self._tell([([rank], JOINED)])
            self._there[rank] = silence = Silence()
            if self._here is None and more.get("hub") is True:
                self._here = rank
                self._tell([(list(self._there), ["hub", rank])])
            elif self._here is not None:
                self._tell([([rank], ["hub", self._here])])
            if self._coordinator is None:
                self._coordinator = Coordinator(rank, size)
            self._tell(self._coordinator.join(rank, size, more.get("board") is True))
        return silence

    def _why_not(self, rank: int) -> str:
        """Return why one that comes as a rank that has come before may not join."""
        if self._coordinator is not None and len(self._outboxes) >= self._coordinator.size:
            return f"this id's group was already made, of {self._coordinator.size} ranks; each group needs a new id"
        if rank in self._there:
            return f"rank {rank} has already joined this group; each process needs a rank of its own"
        return f"rank {rank} of this id's group has come and gone; each group needs a new id"

    def _lose(self, rank: int, why: str) -> None:
        with self._lock:
            if self._there.pop(rank, None) is None or self._coordinator is None:
                return
            self._tell(self._coordinator.lose(rank, why))
            is_over = not self._there and len(self._outboxes) >= self._coordinator.size
        self._outboxes[rank].close()
        if is_over:
            self._end()

    def _tell(self, answers: Iterable[Answer]) -> None:
        told: dict[int, list[bytes]] = {}
        for ranks, what in answers:
            message = encoded(what)  # once for all ranks
            for rank in ranks:
                told.setdefault(rank, []).append(message)
        # The hub is rank 0's, as a rule, and that process may end once it knows. So it is told last.
        for rank in sorted(told, reverse=True):
            self._outboxes[rank].put(lines_of(told[rank]))
        if self._coordinator is not None and self._coordinator.has_ended:
            self.has_told.set()

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # the thread that accepts hears of it
        self._listener.close()
        if self._board is not None:
            self._board.close()
        _hubs.discard(self)
        self._is_over.set()


def _refuse(connection: socket.socket, reader: Reader, reason: str) -> None:
    with contextlib.suppress(OSError), connection:
        connection.settimeout(_REFUSED_S)
        connection.sendall(lines_of([encoded(["ended", reason, ""])]), NO_SIGNAL)
        connection.shutdown(socket.SHUT_WR)
        while reader.next() is not None:  # a connection that is closed with words in it takes back what it was sent
            pass


def _board_file() -> BoardFile | None:
    try:
        return BoardFile()
    except OSError:  # such files are forbidden here: the ranks agree on the channel
        return None


def open_hub(host: str, answers_within_s: float) -> Place:
    """Begin to answer the ranks of one group; return where."""
    hub = Hub(host, answers_within_s)
    _hubs.add(hub)
    return hub.place


def has_hub(place: Place) -> bool:
    """Return whether the hub of a place is in this process."""
    return bool(_hubs_of(place))


def wait_until_told(place: Place, timeout_s: float) -> None:
    """Wait until the hub of a place, if it is in this process, has told all ranks that their group has failed."""
    for each in _hubs_of(place):
        each.has_told.wait(timeout_s)


def _hubs_of(place: Place) -> list[Hub]:
    return [each for each in list(_hubs) if each.place.secret == place.secret]
