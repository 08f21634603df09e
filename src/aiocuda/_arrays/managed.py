"""Further members of arrays in managed memory: the host reaches them, and the program tells CUDA where it uses them.

Always true: pages move by themselves to whoever touches them; a prefetch and advice change how fast that is, and no
result.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Self, cast

import numpy as np

from aiocuda import _native
from aiocuda._devices.device import DeviceLike, Stream, as_ordinal, current_ordinal
from aiocuda._devices.placing import place_of
from aiocuda._ops.composing import value
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import host_views
from aiocuda._values.given import one_of
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, CaptureError

__all__ = ["Managed"]

Advice = Literal["read_mostly", "preferred_location", "accessed_by"]
Place = DeviceLike  # or "host"

# As of CUmem_advise; what takes one back is the next number.
_ADVICE: Final = {"read_mostly": 1, "preferred_location": 3, "accessed_by": 5}


class Managed:
    """The members of a `DeviceArray` that is in managed memory; no state of its own."""

    __slots__ = ()

    @property
    def is_managed(self) -> bool:
        """Whether it is in managed memory, which the host and all devices reach; not once it is closed."""
        return _native_of(self)._is_managed

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the memory of an array in managed memory as a NumPy array, without copying.

        The view is live: what is written to it is what the next operation reads. It is yours while no
        operation on the array is going on. That of a shared array is for reading.

        Returns
        -------
        numpy.ndarray
            Of the same shape, dtype and strides, over the same memory, which it keeps.

        Raises
        ------
        ArgumentTypeError
            The array is not in managed memory: `aiocuda.to_host` copies it.
        ArgumentValueError
            The device is still reading or writing the memory: await the operation first. A library that has borrowed
            the array may do that, too: await `aiocuda.done` of the array.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        """
        return host_views.numpy_view(self._require_managed("numpy()"))

    def prefetch(self, where: Place | None = None) -> DeviceOp[Self]:
        """Move the memory of an array in managed memory to where it will be used.

        Parameters
        ----------
        where
            A device, or ``"host"``; None takes the device of the `use` in force when the operation is built, else that
            of its execution.

        Returns
        -------
        DeviceOp[DeviceArray]
            The array. It counts as reading it: behind the last write, beside others that read. *Stream*: of the
            array's device, in force. *Blocks*: no. *On cancel*: what was submitted goes on. Whole pages move, at a
            view's edges those that it shares with its neighbours too. Not inside a graph.

        Raises
        ------
        ArgumentTypeError
            The array is not in managed memory, or `where` is no place.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        CaptureError
            When a graph is made of it.
        """
        array = self._require_managed("prefetch")
        place = place_of(None) if where is None else _place(where)
        if array._size_bytes == 0:
            return value(self)

        def prefetch(stream: Stream, array: _native.Array) -> _native.Array:
            if _native.is_capturing(stream._index):
                raise CaptureError(
                    "a prefetch cannot be part of a graph: CUDA has no such node; await it before the graph's launch"
                )
            array._prefetch(current_ordinal() if place is None else place, stream._index)
            return array

        there = "the host" if place == _native.HOST else "the device in force" if place is None else f"device {place}"
        prefetch.__qualname__ = f"prefetch to {there}"
        return cast("DeviceOp[Self]", _native.call_op(prefetch, (array,), (array,), ()))

    def advise(self, advice: Advice, where: Place | None = None) -> None:
        """Tell CUDA how the memory of an array in managed memory will be used. Takes effect at once.

        Parameters
        ----------
        advice
            ``"read_mostly"``: readers get copies of their own, which a write drops.
            ``"preferred_location"``: the pages stay there, and others reach them from afar where they can.
            ``"accessed_by"``: the pages stay mapped for that reader, wherever they are, so that it faults on none.
        where
            A device, or ``"host"``: the preferred location, or who will access it. Not for ``"read_mostly"``.

        Raises
        ------
        ArgumentTypeError
            The array is not in managed memory, or `where` is no place.
        ArgumentValueError
            There is no such advice; or it needs `where`, or takes none.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        DriverError
            The driver refused.

        Notes
        -----
        CUDA advises whole pages: at the edges of a view, its neighbours get the advice too; arrays share no page with
        one another. It holds until `unadvise`, or until the memory goes back. *Blocks*: not for the device.
        """
        self._tell("advise", advice, where, 0)

    def unadvise(self, advice: Advice, where: Place | None = None) -> None:
        """Take advice back. Advice that was not given may be taken back too.

        Parameters
        ----------
        advice, where
            As for `advise`; but ``"preferred_location"`` takes no `where`, since there is one at most.

        Raises
        ------
        ArgumentTypeError, ArgumentValueError, OwnershipError, DriverError
            As for `advise`.
        """
        self._tell("unadvise", advice, where, 1)

    def _tell(self, method: str, advice: str, where: Place | None, undoing: int) -> None:
        array = self._require_managed(method)
        one_of(advice, f"what {method} takes", _ADVICE)
        needs_place = advice == "accessed_by" or (advice == "preferred_location" and not undoing)
        if needs_place and where is None:
            raise ArgumentValueError(f"{method}({advice!r}) needs a device, or 'host'; none was given")
        if not needs_place and where is not None:
            raise ArgumentValueError(f"{method}({advice!r}) is about no place; {where!r} was given")
        place = array._device if where is None else _place(where)
        if array._size_bytes:
            array._advise(_ADVICE[advice] + undoing, place)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = _native_of(self)
        if not array._is_managed and not array._is_closed:
            raise ArgumentTypeError(
                f"a {type(self).__name__} is not in host memory; `await aiocuda.to_host(array)` gives a NumPy array"
            )
        return host_views.as_array_of(self.numpy(), dtype, copy)

    def _require_managed(self, where: str) -> _native.Array:
        array = _native_of(self)
        _native.check_usable(array, False, where)
        if not array._is_managed:
            raise ArgumentTypeError(
                f"{where}: this {type(self).__name__} is in the memory of device {array._device}, which the host does "
                "not reach; `await aiocuda.to_host(array)` gives a NumPy array, and managed=True makes arrays that the "
                "host reaches in place"
            )
        return array


def _place(where: Place) -> int:
    if isinstance(where, str) and where == "host":
        return _native.HOST
    if isinstance(where, str) and not where.startswith("cuda"):
        raise ArgumentValueError(f"a place is a device, its name such as 'cuda:1', or 'host'; {where!r:.40} was given")
    return as_ordinal(where)


def _native_of(array: Managed) -> _native.Array:
    assert isinstance(array, _native.Array)
    return array
