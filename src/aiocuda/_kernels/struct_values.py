"""From Python values to the bytes of a struct that a kernel takes by value.

Always true: what is passed lies in memory as the kernel's struct does, member by member; nothing is converted but the
numbers of a built-in vector.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from aiocuda import _source
from aiocuda._values import dtypes, given
from aiocuda.errors import ArgumentRangeError, ArgumentTypeError

__all__ = ["ConstantPacker", "StructPacker", "to_layouts"]


class StructPacker:
    """Gives the bytes of values for one parameter.

    Parameters
    ----------
    layout
        Where the members lie; of a built-in vector, a dtype of that many numbers.
    """

    __slots__ = ("_layout",)

    def __init__(self, layout: np.dtype[Any]) -> None:
        self._layout = layout

    def __call__(self, where: str, value: object) -> bytes:
        """Return a value's bytes.

        Raises
        ------
        ArgumentTypeError
            It is no struct, of another size, or its members lie elsewhere; `where` begins the message.
        ArgumentRangeError
            A number does not fit into the vector.
        """
        if self._layout.subdtype is not None and isinstance(value, (tuple, list, np.ndarray)):
            return self._vector(where, value)
        if isinstance(value, (ctypes.Structure, ctypes.Union)):
            given, data = _dtype_of(where, type(value)), bytes(value)
        elif isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
            given, data = value.dtype, value.tobytes()
        else:
            raise ArgumentTypeError(
                f"{where}: {_described(self._layout)} is expected, {type(value).__name__} was given; give a NumPy "
                "scalar of a structured dtype, or a ctypes.Structure"
            )
        if why := _difference(self._layout, given):
            raise ArgumentTypeError(
                f"{where}: {_described(self._layout)} is expected, {_described(given)} was given: {why}"
            )
        return data

    def _vector(self, where: str, value: Any) -> bytes:
        item, shape = self._layout.subdtype or (self._layout, ())
        numbers = np.asarray(value)
        if numbers.shape != shape or numbers.dtype.kind not in "biuf":
            raise ArgumentTypeError(
                f"{where}: {shape[0]} numbers of {item} are expected, {value!r:.80} was given; give a tuple of them"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            converted = numbers.astype(item)
        if item.kind in "iu":
            if numbers.dtype.kind == "f":
                raise ArgumentTypeError(f"{where}: {item} are expected, {value!r:.80} was given; give integers")
            fits = bool((converted == numbers).all())
        else:
            fits = bool((np.isfinite(converted.astype(np.float64)) | ~np.isfinite(numbers)).all())
        if not fits:
            raise ArgumentRangeError(f"{where}: {value!r:.80} does not fit {item}")
        return converted.tobytes()


class ConstantPacker:
    """Takes the number that a parameter's type says already, such as ``std::bool_constant<true>``, and passes nothing.

    Parameters
    ----------
    number
        What the type says.
    """

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, where: str, value: object) -> bytes:
        """Return the byte that stands for an empty class.

        Raises
        ------
        ArgumentTypeError
            It is no number; `where` begins the message.
        ArgumentRangeError
            It is another number.
        """
        if not isinstance(value, (int, np.integer, np.bool_)):
            raise ArgumentTypeError(f"{where}: the type says {self._number}; give that, not {type(value).__name__}")
        if int(value) != self._number:
            raise ArgumentRangeError(
                f"{where}: {value!r} was given, and the type says {self._number}: name the kernel with another type"
            )
        return b"\0"


def to_layouts(structures: Mapping[str, Any] | None) -> dict[str, np.dtype[Any]]:
    """Return the dtypes of what ``structures=`` describes.

    Raises
    ------
    ArgumentTypeError
        One is neither a dtype nor a ctypes.Structure, or holds what a device cannot read.
    """
    found: dict[str, np.dtype[Any]] = {}
    if structures is None:
        return found
    for name, layout in given.mapping(
        structures, "structures=", "structs' names to dtypes or ctypes.Structure"
    ).items():
        given.text(name, "the name of a struct in structures=")
        is_structure = isinstance(layout, type) and issubclass(layout, (ctypes.Structure, ctypes.Union))
        dtype = _dtype_of(f"structures= of '{name}'", layout) if is_structure else dtypes.to_dtype(layout)
        if dtype.hasobject:
            raise ArgumentTypeError(f"structures= of '{name}': {dtype} holds Python objects or pointers")
        found[name] = dtype
    return found


@functools.lru_cache(maxsize=256)
def _dtype_of(where: str, kind: type) -> np.dtype[Any]:
    try:
        return np.dtype(kind)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ArgumentTypeError(f"{where}: {kind.__name__} has members that NumPy has no dtype for: {error}") from error


@functools.lru_cache(maxsize=256)
def _difference(expected: np.dtype[Any], given: np.dtype[Any]) -> str:
    """Say how two layouts differ; empty where they do not. Members may have other names."""
    wanted, found = list(_source.leaves(expected)), list(_source.leaves(given))
    for index, (want, have) in enumerate(zip(wanted, found, strict=False)):
        if want != have:
            return f"number {index} is {want[1]} at byte {want[0]} in the kernel, {have[1]} at byte {have[0]} here"
    if len(wanted) != len(found):
        return f"the kernel's has {len(wanted)} numbers, this one {len(found)}"
    if expected.itemsize != given.itemsize:
        return "their sizes differ; make the dtype with align=True, as a C++ compiler lies members out"
    return ""


def _described(dtype: np.dtype[Any]) -> str:
    listed = [f"{item} at {offset}" for offset, item in _source.leaves(dtype)]
    shown = ", ".join(listed[:8]) + (", ..." if len(listed) > 8 else "")
    return f"a struct of {dtype.itemsize} bytes ({shown})"
