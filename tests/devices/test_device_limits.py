"""Limits and cache preferences of devices' contexts: what is read, what is refused and why.

Always true: every limit is as it was when a test has ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda._driver import runtime

# Limits whose change takes no memory worth mentioning, in steps that every device takes.
HARMLESS = {"stack_bytes": (1024, 4096), "l2_fetch_bytes": (0, 128)}


@pytest.fixture(autouse=True)
def restored(device: ac.Device) -> Iterator[None]:
    before, preferred = device.limits(), device.cache_preference
    yield
    after = dataclasses.asdict(device.limits())
    changed = {name: value for name, value in dataclasses.asdict(before).items() if after[name] != value}
    if changed:
        device.set_limits(**changed)
    device.set_cache_preference(preferred)


def test_every_device_has_limits_of_memory(device):
    found = device.limits()
    assert found.stack_bytes >= 512
    assert found.printf_bytes >= 1 << 16
    assert found.heap_bytes >= 1 << 20
    assert found.l2_fetch_bytes is None or 0 <= found.l2_fetch_bytes <= 128


def test_what_is_set_is_what_the_driver_has(device):
    from cuda.bindings import driver

    before = device.limits()
    told = device.set_limits(stack_bytes=before.stack_bytes + 2048)
    assert told.stack_bytes >= before.stack_bytes + 2048  # the driver may round it up
    with runtime.context_of(0):
        assert driver.cuCtxGetLimit(driver.CUlimit.CU_LIMIT_STACK_SIZE) == (0, told.stack_bytes)
    assert device.limits() == told
    assert dataclasses.replace(told, stack_bytes=before.stack_bytes) == before  # and nothing else has changed


def test_nothing_is_set_where_nothing_is_asked(device):
    assert device.set_limits() == device.limits()


@pytest.mark.needs_devices(2)
def test_each_device_has_its_own(device):
    other = ac.Device(1)
    before = other.limits(), other.cache_preference
    device.set_limits(stack_bytes=device.limits().stack_bytes + 1024)
    device.set_cache_preference("l1")
    assert (other.limits(), other.cache_preference) == before


def test_the_threads_current_context_stays(device):
    from cuda.bindings import driver

    _, before = driver.cuCtxGetCurrent()
    driver.cuCtxSetCurrent(driver.CUcontext(0))
    try:
        device.limits()
        device.set_limits(stack_bytes=2048)
        device.set_cache_preference("shared")
        assert int(driver.cuCtxGetCurrent()[1]) == 0
    finally:
        driver.cuCtxSetCurrent(before)


@pytest.mark.parametrize("wrong", [-1, 1.5, "4096", True, 2**64])
def test_what_is_no_size_is_refused(device, wrong):
    before = device.limits()
    with pytest.raises(ac.ArgumentValueError, match=r"heap_bytes is .*was given"):
        device.set_limits(stack_bytes=4096, heap_bytes=wrong)
    assert device.limits() == before  # found before anything was set


def test_an_unknown_limit_is_refused(device):
    with pytest.raises(TypeError, match="stack_size"):
        device.set_limits(stack_size=4096)


@pytest.mark.driver_refuses("cuCtxSetLimit")
def test_a_limit_that_the_device_has_not(device):
    missing = [name for name, value in dataclasses.asdict(device.limits()).items() if value is None]
    assert "sync_depth" in missing or not device.is_emulated
    for name in missing:
        with pytest.raises(
            ac.ArgumentValueError, match=rf"{name}=4 .*device 0: .*it has stack_bytes, printf_bytes"
        ) as raised:
            device.set_limits(**{name: 4})
        assert raised.value.__cause__.name == "CUDA_ERROR_UNSUPPORTED_LIMIT"


@pytest.mark.emulated_only
def test_a_value_that_the_driver_refuses(device):
    """Others may take the nearest value that they can have."""
    with pytest.raises(ac.ArgumentValueError, match=r"l2_fetch_bytes=129 .*device 0: it goes from 0 to 128") as raised:
        device.set_limits(l2_fetch_bytes=129)
    assert raised.value.__cause__.name == "CUDA_ERROR_INVALID_VALUE"
    with pytest.raises(ac.ArgumentValueError, match=r"stack_bytes=\d+ .*more than a thread can have"):
        device.set_limits(stack_bytes=1 << 20)


def test_a_heap_in_use_stays_as_it_is_or_says_so(in_process):
    done = in_process(
        """
        import numpy as np
        import aiocuda as ac
        kernel = ac.kernel('extern "C" __global__ void k(int* x) { int* y = new int(7); *x = *y; delete y; }')
        device = ac.Device(0)
        before = device.set_limits(heap_bytes=16 << 20).heap_bytes
        assert before >= 16 << 20, before
        assert ac.to_host(kernel(ac.zeros(1, np.int32), grid=1, block=1)).sync()[0] == 7
        try:
            after = device.set_limits(heap_bytes=32 << 20).heap_bytes
        except ac.ArgumentValueError as error:
            assert "before the first such launch" in str(error), error
            assert device.limits().heap_bytes == before
        else:
            assert after >= 32 << 20, after
        print("done")
        """
    )
    assert done.stdout == "done\n", done.stderr


@pytest.mark.emulated_only
def test_a_lost_device_says_so(in_process):
    done = in_process(
        """
        import numpy as np
        import aiocuda as ac
        kernel = ac.kernel('extern "C" __global__ void k(int* x) { *(int*)16 = 1; }')
        try:
            kernel(ac.zeros(1, np.int32), grid=1, block=1).sync()
        except ac.DeviceLostError:
            pass
        else:
            raise AssertionError("the device is not lost")
        device = ac.Device(0)
        for ask in (
            device.limits,
            lambda: device.set_limits(stack_bytes=4096),
            lambda: device.cache_preference,
            lambda: device.set_cache_preference("l1"),
        ):
            try:
                ask()
            except ac.DeviceLostError as error:
                print(error.operation)
        """
    )
    assert done.stdout.splitlines() == [
        "asking for the limits of device 0",
        "setting stack_bytes of device 0 to 4096",
        "asking for the cache preference of device 0",
        "setting the cache preference of device 0",
    ], done.stderr


def test_kernels_run_with_every_cache_preference(device, kernels):
    for cache in ("shared", "l1", "equal", "default"):
        device.set_cache_preference(cache)
        assert device.cache_preference == cache
        assert ac.to_host(kernels.increment(ac.zeros(8, np.int32), 8, threads=8)).sync().tolist() == [1] * 8


@given(st.dictionaries(st.sampled_from(sorted(HARMLESS)), st.integers(0, 16)))
def test_settings_are_read_back_and_change_nothing_else(asked: dict[str, Any]):
    device = ac.Device(0)
    before = dataclasses.asdict(device.limits())
    wanted = {}
    for name, step in asked.items():
        if before[name] is None:
            continue
        least, most = HARMLESS[name]
        wanted[name] = least + (most - least) * step // 16
    told = device.set_limits(**wanted)
    assert told == device.limits()
    if device.is_emulated:
        assert dataclasses.asdict(told) == before | wanted
    assert {name: value for name, value in dataclasses.asdict(told).items() if name not in wanted} == {
        name: value for name, value in before.items() if name not in wanted
    }
