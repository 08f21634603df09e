"""Runs selections in processes of their own: a process keeps its driver for good."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

# The package is made, not run: the selection alone is under test, before anything else of aiocuda.
PRELUDE = """
import ctypes, importlib.util, json, os, sys, threading, warnings
spec = importlib.util.find_spec("aiocuda")
sys.modules["aiocuda"] = importlib.util.module_from_spec(spec)
from aiocuda import errors
from aiocuda._driver import choosing, select as selection
choosing._DEVICE_NODES = tuple(json.loads(os.environ["TEST_NODES"]))

def loaded(name):
    return [line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith(name)]

def report(**values):
    print(json.dumps(values))
"""


@dataclass(frozen=True)
class Outcome:
    """The output of a process that selected a driver."""

    values: dict[str, Any]
    stderr: str


class Selection:
    """A machine as the selection sees it: device nodes, a libcuda.so.1, the environment."""

    def __init__(self, library_directory: Path, node: Path) -> None:
        self.library_directory = library_directory
        self.node = node

    @property
    def library(self) -> Path:
        return self.library_directory / "libcuda.so.1"

    def run(self, script: str, *, has_node: bool = True, **environment: object) -> Outcome:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AIOCUDA_", "FAKE_", "CUDA_VISIBLE", "PYTHONWARNINGS"))
        }
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + script],
            env={
                **inherited,
                "LD_LIBRARY_PATH": str(self.library_directory),
                "TEST_NODES": json.dumps([str(self.node)] if has_node else ["/dev/no-such-node"]),
                **{name: str(value) for name, value in environment.items()},
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return Outcome(json.loads(done.stdout), done.stderr)


@pytest.fixture(scope="session")
def fake_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of stand-ins for NVIDIA's libcuda.so.1 and libnvrtc.so.13."""
    candidates = (os.environ.get("CXX", "c++"), "g++", "clang++")
    compiler = next(filter(None, map(shutil.which, candidates)), None)
    assert compiler, "a C++ compiler is needed to make the stand-in for NVIDIA's driver"
    directory = tmp_path_factory.mktemp("fake")
    for soname in ("libcuda.so.1", "libnvrtc.so.13"):
        options = ["-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", str(directory / soname)]
        subprocess.run([compiler, *options, str(HERE / "fake_driver.cpp")], check=True)
    return directory


@pytest.fixture
def machine(fake_libraries: Path, tmp_path: Path) -> Selection:
    """A machine with a device node and a libcuda.so.1 that answers as told."""
    node = tmp_path / "nvidiactl"
    node.touch()
    directory = tmp_path / "lib"
    directory.mkdir()
    shutil.copy(fake_libraries / "libcuda.so.1", directory)
    return Selection(directory, node)
