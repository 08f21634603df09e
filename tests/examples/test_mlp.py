"""The demo: a local group adds up the gradients of several devices, and one device needs neither group nor NCCL."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda.collective import Group

pytest.importorskip("rich")
import mlp

pytestmark = pytest.mark.needs_devices(2)


@pytest.fixture
def two() -> list[ac.Device]:
    return list(ac.devices()[:2])


class ByCopies(mlp.Network):
    """Adds up on the first device what the others copy there: what a group's sums are held against."""

    def summed(self, parts: Any) -> Any:
        first, *others = parts
        totals = [
            ac.algorithms.transform("a + b", a=a, b=b.to(self.devices[0]))
            for other in others
            for a, b in zip(first, other, strict=True)
        ]
        return list(zip(*[ac.replicate(total, self.devices) for total in totals], strict=True))


async def trained(network: Any, devices: list[ac.Device], epochs: int) -> list[list[np.ndarray[Any, Any]]]:
    """Return the weights of each device."""
    training, _, values, rng = mlp.prepare()
    await network.start(devices, values)
    batches = await mlp.allocate(len(training[1]) // mlp.BATCH)
    for _ in range(epochs):
        mlp.shuffle(batches, *training, rng)
        async for _ in network.epoch(batches):
            pass
    return [list(await ac.zip(*[ac.to_host(each) for each in mine])) for mine in network.weights]


def test_a_group_ends_with_the_weights_of_copies_bit_for_bit(two: list[ac.Device], monkeypatch: pytest.MonkeyPatch):
    """Two addends make the same sum in any order. All gradients of a step go out in one call."""
    pytest.importorskip("nccl.bindings")
    calls: list[int] = []
    all_reduce = Group.all_reduce
    monkeypatch.setattr(Group, "all_reduce", lambda self, x: calls.append(len(x[0])) or all_reduce(self, x))
    with Group.local(two) as group:
        by_group = asyncio.run(trained(mlp.Network(group), two, 2))
    assert calls == [len(mlp.SHAPES)] * (2 * 11)
    by_copies = asyncio.run(trained(ByCopies(), two, 2))
    for mine, expected in zip(by_group, by_copies, strict=True):
        assert [np.array_equal(a, b) for a, b in zip(mine, expected, strict=True)] == [True] * len(mlp.SHAPES)


def shown(printed: str) -> dict[str, str]:
    """The demo's figures by their names."""
    return dict(line.split("  ", 1) for line in printed.splitlines() if "  " in line and "loss" not in line)


def test_it_trains_on_all_devices(two: list[ac.Device], capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("nccl.bindings")
    assert mlp.run_demo(["--epochs", "8"]) == 0
    printed = capsys.readouterr().out
    assert f" {len(ac.devices())} x " in shown(printed)["driver"]
    assert "one device" not in printed


def without_nccl4py(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo in a process that cannot import nccl4py."""
    program = f"import sys; sys.modules['nccl'] = None; import mlp; raise SystemExit(mlp.run_demo({list(arguments)}))"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(mlp.__file__).parent), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_nccl4py_it_trains_on_one_device_and_says_why(two: list[ac.Device]):
    done = without_nccl4py("--epochs", "8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"trains on one device of {len(ac.devices())}: collectives need nccl4py" in done.stdout
    assert 'pip install "aiocuda[nccl]"' in done.stdout
    assert " 1 x " in shown(done.stdout)["driver"]


def test_without_nccl4py_one_device_that_was_asked_for_is_no_matter(two: list[ac.Device]):
    done = without_nccl4py("--epochs", "8", "--devices", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nccl" not in done.stdout


def test_without_nccl4py_two_devices_that_were_asked_for_are_an_error(two: list[ac.Device]):
    done = without_nccl4py("--devices", "2")
    assert done.returncode == 1
    assert done.stderr.startswith("aiocuda demo: collectives need nccl4py ")
    assert done.stderr.endswith(': pip install "aiocuda[nccl]"\n')
