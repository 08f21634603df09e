"""The examples that use a cluster, on the workers of the tests."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aiocuda.cluster import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An example as the module that the workers will import, too."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location(request.param, EXAMPLES / request.param / f"{request.param}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, request.param, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", ["data_parallel"], indirect=True)
def test_two_workers_end_with_the_weights_of_one_bit_for_bit(run_once, cluster: Cluster, example: ModuleType):
    right, difference = run_once(lambda: example.compare(cluster, 25))
    assert difference == 0.0
    assert right > 0.7


@pytest.mark.parametrize("example", ["parameter_server"], indirect=True)
def test_a_parameter_server_learns_though_nobody_waits(run_once, cluster: Cluster, example: ModuleType):
    right, ages = run_once(lambda: example.train(cluster, 60))
    assert len(ages) == 60
    assert right > 0.7


def test_requests_of_ray_serve_share_launches():
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "ray_serve" / "ray_serve.py"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "64 requests in" in done.stdout
