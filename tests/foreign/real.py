"""Frameworks themselves, where they are installed and there is a GPU."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import aiocuda as ac


def imported(name: str) -> Any:
    """Import a framework that needs a GPU, or skip the module that asks."""
    if ac.Device(0).is_emulated:
        pytest.skip("needs a GPU", allow_module_level=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


# What frameworks warn of is their own.
QUIET = pytest.mark.filterwarnings("ignore")
