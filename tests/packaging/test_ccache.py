"""The build takes ccache by itself, and makes with it what it would make without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BESIDE_US = Path(sys.executable).parent  # cmake and ninja are there
CCACHE = Path(__file__).parents[2] / "cmake" / "Ccache.cmake"
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(edited CXX)
include({CCACHE})
add_executable(edited main.cpp)
target_precompile_headers(edited PRIVATE precompiled.hpp)
"""
PROGRAM = """
#include <cstdio>
int main() { std::puts(WORD); }
"""
# As a script, it takes milliseconds.
SAY = f"""
set(CMAKE_CXX_COMPILER true)
set(CMAKE_BINARY_DIR "${{CMAKE_CURRENT_BINARY_DIR}}")
include({CCACHE})
message(STATUS "launcher: ${{CMAKE_CXX_COMPILER_LAUNCHER}}")
message(STATUS "no precompiled headers: ${{CMAKE_DISABLE_PRECOMPILE_HEADERS}}")
"""


def run(folder: Path, *command: str) -> str:
    """Run it with no settings of the user's; return what it prints."""
    settings = ("CCACHE_", "CMAKE_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    variables |= {"CCACHE_DIR": str(folder / "cache"), "PATH": f"{BESIDE_US}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def says(tmp_path):
    """Return what the build says of launchers, where this is the ccache that there is."""

    def lines(ccache: str | None, *definitions: str) -> list[str]:
        found = tmp_path / "ccache"
        if ccache is not None:
            found.write_text(f"#!/bin/sh\n{ccache}\n")
            found.chmod(0o755)
        (tmp_path / "say.cmake").write_text(SAY)
        only = [f"-DCMAKE_PROGRAM_PATH={tmp_path}", "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF"]
        only.append("-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF")
        said = run(tmp_path, "cmake", *only, *definitions, "-P", "say.cmake")
        return [line.removeprefix("-- ").replace(str(found), "CCACHE").rstrip() for line in said.splitlines()]

    return lines


def test_ccache_is_taken_if_there_is_one(says):
    taken, launcher, headers = says('exec "$@"')
    assert taken == "ccache: CCACHE"
    assert launcher.endswith(";-E;env;CCACHE_DEPEND=1;CCACHE_SLOPPINESS=pch_defines,time_macros;CCACHE")
    assert headers == "no precompiled headers:"


def test_without_ccache_the_compiler_is_run_as_it_is(says):
    assert says(None) == ["launcher:", "no precompiled headers:"]


@pytest.mark.parametrize(("asked", "headers"), [("", ""), ("distcc", "ON")])
def test_the_launcher_that_a_user_names_wins_and_so_does_none(says, asked, headers):
    said = says('exec "$@"', f"-DCMAKE_CXX_COMPILER_LAUNCHER={asked}")
    assert said == [f"launcher: {asked}".rstrip(), f"no precompiled headers: {headers}".rstrip()]


def test_a_ccache_that_cannot_write_is_not_taken(says):
    assert says("echo 'ccache: error: Failed to create directory' >&2; exit 1") == [
        "ccache: not used, for CCACHE does not work: ccache: error: Failed to create directory",
        "launcher:",
        "no precompiled headers:",
    ]


@pytest.mark.skipif(shutil.which("ccache") is None, reason="needs ccache")
def test_an_edited_macro_of_a_precompiled_header_is_compiled_and_a_known_one_is_found(tmp_path):
    """By default, ccache brings back the header as it was before the edit."""
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "main.cpp").write_text(PROGRAM)
    run(tmp_path, "cmake", "-S", ".", "-B", "build", "-G", "Ninja")
    for word, misses in ("first", 2), ("other", 2), ("first", 0):
        (tmp_path / "precompiled.hpp").write_text(f'#define WORD "{word}"\n')
        run(tmp_path, "ccache", "--zero-stats")
        run(tmp_path, "cmake", "--build", "build", "--clean-first")
        assert run(tmp_path, "build/edited") == f"{word}\n"
        counts = dict(line.split("\t") for line in run(tmp_path, "ccache", "--print-stats").splitlines())
        assert (int(counts["cache_miss"]), int(counts["direct_cache_hit"])) == (misses, 2 - misses)
