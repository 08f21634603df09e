"""Operations that read files into arrays, and write arrays to files.

Always true: no thread that submits waits for a disk. Native threads open, read, write and close files. They read
straight into page-locked memory, and write from there. Where cuFile moves a file, a thread of Python's opens it.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np

from aiocuda import _forks, _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._arrays.partition import Partition
from aiocuda._devices.device import DeviceLike
from aiocuda._devices.placing import place_of
from aiocuda._driver import cufile
from aiocuda._engine import placement
from aiocuda._ops import composing
from aiocuda._ops.operation import CallOp, CopyOp, CreateOp, DeviceOp
from aiocuda._values import dtypes
from aiocuda._values.dtypes import DTypeLike
from aiocuda._values.given import between, shown
from aiocuda._values.host_data import cut, described
from aiocuda._verbs.copies import dup
from aiocuda._verbs.create import Shape, extents_of
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, FileError

__all__ = ["FileRead", "FileWrite", "PathLike", "name_of", "one_piece", "path_of", "read", "write"]

PathLike = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_MOST_OFFSET = 2**63 - 1  # of the system
_BYTE = np.dtype(np.uint8)

# Of one copy. The driver's queues have room for so much of files beside memory's copies (native/driver/staging.cpp).
_MOST_BYTES = 256 << 20

# Each path's place in the order of operations. Copies that are under way keep it.
_places: weakref.WeakValueDictionary[bytes, _native.FilePlaces] = weakref.WeakValueDictionary()
_lock = _forks.lock()


def read(
    path: PathLike, shape: Shape, dtype: DTypeLike, offset: int = 0, *, device: DeviceLike | None = None
) -> DeviceOp[DeviceArray]:
    """Read an array from a file to a device.

    Parameters
    ----------
    path
        The file's. A relative one is one of the directory that is the process's when the operation is built.
    shape
        An extent, or one for each axis. The array is in the file in C order.
    dtype
        NumPy's or ml_dtypes' dtype of the items, or its name, in the machine's byte order.
    offset
        Where in the file the array begins, in bytes. There may be more behind the array.
    device
        Where to; None takes the device of the `use` in force when the operation is built, else that of the operation
        that needs the array, else that of its execution: see `aiocuda.use`.

    Returns
    -------
    DeviceOp[DeviceArray]
        A new array, C-contiguous. Its operation is complete when the last byte is on the device, and what needs the
        array is submitted then. *Stream*: the device's stream in force, which waits for the file from the submission
        on. *Blocks*: no; native threads open the file and read it. *On cancel*: the read goes on, and the memory is
        freed behind it.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        The path, the shape or the offset cannot be one; the dtype cannot be on a device.
    FileError
        When executed: the file cannot be opened or read, is a directory, a pipe or a socket, or has fewer bytes, also
        where it is shortened meanwhile. It is a `FileNotFoundError` or a `PermissionError` as well, where that is the
        reason. Operations that need the array end with it, too.
    MissingPackageError
        When executed: ``AIOCUDA_FILES=cufile`` asks for cuFile, which is not installed or does not start.
    DriverSelectionError
        ``AIOCUDA_FILES`` is none of ``auto``, ``cufile`` and ``threads``.
    CaptureError
        When executed: the operation is part of a graph.

    Notes
    -----
    Reads and writes of one path are ordered like operations on an array, by the bytes of the file that they touch: a
    read that is submitted after a write reads what that wrote. Reads go on at once. Paths are compared as they are
    written, after they were made absolute. If a file has two names, by a link or by ``..``, order them yourself.
    That holds for other processes and for functions of Python's as well.

    If cuFile moves the file, a thread opens it before the operation is submitted. A read that is cancelled before that
    does nothing, and one that fails in the system has the number ``EIO``.

    Examples
    --------
    >>> import tempfile
    >>> import aiocuda as ac
    >>> path = tempfile.mkdtemp() + "/x.f32"
    >>> ac.write(path, ac.ones((2, 3))).sync()
    24
    >>> ac.read(path, (2, 3), "float32").sync().shape
    (2, 3)
    """
    place = place_of(device)
    kind = dtypes.to_dtype(dtype)
    code = dtypes.code_of(kind)
    extents = extents_of(shape)
    created = CreateOp(extents, code, place)
    size_bytes = math.prod(extents) * kind.itemsize
    file = FileRead(path_of(path), offset, size_bytes)
    return cast("DeviceOp[DeviceArray]", file.into(created, extents, kind, place))


def write(path: PathLike, array: Any, offset: int | None = None) -> DeviceOp[int]:
    """Write an array's bytes to a file, in C order.

    Parameters
    ----------
    path
        The file's; as for `read`.
    array
        A `DeviceArray`, a `HostArray`, or an operation that yields one.
    offset
        None: the file is made, or what is there is replaced, as by ``open(path, "wb")``. A number: where in the file
        the bytes go. The file is made if it is not there, and all other bytes stay. So several operations can write
        the parts of one file at once.

    Returns
    -------
    DeviceOp[int]
        How many bytes were written. It is complete when the system has them all and the file is closed. The
        system brings them to the disk later, as always. If cuFile moves the file, it is closed when nothing holds the
        operation any more. *Stream*: the device's stream
        in force, which waits until then. *Blocks*: no; native threads open the file and write it. *On cancel*: the
        write goes on, all of it once a part of it was submitted.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        The path or the offset cannot be one; `array` is no array on a device or in page-locked memory.
    OwnershipError
        `array` was closed, moved or partitioned.
    FileError
        When executed: the file cannot be opened or written, such as on a disk that is full. As for `read`.
    MissingPackageError, DriverSelectionError
        As for `read`.
    CaptureError
        When executed: the operation is part of a graph.

    Notes
    -----
    A write is not atomic. If it fails, the file has some of the bytes; if a device is lost, too. For a file that is
    there whole or not at all, write to another path beside it, and rename that (`os.replace`) when the write is
    complete. Writes and reads of one path are ordered as `read` says.

    Examples
    --------
    >>> import tempfile
    >>> import aiocuda as ac
    >>> path = tempfile.mkdtemp() + "/y.f32"
    >>> ac.write(path, ac.ones((2, 3))).sync()
    24
    """
    where = path_of(path)
    if offset is not None:
        offset = between(offset, "offset", 0, _MOST_OFFSET)
    x = one_piece(array, "write", "; a NumPy array has tofile()")
    if isinstance(x, _native.Op):
        return CallOp("then", lambda known: write(where, known, offset), x, title=f"a write of {name_of(where)}")
    return FileWrite(where, offset, x.nbytes).of([(0, x)])


def one_piece(array: Any, asked: str, of_numpy: str) -> Any:
    """Return an array that lies in one piece, or an operation that yields an array.

    Parameters
    ----------
    array
        Of the program.
    asked
        The function that it was given, for messages.
    of_numpy
        Advice for arrays of NumPy, which ends the message.

    Raises
    ------
    ArgumentTypeError, OwnershipError
        It is no array on a device or in page-locked memory; it may not be read.
    """
    x = as_array(array, asked)
    if isinstance(x, _native.Op):
        return x
    if isinstance(x, Partition):
        raise ArgumentTypeError(f"{asked} takes arrays; {described(x)} was given: unpartition() it first")
    if not isinstance(x, (DeviceArray, HostArray)):
        hint = of_numpy if isinstance(x, np.ndarray) else ""
        raise ArgumentTypeError(
            f"{asked} takes arrays on devices or in page-locked memory, or operations that yield them; {described(x)} "
            f"was given{hint}"
        )
    _native.check_usable(x, False, asked)
    return x if x.is_contiguous else dup(x)


class _FileCopy:
    """One operation's use of a file."""

    def __init__(self, where: bytes, use: str, offset: int, size_bytes: int, action: str, head: bytes = b"") -> None:
        self._path = os.fsdecode(where)
        self._offset = between(offset, "offset", 0, _MOST_OFFSET)
        self._size_bytes = size_bytes
        if size_bytes > _MOST_OFFSET - self._offset:
            raise ArgumentValueError(
                f"{size_bytes} bytes from offset {offset} on were asked for, and no file is larger than "
                f"{_MOST_OFFSET} bytes"
            )
        name = name_of(where)
        self.title = f"a {action} of {name}"
        directly = cufile.is_wanted(size_bytes)
        self._file = _native.FileCopy(where, name, use, self._offset, size_bytes, _places_of(where), head, directly)

    def part(self, begin: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _native.Pageable:
        """Return a part of the bytes, as an end of a copy."""
        return self._file.part(begin, dtypes.code_of(dtype), shape)

    def parts(self, array: Any, begin: int) -> Iterator[tuple[Any, _native.Pageable]]:
        """Yield parts of an array that lies in one piece, each with its part of the file, none too large for a copy."""
        for index in cut(array.shape, array.nbytes, _MOST_BYTES):
            part = array[index]
            yield part, self.part(begin, part.shape, array.dtype)
            begin += part.nbytes

    def require_done(self) -> None:
        """Raise what went wrong with the file."""
        if self._file.failure is None:
            return
        step, code, found = self._file.failure
        error, more = cufile.reason_of(code)
        failed = FileError(self._path, step, self._offset, self._size_bytes, found, error or None)
        if more:
            failed.add_note(more)
        raise failed


class FileRead(_FileCopy):
    """A read of a file; its methods are what explanations name."""

    def __init__(self, where: bytes, offset: int, size_bytes: int, use: str = "read") -> None:
        super().__init__(where, use, offset, size_bytes, "read")

    def into(self, created: CreateOp, shape: tuple[int, ...], dtype: np.dtype[Any], place: int | None) -> DeviceOp[Any]:
        """Return an operation that reads all of it to an array."""
        landed: DeviceOp[Any]
        if self._size_bytes <= _MOST_BYTES:
            landed = CopyOp(created, self.part(0, shape, dtype))
        else:
            landed = created.then(self._in_parts)
        # It is looked at before anything that needs the array is submitted.
        code = dtypes.code_of(dtype)
        return CallOp("map", self.checked, landed, yields="device_array", dtype=code, device=place, title=self.title)

    def some(self) -> DeviceOp[bytes]:
        """Return an operation that yields as many of the bytes as there are."""
        created = CreateOp((self._size_bytes,), dtypes.code_of(_BYTE), _native.HOST)
        return CallOp("map", self.found, CopyOp(created, self.part(0, (self._size_bytes,), _BYTE)), title=self.title)

    def _in_parts(self, array: Any) -> DeviceOp[Any]:
        return composing.zip(*(CopyOp(to, part) for to, part in self.parts(array, 0))).then(lambda _: array)

    def checked(self, array: Any) -> Any:
        self.require_done()
        return array

    def found(self, host: HostArray) -> bytes:
        self.require_done()
        return host.numpy()[: self._file.moved_bytes].tobytes()


class FileWrite(_FileCopy):
    """A write of a file; its methods are what explanations name.

    Parameters
    ----------
    offset
        As for `write`; None if the file is replaced.
    size_bytes
        Of all arrays.
    head
        The file's first bytes, in front of the arrays; only if it is replaced.
    """

    def __init__(self, where: bytes, offset: int | None, size_bytes: int, head: bytes = b"") -> None:
        use = "replace" if offset is None else "update"
        super().__init__(where, use, len(head) if offset is None else offset, size_bytes, "write", head)

    def of(self, arrays: Iterable[tuple[int, DeviceArray | HostArray]]) -> DeviceOp[int]:
        """Return an operation that writes arrays, which lie in one piece, each from some of the bytes on."""
        copies: list[DeviceOp[Any]] = []
        for begin, array in arrays:
            if isinstance(array, HostArray):
                copies.append(CopyOp(self.part(begin, array.shape, array.dtype), array))
            else:
                copies.extend(CopyOp(part, source) for source, part in self.parts(array, begin))
        if not copies:  # the head is all
            copies = [CopyOp(self.part(0, (0,), _BYTE), CreateOp((0,), dtypes.code_of(_BYTE), None))]
        # All of them go where the whole is put: they are under the placement of what returns them.
        written = copies[0] if len(copies) == 1 else CallOp("then", _Parts(copies), title=self.title)
        return CallOp("map", self.checked, written, title=self.title)

    def checked(self, _: object) -> int:
        self.require_done()
        return self._size_bytes


class _Parts:
    """The copies of one write. Once the first may have been submitted, all are, also if nobody waits any more.

    A write whose await was cancelled would else leave a file with some of its parts.
    """

    def __init__(self, copies: list[DeviceOp[Any]]) -> None:
        self._all: DeviceOp[Any] = composing.zip(*copies)
        self._placement: placement.Placement | None = None

    def __call__(self, _: object) -> DeviceOp[Any]:
        self._placement = placement.current.get()
        return self._all

    def __del__(self) -> None:
        if self._placement is None or cast("_native.Op", self._all)._state != "pending":
            return
        # Submitting waits for room. The thread ends with the process.
        with contextlib.suppress(RuntimeError):  # the interpreter ends, and no thread begins any more
            threading.Thread(target=_submit_rest, args=(self._all, self._placement), daemon=True).start()


def _submit_rest(parts: DeviceOp[Any], where: placement.Placement) -> None:
    placement.current.set(where)
    with contextlib.suppress(Exception):  # it was cancelled, and nobody is there to be told
        parts.submit()


def _places_of(path: bytes) -> _native.FilePlaces:
    with _lock:
        places = _places.get(path)
        if places is None:
            places = _places[path] = _native.FilePlaces()
        return places


def path_of(path: PathLike) -> bytes:
    """Return a path as the system takes it, from the root. No file is asked about."""
    try:
        given = os.fsencode(path)
    except TypeError:
        raise ArgumentTypeError(
            f"path is a str, bytes or an os.PathLike; {shown(path)} was given, of type {type(path).__name__}"
        ) from None
    except UnicodeEncodeError as error:
        raise ArgumentValueError(f"path={shown(path)} is no name that the system takes: {error}") from None
    if not given or b"\0" in given:
        raise ArgumentValueError(f"path={shown(path)}: a path that is not empty and has no NUL character is wanted")
    whole = given
    if not given.startswith(b"/"):
        try:
            whole = os.getcwdb() + b"/" + given  # noqa: PTH109 - pathlib has no paths of bytes
        except FileNotFoundError:  # the current directory is gone, and so is the file
            return given
    # Two dots stay: behind a link they are another directory than they seem.
    parts = [part for part in whole.split(b"/") if part not in {b"", b"."}]
    return b"/" + b"/".join(parts) + (b"/" if given.endswith(b"/") else b"")


def name_of(path: bytes) -> str:
    """Return a path as messages show it."""
    return path.decode(errors="backslashreplace")
