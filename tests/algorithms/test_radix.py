"""What cuda.compute is asked for sorts, on a stand-in that sorts at once, in host memory; and on a GPU, itself."""

from __future__ import annotations

import ctypes
import enum
import importlib.util
import sys
import types
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import DTYPES, numbers, on_device, same

import aiocuda as ac
from aiocuda import algorithms
from aiocuda._algorithms import sorting
from aiocuda._driver import radix


class _SortOrder(enum.Enum):
    ASCENDING = 0
    DESCENDING = 1


def memory(lent: Any) -> np.ndarray[Any, Any]:
    address = lent.__cuda_array_interface__["data"][0]
    assert lent.data.ptr == address != 0
    return np.frombuffer((ctypes.c_char * lent.nbytes).from_address(address), lent.dtype)


class Sorter:
    """A sorter with cuda.compute's meaning: the first call asks for the size of the temporary storage."""

    def __init__(self, keys: np.dtype[Any], values: np.dtype[Any] | None, order: _SortOrder) -> None:
        self.keys, self.values, self.order = keys, values, order
        assert keys.kind in "iu"

    def __call__(self, *, temp_storage, d_in_keys, d_out_keys, d_in_values, d_out_values, num_items, stream):
        if temp_storage is None:
            return 256 + num_items
        assert temp_storage.nbytes == 256 + num_items
        version, handle = stream.__cuda_stream__()
        assert version == 0
        assert driver.cuStreamSynchronize(handle) == (driver.CUresult.CUDA_SUCCESS,)  # the sort would be behind it
        memory(temp_storage)[...] = 0xFF
        keys = memory(d_in_keys)
        assert (keys.dtype, keys.size) == (self.keys, num_items)
        if self.order is _SortOrder.DESCENDING:
            order = num_items - 1 - np.argsort(keys[::-1], kind="stable")[::-1]
        else:
            order = np.argsort(keys, kind="stable")
        memory(d_out_keys)[...] = keys[order]
        assert (d_in_values is None) == (self.values is None) == (d_out_values is None)
        if d_in_values is not None:
            memory(d_out_values)[...] = memory(d_in_values)[order]
        return temp_storage.nbytes


@pytest.fixture
def compute(monkeypatch: pytest.MonkeyPatch) -> list[Sorter]:
    made = []

    def make_radix_sort(*, d_in_keys, d_out_keys, d_in_values, d_out_values, order):
        assert d_in_keys.dtype == d_out_keys.dtype
        made.append(Sorter(d_in_keys.dtype, None if d_in_values is None else d_in_values.dtype, order))
        return made[-1]

    module = types.ModuleType("cuda.compute")
    module.SortOrder, module.make_radix_sort = _SortOrder, make_radix_sort  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.compute", module)
    monkeypatch.setattr(radix, "_sorters", {})
    return made


@pytest.mark.emulated_only
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=25)
@given(size=st.sampled_from([1, 2, 1000, 3000]), seed=st.integers(0, 99), repeated=st.booleans(), down=st.booleans())
def test_cuda_compute_is_asked_for_the_order_of_the_kernels(compute, dtype, size, seed, repeated, down):
    keys = on_device(numbers(size, dtype, seed, few=repeated), 2)
    found, _ = sorting.by_radix(keys, None, ac.empty(size, keys.dtype), down)
    same(ac.to_host(found).sync(), ac.to_host(algorithms.sort(keys, descending=down)).sync())
    found, places = sorting.by_radix(keys, ac.empty(size, np.int64), ac.empty(size, keys.dtype), down)
    same(ac.to_host(found).sync(), ac.to_host(algorithms.sort(keys, descending=down)).sync())
    same(ac.to_host(places).sync(), ac.to_host(algorithms.argsort(keys, descending=down)).sync())


@pytest.mark.emulated_only
def test_a_sorter_is_made_once_for_a_dtype_and_an_order(compute):
    keys = on_device(np.arange(3000, dtype=np.int32), 1)
    for _ in range(3):
        sorting.by_radix(keys, None, ac.empty(3000, np.int32), True)[0].sync()
    assert len(compute) == 1
    sorting.by_radix(keys, None, ac.empty(3000, np.int32), False)[0].sync()
    assert len(compute) == 2


@pytest.mark.emulated_only
def test_a_refusal_of_cuda_compute_is_an_error_that_says_so(compute, monkeypatch):
    keys = on_device(np.arange(3000, dtype=np.int32), 1)
    op, _ = sorting.by_radix(keys, None, ac.empty(3000, np.int32), False)

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("error code: 98")

    monkeypatch.setattr(Sorter, "__call__", refuse)
    with pytest.raises(ac.LaunchError, match="refused a sort of 3000 keys of int32: error code: 98"):
        op.sync()


@pytest.mark.emulated_only
def test_where_cuda_compute_cannot_be_loaded_a_warning_says_why_once(monkeypatch):
    module = types.ModuleType("cuda.compute")
    module.__spec__ = importlib.util.spec_from_loader("cuda.compute", None)
    module.__getattr__ = lambda name: (_ for _ in ()).throw(AttributeError(f"no {name}: no libnvJitLink"))  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "cuda.compute", module)
    monkeypatch.setattr(radix, "_is_there", None)
    with pytest.warns(RuntimeWarning, match=r"aiocuda\[cccl\]"):
        assert not radix.is_there()
    assert not radix.is_there()


def test_a_gpu_sorts_by_cuda_compute_where_it_is_installed():
    if ac.Device(0).is_emulated or not radix.is_there():
        pytest.skip("needs a GPU and cuda-cccl")
    for dtype in DTYPES:
        for descending in (False, True):
            x = numbers(100_000, dtype, 1)
            keys = on_device(x, 1)
            graph = ac.zip(
                algorithms.sort(keys, descending=descending), algorithms.argsort(keys, descending=descending)
            ).graph()
            found, places = graph.launch().sync()
            assert any(key[1] == np.dtype(f"u{x.itemsize}").name or key[1] == dtype for key in radix._sorters)
            order = ac.to_host(places).sync()
            wide = x if x.dtype.kind in "biu" else x.astype(float)
            if descending:
                expected = len(x) - 1 - np.argsort(wide[::-1], kind="stable")[::-1]
            else:
                expected = np.argsort(wide, kind="stable")
            same(order, expected)
            same(ac.to_host(found).sync(), x[expected])
