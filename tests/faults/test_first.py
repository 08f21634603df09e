"""Only the first operation to fail is told of a lost device as its own fault, also when it is asked again."""

from __future__ import annotations

import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._engine import lost
from aiocuda.errors import DriverError

ERROR = DriverError("CUDA_ERROR_ILLEGAL_ADDRESS", 700, "an illegal memory access was encountered")


@pytest.fixture(autouse=True)
def no_device_is_lost(monkeypatch):
    monkeypatch.setattr(lost, "_first", {})


def told(operation, ready=(), asked=None, device=0, answer=ERROR):
    error = lost.error_of(operation, "here.py:1", answer, device, list(ready), "in blocks", asked)
    assert (error.operation, error.origin, error.error, error.blocks) == (operation, "here.py:1", answer, "in blocks")
    assert error.device == (f"device {device}" if device >= 0 else "")
    return error.first_operation, error.first_origin, error.is_earlier


def test_an_operation_that_is_asked_again_is_told_again_that_it_failed_itself():
    op, other = ac.ones(3), ac.ones(3)
    assert told("a fill", asked=op) == ("", "", False)
    assert told("a fill", asked=op) == ("", "", False)
    assert told("a fill", asked=other) == ("a fill", "here.py:1", True)
    assert told("a fill") == ("a fill", "here.py:1", True)


def test_of_equal_operations_on_the_device_together_each_is_told_of_its_own(device):
    stream = device.stream()
    ac.zeros(3).sync_on(stream)
    ready = [(stream._index, _native.stream_submitted(stream._index))]
    later = [(stream._index, _native.stream_submitted(stream._index) + 1)]
    assert told("a fill", ready) == ("", "", False)
    assert told("a fill", ready) == ("", "", False)
    assert told("a copy", ready) == ("a fill", "here.py:1", False)
    assert told("a copy", later) == ("a fill", "here.py:1", True)
    assert told("a fill") == ("a fill", "here.py:1", True)  # refused


def test_what_was_on_the_device_takes_the_place_of_what_was_refused(device):
    stream = device.stream()
    ac.zeros(3).sync_on(stream)
    ready = [(stream._index, _native.stream_submitted(stream._index))]
    assert told("a refused fill") == ("", "", False)
    assert told("a launch", ready) == ("", "", False)
    assert told("a refused fill") == ("a launch", "here.py:1", True)
    assert told("a copy", ready) == ("a launch", "here.py:1", False)


def test_what_is_told_of_an_unknown_device_is_the_first_with_the_same_answer():
    assert told("a fill") == ("", "", False)
    assert told("waiting", device=-2) == ("a fill", "here.py:1", True)
    other = DriverError("CUDA_ERROR_LAUNCH_FAILED", 719, "unspecified launch failure")
    assert told("waiting for another", device=-2, answer=other) == ("", "", False)
    lost._first.clear()
    assert told("waiting", device=-2) == ("", "", False)
    assert told("a fill", device=0) == ("waiting", "here.py:1", True)


@pytest.mark.parametrize("device", [0, 1])
def test_another_device_s_loss_is_told_where_the_driver_gives_its_answer_for_all(device):
    assert told("a fill", device=1 - device) == ("", "", False)
    is_own = ac.Device(0).is_emulated  # NVIDIA's driver answers for all devices of a process once one has had a fault
    assert told("a copy", device=device) == (("", "", False) if is_own else ("a fill", "here.py:1", True))


def test_an_operation_takes_the_place_of_what_was_asked_for_its_sake():
    mark = lost.error_of("a mark", "", ERROR, 0, [])
    named = lost.renamed(mark, "a fill", "here.py:1", "in blocks")
    assert (named.operation, named.origin, named.first_operation, named.blocks) == (
        "a fill",
        "here.py:1",
        "",
        "in blocks",
    )
    assert told("a copy") == ("a fill", "here.py:1", True)
    late = lost.renamed(lost.error_of("a wait", "", ERROR, 0, []), "a dup", "there.py:2")
    assert (late.operation, late.first_operation, late.is_earlier) == ("a dup", "a fill", True)
    assert told("a copy") == ("a fill", "here.py:1", True)
