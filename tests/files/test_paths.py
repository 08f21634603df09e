"""Two ways to write a path are one file in the order of operations."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aiocuda._verbs import files


@pytest.mark.parametrize("directory", ["/", "/proc"])
def test_a_relative_path_and_an_absolute_one_are_the_same_file(monkeypatch, directory):
    monkeypatch.chdir(directory)
    expected = os.fsencode(Path(directory) / "self" / "x")
    assert files.path_of("self/x") == files.path_of(f"{directory}/self/x") == expected
