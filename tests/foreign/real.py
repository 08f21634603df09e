"""Frameworks themselves, where they are installed."""

from __future__ import annotations

import warnings
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


# What frameworks warn of is their own.
QUIET = pytest.mark.filterwarnings("ignore")
