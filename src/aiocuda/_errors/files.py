"""The error of a file that could not be read or written."""

from __future__ import annotations

import errno as codes
import functools
import os
from typing import Any, Self

from aiocuda._errors.asked import AiocudaError

__all__ = ["FileError"]

_ADVICE = {
    codes.ESPIPE: "; a pipe or a socket has no places: read it, or write to it, by functions of Python's",
    codes.EISDIR: "; name a file in it",
}


class FileError(AiocudaError, OSError):
    """A file could not be read or written as an operation asked.

    If the system gave the reason, the error is also Python's own for that, such as `FileNotFoundError` or
    `PermissionError`.

    Parameters
    ----------
    path
        The file's.
    step
        Of what failed: ``"open"``, ``"read"``, ``"write"`` or ``"close"``.
    offset
        Where in the file the operation's bytes begin.
    asked_bytes
        How many bytes the operation was to read or write.
    found_bytes
        How many it had read or written until then. If the file is too short: how many it has from `offset` on.
    errno
        The system's number of the reason; None if the file is too short.

    Attributes
    ----------
    path, step, offset, asked_bytes, found_bytes, errno
        As given.
    filename, strerror
        As of `OSError`: the path, and the reason in the system's words.
    """

    def __new__(
        cls, path: str, step: str, offset: int, asked_bytes: int, found_bytes: int, errno: int | None = None
    ) -> Self:
        kind = OSError if errno is None else type(OSError(errno, ""))
        made: Any = OSError.__new__(_also(kind) if cls is FileError and kind is not OSError else cls)
        return made  # type: ignore[no-any-return]

    def __init__(
        self, path: str, step: str, offset: int, asked_bytes: int, found_bytes: int, errno: int | None = None
    ) -> None:
        self.args = (path, step, offset, asked_bytes, found_bytes, errno)
        self.path = self.filename = path
        self.step = step
        self.offset = offset
        self.asked_bytes = asked_bytes
        self.found_bytes = found_bytes
        self.errno = errno
        self.strerror = None if errno is None else os.strerror(errno)

    def __reduce__(self) -> tuple[Any, ...]:
        return FileError, self.args, self.__dict__

    def __str__(self) -> str:
        asked = f"{self.asked_bytes} bytes from offset {self.offset} on"
        if self.errno is None:
            return (
                f"{self.path} has {self.found_bytes} bytes from offset {self.offset} on, and {self.asked_bytes} were "
                "asked for; give the shape, dtype and offset of what is there"
            )
        if self.step == "open":
            advice = _ADVICE.get(self.errno, "")
            return f"{self.path} could not be opened for {asked}: {self._reason}{advice}"
        done = "written" if self.step != "read" else "read"
        return f"{self.path}: {self.found_bytes} bytes were {done} of {asked}: {self._reason}"

    @property
    def _reason(self) -> str:
        assert self.errno is not None
        return f"{self.strerror} ({codes.errorcode.get(self.errno, self.errno)})"


@functools.cache
def _also(kind: type[OSError]) -> type[FileError]:
    """Return the class of a `FileError` that is an error of Python's, too."""
    return type(FileError.__name__, (FileError, kind), {"__module__": FileError.__module__, "__doc__": kind.__doc__})
