"""A PyTorch that costs next to nothing, as its functions in C++ are none of aiocuda's.

Always true: each answer is one of C's functions or attributes, so no line of Python is counted for it.
"""

from __future__ import annotations

import ctypes
import sys
import types
from pathlib import Path
from typing import Any

from submission.floor import build_library

from aiocuda._interop import operation as operations
from aiocuda._interop.operation import operation

_STREAM, _ADDRESS = 0x6E0000000000, 0x6F0000000000  # none of the driver's that does nothing
_NAME = ctypes.create_string_buffer(b"dlpack_exchange_api")  # the capsule points to its name


class Tensor:
    """What aiocuda asks of a tensor, as attributes."""

    __slots__ = ("_version", "is_neg", "requires_grad")
    __torch_dispatch__ = None


Tensor.__module__ = "torch"


def _tensor() -> Any:
    made: Any = Tensor()
    made.requires_grad, made._version, made.is_neg = False, 0, False.__bool__
    return made


class PyTorch(operations.Framework):
    """A PyTorch in ``sys.modules``, and its operations.

    Parameters
    ----------
    directory
        Where DLPack's exchange in C is built.
    """

    name = "PyTorch"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        # It is lent `tensor`; `other` is one of its own. All have the same memory.
        self.tensor, self.other = _tensor(), _tensor()
        library = ctypes.CDLL(str(build_library(Path(__file__).with_name("exchange.cpp"), directory / "exchange.so")))
        library.exchange.restype = ctypes.c_void_p
        library.exchange.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object]
        table = library.exchange(_ADDRESS, _STREAM, self.tensor)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
        Tensor.__dlpack_c_exchange_api__ = new(table, ctypes.addressof(_NAME), None)  # type: ignore[attr-defined]
        torch: Any = types.ModuleType("torch")
        torch.Tensor = Tensor
        torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream={0: _STREAM}.__getitem__, _increment_version=id)
        torch.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(increment_version=id))
        sys.modules["torch"] = torch
        self._streams: dict[int, tuple[int, int, int]] = {}
        self._use_pytorch(
            tensor=Tensor,
            get_device=(0).__index__,
            set_device=id,
            get_stream={0: (_STREAM, 0, 1)}.__getitem__,
            set_stream=max,
            streams=self._streams,
        )

    def stream_of(self, stream: Any) -> tuple[int, int, int]:
        """Return what PyTorch would set."""
        return self._streams.setdefault(stream._index, (stream.handle, 0, 1))

    def op(self, function: Any, x: Any) -> Any:
        """Make an operation of a function of one array."""
        return operation(self, function, (x,), (), (), False)
