"""How the arrays of a framework's class are read, where they are given as they are.

Always true: what is asked of a class is asked once. What is asked of an array is asked each time, for it may change.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from aiocuda import _native
from aiocuda._driver import frameworks
from aiocuda._values import dtypes, parts
from aiocuda.errors import ArgumentTypeError

__all__ = ["tensor_kind"]

# The address, the shape, the strides in bytes (None: C-contiguous), the dtype's code, the device (None: the driver
# knows), and a stream (None: the framework's current one). Or why it cannot be used; or None, where it is in host
# memory. What a reader raises is why it cannot be used, too.
_Read = tuple[int, Any, Any, int, int | None, int | None] | str | None


class _Reader(NamedTuple):
    """How arrays of a class are read, and what is told of writes; and the class, if DLPack's exchange in C comes first.

    That exchange costs a tenth. What it does not read as plain memory of a device is left to `read`.
    """

    read: Callable[[Any], _Read]
    note_writes: Callable[[list[Any]], None] | None = None
    exchange_of: type | None = None


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
    reader = _READERS[name](module, kind)
    if reader is None:
        return None
    return _native.TensorKind(current_stream=frameworks.STREAMS[name](module), **reader._asdict())


# --- PyTorch --------------------------------------------------------------------------------------------------------


def _torch(torch: Any, kind: type) -> _Reader | None:
    if not issubclass(kind, torch.Tensor):
        return None
    if getattr(kind, "__torch_dispatch__", None) is not getattr(torch.Tensor, "__torch_dispatch__", None):
        # It stands for other tensors, and has no memory of its own.
        return _Reader(lambda _: f"a {kind.__qualname__} keeps its items elsewhere; give a plain torch.Tensor")
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
    # What that calls, for a list. It leaves out tensors that have no version itself.
    count_all = getattr(getattr(torch, "_C", None), "_increment_version", None)
    if hasattr(kind, "__dlpack_c_exchange_api__") and count_all is not None:
        return _Reader(read, count_all, kind)
    return _Reader(read, note_writes)


# --- CuPy -----------------------------------------------------------------------------------------------------------


def _cupy(cupy: Any, kind: type) -> _Reader | None:
    if not issubclass(kind, cupy.ndarray):
        return None

    def read(array: Any) -> _Read:
        data = array.data
        dtype = array.dtype
        strides = None if array.flags.c_contiguous else array.strides
        if strides is not None and any(step < 0 for step in strides):
            return _NEGATIVE.format(kind.__name__, strides)
        return data.ptr, array.shape, strides, _code_of(dtype), data.device_id, None

    return _Reader(read)


# --- Numba and Warp, by the CUDA array interface --------------------------------------------------------------


def _shown(_: Any, kind: type) -> _Reader | None:
    if not hasattr(kind, "__cuda_array_interface__"):
        return None

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

    return _Reader(read)


def _code_named(name: str) -> int:
    try:
        return dtypes.code_named(name)
    except (TypeError, AttributeError):
        raise ArgumentTypeError(f"its dtype {name} is none that NumPy or ml_dtypes know") from None


@functools.cache
def _code_of(dtype: Any) -> int:
    return dtypes.code_of(dtypes.to_dtype(dtype))


_READERS: Final[dict[str, Callable[[Any, type], _Reader | None]]] = {
    "torch": _torch,
    "cupy": _cupy,
    "numba": _shown,
    "warp": _shown,
}
