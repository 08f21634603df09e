"""An operation of a framework's function: the function runs at submission, on our stream, with the framework's arrays.

Always true: what was the framework's current stream is it again afterwards, whatever the function does. Its arrays
share the memory of ours: nothing is copied, and nothing waits on the host.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Stream
from aiocuda._interop.states import STATES, state_of
from aiocuda._ops.composing import lift
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import given, parts
from aiocuda._values.functions import checked_function
from aiocuda.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceMismatchError,
    MissingPackageError,
)

__all__ = ["Entered", "Framework", "Made", "capsule_of", "operation", "require_installed"]


class Entered(NamedTuple):
    """A framework whose current stream is ours.

    Attributes
    ----------
    before
        The handle of the stream that was current on the device before.
    leading
        What the function is given in front of its arguments.
    back
        What the framework needs to go back.
    """

    before: int
    leading: tuple[Any, ...]
    back: Any


class Made(NamedTuple):
    """Memory of a framework's array; strides in bytes, None where it is C-contiguous; the code of its dtype."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype_code: int
    ordinal: int
    owner: Any


class Framework(_native.Framework):
    """What an operation needs of a framework."""

    name: ClassVar[str]

    def enter(self, stream: Stream, kept: list[Any] | None) -> Entered:
        """Make a stream the current one of this thread.

        `kept` is None, except in a capture. There the memory that the framework gives out must be the graph's alone,
        and what is put into the list lives as long as the graph. If this raises, nothing has changed.
        """
        raise NotImplementedError

    def leave(self, entered: Entered) -> None:
        """Go back."""
        raise NotImplementedError

    def lend(self, array: DeviceArray) -> Any:
        """Return an array of the framework's over the memory of ours, which lives as long."""
        raise NotImplementedError

    def was_written(self, lent: Any) -> bool:
        """Say whether the function has written what was lent, as far as the framework knows."""
        return False

    def found(self, x: Any) -> Made | None:
        """Return the memory of an array that the function returned; None if `x` is no array on a device."""
        raise NotImplementedError

    # What native code calls besides.

    def adopted(self, function: Any, returned: Any, ordinal: int) -> Any:
        """Return an array over what a function on a device returned; what is no array on a device, as it is."""
        made = self.found(returned)
        if made is None:
            return returned
        if made.ordinal != ordinal:
            raise DeviceMismatchError(
                f"op: {_name_of(function)} returned an array on device {made.ordinal}, and runs on device {ordinal}; "
                "bring it over before it is returned"
            )
        if made.strides is not None and any(step < 0 for step in made.strides):
            raise ArgumentValueError(
                f"op: {_name_of(function)} returned an array with strides of {made.strides} bytes; only strides of 0 "
                "and more are possible: return a copy"
            )
        return _native.adopt_array(made.address, made.shape, made.dtype_code, made.strides, made.owner)

    def refuse(self, value: Any) -> NoReturn:
        """Raise for an array that is not on a device."""
        raise ArgumentTypeError(
            f"op: {self.name} gets arrays on a device; {given.shown(value)} is none: to_device() brings page-locked "
            "memory over, and unpartition() gives an array back"
        )

    def require_written(self, function: Any, array: DeviceArray, writes: Sequence[DeviceArray]) -> None:
        """Raise if an array that a function has written is not among those that it may write."""
        for each in writes:
            if parts.share_bytes(_bytes_of(array), _bytes_of(each)):
                return
        raise ArgumentValueError(
            f"op: {_name_of(function)} has written {array!r} in place, which stands not in writes=; name it there"
        )


def operation(
    framework: Framework,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    reads: Sequence[Any],
    writes: Sequence[Any],
    is_stateless: bool,
) -> DeviceOp[Any]:
    """Make the operation; see `aiocuda.interop.torch.op`."""
    made: DeviceOp[Any] = _native.framework_op(framework, function, arguments, reads, writes, is_stateless)
    return made


def _prepare(function: Any, is_stateless: bool) -> tuple[_native.Array, bool]:
    checked_function(function, "op() takes a function of the arguments")
    return state_of(function, is_stateless=is_stateless)


_native.set_framework_ops(prepare=_prepare, lift=lift, states=STATES)


def _name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _bytes_of(array: DeviceArray) -> parts.Bytes:
    return parts.Bytes(*array._place, array.shape, array.strides, array.itemsize)


_CUDA = 2  # DLPack's number of memory on a device, as which frameworks take managed memory


def capsule_of(array: DeviceArray, *, is_untyped: bool = False) -> object:
    """Return a capsule of DLPack's that keeps an array's memory; as bytes, where only that matters.

    The operation is ordered by what it is said to use, so the borrow has no order.
    """
    kind = (1, 8) if is_untyped else None
    return _native.lend_array(array, kind, (_CUDA, array._device), array._device, None, None, False, 0, False)


def require_installed(package: str, name: str, install: str, what: str = "") -> None:
    """Raise if a framework is not installed.

    Parameters
    ----------
    package
        The module that a program imports.
    name
        The framework's name, as messages spell it.
    install
        The command that installs it.
    what
        The function that needs the framework. If it is empty, the message says "an operation of" the framework.

    Raises
    ------
    MissingPackageError
        It is not.
    """
    if importlib.util.find_spec(package) is None:
        what = what or f"an operation of {name}'s"
        raise MissingPackageError(f"{what} needs {name}, which is not installed: {install}")
