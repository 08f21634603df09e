"""Tests import the parts of random programs by name, and look at the operations of an execution."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import aiocuda as ac

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[ac.DeviceOp[Any]], Sequence[Any]]:
    """Execute an operation, and return the operations that this submits, as a trace has them."""

    def operations_of(op: ac.DeviceOp[Any]) -> Sequence[Any]:
        with ac.trace("test", output=tmp_path, report=False) as trace:
            op.sync(60)
        return trace.result.operations

    return operations_of
