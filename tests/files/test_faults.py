"""Files when a device is lost, memory runs out, or the process ends; each in its own process."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

PRELUDE = """
import os
import tempfile
import numpy as np
import aiocuda as ac

data = np.arange(3_000_000, dtype=np.int32)
path = os.path.join(tempfile.mkdtemp(), "data")
data.tofile(path)

def opened():
    found = []
    for each in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{each}"))
        except OSError:
            pass
    return path in found
"""


@pytest.fixture
def program(lines_of) -> Callable[..., list[str]]:
    return functools.partial(lines_of, PRELUDE)


@pytest.mark.emulated_only
@pytest.mark.parametrize(
    ("by", "work"),
    [*(("threads", work) for work in (1, 2, 3, 10, 20, 40, 60, 75)), *(("cufile", work) for work in (1, 2, 4, 6))],
)
def test_a_device_lost_in_the_middle_ends_reads_and_writes_and_leaves_the_other_devices(program, by, work):
    lines = program(
        """
        for op in (ac.read(path, data.shape, data.dtype, device=0), ac.write(path + "2", ac.ones(3_000_000, device=0))):
            try:
                op.sync(30)
                print("whole")
            except ac.DeviceLostError as error:
                print("lost")
            except ac.AiocudaError as error:
                print("lost", type(error).__name__)
        there = ac.read(path, data.shape, data.dtype, device=1)
        print((ac.to_host(there).sync(30) == data).all())
        print(ac.write(path + "3", there).sync(30))
        print((np.fromfile(path + "3", np.int32) == data).all())
        del op
        for _ in range(1000):
            ac.to_host(ac.ones(4, device=1)).sync(30)
            if not opened():
                break
        print(opened())
        """,
        AIOCUDA_EMULATED_DEVICES="2",
        AIOCUDA_EMULATOR_FAULTS=f"lost:{work}@0",
        AIOCUDA_FILES=by,
    )
    assert any(line.startswith("lost") for line in lines[:2]), lines
    assert lines[2:5] == ["True", "12000000", "True"]
    assert by == "cufile" or lines[5] == "False"  # cuFile may still use what a lost device had


@pytest.mark.emulated_only
def test_a_device_whose_streams_cannot_wait_for_memory_reads_and_writes_files_all_the_same(program):
    lines = program(
        """
        print((ac.to_host(ac.read(path, data.shape, data.dtype)).sync(30) == data).all())
        print(ac.write(path + "2", ac.to_device(data)).sync(30), open(path + "2", "rb").read() == data.tobytes())
        print(ac.write(path + "3", ac.zeros(0)).sync(30), os.path.getsize(path + "3"))
        x = ac.full(3_000_000, 7, np.int32).sync(30)
        _, back = ac.zip(ac.write(path, x), ac.read(path, data.shape, data.dtype)).sync(30)
        print((ac.to_host(back).sync(30) == 7).all())
        for op in (ac.read(path + "4", 3, "uint8"), ac.read(path, data.shape, "float64"), ac.write("/dev/full", x)):
            try:
                op.sync(30)
            except ac.FileError as error:
                print(error.step, error.errno, error.found_bytes)
        print(opened())
        """,
        AIOCUDA_EMULATOR_FAULTS=",".join(f"no_memory_op:{n}@0" for n in range(1, 300)),
    )
    assert lines == [
        "True", "12000000 True", "0 0", "True", "open 2 0", "read None 12000000", "write 28 0", "False"
    ]  # fmt: skip


@pytest.mark.emulated_only
@pytest.mark.parametrize("number", range(1, 8))
def test_memory_that_cannot_be_had_fails_the_operation_alone(program, number):
    lines = program(
        """
        failed = 0
        for _ in range(6):
            try:
                there = ac.read(path, data.shape, data.dtype).sync(30)
                ac.write(path + "2", there).sync(30)
                assert open(path + "2", "rb").read() == data.tobytes()
            except ac.OutOfMemoryError as error:
                failed += 1
        print(failed)
        """,
        AIOCUDA_EMULATOR_FAULTS=f"alloc:{number}",
    )
    assert int(lines[0]) <= 1


@pytest.mark.parametrize("mode", ["auto", "always"])
def test_the_submission_thread_changes_nothing(program, mode):
    lines = program(
        """
        there = ac.read(path, data.shape, data.dtype)
        print(ac.write(path + "2", ac.algorithms.transform("2 * x", x=there)).sync(30))
        print((np.fromfile(path + "2", np.int32) == 2 * data).all())
        try:
            ac.algorithms.transform("2 * x", x=ac.read(path + "3", 10, "int32")).sync(30)
        except FileNotFoundError as error:
            print(error.step)
        """,
        AIOCUDA_SUBMISSION_THREAD=mode,
    )
    assert lines == ["12000000", "True", "open"]


def test_a_process_ends_soon_with_a_thread_in_a_slow_file(hold_file, tmp_path):
    """The system lets nobody open the file for some 45 seconds, and does not call off a thread that waits for it."""
    path = tmp_path / "data"
    path.write_bytes(bytes(100))
    held = hold_file(path)
    source = f"import aiocuda as ac; ac.read({str(path)!r}, 100, 'uint8').submit(); input()"
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", source], stdin=subprocess.PIPE, text=True)
    while not held.is_wanted:
        assert process.poll() is None
        time.sleep(0.01)
    process.communicate("\n", timeout=20)  # to wait for the thread would take longer
    assert process.returncode == 0
