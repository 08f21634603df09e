"""Arrays of other libraries that are given as they are, where functions take arrays.

Always true: an array of a framework on a device becomes a `DeviceArray` over the same memory. All else stays as it is.
"""

from __future__ import annotations

from typing import Any

from aiocuda import _native

__all__ = ["as_array"]


def as_array(x: Any, where: str) -> Any:
    """Return an array over the memory of another library's; what is none of these, or in host memory, as it is.

    Parameters
    ----------
    x
        Anything.
    where
        The function that wants it, for messages.

    Raises
    ------
    ArgumentTypeError
        It cannot be used: it requires a gradient, for example.
    """
    if isinstance(x, (_native.Op, _native.Array)):
        return x
    taken = _native.take_tensor(x, where)
    return x if taken is None else taken
