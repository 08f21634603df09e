"""cuFile, NVIDIA's library of GPUDirect Storage; the only place that looks for it.

Always true: the library is looked for and loaded once, by a thread that may block, and stays loaded.
"""

from __future__ import annotations

import errno
import functools
import os
import warnings
from typing import Final

from aiocuda import _forks, _native
from aiocuda._driver import runtime
from aiocuda.errors import DriverSelectionError, MissingPackageError

__all__ = ["LEAST_BYTES", "VARIABLE", "is_wanted", "library", "reason_of"]

VARIABLE: Final = "AIOCUDA_FILES"
_SONAME: Final = "libcufile.so.0"
# Smaller files are there sooner by threads: to open one for cuFile takes a thread's turn.
LEAST_BYTES: Final = 1 << 20
# It is there while the kernel module nvidia-fs is loaded, without which a disk does not reach a device's memory.
_MODULE: Final = "/proc/driver/nvidia-fs"
_FIRST_OF_LIBRARY: Final = 5000  # its errors begin here (cufile.h), behind all of the system's

_INSTALL: Final = 'pip install "aiocuda[cufile]"'
_lock = _forks.lock()


def _asked() -> str:
    """Return what the environment variable ``AIOCUDA_FILES`` says: ``auto``, ``cufile`` or ``threads``.

    Raises
    ------
    DriverSelectionError
        It says something else.
    """
    said = os.environ.get(VARIABLE, "").strip().lower() or "auto"
    if said not in {"auto", "cufile", "threads"}:
        raise DriverSelectionError(f"{VARIABLE} is {os.environ[VARIABLE]!r}; it must be auto, cufile or threads")
    return said


def is_wanted(size_bytes: int) -> bool:
    """Return whether cuFile is to move so many bytes of a file, as far as can be known before the driver is chosen."""
    said = _asked()
    return size_bytes >= LEAST_BYTES and (said == "cufile" or (said == "auto" and _has_module()))


@functools.cache
def _has_module() -> bool:
    return os.path.exists(_MODULE)


def library() -> _native.CuFile | None:
    """Return the library; None if threads are to carry the bytes after all.

    Raises
    ------
    MissingPackageError
        ``AIOCUDA_FILES=cufile`` asks for it, and it is not installed or does not start.

    Notes
    -----
    *Stream*: none. *Blocks*: at the first call, for half a second.
    """
    with _lock:
        return _library(_asked())


@functools.cache
def _library(said: str) -> _native.CuFile | None:
    # Emulated devices have the host's memory, into which threads read as well. So cuFile is emulated for who asks.
    if said == "threads" or (said == "auto" and _is_emulated()):
        return None
    try:
        return _native.CuFile(_path())
    except RuntimeError as error:  # of the search, too
        reason = " ".join(str(error).split())
        if said == "cufile":
            raise MissingPackageError(
                f"{VARIABLE}=cufile asks for cuFile, which cannot be used ({reason}): {_INSTALL}"
            ) from error
        warnings.warn(
            f"the kernel module nvidia-fs is loaded, and cuFile cannot be used ({reason}). Threads read and write "
            f"files in its place. Install cuFile ({_INSTALL}), or set {VARIABLE}=threads",
            RuntimeWarning,
            stacklevel=1,
        )
        return None


def _is_emulated() -> bool:
    return runtime.driver_info().kind == "emulated"


def _path() -> str:
    if _is_emulated():
        folder, _, _ = runtime.driver_info().library_path.rpartition("/")
        return f"{folder}/{_SONAME}"
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return str(load_nvidia_dynamic_lib("cufile").abs_path)


def reason_of(error: int) -> tuple[int, str]:
    """Return the system's number of what failed, and what cuFile adds to it."""
    if error < _FIRST_OF_LIBRARY:
        return error, ""
    return errno.EIO, f"cuFile answered {error}, a CUfileOpError of cufile.h"
