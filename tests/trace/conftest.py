"""A browser for the pages, and programs that are traced."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aiocuda as ac

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")  # while it lives, an event loop of its own runs in this thread
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        own = Path(running.chromium.executable_path)
        system = next(filter(None, map(shutil.which, BROWSERS)), None)
        if not own.exists() and system is None:
            pytest.skip("there is no Chromium here, and make .venv/.stamps/browser could not install one")
        opened = running.chromium.launch(
            executable_path=None if own.exists() else system,
            args=["--no-sandbox"],  # a container has no namespaces of users
        )
        yield opened
        opened.close()


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
