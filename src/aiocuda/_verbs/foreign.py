"""Work and memory of other libraries, as part of a DAG.

Always true: what a function puts on the stream it is given is ordered like an operation of aiocuda's own, by
what it is said to read and write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._driver import foreign, frameworks
from aiocuda._ops.operation import DeviceOp, ForeignOp
from aiocuda._values import dtypes, parts
from aiocuda._values.functions import checked_function
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["call", "call_with_workspace", "constant", "external", "given"]


def call(
    function: Callable[..., Any], *arguments: Any, reads: Sequence[Any] = (), writes: Sequence[Any] = ()
) -> DeviceOp[Any]:
    """Make an operation of a function that puts work on a stream.

    Parameters
    ----------
    function
        Called once, at submission, as ``function(stream, *arguments)``, with the results of arguments that are
        operations. It enqueues what it likes on the stream, a `Stream` (it has ``__cuda_stream__`` and `handle`), and
        must not wait for it; nor for another thread that submits.
    *arguments
        Anything. Arrays among them must stand in `reads` or `writes`, they themselves or what they are a part of.
    reads, writes
        Arrays, or operations that yield them: what the enqueued work reads, and what it writes (and may read).

    Returns
    -------
    DeviceOp
        What the function returns; where that is None, what it writes, as for a kernel: the array, or a tuple of
        several. *Stream*: as for a kernel, of the device of what it writes, else of what it reads, else the one
        in force. *Blocks*: for as long as the function takes. *On cancel*: what was enqueued goes on; the function,
        its arguments and what it returned are kept until that has passed.

    Raises
    ------
    ArgumentTypeError
        `function` cannot be called; `reads` or `writes` holds something that is no array.
    ArgumentValueError
        When executed: an array is passed that stands in neither.
    OwnershipError
        When executed: it would write what is shared, partitioned or lent for reading.
    """
    made: DeviceOp[Any] = _native.call_op(function, arguments, reads, writes)
    return made


def call_with_workspace(
    function: Callable[..., Any],
    *arguments: Any,
    reads: Sequence[Any],
    writes: Sequence[Any],
    workspace_bytes: int,
) -> DeviceOp[Any]:
    """Do the same as `call`, with memory that the enqueued work alone uses.

    Parameters
    ----------
    function, *arguments, reads, writes
        As for `call`. The function gets the memory behind its arguments, as an array of bytes. It holds whatever was
        there, and functions that come later may overwrite it.
    workspace_bytes
        How much, 1 or more.
    """
    made: DeviceOp[Any] = _native.call_op(
        function, arguments, reads, writes, (workspace_bytes, dtypes.code_of(np.dtype(np.uint8)))
    )
    return made


# What native code asks where it does not go on by itself.


def _check_function(function: Any) -> None:
    checked_function(function, "call() takes a function of a stream and of the arguments")


def _named(given: Any, name: str) -> Sequence[Any]:
    """Return what `reads` or `writes` was given, if it is a sequence."""
    if isinstance(given, (_native.Array, _native.Op)) or not isinstance(given, Sequence):
        raise ArgumentTypeError(f"{name}= takes a list of arrays, not {given!r:.80}; write [array]")
    return given


def _array_named(each: Any, name: str) -> _native.Array | _native.Op:
    """Return an array of what stands in `reads` or `writes`."""
    array = as_array(each, f"call: {name}=")
    if isinstance(array, (_native.Array, _native.Op)):
        return array
    raise ArgumentTypeError(
        f"{name}= takes arrays and operations that yield them, not {each!r:.80}; memory of other libraries becomes an "
        "array with external()"
    )


_native.set_foreign_ops(op_class=ForeignOp, check_function=_check_function, named=_named, array_named=_array_named)


def external(x: Any) -> DeviceArray:
    """Make an array of memory on a device that another library owns. Copies nothing.

    Parameters
    ----------
    x
        Anything with DLPack (``__dlpack__``) or ``__cuda_array_interface__``: a tensor of PyTorch, an array of
        CuPy or Numba, a buffer of ``cuda.core``. A `DeviceArray` is given back as it is.

    Returns
    -------
    DeviceArray
        Ordered behind the work on the memory that its owner says is going on (on the stream that DLPack or the
        interface names). The owner is kept alive until the array and its views are gone and the device has passed
        all that used them here. All arrays over one allocation know of one another: parts of it that overlap are
        ordered, and others are not. *Blocks*: no.

    Raises
    ------
    ArgumentTypeError
        It is in host memory, has neither protocol, or a dtype that kernels cannot have.
    ArgumentValueError
        It has negative strides.

    Notes
    -----
    aiocuda does not know what the other library does with the memory afterwards: synchronise, or put it into the DAG
    with `call`. Memory lent for reading raises `OwnershipError` where it would be written.
    """
    return x if isinstance(x, DeviceArray) else _borrowed(x, "external", is_read_only=False)


def constant(x: Any) -> DeviceArray:
    """Make an array for reading of memory that another library owns, and that nobody writes while the array is used.

    A network's weights are such. As tensors they would be ordered with the library's stream at each use: the library's
    next work waits for the operations that read them. A constant is ordered once, here, and nothing waits for its
    readers.

    Parameters
    ----------
    x
        As for `external`. A `DeviceArray` is shared, as by its ``share()``.

    Returns
    -------
    DeviceArray
        Uses of it come after the work on the memory that its owner had enqueued when `constant` was called. The owner
        is kept as for `external`. *Blocks*: no.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        As for `external`.
    OwnershipError
        When it would be written.

    Notes
    -----
    If the memory is to be written after all, as by an optimizer's step, await the operations that read it before, and
    make a new constant afterwards.
    """
    return x.share() if isinstance(x, DeviceArray) else _borrowed(x, "constant", is_read_only=True)


def given(lent: foreign.Lent, where: str, *, is_of_call: bool = False) -> DeviceArray:
    """Make an array of memory that another library lends.

    Parameters
    ----------
    lent
        The memory.
    where
        The function that wants it, for messages.
    is_of_call
        Whether the work on it is on the stream of the function of `call` that runs now, on the same device.

    Raises
    ------
    ArgumentTypeError
        Kernels cannot have the dtype.
    ArgumentValueError
        It has negative strides.
    """
    if lent.strides is not None and any(step < 0 for step in lent.strides):
        raise ArgumentValueError(f"{where}: strides of {lent.strides} bytes; only strides of 0 and more are possible")
    code = dtypes.code_of(dtypes.to_dtype(lent.dtype))
    is_dense = lent.strides is None or parts.is_contiguous(lent.shape, lent.strides, lent.dtype.itemsize)
    strides = None if is_dense else lent.strides
    if is_of_call:
        made = _native.adopt_array(lent.address, lent.shape, code, strides, lent.owner, lent.is_read_only)
        return cast("DeviceArray", made)
    array = _native.borrow_array(
        DeviceArray,
        lent.address,
        lent.shape,
        code,
        strides,
        lent.device,
        lent.owner,
        lent.is_read_only,
        lent.theirs,
        lent.relay,
    )
    return cast("DeviceArray", array)


def _borrowed(x: Any, where: str, *, is_read_only: bool) -> DeviceArray:
    lent = foreign.lent_by(x, where)
    if is_read_only or frameworks.is_read_only(x):
        lent = lent._replace(is_read_only=True)
    return given(lent, where)
