"""Arrays of several lengths as one, for kernels that take a batch of one shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiocuda._values.given import between, whole_numbers
from aiocuda.errors import ArgumentValueError

__all__ = ["bucket", "pad_stack"]

_MOST = 1 << 62


def bucket(n: int, sizes: Sequence[int]) -> int:
    """Return the smallest of some sizes that holds `n`: a key for `batched`, so that a batch is padded little.

    Parameters
    ----------
    n
        A length.
    sizes
        The sizes, in any order.

    Returns
    -------
    int
        One of `sizes`.

    Raises
    ------
    ArgumentValueError
        None of them is as large.

    Examples
    --------
    >>> import aiocuda as ac
    >>> ac.bucket(20, sizes=(16, 32, 64))
    32
    """
    n = between(n, "the length for bucket()", 0, _MOST)
    fitting = [size for size in whole_numbers(sizes, "the sizes of bucket()") if size >= n]
    if not fitting:
        raise ArgumentValueError(f"bucket: {n} is more than the largest of the sizes {tuple(sizes)}")
    return min(fitting)


def pad_stack(
    arrays: Iterable[Any], *, length: int | None = None, value: Any = 0
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Put arrays that differ in the length of their first axis into one, each padded at its end.

    Parameters
    ----------
    arrays
        Arrays, or what NumPy makes arrays of, on the host; all of the same shape behind the first axis.
    length
        The length to which they are padded; None: that of the longest.
    value
        The value of the padding.

    Returns
    -------
    tuple
        An array of shape ``(number of arrays, length, ...)`` of the dtype that holds all items, and the lengths as
        int32.

    Raises
    ------
    ArgumentValueError
        There are none, one has no axis or is longer than `length`, or their other axes differ. Their dtype does not
        hold `value`.

    Examples
    --------
    >>> import aiocuda as ac
    >>> padded, lengths = ac.pad_stack([[1, 2, 3], [4]])
    >>> padded.tolist(), lengths.tolist()
    ([[1, 2, 3], [4, 0, 0]], [3, 1])
    """
    given = [np.asarray(each) for each in arrays]
    if not given:
        raise ArgumentValueError("pad_stack: no arrays were given")
    rests = {each.shape[1:] for each in given}
    if any(each.ndim == 0 for each in given) or len(rests) > 1:
        raise ArgumentValueError(
            "pad_stack: arrays with one axis at least are expected, of the same shape behind the first one; the shapes "
            f"are {[each.shape for each in given]}"
        )
    lengths = np.array([len(each) for each in given], np.int32)
    longest = int(lengths.max())
    length = longest if length is None else between(length, "the length for pad_stack()", 0, _MOST)
    if longest > length:
        raise ArgumentValueError(f"pad_stack: an array of length {longest} does not fit into length={length}")
    dtype = np.result_type(*given)
    padded = np.full((len(given), length, *rests.pop()), _padding(value, dtype), dtype)
    for row, each in zip(padded, given, strict=True):
        row[: len(each)] = each
    return padded, lengths


def _padding(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the padding's value as an item. NumPy would round a fraction, and make up an integer for NaN."""
    try:
        with np.errstate(invalid="ignore"):
            item = np.full((), value, dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise ArgumentValueError(f"pad_stack: the value {value!r} is none of dtype {dtype}: {error}") from None
    if dtype.kind in "biu" and item != value:
        raise ArgumentValueError(f"pad_stack: dtype {dtype} does not hold the value {value!r}")
    return item
