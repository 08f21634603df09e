"""explain(costs=True) says what each step moves, and how long the device needs for that at least."""

from __future__ import annotations

import re

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._driver import runtime

N = 1 << 20
SIZE = 4 * N


def moved(op: ac.DeviceOp) -> list[tuple[str, list[str]]]:
    """Of each step: its first word, and the bytes that it reads and writes."""
    steps = [each for each in op.explain(costs=True).splitlines() if not each.lstrip().startswith(("device", "estim"))]
    return [
        (re.search(r"(?:stream \d+|host) +(\w+)", step)[1], re.findall(r"\d+ B (?:read|written)", step))
        for step in steps
    ]


def test_kernels_read_and_write_their_arrays_once(kernels):
    x, y = (ac.full(N, 1, np.int32).sync() for _ in range(2))
    assert moved(kernels.accumulate(1, x, y, N, threads=N)) == [("launch", [f"{SIZE} B read", f"{SIZE} B written"])]
    assert moved(kernels.increment(x, N, threads=N)) == [("launch", [f"{SIZE} B written"])]


def test_an_array_that_is_named_twice_counts_once():
    x = ac.full(N, 1, np.int32).sync()
    op = ac.call(lambda stream, x, half: None, x, x[: N // 2], reads=[x, x[: N // 2]])
    assert moved(op) == [("call", [f"{SIZE} B read"])]


def test_memory_that_is_not_filled_moves_nothing():
    assert moved(ac.empty(N, np.int32)) == [("allocate", [])]
    assert moved(ac.zeros(N, np.int32)) == [("allocate", [f"{SIZE} B written"])]
    assert moved(ac.fill(ac.empty(N, np.int32).sync(), 1)) == [("fill", [f"{SIZE} B written"])]


@pytest.mark.parametrize("times", [1, 3])
def test_times_are_bytes_over_the_rates_that_the_text_names(times, monkeypatch):
    real = runtime.device_attribute
    rates = {"MEMORY_CLOCK_RATE": 1_000_000 * times, "GLOBAL_MEMORY_BUS_WIDTH": 4096}  # 1024 GB/s, times
    monkeypatch.setattr(runtime, "device_attribute", lambda device, name: rates.get(name) or real(device, name))
    text = ac.zeros(2560 * 10**5, np.int32).explain(costs=True)  # 1.024 GB
    time = {1: "1 ms", 3: "333 µs"}[times]
    assert f"1024000000 B written, at least {time}" in text
    assert f"device 0: 1024000000 B in its memory, at least {time}" in text
    assert f"estimated with {1024 * times} GB/s for its memory" in text


def test_copies_to_and_from_a_device_are_counted_on_their_own():
    x = ac.zeros(25 * 10**6, np.int32).sync()
    lines = ac.to_host(ac.dup(x)).explain(costs=True).splitlines()
    assert any("100000000 B read, 100000000 B written, about 4 ms" in line for line in lines)
    assert re.search(
        r"^device 0: 200000000 B in its memory, at least .*; 100000000 B to or from it, about 4 ms", lines[-2]
    )
    assert "25 GB/s for copies to and from it (assumed: PCIe 4.0, 16 lanes)" in lines[-1]


def test_an_emulated_device_is_said_to_be_one(device):
    assert ("nominal: the device is emulated" in ac.zeros(8).explain(costs=True)) == device.is_emulated


def test_steps_on_the_host_cost_the_device_nothing():
    op = ac.value(1).then(lambda _: 2).map(lambda _: 3)
    assert op.explain(costs=True) == op.explain()


def test_without_costs_nothing_is_said_of_them():
    assert " B " not in ac.zeros(8).explain()
