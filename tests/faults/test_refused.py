"""A refusal of the driver becomes an error that says what was asked, for which operation, and what to do."""

from __future__ import annotations

import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._engine import faults, lost
from aiocuda.errors import DriverError

FATAL = [4, 46, 214, 220, 226, 700, 702, 708, 709, 710, 714, 715, 716, 717, 718, 719, 721, 911, 999]
CONFIGURATION = {1: "shared memory size", 98: "function", 701: "too many threads", 720: "cooperative", 912: "cluster"}


@pytest.fixture(autouse=True)
def no_device_is_lost(monkeypatch, device):
    monkeypatch.setattr(lost, "_first", {})


@pytest.fixture
def op():
    """An operation, and where it was built."""
    return ac.ones(3)


def place_of(op):
    return f"{op._origin[0]}:{op._origin[1]}"


@pytest.mark.parametrize("code", FATAL)
def test_an_answer_after_which_a_context_does_nothing_more_is_a_lost_device(op, code):
    error = faults.refused(code, "cuMemcpyAsync", op, 0, 0)
    assert type(error) is ac.DeviceLostError
    assert (error.operation, error.origin, error.device) == ("the creation of an array", place_of(op), "device 0")
    assert error.error.code == code
    assert faults.refused(code, "cuMemcpyAsync", "counting", 0, 0).first_operation == "the creation of an array"


@pytest.mark.parametrize("code", range(900, 909))
def test_an_answer_about_a_capture_is_no_lost_device(op, code):
    for error in (faults.refused(code, "cuMemcpyAsync", op, 0, 0), faults.lost(code, op), faults.lost(code, op, 0)):
        assert type(error) is ac.CaptureError
        assert f"the creation of an array (built at {place_of(op)}): a stream that it needs is being captured" in str(
            error
        )
        assert error.__cause__.code == code
    assert str(faults.lost(code, "counting")).startswith("counting: a stream that it needs is being captured")
    assert not lost._first


@pytest.mark.parametrize("code", [0, 3, 5, 45, 47, 201, 400, 703, 722, 899, 909, 910, 1000])
def test_any_other_answer_is_a_driver_s_error_that_names_what_was_asked(op, code):
    error = faults.refused(code, "cuMemcpyAsync", op, 0, 0)
    assert type(error) is DriverError
    assert (error.code, error.asked) == (code, f"the creation of an array (built at {place_of(op)}), cuMemcpyAsync")
    assert faults.refused(code, "cuMemcpyAsync", "counting", 0, 0).asked == "counting, cuMemcpyAsync"


@pytest.mark.parametrize("code", CONFIGURATION)
def test_what_a_launch_is_refused_for_its_configuration_says_so(op, code):
    for function in ("cuLaunchKernel", "cuLaunchKernelEx"):
        error = faults.refused(code, function, op, 0, 0)
        assert type(error) is ac.LaunchError
        assert f"{function}: " in str(error)
        assert f"the launch asks for {faults._CONFIGURATION[code]}" in str(error)
        assert CONFIGURATION[code] in str(error)
        assert error.__cause__.code == code
    assert type(faults.refused(code, "cuMemcpyAsync", op, 0, 0)) is DriverError
    assert type(faults.refused(3, "cuLaunchKernel", op, 0, 0)) is DriverError


def test_no_memory_is_told_by_what_had_none(op):
    for function in ("cuMemAllocFromPoolAsync", "cuMemAlloc", "cuMemHostAlloc"):
        error = faults.refused(2, function, op, 1 << 50, 0)
        assert type(error) is ac.OutOfMemoryError
        assert (error.asked_bytes, error.device, error.is_limit) == (1 << 50, "device 0", False)
    assert faults.refused(2, "cuMemHostAlloc", op, 5, -1).device == "page-locked host memory"
    assert faults.refused(2, "cuMemAllocManaged", op, 5, 0).device == "managed memory of device 0"
    assert type(faults.refused(2, "cuStreamCreate", op, 0, 0)) is DriverError
    assert type(faults.refused(3, "cuMemAlloc", op, 5, 0)) is DriverError
    assert type(faults.refused(3, "cuMemAllocManaged", op, 5, 0)) is DriverError


def test_an_error_names_the_operation_for_whose_sake_something_was_asked(op):
    mark = lost.error_of("a mark", "", DriverError("CUDA_ERROR_ILLEGAL_ADDRESS", 700, "an access"), 0, [])
    named = faults.named(mark, op)
    assert (named.operation, named.origin) == ("the creation of an array", place_of(op))
    assert faults.named(named, ac.zeros(3)) is named  # it has an operation already
    other = ZeroDivisionError()
    assert faults.named(other, op) is other


def test_what_is_refused_inside_is_raised_as_what_was_asked(op):
    refusal = DriverError("CUDA_ERROR_INVALID_VALUE", 1, "invalid argument", "cuMemcpyAsync")
    with (
        pytest.raises(DriverError, match=r"^counting, cuMemcpyAsync: CUDA_ERROR_INVALID_VALUE \(1\)"),
        faults.raised_as("counting", 0),
    ):
        raise refusal
    mark = lost.error_of("a mark", "", DriverError("CUDA_ERROR_ILLEGAL_ADDRESS", 700, "an access"), 0, [])
    with (
        pytest.raises(ac.DeviceLostError, match=r"^the creation of an array \(built at .*\) did not complete"),
        faults.raised_as(op, 0),
    ):
        raise mark
    named = faults.named(mark, op)
    with pytest.raises(ac.DeviceLostError, match="the creation of an array") as raised, faults.raised_as("counting", 0):
        raise named
    assert raised.value is named
    with faults.raised_as("counting", 0):
        pass


def test_what_the_driver_does_not_support_says_what_to_do_instead():
    for code, instead in ((801, "operation not supported; take another"), (1, "operation not supported")):
        error = DriverError("CUDA_ERROR", code, "operation not supported", "cuGraphClone")
        with (
            pytest.raises(DriverError, match=rf"^cuGraphClone: CUDA_ERROR \({code}\): {instead}$"),
            faults.told_what_instead("take another"),
        ):
            raise error
    with faults.told_what_instead("take another"):
        pass


def test_a_device_is_found_by_what_was_submitted(device):
    op = ac.zeros(3).on(device.stream())
    op.submit()
    assert op._state == "submitted"
    error = faults.lost(700, op)
    assert (error.device, error.is_earlier) == (f"device {device.ordinal}", False)
    assert faults.lost(700, ac.ones(3)).is_earlier
    assert faults.lost(700, "counting", device.ordinal).first_operation == "the creation of an array"
    op.sync()


def test_over_a_limit_says_what_the_limit_leaves():
    held = ac.zeros(100).sync()
    used, _ = _native.memory(0)
    error = faults.over_limit(10, 0, used + 3)
    assert (error.asked_bytes, error.free_bytes, error.total_bytes, error.is_limit) == (10, 3, used + 3, True)
    assert faults.over_limit(10, 0, 1).free_bytes == 0
    del held


def test_over_is_told_by_its_reason(monkeypatch):
    monkeypatch.setattr(_native, "forked_from", lambda: 12)
    error = faults.over()
    assert isinstance(error, ac.ForkedProcessError)
    assert error.parent_pid == 12
    monkeypatch.setattr(_native, "forked_from", lambda: 0)
    error = faults.over()
    assert isinstance(error, ac.ClosedError)
    assert "the interpreter is ending" in str(error)
