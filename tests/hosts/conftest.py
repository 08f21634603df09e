"""Two hosts with a node of Ray each, and a program on the near one that has a worker on both."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aiocuda as ac

sys.path.insert(0, str(Path(__file__).parent))
from two_hosts import TwoHosts, why_not

ANSWERS_WITHIN_S, BEGINS_WITHIN_S, LONGEST_S = 2.0, 10.0, 60.0

SETTINGS = {
    "AIOCUDA_DRIVER": "emulated",
    "AIOCUDA_EMULATED_DEVICES": "1",
    "RAY_AUTH_MODE": "disabled",  # else it depends on whether this user has had a Ray before; nobody else comes here
    # A host that is cut off is gone for Ray after some 15 s: later than for aiocuda, and sooner than by default.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
}


class Program:
    """Has functions called by the program, each with its cluster, and with what can be asked of the hosts."""

    def __init__(self, hosts: TwoHosts) -> None:
        self.hosts = hosts
        self.begin()

    def begin(self) -> None:
        arguments = [self.hosts.ray_address, *map(str, (ANSWERS_WITHIN_S, BEGINS_WITHIN_S, LONGEST_S))]
        program = str(Path(__file__).with_name("program.py"))
        self._process = self.hosts.near.open(sys.executable, program, *arguments)
        self._end()

    def run(self, function: Callable[[Any, Any], Any]) -> Any:
        """Have an async function called; return its result."""
        from ray import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])  # the program cannot import tests
        self._say(cloudpickle.dumps((function,)))
        return self._end()

    def end(self) -> None:
        """Have the cluster's block end, and the program with it."""
        self._process.stdin.close()
        assert self._process.wait(timeout=LONGEST_S) == 0
        self._process.stdout.close()

    def _say(self, pickled: bytes) -> None:
        self._process.stdin.write(pickled)
        self._process.stdin.flush()

    def _end(self) -> Any:
        """Do what is asked for, until the end of what was asked for here."""
        while True:
            match pickle.load(self._process.stdout):
                case "do", name, arguments:
                    try:
                        done = "", getattr(self.hosts, name)(*arguments)
                    except (AssertionError, OSError, subprocess.SubprocessError) as error:
                        done = f"{name}: {error}", None
                    self._say(pickle.dumps(done))
                case "done", result:
                    return result
                case "failed", words:
                    pytest.fail(words, pytrace=False)


@pytest.fixture(scope="module")
def _program() -> Iterator[Program]:
    pytest.importorskip("ray")
    pytest.importorskip("nccl.bindings")
    if not ac.Device(0).is_emulated:
        pytest.skip("the hosts of this machine would share its GPUs, which NCCL refuses")
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
