"""A look at an array's items: those at its ends, brought to the host.

Always true: only the items that are shown are copied.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._ops import composing
from aiocuda._ops.operation import DeviceOp
from aiocuda._values.given import between
from aiocuda._verbs.copies import to_host
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError

__all__ = ["Preview", "preview"]

_MOST_EDGE_ITEMS = 1000


@dataclass(frozen=True, slots=True)
class Preview:
    """Some items of an array, as text.

    Attributes
    ----------
    dtype, shape
        The array's.
    text
        Its items, as NumPy writes them, with ``...`` for those that were left out.
    """

    dtype: str
    shape: tuple[int, ...]
    text: str

    def __repr__(self) -> str:
        return f"{self.dtype}{self.shape}\n{self.text}"

    def _repr_html_(self) -> str:
        return f"<b>{html.escape(self.dtype)}{self.shape}</b><pre>{html.escape(self.text)}</pre>"


def preview(x: DeviceArray | HostArray | DeviceOp[Any], *, edge_items: int = 3) -> DeviceOp[Preview]:
    """Look at an array's items: at those at the ends of each axis.

    Parameters
    ----------
    x
        An array, or an operation that yields one.
    edge_items
        How many items are shown at each end of an axis; a short axis is shown whole.

    Returns
    -------
    DeviceOp[Preview]
        Its text, which a notebook and ``print`` show. *Stream*: the device's stream in force. *Blocks*: no.
        *On cancel*: the copies go on.

    Raises
    ------
    ArgumentTypeError
        `x` is no array, and no operation that yields one (found when it is executed).
    ArgumentValueError
        `edge_items` is not from 1 to 1,000.
    OwnershipError
        `x` was closed, moved or partitioned.

    Examples
    --------
    >>> import aiocuda as ac
    >>> ac.preview(ac.arange(1000)).sync()
    int64(1000,)
    [  0   1   2 ... 997 998 999]
    """
    edge_items = between(edge_items, "edge_items of preview()", 1, _MOST_EDGE_ITEMS)
    x = as_array(x, "preview")
    if isinstance(x, DeviceOp):
        return x.then(lambda array: preview(array, edge_items=edge_items))
    if not isinstance(x, (DeviceArray, HostArray)):
        raise ArgumentTypeError(f"preview: an array or an operation is expected, {type(x).__name__} was given")
    _native.check_usable(x, False, "preview")
    dtype, shape = x.dtype.name, tuple(x.shape)
    ends = [_ends(n, edge_items) for n in shape]
    parts = [to_host(x[part] if part else x) for part in itertools.product(*ends)]
    return composing.zip(*parts).map(lambda copied: Preview(dtype, shape, _text(copied, shape, ends, edge_items)))


def _ends(n: int, edge_items: int) -> list[slice]:
    return [slice(0, n)] if n <= 2 * edge_items + 1 else [slice(0, edge_items), slice(n - edge_items, n)]


def _text(parts: Sequence[NDArray[Any]], shape: Sequence[int], ends: Sequence[list[slice]], edge_items: int) -> str:
    """Write the items at the ends. NumPy leaves out the one in the middle that stands for all others."""
    some = np.zeros([min(n, 2 * edge_items + 1) for n in shape], parts[0].dtype)
    for part, at in zip(parts, itertools.product(*ends), strict=True):
        placed = tuple(
            slice(kept - (n - each.start), kept) if each.start else slice(0, each.stop)
            for each, kept, n in zip(at, some.shape, shape, strict=True)
        )
        some[placed] = part
    is_whole = some.shape == tuple(shape)
    return np.array2string(some, threshold=some.size if is_whole else 0, edgeitems=edge_items)
