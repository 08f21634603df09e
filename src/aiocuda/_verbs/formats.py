"""Operations on files that say what they have: .npy and safetensors.

Always true: a head is read as all else is, by native threads; what follows from it is decided without a file.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import DeviceLike
from aiocuda._devices.placing import place_of
from aiocuda._ops import composing
from aiocuda._ops.operation import CallOp, DeviceOp
from aiocuda._values.host_data import described
from aiocuda._values.stored import (
    SAFETENSORS_LENGTH_BYTES,
    Stored,
    is_npy,
    npy_head,
    safetensors_head,
    stored_in_npy,
    stored_in_safetensors,
    tensors_head_bytes,
)
from aiocuda._verbs.files import FileRead, FileWrite, PathLike, name_of, one_piece, path_of, read
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["load", "save"]

# NumPy reads no .npy file with a head of more than 10,000 characters, and most of safetensors' fit.
_FIRST_BYTES = 16 << 10
_NUMPY_S = "; numpy.save() saves NumPy's"


def load(path: PathLike, *, device: DeviceLike | None = None) -> DeviceOp[Any]:
    """Read the array of a .npy file, or the tensors of a safetensors file, to a device.

    Parameters
    ----------
    path
        The file's, as for `aiocuda.read`. The file's first bytes say which of the two it is; its name does not matter.
    device
        Where to, as for `aiocuda.read`.

    Returns
    -------
    DeviceOp[DeviceArray or dict[str, DeviceArray]]
        Of a .npy file the array. If it is stored in Fortran order, the array is a transposed view. Of a safetensors
        file all its tensors, by name. Their reads are operations of their own, which overlap. *Stream*, *Blocks* and
        *On cancel*: as `aiocuda.read`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        When executed: the file is neither; its head is broken; it has items that no device can hold: Python objects, a
        foreign byte order, numbers of less than a byte.
    FileError, MissingPackageError, CaptureError
        When executed: as `aiocuda.read`.

    Notes
    -----
    This is a function of its own beside `aiocuda.read`, for what it yields is known only when the file was looked at.
    The file is read in two steps, head and arrays, and must not be replaced between them. safetensors need not be
    installed.

    Examples
    --------
    >>> import tempfile
    >>> import aiocuda as ac
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> bytes_written = ac.save(path, {"bias": ac.zeros(4096)}).sync()
    >>> weights = ac.load(path).sync()
    >>> weights["bias"].shape
    (4096,)
    """
    where = path_of(path)
    after = functools.partial(_loaded, where, place_of(device))
    return CallOp(
        "then", after, FileRead(where, 0, _FIRST_BYTES, "read_some").some(), title=f"a load of {name_of(where)}"
    )


def save(path: PathLike, arrays: Any) -> DeviceOp[int]:
    """Write an array as a .npy file, or several as a safetensors file.

    Parameters
    ----------
    path
        The file's. It is made, or what is there is replaced. Nothing is added to the name.
    arrays
        An array, as for `aiocuda.write`: the file is a .npy file, in C order. Or a mapping of names to arrays: the file
        is a safetensors file.

    Returns
    -------
    DeviceOp[int]
        How many bytes the arrays have. All else as `aiocuda.write`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        As `aiocuda.write`; the name ends in ``.npy`` or ``.safetensors`` and `arrays` is for the other one; or the
        format has no name for a dtype. If an operation yields the array, that is found when it is executed. A .npy file
        has no dtypes of ml_dtypes, a safetensors file has no structures and no complex128.
    OwnershipError, FileError, CaptureError
        As `aiocuda.write`.

    Examples
    --------
    >>> import tempfile
    >>> import aiocuda as ac
    >>> path = tempfile.mkdtemp() + "/x.npy"
    >>> ac.save(path, ac.ones((2, 3))).sync()
    24
    """
    where = path_of(path)
    is_mapping = isinstance(arrays, Mapping)
    if where.endswith(b".npy" if is_mapping else b".safetensors"):
        wanted = "an array is" if is_mapping else "a mapping of names to arrays is"
        raise ArgumentValueError(
            f"{name_of(where)}: {wanted} wanted for a file of that name; {described(arrays)} was given"
        )
    if not is_mapping:
        x = one_piece(arrays, "save", _NUMPY_S)
        if isinstance(x, _native.Op):
            return CallOp("then", functools.partial(save, where), x, title=f"a write of {name_of(where)}")
        return FileWrite(where, None, x.nbytes, npy_head(x.shape, x.dtype)).of([(0, x)])
    names = tuple(arrays)
    if not all(isinstance(name, str) for name in names):
        raise ArgumentTypeError(f"the names of tensors are texts; {described(names)} were given")
    given = [one_piece(each, "save", _NUMPY_S) for each in arrays.values()]
    if any(isinstance(each, _native.Op) for each in given):
        known = composing.zip(*given)
        return CallOp(
            "then",
            lambda found: save(where, dict(zip(names, found, strict=True))),
            known,
            title=f"a write of {name_of(where)}",
        )
    tensors = dict(zip(names, given, strict=True))
    head, begins = safetensors_head({name: (x.shape, x.dtype) for name, x in tensors.items()})
    size_bytes = sum(x.nbytes for x in given)
    return FileWrite(where, None, size_bytes, head).of((begin, tensors[name]) for name, begin in begins.items())


def _loaded(path: bytes, place: int | None, head: bytes) -> Any:
    with _naming(path):
        if is_npy(head):
            return _read(path, place, stored_in_npy(head))
        size_bytes = tensors_head_bytes(head)
        if size_bytes is None:
            raise ArgumentValueError(
                f"it is neither a .npy nor a safetensors file, for it begins with {head[:16]!r}; read it with "
                "read(path, shape, dtype, offset)"
            )
    begin, end = SAFETENSORS_LENGTH_BYTES, SAFETENSORS_LENGTH_BYTES + size_bytes
    if end <= len(head):
        return _tensors(path, place, head[begin:end])
    after = functools.partial(_tensors, path, place)
    return CallOp("then", after, FileRead(path, begin, size_bytes).some(), title=f"a load of {name_of(path)}")


def _tensors(path: bytes, place: int | None, text: bytes) -> dict[str, DeviceOp[DeviceArray]]:
    with _naming(path):
        return {name: _read(path, place, stored) for name, stored in stored_in_safetensors(text).items()}


@contextlib.contextmanager
def _naming(path: bytes) -> Iterator[None]:
    """Put the file's name in front of what an error says about its head."""
    try:
        yield
    except (ArgumentValueError, ArgumentTypeError) as error:
        raise type(error)(f"{name_of(path)}: {error}") from error


def _read(path: bytes, place: int | None, stored: Stored) -> DeviceOp[DeviceArray]:
    if stored.is_fortran:
        return read(path, stored.shape[::-1], stored.dtype, stored.offset, device=place).T
    return read(path, stored.shape, stored.dtype, stored.offset, device=place)
