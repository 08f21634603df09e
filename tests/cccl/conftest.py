"""NVIDIA's headers of libcu++ and cub, where they are installed."""

from __future__ import annotations

import pytest
from cuda.pathfinder import find_nvidia_header_directory

import aiocuda as ac


@pytest.fixture(scope="session")
def folder() -> str:
    found = find_nvidia_header_directory("cccl")
    if found is None:
        pytest.skip("needs NVIDIA's headers of libcu++ and cub, of the wheel nvidia-cuda-cccl")
    return found


@pytest.fixture(scope="session")
def options(folder: str) -> ac.CompileOptions:
    return ac.CompileOptions(include_paths=[folder])
