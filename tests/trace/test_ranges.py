"""Ranges for Nsight: one for each await, also where awaits end in another order than they began."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import aiocuda as ac

N = 64


class FakeNvtx(SimpleNamespace):
    """Notes what is started and ended."""

    def __init__(self) -> None:
        super().__init__(told=[])

    def start_range(self, message: str, domain: str) -> int:
        self.told.append(("start", message, domain))
        return len(self.told)

    def end_range(self, started: int) -> None:
        self.told.append(("end", self.told[started - 1][1]))


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> FakeNvtx:
    made = FakeNvtx()
    monkeypatch.setitem(sys.modules, "nvtx", made)  # type: ignore[misc]
    return made


def test_an_await_is_a_range(nvtx: FakeNvtx, run: Callable[..., Any], tmp_path: Path) -> None:
    async def program() -> None:
        await ac.ones(N)

    with ac.trace("ranges", output=tmp_path, report=False, nvtx=True):
        run(program)
    assert nvtx.told == [("start", "the creation of an array", "aiocuda"), ("end", "the creation of an array")]


def test_ranges_end_in_any_order_and_with_the_trace(
    nvtx: FakeNvtx, run_asyncio: Callable[..., Any], latch: Any, kernels: Any, tmp_path: Path
) -> None:
    stream = ac.Device(0).stream()
    x = ac.ones(N).sync()
    latch.hold(stream)

    async def program() -> None:
        held = asyncio.ensure_future(kernels.scale(1.0, x, x, N, threads=N).on(stream))
        await asyncio.sleep(0)
        with ac.trace("inner", output=tmp_path, report=False, nvtx=True):
            slow = asyncio.ensure_future(kernels.scale(1.0, x, x, N, threads=N).on(stream))
            await asyncio.sleep(0)
            await ac.ones(N).on(ac.Device(0).stream())
            told = list(nvtx.told)
            latch.release()
        await slow
        await held
        launch, creation = "the launch of scale", "the creation of an array"
        assert told == [("start", launch, "aiocuda"), ("start", creation, "aiocuda"), ("end", creation)]
        assert nvtx.told[3:] == [("end", launch)]

    run_asyncio(program)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)  # type: ignore[arg-type]
    with pytest.raises(ac.MissingPackageError, match="pip install nvtx"):
        ac.trace("ranges", output=tmp_path, nvtx=True).__enter__()
    with ac.trace("ranges", output=tmp_path, report=False):  # nothing is being recorded
        pass
