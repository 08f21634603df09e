"""The program on the near host, as the process of the tests has it: it is started, sent functions, and ended."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from two_hosts import TwoHosts

__all__ = ["ANSWERS_WITHIN_S", "SETTINGS", "Program"]

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
