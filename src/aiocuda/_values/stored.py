"""Arrays in files: what the heads of .npy and safetensors files say, and what is written there.

Pure: nothing here opens a file. NumPy reads and writes its own heads. safetensors' library has no function for a head
alone, so it is read and written here, as that format's page says: 8 bytes with a length, and so much JSON.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import numpy as np

from aiocuda._values import dtypes
from aiocuda._values.given import shown
from aiocuda.errors import ArgumentValueError

__all__ = [
    "SAFETENSORS_LENGTH_BYTES",
    "Stored",
    "is_npy",
    "npy_head",
    "safetensors_head",
    "stored_in_npy",
    "stored_in_safetensors",
    "tensors_head_bytes",
]

SAFETENSORS_LENGTH_BYTES: Final = 8
_MOST_HEAD_BYTES: Final = 100_000_000  # of the library
_NPY_LENGTH_BYTES: Final = 4  # of versions 2.0 and 3.0
_MOST_NPY_CHARACTERS: Final = 10_000  # of NumPy
# By the library's names. Numbers of less than a byte have no dtype here.
_SAFETENSORS_DTYPES: Final = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
_SAFETENSORS_NAMES: Final = {dtypes.dtype_named(name): code for code, name in _SAFETENSORS_DTYPES.items()}


class Stored(NamedTuple):
    """An array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    is_fortran: bool = False

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def is_npy(head: bytes) -> bool:
    """Say whether a file that begins so is a .npy file."""
    return head.startswith(np.lib.format.MAGIC_PREFIX)


def stored_in_npy(head: bytes) -> Stored:
    """Return what a .npy file has.

    Raises
    ------
    ArgumentValueError
        NumPy cannot read the head, or the items are objects of Python's.
    """
    file = io.BytesIO(head)
    try:
        major, minor = np.lib.format.read_magic(file)
        if minor != 0 or major not in {1, 2, 3}:
            raise ValueError(f"the format's version is {major}.{minor}, and 1.0, 2.0 or 3.0 is wanted")
        if major == 1:
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif major == 2:
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            shape, is_fortran, dtype = _read_array_header_3_0(file)
    except Exception as error:  # NumPy lets a broken head raise errors of its parsers, of many kinds
        raise ArgumentValueError(f"NumPy cannot read the head: {str(error) or type(error).__name__}") from error
    return Stored(shape, dtypes.to_dtype(dtype), file.tell(), is_fortran and len(shape) > 1)


def _read_array_header_3_0(file: io.BytesIO) -> tuple[Any, ...]:
    """Read a head of version 3.0, for which NumPy has no public function: it is one of version 2.0, but in UTF-8.

    NumPy's function for 2.0 takes Latin-1, so Python's escapes stand for all other characters of the field names.
    """
    length = int.from_bytes(file.read(_NPY_LENGTH_BYTES), "little")
    text = file.read(length)
    if len(text) < length:
        raise ValueError(f"its text has {len(text)} bytes, and {length} are wanted")
    characters = text.decode()
    if len(characters) > _MOST_NPY_CHARACTERS:
        raise ValueError(f"its text has {len(characters)} characters, and {_MOST_NPY_CHARACTERS} are the most")
    latin = characters.encode("latin-1", "backslashreplace")
    escaped = io.BytesIO(len(latin).to_bytes(_NPY_LENGTH_BYTES, "little") + latin)
    return cast("tuple[Any, ...]", np.lib.format.read_array_header_2_0(escaped, max(len(latin), 1)))


