"""An operation of a framework's function: the function runs at submission, on our stream, with the framework's arrays.

Always true: what was the framework's current stream is it again afterwards, whatever the function does. Its arrays
share the memory of ours: nothing is copied, and nothing waits on the host.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Stream
from aiocuda._interop.states import state_of
from aiocuda._ops.composing import lift
from aiocuda._ops.operation import DeviceOp, ForeignOp
from aiocuda._values import given, parts
from aiocuda._values.functions import checked_function
from aiocuda._verbs.foreign import accesses_of
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


class Framework(Protocol):
    """What an operation needs of a framework."""

    name: str

    def enter(self, stream: Stream, kept: list[Any] | None) -> Entered:
        """Make a stream the current one of this thread.

        `kept` is None, except in a capture. There the memory that the framework gives out must be the graph's alone,
        and what is put into the list lives as long as the graph. If this raises, nothing has changed.
        """

    def leave(self, entered: Entered) -> None:
        """Go back."""

    def lend(self, array: DeviceArray) -> Any:
        """Return an array of the framework's over the memory of ours, which lives as long."""

    def was_written(self, lent: Any) -> bool:
        """Say whether the function has written what was lent, as far as the framework knows."""

    def found(self, x: Any) -> Made | None:
        """Return the memory of an array that the function returned; None if `x` is no array on a device."""


def operation(
    framework: Framework,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    reads: Sequence[Any],
    writes: Sequence[Any],
    is_stateless: bool,
) -> DeviceOp[Any]:
    """Make the operation; see `aiocuda.interop.torch.op`."""
    checked_function(function, "op() takes a function of the arguments")
    state, keeps_state = state_of(function, is_stateless=is_stateless)
    taken = [lift(each) if isinstance(each, (tuple, list, dict)) else each for each in arguments] if arguments else []
    run = _Run(framework, function, state, len(writes))
    return ForeignOp(run, [*taken, *writes], accesses_of(reads, writes), state, keeps_state)


class _Run:
    """A function as `ForeignOp` calls it."""

    __slots__ = ("_framework", "_function", "_kept", "_state", "_written")

    def __init__(self, framework: Framework, function: Callable[..., Any], state: _native.Array, written: int) -> None:
        self._framework = framework
        self._function = function
        self._state = state
        self._written = written  # how many arguments behind the function's are what it writes
        self._kept: list[Any] | None = None  # what lives as long as the graph that it is captured for

    def __getattr__(self, name: str) -> Any:
        if name != "__qualname__":
            raise AttributeError(name)
        return getattr(self._function, "__qualname__", type(self._function).__name__)

    def __call__(self, stream: Stream, *values: Any) -> Any:
        framework = self._framework
        count = len(values) - self._written
        lent: list[tuple[DeviceArray, Any]] = []
        given_to = [self._lent(value, lent) for value in values[:count]]
        if _native.is_in_capture():
            self._kept = []
        entered = framework.enter(stream, self._kept)
        try:
            _native.come_after(entered.before, self._state)
            returned = self._function(*entered.leading, *given_to)
            for array, theirs in lent:
                if framework.was_written(theirs):
                    self._require_written(array, values[count:])
            return None if returned is None else self._adopted(returned, lent, stream)
        finally:
            framework.leave(entered)

    def _lent(self, value: Any, lent: list[tuple[DeviceArray, Any]]) -> Any:
        kind = type(value)
        if kind is DeviceArray:
            theirs = self._framework.lend(value)
            lent.append((value, theirs))
            return theirs
        if isinstance(value, _native.Array):
            raise ArgumentTypeError(
                f"op: {self._framework.name} gets arrays on a device; {given.shown(value)} is none: to_device() "
                "brings page-locked memory over, and unpartition() gives an array back"
            )
        if isinstance(value, (tuple, list)):
            items = (self._lent(item, lent) for item in value)
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        if isinstance(value, dict):
            return {key: self._lent(item, lent) for key, item in value.items()}
        return value

    def _require_written(self, array: DeviceArray, writes: Sequence[Any]) -> None:
        for each in writes:
            if parts.share_bytes(_bytes_of(array), _bytes_of(each)):
                return
        raise ArgumentValueError(
            f"op: {self.__qualname__} has written {array!r} in place, which stands not in writes=; name it there"
        )

    def _adopted(self, returned: Any, lent: Sequence[tuple[DeviceArray, Any]], stream: Stream) -> Any:
        kind = type(returned)
        if isinstance(returned, (tuple, list)):
            items = (self._adopted(item, lent, stream) for item in returned)
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        if isinstance(returned, dict):
            return {key: self._adopted(item, lent, stream) for key, item in returned.items()}
        for array, theirs in lent:
            if theirs is returned:
                return array
        made = self._framework.found(returned)
        if made is None:
            return returned
        if made.ordinal != stream.device.ordinal:
            raise DeviceMismatchError(
                f"op: {self.__qualname__} returned an array on device {made.ordinal}, and runs on device "
                f"{stream.device.ordinal}; bring it over before it is returned"
            )
        if made.strides is not None and any(step < 0 for step in made.strides):
            raise ArgumentValueError(
                f"op: {self.__qualname__} returned an array with strides of {made.strides} bytes; only strides of 0 "
                "and more are possible: return a copy"
            )
        return _native.adopt_array(DeviceArray, made.address, made.shape, made.dtype_code, made.strides, made.owner)


def _bytes_of(array: DeviceArray) -> parts.Bytes:
    return parts.Bytes(*array._place, array.shape, array.strides, array.itemsize)


_CUDA = 2  # DLPack's number of memory on a device, as which frameworks take managed memory


def capsule_of(array: DeviceArray, *, is_untyped: bool = False) -> object:
    """Return a capsule of DLPack's that keeps an array's memory; as bytes, where only that matters.

    The operation is ordered by what it is said to use, so the borrow has no order.
    """
    kind = (1, 8) if is_untyped else None
    return _native.lend_array(array, kind, (_CUDA, array._device), array._device, None, None, False, 0, False)


def require_installed(package: str, name: str, install: str) -> None:
    """Raise if a framework is not installed.

    Raises
    ------
    MissingPackageError
        It is not.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingPackageError(f"an operation of {name}'s needs {name}, which is not installed: {install}")
