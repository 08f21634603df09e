"""The example whose gradients a local group adds up."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import aiocuda as ac
from aiocuda.collective import Group

pytest.importorskip("nccl.bindings")
pytestmark = pytest.mark.needs_devices(2)

EXAMPLE = Path(__file__).parents[2] / "examples" / "data_parallel" / "one_process.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    spec = importlib.util.spec_from_file_location("one_process", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_local_group_ends_with_the_weights_of_copies_bit_for_bit(example, monkeypatch):
    calls: list[int] = []
    all_reduce = Group.all_reduce
    monkeypatch.setattr(Group, "all_reduce", lambda self, x: calls.append(len(x[0])) or all_reduce(self, x))
    right, difference = asyncio.run(example.compare(ac.devices()[:2], 2))
    assert difference == 0.0
    assert right > 0.7
    assert calls == [4] * (2 * 11)  # all gradients of a step in one call
