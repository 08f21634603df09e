"""The directory of compiled kernels. Only the user may have access to it, because its contents are run.

Always true: a directory that cannot be used, or that others could write to, is no cache. Kernels are compiled all the
same, and a warning says once why nothing is kept. The emulated compiler looks after its own in the same way.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import warnings
from pathlib import Path
from typing import Any

__all__ = ["PrivateCache", "cache_directory", "private_directory", "tell"]


def cache_directory() -> Path | None:
    """Return where compiled kernels are kept: as the emulated compiler decides it, too.

    ``AIOCUDA_CACHE_DIR``; where that is not set, ``aiocuda`` in ``XDG_CACHE_HOME`` or in ``~/.cache``. None where
    there is no home either.
    """
    if chosen := os.environ.get("AIOCUDA_CACHE_DIR"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "aiocuda"
    if home := os.environ.get("HOME"):
        return Path(home) / ".cache" / "aiocuda"
    return None


class PrivateCache:
    """Bytes by key, in files of the user's own.

    Parameters
    ----------
    directory
        As `private_directory` gives it.
    max_size_bytes
        Of all files; what was read longest ago goes first.

    Raises
    ------
    OSError
        The directory cannot be used.
    """

    def __init__(self, directory: Path, max_size_bytes: int) -> None:
        from cuda.core.utils import FileStreamProgramCache

        _remove_what_is_not_ours(directory)
        self._files: Any = FileStreamProgramCache(directory, max_size_bytes=max_size_bytes)

    def get(self, key: bytes) -> bytes | None:
        """Return what is kept, or None."""
        try:
            kept = self._files.get(key)
        except OSError as error:
            tell(f"a compiled kernel cannot be read: {error}")
            return None
        return None if kept is None else bytes(kept)

    def __setitem__(self, key: bytes, content: bytes) -> None:
        """Keep something, if that can be done."""
        try:
            self._files[key] = content
        except OSError as error:
            tell(f"a compiled kernel cannot be kept: {error}")


def private_directory(path: Path) -> Path:
    """Return a directory that is the user's alone; make it where it is missing.

    One that others may read is closed to them.

    Raises
    ------
    OSError
        It cannot be made, is someone else's, is a link, or others may write to it or put another in its place.
    """
    path = path.absolute()
    for each in (*reversed(path.parents), path):  # mkdir(parents=True) would leave all but the last to the umask
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode=0o700)
    for above in path.parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise PermissionError(f"others may replace {str(path)!r}, for they may write to {str(above)!r}")
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{str(path)!r} is no directory, or a link to one")
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{str(path)!r} belongs to user {status.st_uid}, and this is user {os.geteuid()}")
    if status.st_mode & 0o022:
        raise PermissionError(
            f"others may write to {str(path)!r} (mode {stat.S_IMODE(status.st_mode):o}), so what it holds may be "
            "anybody's: remove it, or set AIOCUDA_CACHE_DIR to a directory of your own"
        )
    if status.st_mode & 0o077:
        path.chmod(0o700)
    return path


def _remove_what_is_not_ours(directory: Path) -> None:
    """Remove files that are someone else's, that others may write to, or that are links."""
    for parent, _, names in os.walk(directory):
        for name in names:
            file = Path(parent, name)
            status = file.lstat()
            is_ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
            if not is_ours or not stat.S_ISREG(status.st_mode):
                file.unlink(missing_ok=True)


@functools.lru_cache(maxsize=1)
def _tell_once() -> list[str]:
    return []


def tell(why: str) -> None:
    """Warn that compiled kernels are not kept, the first time."""
    told = _tell_once()
    if not told:
        told.append(why)
        warnings.warn(f"aiocuda keeps no compiled kernels: {why}", RuntimeWarning, stacklevel=2)