def npy_head(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return what a .npy file begins with.

    Raises
    ------
    ArgumentValueError
        The format has no name for the dtype.
    """
    descr: Any = np.lib.format.dtype_to_descr(dtype)
    if np.lib.format.descr_to_dtype(descr) != dtype:
        raise ArgumentValueError(
            f"a .npy file has no name for {dtype}; save a mapping of names to arrays, for safetensors"
        )
    file = io.BytesIO()
    about = {"descr": descr, "fortran_order": False, "shape": shape}
    try:
        np.lib.format.write_array_header_1_0(file, about)
    except UnicodeEncodeError:
        return _npy_head_3_0(about)
    except ValueError:  # too long for it: a dtype of many fields
        file = io.BytesIO()
        np.lib.format.write_array_header_2_0(file, about)
    return file.getvalue()


def _npy_head_3_0(about: Mapping[str, Any]) -> bytes:
    text = repr(about).encode()
    before = len(np.lib.format.magic(3, 0)) + _NPY_LENGTH_BYTES
    text += b" " * (-(before + len(text) + 1) % np.lib.format.ARRAY_ALIGN) + b"\n"
    return np.lib.format.magic(3, 0) + len(text).to_bytes(_NPY_LENGTH_BYTES, "little") + text


def tensors_head_bytes(head: bytes) -> int | None:
    """Return how many bytes of JSON a safetensors file has behind the length; None if the file is none."""
    length = int.from_bytes(head[:SAFETENSORS_LENGTH_BYTES], "little")
    begins = head[SAFETENSORS_LENGTH_BYTES : SAFETENSORS_LENGTH_BYTES + 1]
    return length if begins == b"{" and 2 <= length <= _MOST_HEAD_BYTES else None


def stored_in_safetensors(text: bytes) -> dict[str, Stored]:
    """Return what a safetensors file has, from its JSON.

    Raises
    ------
    ArgumentValueError
        It is no such JSON, or has a tensor whose bytes are not as many as its shape needs, or of an unknown dtype.
    """
    begin = SAFETENSORS_LENGTH_BYTES + len(text)
    try:
        tensors = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentValueError(f"the head is no JSON: {error}") from error
    if not isinstance(tensors, dict):
        raise ArgumentValueError(f"the head is no JSON object, but {shown(tensors)}")
    tensors.pop("__metadata__", None)
    return {name: _stored(name, about, begin) for name, about in tensors.items()}


def _stored(name: str, about: Any, begin: int) -> Stored:
    try:
        code, shape, (first, last) = about["dtype"], about["shape"], about["data_offsets"]
        numbers = [*shape, first, last]
        if not isinstance(shape, list):
            raise TypeError("its shape is no list")
    except (TypeError, KeyError, ValueError) as error:
        raise ArgumentValueError(f"tensor {name!r} is not described as safetensors does: {shown(about)}") from error
    if not all(type(each) is int and 0 <= each < 2**63 for each in numbers):
        raise ArgumentValueError(f"tensor {name!r}: shape and offsets are whole numbers, not {shown(numbers)}")
    if not isinstance(code, str) or code not in _SAFETENSORS_DTYPES:
        raise ArgumentValueError(
            f"tensor {name!r} has the dtype {shown(code)}; known are {', '.join(_SAFETENSORS_DTYPES)}"
        )
    stored = Stored(tuple(shape), dtypes.dtype_named(_SAFETENSORS_DTYPES[code]), begin + first)
    if stored.size_bytes != last - first:
        raise ArgumentValueError(
            f"tensor {name!r} has {last - first} bytes, and {stored.size_bytes} are wanted for {code}{shape}"
        )
    return stored


def safetensors_head(tensors: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> tuple[bytes, dict[str, int]]:
    """Return the head of a safetensors file of some tensors, and where behind it each of them begins.

    Raises
    ------
    ArgumentValueError
        The format has no name for a dtype, or a name is the format's own.
    """
    about: dict[str, Any] = {}
    begins: dict[str, int] = {}
    at = 0
    # As the library has them: those with the largest items first, so that all are aligned.
    for name, (shape, dtype) in sorted(tensors.items(), key=lambda item: (-item[1][1].itemsize, item[0])):
        if dtype not in _SAFETENSORS_NAMES:
            raise ArgumentValueError(f"tensor {name!r}: safetensors has no name for {dtype}; convert it with convert()")
        if name == "__metadata__":
            raise ArgumentValueError("safetensors keeps the name '__metadata__' for itself; give another one")
        end = at + Stored(shape, dtype, 0).size_bytes
        about[name] = {"dtype": _SAFETENSORS_NAMES[dtype], "shape": list(shape), "data_offsets": [at, end]}
        begins[name], at = at, end
    try:
        text = json.dumps(about, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ArgumentValueError(f"a safetensors file has no such name of a tensor: {error}") from error
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(SAFETENSORS_LENGTH_BYTES, "little") + text, begins
