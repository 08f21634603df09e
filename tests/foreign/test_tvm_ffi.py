"""Tensors of apache-tvm-ffi: a real library that takes arrays by DLPack's exchange in C, and gives them back."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from framework import CUDA, DataType, Device, DLTensor

import aiocuda as ac

tvm_ffi = pytest.importorskip("tvm_ffi")
N = 64
LEGACY = driver.CUstream(1)


def full(value: int) -> ac.DeviceArray:
    return ac.full(N, value, np.int32).sync(60)


def test_it_is_the_same_memory_and_comes_back():
    x = ac.arange(24, dtype="float32").sync().reshape(4, 6)
    tensor = tvm_ffi.from_dlpack(x)
    assert (tuple(tensor.shape), str(tensor.dtype), str(tensor.device)) == ((4, 6), "float32", "cuda:0")
    assert tensor.data_ptr() == x.address
    back = ac.external(tensor)
    assert (back.address, back.shape, back.dtype) == (x.address, x.shape, x.dtype)
    assert (ac.to_host(back).sync(60) == np.arange(24, dtype=np.float32).reshape(4, 6)).all()


def test_page_locked_memory_is_the_hosts():
    x = ac.empty_host(N, np.int32).sync(60)
    tensor = tvm_ffi.from_dlpack(x)
    assert str(tensor.device) == "cpu:0"
    assert tensor.data_ptr() == x.address


def test_a_shared_array_stays_for_reading_though_the_borrower_forgets_that_it_is():
    """It is told, and its tensor does not say so: nothing can be written here, but for what it does itself."""
    x = full(3)
    other = x.share()
    back = ac.external(tvm_ffi.from_dlpack(x))
    assert back.address == x.address
    for array in (back, x, other):
        with pytest.raises(ac.OwnershipError, match="shared"):
            ac.fill(array, 5).sync()


@pytest.mark.parametrize("how", ["closed", "moved"])
def test_an_array_that_may_not_be_used_is_refused(how):
    x = full(3)
    kept = ac.move(x) if how == "moved" else x.close()
    for use in (tvm_ffi.from_dlpack, tvm_ffi.convert(lambda tensor: None)):
        with pytest.raises(ac.OwnershipError, match=how):
            use(x)
    del kept


def test_the_default_stream_waits_for_what_is_going_on_with_it(latch, kernels, device):
    """Outside of operations it works on the default one."""
    x, stream = full(3), device.stream()
    latch.hold(stream)
    future = kernels.increment(x, N, threads=N).on(stream).submit()
    tensor = tvm_ffi.from_dlpack(x)
    assert driver.cuStreamQuery(LEGACY)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    latch.release()
    future.sync(60)
    found = np.zeros(N, np.int32)
    assert driver.cuMemcpyDtoH(found.ctypes.data, tensor.data_ptr(), found.nbytes)[0] == driver.CUresult.CUDA_SUCCESS
    assert found.tolist() == [4] * N


def test_the_memory_is_there_as_long_as_the_tensor(used_bytes, let_go):
    gc.collect()
    before = used_bytes()
    x = ac.zeros(1 << 16, np.uint8).sync(60)
    tensor = tvm_ffi.from_dlpack(x)
    x.close()
    del x
    assert used_bytes() >= before + (1 << 16)
    assert tensor.data_ptr()
    del tensor
    assert let_go(lambda: used_bytes() <= before)


def fill(tensor: Any, value: int) -> Any:
    stream = tvm_ffi.get_raw_stream(tensor.device)
    (error,) = driver.cuMemsetD32Async(tensor.data_ptr(), value, N, stream)
    assert not error
    return tensor


def test_its_functions_work_on_the_default_stream_and_what_they_return_is_an_array(latch, kernels, device):
    x, stream, seen = full(3), device.stream(), []

    def work(tensor: Any) -> Any:
        seen.append(tvm_ffi.get_raw_stream(tensor.device))
        return tensor

    latch.hold(stream)
    kernels.increment(x, N, threads=N).on(stream).submit()
    returned = tvm_ffi.convert(work)(x)
    assert driver.cuStreamQuery(LEGACY)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    latch.release()
    assert seen == [int(LEGACY)]
    assert (type(returned), returned.address) == (ac.DeviceArray, x.address)
    assert ac.to_host(returned).sync(60).tolist() == [4] * N


def test_its_functions_are_operations_on_the_streams_of_operations(run: Callable[..., Any], device):
    """The stream comes along with an array, also after page-locked memory."""
    seen = []

    @tvm_ffi.convert
    def work(_: Any, tensor: Any, value: int) -> Any:
        seen.append(tvm_ffi.get_raw_stream(tensor.device))
        return fill(tensor, value)

    async def main() -> None:
        stream, x, y = device.stream(), full(3), await ac.empty_host(N, np.int32)
        written = ac.call(lambda _, *given: work(*given), y, x, 7, writes=[x, y]).on(stream)
        assert (await ac.to_host(written)).tolist() == [7] * N
        assert seen == [stream.handle]

    run(main)


def test_its_functions_get_memory_of_aiocuda(used_bytes, let_go):
    library = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
    gc.collect()
    before = used_bytes()
    x, found = full(3), []

    @tvm_ffi.convert
    def work(_: Any) -> None:
        made = ctypes.c_void_p()
        shape = (ctypes.c_int64 * 1)(1 << 16)
        like = DLTensor(None, Device(CUDA, 0), 1, DataType(0, 32, 1), shape, None, 0)
        assert library.TVMFFIEnvTensorAlloc(ctypes.byref(like), ctypes.byref(made)) == 0
        found.append(made)

    ac.call(lambda _, array: work(array), x, reads=[x]).sync(60)
    assert used_bytes() >= before + (1 << 18)
    assert library.TVMFFIObjectDecRef(found[0]) == 0
    del x
    assert let_go(lambda: used_bytes() <= before)


def test_its_functions_are_captured_in_graphs(device):
    x = full(3)
    work = tvm_ffi.convert(fill)
    graph = ac.call(lambda _, array: work(array, 7), x, writes=[x]).graph()
    assert ac.to_host(x).sync(60).tolist() == [3] * N
    assert graph.launch().sync(60).address == x.address
    assert ac.to_host(x).sync(60).tolist() == [7] * N
