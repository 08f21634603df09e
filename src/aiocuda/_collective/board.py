"""Memory in which the ranks of a group on one host agree, so that nobody waits for a word on the channel.

Always true: ranks use it all, or none does. It is a file without a name, of the process that made the group's id, and
ends with those that have it open. Who opens it finds there what only that process knows.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
import weakref
from typing import Any, Final

from aiocuda import _native
from aiocuda._collective.agreement import Key
from aiocuda._driver import nccl

__all__ = ["Board", "BoardFile", "digest_of", "opened"]

_NAME: Final = "aiocuda-board"
_NONCE_BYTES: Final = 16


class BoardFile:
    """The memory, in the process that made the group's id."""

    def __init__(self) -> None:
        self._file = os.memfd_create(_NAME)
        os.ftruncate(self._file, _native.Board.size_bytes)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        os.pwrite(self._file, nonce, 0)
        self.place: list[Any] = [os.getpid(), self._file, nonce.hex()]
        self._close = weakref.finalize(self, os.close, self._file)

    def close(self) -> None:
        """Let go of it. Ranks that have opened it keep it."""
        self._close()


def opened(place: list[Any]) -> mmap.mmap | None:
    """Return the memory of a place; None where it is of another host, or this process may not open it."""
    match place:
        case [int(process), int(number), str(nonce)]:
            path = f"/proc/{process}/fd/{number}"
        case _:
            return None
    try:
        if not os.readlink(path).startswith(f"/memfd:{_NAME}"):  # noqa: PTH115 - it is no path
            return None
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        memory = mmap.mmap(file, _native.Board.size_bytes)
    except (OSError, ValueError):  # it is shorter
        return None
    finally:
        os.close(file)
    return memory if memory[:_NONCE_BYTES].hex() == nonce else None


def digest_of(key: Key, words: str) -> int:
    """Return 64 bits that are different for different calls."""
    return int.from_bytes(hashlib.blake2b(f"{key.number} {words}".encode(), digest_size=8).digest(), "little")


class Board:
    """One rank's end of the memory, whose words the streams of a device may wait for.

    Raises
    ------
    DriverError
        The driver does not lock the memory.
    """

    def __init__(self, memory: mmap.mmap, rank: int, size: int, device: int) -> None:
        self._board = _native.Board(memory, rank, size)
        nccl.lock_pages(device, self._board.words, _native.Board.words_bytes)
        unlock = weakref.finalize(self, _unlock, self._board.words, self._board)
        unlock.atexit = False

    @property
    def word(self) -> int:
        """The address of this rank's word."""
        return self._board.word

    def put(self, key: Key, words: str) -> int:
        """Write a call; return the number to which the word rises when all have agreed on it."""
        return self._board.put(digest_of(key, words))

    def look(self) -> None:
        """See to calls for which there was no room."""
        self._board.advance()

    def has(self, number: int) -> bool:
        """Return whether all have agreed on a call, as far as this rank knows."""
        return (self._board.agreed - number) % (1 << 32) < 1 << 31

    def raise_to(self, number: int) -> None:
        """Note that all have agreed on a call, as the channel says."""
        self._board.raise_to(number)

    def let_go(self) -> None:
        """Let this rank's streams go beyond all calls."""
        self._board.let_go()


def _unlock(address: int, board: object) -> None:
    if not _native.forked_from():  # else it is the parent's
        _native.unlock_at_rest(address, board)
