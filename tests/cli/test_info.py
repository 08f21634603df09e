"""The command ``aiocuda info``, as a shell sees it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aiocuda", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_a_command_the_commands_are_named():
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("info", "demo", "emulate", "trace", "top", "bench"):
        assert f"    {command} " in done.stdout


def test_info_shows_driver_devices_compiler_and_versions():
    done = run("info")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines if len(line) == 1] == [
        "driver",
        "devices",
        "compiler",
        "versions",
    ]
    assert ["aiocuda", importlib.metadata.version("aiocuda")] in lines
    assert any(line[:2] == ["device", "0"] and "GiB" in line for line in lines)


def test_info_shows_every_emulated_device_and_warns_of_nothing():
    done = run("info", AIOCUDA_DRIVER="emulated", AIOCUDA_EMULATED_DEVICES="2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("emulated\n") >= 2
    assert "device 1" in done.stdout
    assert done.stderr == ""


def test_info_without_any_device_says_so():
    done = run("info", AIOCUDA_DRIVER="emulated", AIOCUDA_EMULATED_DEVICES="0")
    assert done.returncode == 0, done.stderr
    assert "the driver has no device" in done.stdout


def test_info_without_a_compiler_says_so_and_shows_the_rest(tmp_path):
    done = run(
        "info",
        AIOCUDA_DRIVER="emulated",
        AIOCUDA_CXX=str(tmp_path / "no-compiler"),
        AIOCUDA_CACHE_DIR=str(tmp_path),
        PATH=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "no kernel compiles here" in done.stdout
    assert "cuda-bindings" in done.stdout


def test_info_names_the_compiler_of_kernels_on_the_emulated_driver():
    done = run("info", AIOCUDA_DRIVER="emulated")
    assert re.search(r"kernels +NVRTC 13\.\d+, emulated with (clang|g\+\+) \d", done.stdout)


def test_a_failure_is_one_clear_line():
    done = run("info", AIOCUDA_DRIVER="gpu")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "AIOCUDA_DRIVER is 'gpu'; it must be auto, nvidia or emulated" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_command_is_told_the_commands_there_are():
    done = run("fly")
    assert done.returncode == 2
    assert "info" in done.stderr
