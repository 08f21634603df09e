"""How the arrays of a framework's class are read, where they are given as they are.

Always true: what is asked of a class is asked once. What is asked of an array is asked each time, for it may change.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

from aiocuda import _native
from aiocuda._driver import frameworks
from aiocuda._values import dtypes, parts
from aiocuda.errors import ArgumentTypeError

__all__ = ["tensor_kind"]

# The address, the shape, the strides in bytes (None: C-contiguous), the dtype's code, the device (None: the driver
# knows), and a stream (None: the framework's current one). Or why it cannot be used; or None, where it is in host
# memory. What a reader raises is why it cannot be used, too.
_Read = tuple[int, Any, Any, int, int | None, int | None] | str | None

_ON_A_DEVICE: Final = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged
_NEGATIVE: Final = "this {} has strides of {} bytes; only strides of 0 and more are possible"


def tensor_kind(kind: type, take: Callable[[Any], Any]) -> _native.TensorKind | None:
    """Return how arrays of a class are read; None if it is no framework's.

    Parameters
    ----------
    kind
        The class.
    take
        What makes an array of one whose library has no current stream.
    """
    name = frameworks.framework_of(kind)
    if name is None:
        return None
    if name not in _READERS:
        if not hasattr(kind, "__dlpack__"):
            return None
        return _native.TensorKind(take=lambda x: take(x) if x.__dlpack_device__()[0] in _ON_A_DEVICE else None)
    module = sys.modules[name]
    reader, note_writes = _READERS[name](module, kind)
    if reader is None:
        return None
    return _native.TensorKind(read=reader, current_stream=frameworks.STREAMS[name](module), note_writes=note_writes)


# --- PyTorch --------------------------------------------------------------------------------------------------------


def _torch(torch: Any, kind: type) -> tuple[Callable[[Any], _Read] | None, Callable[[Any], None] | None]:
    if not issubclass(kind, torch.Tensor):
        return None, None
    if getattr(kind, "__torch_dispatch__", None) is not getattr(torch.Tensor, "__torch_dispatch__", None):
        # It stands for other tensors, and has no memory of its own.
        return (lambda _: f"a {kind.__qualname__} keeps its items elsewhere; give a plain torch.Tensor"), None
    codes: dict[Any, int] = {}

    def read(tensor: Any) -> _Read:
        ordinal = tensor.get_device()
        if ordinal < 0:
            return None
        if tensor.requires_grad:
            return f"this {kind.__name__} requires a gradient, which is not computed here; give tensor.detach()"
        dtype = tensor.dtype
        code = codes.get(dtype)
        if code is None:
            code = codes[dtype] = _code_named(str(dtype).rpartition(".")[2])
        if tensor.is_neg() or (dtype.is_complex and tensor.is_conj()):
            return (
                f"this {kind.__name__} is to be conjugated or negated when it is read; give tensor.resolve_conj() or "
                "tensor.resolve_neg()"
            )
        strides = None  # a sparse tensor raises here: it has none
        if not tensor.is_contiguous():
            size_bytes = tensor.element_size()
            strides = [step * size_bytes for step in tensor.stride()]
        return tensor.data_ptr(), tensor.shape, strides, code, ordinal, None

    def note_writes(tensors: list[Any]) -> None:
        for tensor in tensors:
            if not tensor.is_inference():  # those have no version
                count(tensor)

    count = torch.autograd.graph.increment_version
    return read, note_writes


# --- CuPy -----------------------------------------------------------------------------------------------------------


def _cupy(cupy: Any, kind: type) -> tuple[Callable[[Any], _Read] | None, None]:
    if not issubclass(kind, cupy.ndarray):
        return None, None

    def read(array: Any) -> _Read:
        data = array.data
        dtype = array.dtype
        strides = None if array.flags.c_contiguous else array.strides
        if strides is not None and any(step < 0 for step in strides):
            return _NEGATIVE.format(kind.__name__, strides)
        return data.ptr, array.shape, strides, _code_of(dtype), data.device_id, None

    return read, None


# --- Numba and Warp, by the CUDA array interface --------------------------------------------------------------


def _shown(_: Any, kind: type) -> tuple[Callable[[Any], _Read] | None, None]:
    if not hasattr(kind, "__cuda_array_interface__"):
        return None, None

    def read(array: Any) -> _Read:
        try:
            interface = array.__cuda_array_interface__
        except AttributeError:
            return None
        dtype = dtypes.to_dtype(interface["typestr"])
        shape, strides, address = interface["shape"], interface.get("strides"), interface["data"][0]
        if strides is not None and parts.is_contiguous(shape, strides, dtype.itemsize):
            strides = None
        if strides is not None and any(step < 0 for step in strides):
            return _NEGATIVE.format(kind.__name__, strides)
        theirs = interface.get("stream")
        return address, shape, strides, dtypes.code_of(dtype), None, theirs

    return read, None


def _code_named(name: str) -> int:
    try:
        return dtypes.code_named(name)
    except (TypeError, AttributeError):
        raise ArgumentTypeError(f"its dtype {name} is none that NumPy or ml_dtypes know") from None


@functools.cache
def _code_of(dtype: Any) -> int:
    return dtypes.code_of(dtypes.to_dtype(dtype))


_READERS: Final[dict[str, Callable[[Any, type], tuple[Callable[[Any], _Read] | None, Any]]]] = {
    "torch": _torch,
    "cupy": _cupy,
    "numba": _shown,
    "warp": _shown,
}
