"""Tensors of apache-tvm-ffi: a real library that borrows arrays, and lends its own, without naming a stream."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiocuda as ac

ac.devices()  # chooses the driver, before anything of cuda.* is imported

from cuda.bindings import driver  # noqa: E402

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
    assert str(tensor.device) == "cuda_host:0"
    assert tensor.data_ptr() == x.address


def test_a_shared_array_is_refused_as_the_borrower_knows_no_read_only():
    with pytest.raises(ac.ExchangeError, match="lent for reading"):
        tvm_ffi.from_dlpack(full(3).share())


def test_the_default_stream_waits_for_what_is_going_on_with_it(latch, kernels, device):
    """It names no stream, so its work is on the default one."""
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


def test_its_functions_are_operations_on_the_streams_of_operations(run: Callable[..., Any], device):
    seen = []

    @tvm_ffi.convert
    def work(tensor: Any, value: int) -> None:
        stream = tvm_ffi.get_raw_stream(tensor.device)
        seen.append(stream)
        (error,) = driver.cuMemsetD32Async(tensor.data_ptr(), value, N, stream)
        assert not error

    def call(stream: ac.Stream, x: ac.DeviceArray, value: int) -> None:
        with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", device.ordinal), stream.handle):
            work(x, value)

    async def main() -> None:
        stream, x = device.stream(), full(3)
        written = ac.call(call, x, 7, writes=[x]).on(stream)
        assert (await ac.to_host(written)).tolist() == [7] * N
        assert seen == [stream.handle]

    run(main)
