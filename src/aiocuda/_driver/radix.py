"""Radix sorts by cuda.compute, of the package cuda-cccl, where it is installed; the only importer of that.

Always true: a sorter is made once for a device, a dtype of keys and an order, and used by one thread at a time. A sort
allocates nothing and waits for nothing, so that it can be captured: its temporary storage is given to it.
"""

from __future__ import annotations

import importlib.util
import types
import warnings
from typing import Any

import numpy as np

from aiocuda import _forks, _native
from aiocuda._driver import runtime
from aiocuda.errors import LaunchError

__all__ = ["is_there", "open_sorter", "sort"]

_lock = _forks.lock()
_is_there: bool | None = None
_sorters: dict[tuple[int, str, bool, bool], Any] = {}


def is_there() -> bool:
    """Return whether cuda.compute can be used; if it is installed and cannot be loaded, a RuntimeWarning says why."""
    global _is_there
    with _lock:
        if _is_there is None:
            _is_there = False
            if importlib.util.find_spec("cuda.compute") is not None:
                try:
                    from cuda.compute import make_radix_sort as _  # noqa: F401
                except (ImportError, RuntimeError, AttributeError) as error:  # the last two: its libraries are missing
                    warnings.warn(
                        f"cuda.compute cannot be loaded, so arrays are sorted by kernels of aiocuda's: {error}; "
                        'pip install "aiocuda[cccl]" installs what it needs, or uninstall cuda-cccl',
                        RuntimeWarning,
                        stacklevel=2,
                    )
                else:
                    _is_there = True
        return _is_there


class _Lent:
    """Memory as cuda.compute takes it: it reads the address, the dtype and the size, and keeps no array."""

    def __init__(self, address: int, dtype: np.dtype[Any], count: int) -> None:
        self.data = types.SimpleNamespace(ptr=address)
        self.dtype = dtype
        self.shape = (count,)
        self.nbytes = count * dtype.itemsize
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": self.shape,
            "strides": None,
            "typestr": dtype.str,
            "version": 3,
        }


_PLACES = np.dtype(np.int64)


def open_sorter(ordinal: int, keys: np.dtype[Any], count: int, *, has_places: bool, descending: bool) -> int:
    """Make ready for sorts on a device; return how many bytes of temporary storage one takes.

    Blocks the first time for a dtype and an order: cuda.compute compiles.
    """
    runtime.open_device(ordinal)
    from cuda.bindings import driver
    from cuda.core import Device

    key = (ordinal, keys.name, has_places, descending)
    with runtime.watched(f"compiling cuda.compute's sort of {keys.name}"), _lock:
        before = runtime.call(driver.cuCtxGetCurrent)
        try:
            Device(ordinal).set_current()
            with _native.RelaxedCaptures():
                if key not in _sorters:
                    _sorters[key] = _make(keys, has_places, descending)
                return int(_run(_sorters[key], None, keys, count, (0, 0), (0, 0) if has_places else None, None))
        finally:
            runtime.call(driver.cuCtxSetCurrent, before)


def sort(
    ordinal: int,
    stream: Any,
    storage: tuple[int, int],
    keys: np.dtype[Any],
    count: int,
    addresses: tuple[int, int],
    places: tuple[int, int] | None,
    *,
    descending: bool,
) -> None:
    """Put a stable sort on a stream; `open_sorter` came before, and the device's context is the current one.

    Parameters
    ----------
    stream
        A `Stream`.
    storage
        Address and size in bytes of memory that nothing else uses meanwhile.
    keys, count
        An integer dtype, and how many keys there are.
    addresses, places
        Of the keys and of the sorted ones; of the places that go with them, int64, if there are any.

    Raises
    ------
    LaunchError
        cuda.compute refused.
    """
    with _lock:
        sorter = _sorters[ordinal, keys.name, places is not None, descending]
        try:
            _run(sorter, _Lent(storage[0], np.dtype(np.uint8), storage[1]), keys, count, addresses, places, stream)
        except RuntimeError as error:
            raise LaunchError(f"cuda.compute refused a sort of {count} keys of {keys}: {error}") from error


def _make(keys: np.dtype[Any], has_places: bool, descending: bool) -> Any:
    from cuda.compute import SortOrder, make_radix_sort

    lent, places = _Lent(0, keys, 1), _Lent(0, _PLACES, 1) if has_places else None
    order = SortOrder.DESCENDING if descending else SortOrder.ASCENDING
    return make_radix_sort(d_in_keys=lent, d_out_keys=lent, d_in_values=places, d_out_values=places, order=order)


def _run(
    sorter: Any,
    storage: _Lent | None,
    keys: np.dtype[Any],
    count: int,
    addresses: tuple[int, int],
    places: tuple[int, int] | None,
    stream: Any,
) -> Any:
    read, written = (_Lent(address, keys, count) for address in addresses)
    values = (None, None) if places is None else tuple(_Lent(address, _PLACES, count) for address in places)
    return sorter(
        temp_storage=storage,
        d_in_keys=read,
        d_out_keys=written,
        d_in_values=values[0],
        d_out_values=values[1],
        num_items=count,
        stream=stream,
    )
