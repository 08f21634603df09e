"""What frameworks tell of their streams where no protocol does, and which of them an array is of.

Always true: a framework that the program has not imported is not imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, cast

__all__ = ["STREAMS", "current_stream", "framework_of", "has_cuda", "is_read_only", "keeper_of_stream"]


def _of_torch(torch: Any) -> Callable[[int], int]:
    raw: Callable[[int], int] | None = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return raw
    return lambda ordinal: int(torch.cuda.current_stream(ordinal).cuda_stream)


def _of_cupy(cupy: Any) -> Callable[[int], int]:
    return lambda ordinal: _current_of_cupy(cupy, ordinal)[1]


def _of_warp(warp: Any) -> Callable[[int], int]:
    return lambda ordinal: _current_of_warp(warp, ordinal)[1]


def _of_numba(_: Any) -> Callable[[int], int]:
    def default(_: int) -> int:
        handle = sys.modules["numba.cuda"].default_stream().handle
        return int(getattr(handle, "value", handle) or 0)

    return default


# What makes of a framework's module a function of a device's ordinal: it returns the handle of the stream that the
# framework puts the calling thread's work on.
STREAMS: Final[dict[str, Callable[[Any], Callable[[int], int]]]] = {
    "torch": _of_torch,
    "cupy": _of_cupy,
    "numba": _of_numba,
    "warp": _of_warp,
}
_IMMUTABLE: Final = frozenset({"jax", "jaxlib"})
# Arrays of JAX, and buffers of cuda.core, have no current stream.
_KNOWN: Final = frozenset({*STREAMS, *_IMMUTABLE, "cuda"})


def framework_of(kind: type) -> str | None:
    """Return the name of the framework that a class, or one that it derives from, is of; None if it is of none."""
    for each in kind.__mro__:
        name = each.__module__.partition(".")[0]
        if name in _KNOWN and name in sys.modules:
            return name
    return None


def current_stream(x: Any, ordinal: int) -> int | None:
    """Return the handle of the stream that an array's framework puts this thread's work on; None if it is not known."""
    name = framework_of(type(x))
    return None if name not in STREAMS else STREAMS[name](sys.modules[name])(ordinal)


def has_cuda(torch: Any) -> bool:
    """Say whether a module is PyTorch, and one that is made for CUDA; None is none."""
    return getattr(getattr(torch, "version", None), "cuda", None) is not None


def is_read_only(x: Any) -> bool:
    """Say whether an array is of a framework whose arrays never change, whatever its protocols say."""
    return framework_of(type(x)) in _IMMUTABLE


def keeper_of_stream(handle: int, ordinal: int, asker: str = "") -> object | None:
    """Return what keeps the stream of a handle alive; None where nobody knows it.

    CuPy and Warp destroy a stream with its object, so that is kept. Streams of PyTorch and JAX live as long as the
    process: the module stands for them.

    Parameters
    ----------
    handle
        The stream. It may be the current one of a framework.
    ordinal
        Its device.
    asker
        The name of the module that asks for work on it, where that says whose stream it is.
    """
    if (jax := sys.modules.get("jax")) is not None and asker.partition(".")[0] == "jax":
        return jax  # XLA says nowhere which streams it has
    for name, current in (("torch", _current_of_torch), ("cupy", _current_of_cupy), ("warp", _current_of_warp)):
        if name not in sys.modules or (name == "warp" and not _has_begun_warp()):
            continue
        try:
            found, its_handle = current(sys.modules[name], ordinal)
        except Exception:  # noqa: BLE001 - whatever ails a framework, the borrower may be another one
            continue
        if its_handle == handle:
            return cast("object", found)
    return None


def _has_begun_warp() -> bool:
    # To ask Warp for a stream begins it: it looks for devices and prints what it finds.
    context = sys.modules.get("warp._src.context") or sys.modules.get("warp.context")
    return getattr(context, "runtime", True) is not None


def _current_of_torch(torch: Any, ordinal: int) -> tuple[Any, int]:
    is_begun = getattr(torch.cuda, "is_initialized", None)
    if is_begun is not None and not is_begun():
        return None, -1  # to ask for a stream would begin it
    return torch, _of_torch(torch)(ordinal)


def _current_of_cupy(cupy: Any, ordinal: int) -> tuple[Any, int]:
    found = cupy.cuda.get_current_stream(ordinal)
    return found, int(found.ptr)


def _current_of_warp(warp: Any, ordinal: int) -> tuple[Any, int]:
    found = warp.get_stream(f"cuda:{ordinal}")
    return found, int(found.cuda_stream)
