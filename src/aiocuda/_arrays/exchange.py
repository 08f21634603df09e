"""Arrays as other libraries take them: by DLPack, versions 0.8 to 1.3, and by the CUDA array interface, version 3.

DLPack's exchange in C is native (`exchange_api.cpp`), and lends by the same rules as ``__dlpack__``.

Always true: what DLPack cannot lend is an `ExchangeError`, and never a `TypeError`: libraries would ask again in an
older way, which does not say that memory is for reading. What the array interface has no word for is a missing
attribute, so that libraries that look for the attribute go on to DLPack.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar, Final, cast

from aiocuda import _native
from aiocuda._driver import frameworks, streams
from aiocuda._values import dtypes, given
from aiocuda.errors import ExchangeError, MissingAttributeError

__all__ = ["DLPack", "array_interface"]

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13  # kinds of devices, as DLPack numbers them
_LEGACY, _PER_THREAD = 1, 2  # streams, as the CUDA driver numbers them
_NEWEST: Final = (1, 3)


class DLPack:
    """The members of arrays by which other libraries borrow them; no state of its own."""

    __slots__ = ()

    # The same as functions in C. Who looks for them asks the class.
    __dlpack_c_exchange_api__: ClassVar[object] = _native.exchange_api()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's kind of the memory, and the ordinal of its device."""
        return _place_of(_native_of(self))

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Lend the array to another library, which copies nothing: ``torch.from_dlpack(x)`` calls it.

        Parameters
        ----------
        stream
            The borrower's stream, a ``CUstream`` as a number. It waits for the work on the array, by events. None and
            1 are CUDA's legacy default stream. -1 asks for no order. For page-locked memory None asks for no order.
        max_version
            The newest version of DLPack that the borrower knows.
        dl_device
            Where the borrower wants the array: the device that it is on. Managed memory may be asked for as the
            device's, and page-locked memory as the host's.
        copy
            True is refused: `aiocuda.dup` makes a copy, which can be lent.

        Returns
        -------
        object
            A capsule. The memory is there until its consumer gives it back, whatever becomes of this array. So long,
            what aiocuda does with the memory comes after what is on `stream` by then, and what the borrower enqueues
            there next comes after what aiocuda has submitted. The stream must live so long. What aiocuda does with
            the memory after the end of the borrow comes after what is on `stream` at the end, if aiocuda knows that
            the stream is still there: the current one of PyTorch, CuPy or Warp, one of JAX, of aiocuda, or one that
            was given to `Stream.from_external` as an object, and default streams. Of another stream the borrower must
            have waited for the work itself. A shared array is lent for reading. *Blocks*: no.

        Raises
        ------
        ExchangeError
            The borrower asks for another device, a copy, or a stream that it cannot have. Or it knows no READ_ONLY,
            and the array is shared. Or the host would read memory that an operation still works on. Or DLPack has no
            such dtype or strides.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        CaptureError
            Somebody captures the stream into a graph.
        CollectiveError
            A collective was to write the array, and has failed.

        Notes
        -----
        Some libraries, such as tvm-ffi, call functions in C instead (``__dlpack_c_exchange_api__``). Those lend by the
        same rules. They name no stream: in a function of `call` it is that operation's, else the legacy default stream.
        Such a borrower gets page-locked memory as the host's, and managed memory as the device's.
        """
        array = _native_of(self)
        _native.check_usable(array, False, "__dlpack__")
        place = _place_asked(array, dl_device)
        if copy not in (None, False):
            raise ExchangeError(f"__dlpack__: copy={given.shown(copy)} was asked; lend what aiocuda.dup(x) yields")
        is_read_only = _native.is_for_reading(array)
        major, minor = _version(max_version)
        if is_read_only and not major:
            raise ExchangeError(
                "__dlpack__: a shared or read-only array is lent for reading, which DLPack has said since version 1.0; "
                f"max_version={given.shown(max_version)} was asked. Ask for max_version=(1, 0), or lend aiocuda.dup(x)"
            )
        theirs = _stream_asked(array, stream, is_default=place[0] == _CUDA)
        if place[0] != _CUDA:
            _native.require_at_rest(array)
        device = array._device if array._device >= 0 else _device_of(theirs)
        if theirs is not None and not _is_ordered(theirs, device):
            theirs = None
        keeper = None if theirs is None else frameworks.keeper_of_stream(theirs, device, _asker())
        return _native.lend_array(array, None, place, device, theirs, keeper, bool(major), minor, is_read_only)


def _asker() -> str:
    """Return the name of the module whose code asks an array for a capsule; of C code, the one that called it."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("aiocuda."):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def array_interface(array: _native.Array) -> dict[str, Any]:
    """Return what ``__cuda_array_interface__`` is to be; see `DeviceArray`."""
    _native.check_usable(array, False, "__cuda_array_interface__")
    _native.require_well(array)
    dtype = dtypes.dtype_of(array._dtype)
    if dtype.isbuiltin == 2:  # of ml_dtypes
        raise MissingAttributeError(
            f"__cuda_array_interface__ has no word for {dtype.name}: use DLPack, or a view of it, such as "
            f"x.view('uint{8 * dtype.itemsize}')"
        )
    is_read_only = _native.is_for_reading(array)
    stream = None if _native.is_in_call() else _native.stream_behind(array, not is_read_only)
    return {
        "version": 3,
        "shape": array._shape,
        "typestr": dtype.str,
        "descr": dtype.descr,
        "data": (array._address if array._size_bytes else 0, is_read_only),
        "strides": None if array._is_contiguous else array._strides,
        "stream": stream,
    }


