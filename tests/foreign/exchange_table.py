"""DLPack's exchange in C, as a table that Python calls, and as one that Python fills: of a library that stands in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from framework import DLTensor, Versioned, python_api

NAME = ctypes.create_string_buffer(b"dlpack_exchange_api")  # capsules point to their name
Pointer = ctypes.POINTER(Versioned)
SetError = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)


class Api(ctypes.Structure):
    """The table. Functions that set Python's error keep the GIL, and the others are called without it."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        (
            "allocate",
            ctypes.CFUNCTYPE(
                ctypes.c_int, ctypes.POINTER(DLTensor), ctypes.POINTER(Pointer), ctypes.c_void_p, SetError
            ),
        ),
        ("from_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Pointer))),
        ("to_object", ctypes.PYFUNCTYPE(ctypes.c_int, Pointer, ctypes.POINTER(ctypes.py_object))),
        ("view_of_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))),
        (
            "current_work_stream",
            ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)),
        ),
    )


def table_of(kind: type) -> Api:
    return Api.from_address(python_api.PyCapsule_GetPointer(kind.__dlpack_c_exchange_api__, NAME.value))  # type: ignore[attr-defined]


class Exchange:
    """The exchange of a library that stands in.

    Parameters
    ----------
    describe
        What an array says of itself; None where it has no plain memory.
    take
        Makes an array of one that was lent.
    current
        The handle of the stream that is current on a device.
    """

    def __init__(
        self,
        describe: Callable[[Any], DLTensor | None],
        take: Callable[[Versioned], Any],
        current: Callable[[int], int],
    ) -> None:
        types = {name: kind for name, kind, *_ in Api._fields_}

        def view_of_object(x: Any, out: Any) -> int:
            try:
                found = describe(x)
            except RuntimeError:
                found = None
            if found is None:
                return -1
            out[0] = found
            return 0

        def to_object(lent: Any, out: Any) -> int:
            made = take(lent.contents)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
            out[0] = made
            return 0

        def current_work_stream(_: int, ordinal: int, out: Any) -> int:
            out[0] = current(ordinal)
            return 0

        self._table = Api(
            major=1,
            minor=3,
            to_object=types["to_object"](to_object),
            view_of_object=types["view_of_object"](view_of_object),
            current_work_stream=types["current_work_stream"](current_work_stream),
        )
        _kept.append(self)  # a class of arrays keeps its table, which is there for good

    def capsule(self) -> Any:
        return python_api.PyCapsule_New(ctypes.addressof(self._table), ctypes.addressof(NAME), None)


_kept: list[Exchange] = []
