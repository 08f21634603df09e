"""Frameworks themselves, where they are installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiocuda as ac

NEEDS_GPU = pytest.mark.skipif(ac.Device(0).is_emulated, reason="its kernels run on a GPU alone")


def imported(name: str, *, needs_gpu: bool = True) -> Any:
    """Import a framework, or skip the module that asks."""
    if needs_gpu and ac.Device(0).is_emulated:
        pytest.skip("needs a GPU", allow_module_level=True)
    if name.startswith("numba") and not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # noqa: NPY201 - some numba-cuda ask for it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def check_order(
    launch: Callable[[], Any], x: Any, y: Any, expected: float, latch: Any, device: Any, settle: Any
) -> None:
    """Check that a launch, which reads `x` and writes `y`, comes after the one write of `x` and before the next."""
    held = device.stream()
    launch().sync(60)  # it is compiled by now
    latch.hold(held)
    ac.fill(x, 7).on(held).submit()
    future = launch().on(device.stream()).submit()
    read = ac.dup(y).on(device.stream())
    pending = read.submit()
    ac.fill(x, 50).on(device.stream()).submit()
    settle()
    assert [future.done(), pending.done()] == [False, False]
    latch.release()
    for array, value in ((read, expected), (x, 50)):
        assert (ac.to_host(array).sync_on(ac.Device(0).stream(), 60) == value).all()


# What frameworks warn of is their own.
QUIET = pytest.mark.filterwarnings("ignore")
