"""Programs of several ranks: a process and a device for each, emulated or not as in this process.

NCCL refuses two ranks of one host that share a GPU. So where there are fewer GPUs than ranks, each rank has a host of
its own, as NCCL believes, and they go by the network: a call takes milliseconds then, as the GPU turns to one process
after the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiocuda as ac

HEAD = """
import asyncio, json, os, pathlib, random, signal, sys, time
rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
import numpy as np
import aiocuda as ac
from aiocuda.collective import Group, unique_id

def say(**what):
    print(json.dumps(what), flush=True)

def wait_for(name):  # something that another process does
    while not (folder / name).exists():
        time.sleep(0.005)

def tell(name, content=b""):
    (folder / (name + ".part")).write_bytes(content)
    (folder / (name + ".part")).rename(folder / name)

def shared(name, make):  # bytes that rank 0 makes
    if rank == 0:
        tell(name, make())
    wait_for(name)
    return (folder / name).read_bytes()

def group(timeout_s=60.0):
    return Group.init(rank, size, shared("id", unique_id), timeout_s=timeout_s)
"""


@dataclass
class Ended:
    """The end of a rank: its exit status, what it said, and what it wrote on stderr."""

    status: int
    said: list[dict[str, Any]]
    errors: str

    def __getitem__(self, key: str) -> Any:
        for each in self.said:
            if key in each:
                return each[key]
        raise AssertionError(f"nobody said {key!r}: {self}")


def device_of(rank: int, size: int) -> dict[str, str]:
    """Return the environment that gives a rank one device, its own where there are enough."""
    if ac.Device(0).is_emulated:
        return {"AIOCUDA_DRIVER": "emulated", "AIOCUDA_EMULATED_DEVICES": "1"}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(str(each.ordinal) for each in ac.devices())
    gpus = visible.split(",")
    given = {"AIOCUDA_DRIVER": "nvidia", "CUDA_VISIBLE_DEVICES": gpus[rank % len(gpus)]}
    return given if len(gpus) >= size else {**given, "NCCL_HOSTID": f"rank-{rank}", "NCCL_SOCKET_IFNAME": "lo"}


def run_ranks(
    program: str, size: int, tmp_path: Path, environment: Mapping[str, str] | None = None, timeout_s: float = 120
) -> list[Ended]:
    """Run a program as so many ranks; all must end in time."""
    folder = tmp_path / uuid.uuid4().hex
    folder.mkdir()
    path = folder / "program.py"
    path.write_text(HEAD + program, encoding="utf-8")
    processes = [
        subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(path), str(rank), str(size), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **device_of(rank, size), **(environment or {})},
        )
        for rank in range(size)
    ]
    try:
        said = [each.communicate(timeout=timeout_s) for each in processes]
    finally:
        for each in processes:
            each.kill()
    return [
        Ended(process.returncode, [json.loads(line) for line in out.splitlines()], errors)
        for process, (out, errors) in zip(processes, said, strict=True)
    ]
