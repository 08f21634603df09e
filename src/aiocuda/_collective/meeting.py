"""The channel beside NCCL, on which ranks of several processes say what they are about to do.

Always true: each rank hears what every other one says, in the order in which that one said it, and hears when one is
gone. Nobody waits for one who hears slowly. Nothing here decides anything. It lets in nobody who does not know the
secret of the group's id. Text of bounded length comes, and never code.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from aiocuda._collective.outbox import Outbox, keep_from_children
from aiocuda.errors import ArgumentValueError, CollectiveError

__all__ = ["GONE", "Line", "Place", "open_hub"]

GONE: Final = "gone"  # said by the hub in the name of a rank

_MOST_BYTES: Final = 1 << 16  # of a line
_SECRET_BYTES: Final = 16
_FLUSH_S: Final = 1.0

_hubs: list[_Hub] = []  # of the ids that this process has made; they live as long as it does


class Place:
    """Where the hub of a group is, and the secret."""

    def __init__(self, host: str, port: int, secret: str) -> None:
        self.host, self.port, self.secret = host, port, secret

    def to_bytes(self) -> bytes:
        """Return it in a form that `from_bytes` reads; ends with a line's end."""
        return json.dumps([self.host, self.port, self.secret]).encode() + b"\n"

    @classmethod
    def from_bytes(cls, given: bytes) -> tuple[Place, bytes]:
        """Return the place, and the bytes behind it."""
        head, found, rest = given.partition(b"\n")
        try:
            host, port, secret = json.loads(head)
        except (ValueError, TypeError):
            found = b""
        if not found:
            raise ArgumentValueError("id is none that aiocuda.collective.unique_id() made")
        return cls(str(host), int(port), str(secret)), rest


class _Reader:
    """Lines of JSON from a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")

    def next(self) -> Any:
        """Return the next line's value; None at the end, or where it is no such line."""
        try:
            line = self._file.readline(_MOST_BYTES)
            return json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError, RecursionError):  # lists in lists in lists
            return None


class _Hub:
    """Passes on to all others what each rank says."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0))
        keep_from_children(self._listener)
        self.place = Place(host, self._listener.getsockname()[1], secrets.token_hex(_SECRET_BYTES))
        self._lock = threading.Lock()
        self._ranks: dict[int, Outbox] = {}
        self._said: list[bytes] = []  # so far; those who come later hear it, too
        threading.Thread(target=self._accept, name="aiocuda-meeting", daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                keep_from_children(connection)
                threading.Thread(target=self._serve, args=(connection,), name="aiocuda-rank", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = _Reader(connection)
        hello = reader.next()
        secret = str(hello.get("secret")).encode("utf-8", "backslashreplace") if isinstance(hello, dict) else b""
        if not hmac.compare_digest(secret, self.place.secret.encode()):
            connection.close()
            return
        rank = hello.get("rank")
        if not isinstance(rank, int) or not self._let_in(rank, connection):
            connection.close()
            return
        while (said := reader.next()) is not None:
            self._pass_on(rank, said)
        self._pass_on(rank, [GONE])

    def _let_in(self, rank: int, connection: socket.socket) -> bool:
        with self._lock:
            if rank in self._ranks:
                return False
            self._ranks[rank] = Outbox(connection)
            self._ranks[rank].put(b"".join(self._said))
        return True

    def _pass_on(self, rank: int, said: Any) -> None:
        line = json.dumps([rank, said]).encode() + b"\n"
        with self._lock:
            if len(self._said) < 64:  # of the beginning: nobody goes on before all are there
                self._said.append(line)
            for other, outbox in self._ranks.items():
                if other != rank:
                    outbox.put(line)


def open_hub(host: str) -> Place:
    """Begin to pass on what the ranks of one group say; return where."""
    hub = _Hub(host)
    _hubs.append(hub)
    return hub.place


class Line:
    """One rank's line to the others. `heard` is called on a thread of the line's: (rank, what it said)."""

    def __init__(self, place: Place, rank: int, heard: Callable[[int, Any], None], timeout_s: float) -> None:
        try:
            self._connection = socket.create_connection((place.host, place.port), timeout=timeout_s)
        except OSError as error:
            raise CollectiveError(
                f"rank {rank} does not reach {place.host}:{place.port}, where the group's id was made ({error}); the "
                "process that called unique_id() must be there, and its host= an address that all ranks reach"
            ) from error
        keep_from_children(self._connection)
        self._connection.settimeout(None)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outbox = Outbox(self._connection)
        self._heard = heard
        self.say({"secret": place.secret, "rank": rank})
        threading.Thread(target=self._listen, name="aiocuda-collective-line", daemon=True).start()

    def say(self, what: Any) -> None:
        self._outbox.put(json.dumps(what).encode() + b"\n")

    def close(self) -> None:
        """Say what is still to be said, and end. *Blocks*: for a second at most."""
        self._outbox.flush(_FLUSH_S)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _listen(self) -> None:
        reader = _Reader(self._connection)
        while (line := reader.next()) is not None:
            rank, said = line
            self._heard(rank, said)
        self._heard(-1, [GONE])
