"""Programs that are traced."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

import aiocuda as ac


@pytest.fixture
def two_branches(kernels: Any, tmp_path: Path) -> ac.Tracing:
    """A trace of a program with two branches that meet, of one await of one task."""
    n = 1024
    x = ac.ones(n).sync()
    with ac.trace("branches", output=tmp_path, report=False) as traced:
        left = kernels.scale(2.0, x, ac.empty(n), n, threads=n)
        right = kernels.scale(3.0, x, ac.empty(n), n, threads=n)
        both = kernels.add(left, right, ac.empty(n), n, threads=n)
        assert ac.to_host(both).sync()[0] == 5.0
    with contextlib.suppress(FileNotFoundError):
        assert traced.page_path.stat().st_size
    return traced
