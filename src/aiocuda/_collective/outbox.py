"""What is on its way to one connection: whoever puts it there never waits for the one who takes it.

Always true: bytes go out in the order in which they were put. A connection whose other end takes nothing for long is
shut down, so that its reader tells that the other end is gone. A forked child has none of its parent's connections, so
the parent's end is heard of.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from typing import Final

__all__ = ["NO_SIGNAL", "Outbox", "keep_from_children"]

# Python ignores SIGPIPE, but tools in pipelines take the default back. Then a rank that is gone would end this one.
NO_SIGNAL: Final = socket.MSG_NOSIGNAL

_MOST_BYTES: Final = 64 << 20  # that wait
_PIECE_BYTES: Final = 1 << 16

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def keep_from_children(made: socket.socket) -> None:
    """Have a socket closed in processes that are forked from this one; others do not get it at all."""
    _sockets.add(made)


def _close_in_child() -> None:
    for each in list(_sockets):
        with contextlib.suppress(OSError):
            os.close(each.detach())  # close() would wait for the reader, whose thread the child does not have


os.register_at_fork(after_in_child=_close_in_child)


class Outbox:
    """Bytes for one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._waiting = bytearray()
        self._is_sending = False  # by a thread, which is there as long as something waits
        self._is_broken = False

    def put(self, content: bytes) -> None:
        """Send bytes behind those before: at once, or by a thread where the connection takes no more now."""
        with self._changed:
            if self._is_broken:
                return
            if not self._is_sending:
                content = content[self._send_now(content) :]
            if not content or self._is_broken:
                return
            self._waiting += content
            if len(self._waiting) > _MOST_BYTES:
                self._break()
            elif not self._is_sending:
                self._is_sending = True
                threading.Thread(target=self._send, name="aiocuda-outbox", daemon=True).start()

    def flush(self, timeout_s: float) -> None:
        """Wait until all has gone out, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_broken or not self._is_sending, timeout_s)

    def close(self) -> None:
        """Send no more, and shut the connection down."""
        with self._changed:
            self._break()

    def _send_now(self, content: bytes) -> int:
        try:
            return self._connection.send(content, socket.MSG_DONTWAIT | NO_SIGNAL)
        except BlockingIOError:
            return 0
        except OSError:  # the other end is gone, which its reader tells
            self._break()
            return 0

    def _send(self) -> None:
        while True:
            with self._changed:
                piece = bytes(self._waiting[:_PIECE_BYTES])
                if not piece or self._is_broken:
                    self._is_sending = False
                    self._changed.notify_all()
                    return
            try:
                self._connection.sendall(piece, NO_SIGNAL)
            except OSError:
                with self._changed:
                    self._break()
                continue
            with self._changed:
                del self._waiting[: len(piece)]

    def _break(self) -> None:
        self._is_broken = True
        self._waiting.clear()
        self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
