"""Two hosts with a node of Ray each, and a program on the near one that has a worker on both."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aiocuda as ac

sys.path.insert(0, str(Path(__file__).parent))
from driving import SETTINGS, Program
from two_hosts import TwoHosts, why_not


@pytest.fixture(scope="module")
def _program() -> Iterator[Program]:
    pytest.importorskip("ray")
    pytest.importorskip("nccl.bindings")
    if not ac.Device(0).is_emulated:
        pytest.skip("the hosts of these tests have emulated devices")
    if reason := why_not():
        pytest.skip(reason)
    # Ray's sockets have their paths there, and those must be short.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as temporary, TwoHosts(temporary, SETTINGS) as hosts:
        hosts.start_ray("near")
        hosts.start_ray("far")
        program = Program(hosts)
        yield program
        program.end()


async def _restore(cluster: Any, outside: Any) -> None:
    outside.mend()
    for worker in cluster:
        if worker.lost:
            await cluster.restart(worker.number)


@pytest.fixture
def program(_program: Program) -> Iterator[Program]:
    """The program, whose cluster is well; workers that the test lost are restarted behind it."""
    yield _program
    _program.run(_restore)