def _native_of(x: DLPack) -> _native.Array:
    return cast("_native.Array", x)


def _place_of(array: _native.Array) -> tuple[int, int]:
    if array._device < 0:
        return _CUDA_HOST, 0
    return _CUDA_MANAGED if array._is_managed else _CUDA, array._device


def _place_asked(array: _native.Array, asked: Any) -> tuple[int, int]:
    own = _place_of(array)
    allowed = [own]
    if own[0] == _CUDA_MANAGED:
        allowed.append((_CUDA, own[1]))
    if own[0] in (_CUDA_HOST, _CUDA_MANAGED):
        allowed.append((_CPU, 0))
    if asked is None:
        return own
    for place in allowed:
        if asked == place:
            return place
    raise ExchangeError(
        f"__dlpack__: dl_device={given.shown(asked)} was asked of an array whose memory DLPack calls {own}; bring it "
        "over first, with .to(device) or aiocuda.to_host(x)"
    )


def _version(asked: Any) -> tuple[int, int]:
    if asked is None:
        return 0, 0
    try:
        major, minor = asked
        if not (isinstance(major, int) and isinstance(minor, int) and major >= 0 and minor >= 0):
            raise ValueError
    except (TypeError, ValueError):
        raise ExchangeError(
            f"__dlpack__: max_version is a pair of numbers, such as (1, 0), not {given.shown(asked)}"
        ) from None
    return (0, 0) if major < 1 else min((major, minor), _NEWEST)


def _stream_asked(array: _native.Array, asked: Any, *, is_default: bool) -> int | None:
    if asked is None:
        return _LEGACY if is_default else None
    if isinstance(asked, bool) or not isinstance(asked, int) or not (asked == -1 or 0 < asked < 2**64):
        raise ExchangeError(
            f"__dlpack__: stream={given.shown(asked)} was asked; it is a handle, 1 (the legacy default stream) or -1 "
            "(no order); 0 may be either of CUDA's default streams"
        )
    if asked == _PER_THREAD:
        raise ExchangeError(
            "__dlpack__: stream=2 is CUDA's per-thread default stream, another one in each thread, so later work could "
            "not be ordered after it; borrow on another stream"
        )
    return None if asked == -1 else asked


def _device_of(theirs: int | None) -> int:
    """Return the ordinal of a stream's device, for memory that is on none."""
    if theirs is None:
        return _native.default_device()
    ordinal = streams.device_of_stream(theirs)
    if ordinal is None:
        raise ExchangeError(
            f"__dlpack__: stream={theirs} is a default stream, which each device has, the memory is on the host, and "
            "CUDA has no current device in this thread; make the stream's device current"
        )
    return ordinal


def _is_ordered(theirs: int, device: int) -> bool:
    """Say whether a stream is to be ordered: not one that a function of `call` has captured, where all is."""
    if theirs > _PER_THREAD and (actual := streams.device_of_stream(theirs)) != device:
        raise ExchangeError(
            f"__dlpack__: stream={theirs:#x} is one of device {actual}, and the array is on device {device}; borrow it "
            "on a stream of that device"
        )
    return not (_native.is_in_call() and _native.in_context(device, lambda: _native.is_captured(theirs)))
