"""The pytest plugin: a test fails with what was reported of its kernels, and other tests are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.emulated_only

TESTS = '''
import numpy as np
import aiocuda as ac

SOURCE = """
extern "C" __global__ void shift(float* x, const float* y, unsigned n, unsigned by) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = y[i + by];
}
"""
shift = ac.kernel(SOURCE, "shift")

def run(by):
    y = ac.to_device(np.ones(100, np.float32))
    x = shift(ac.zeros(100, np.float32), y, 100, by, threads=100)
    return ac.to_host(x).sync()

def test_correct(): assert run(0).sum() == 100
def test_overruns(): assert len(run(1)) == 100
def test_is_left_alone(): assert run(0).sum() == 100
def test_fails_by_itself():
    run(1)
    assert False, "the test's own failure"
'''
NO_KERNELS = """
import sys
def test_nothing_of_aiocuda_is_imported(): assert "aiocuda" not in sys.modules
"""


LATCHES = '''
import numpy as np
import pytest
import aiocuda as ac

SOURCE = """
extern "C" __global__ void wait_for(unsigned long long flag, const float* x, float* y) {
    while (*(volatile int*)flag == 0) {}
    y[0] = x[100];
}
"""
wait_for = ac.kernel(SOURCE, "wait_for")

def latch():
    flag = ac.empty_host(1, np.int32).sync()
    view = flag.numpy()
    view[0] = 0
    x, y = ac.zeros(100, np.float32).sync(), ac.zeros(1, np.float32).sync()
    wait_for.compile(ac.Device(0))
    result = wait_for(flag.address, x, y, grid=1, block=1).submit()
    yield
    view[0] = 1
    result.sync()

held = pytest.fixture(latch)
held_long = pytest.fixture(latch, scope="module")

def test_waits_for_what_comes_after_it(held): pass
def test_waits_for_what_comes_after_the_next(held_long): pass
def test_comes_last(held_long): pass
'''
FORKS = '''
import os
import numpy as np
import pytest
import aiocuda as ac
from aiocuda._driver import checking

SOURCE = """extern "C" __global__ void hold(unsigned long long flag) { while (*(volatile int*)flag == 0) {} }"""
hold = ac.kernel(SOURCE, "hold")
pid = 1

@pytest.fixture
def child():
    # The session goes on in a forked process, as with pytest-forked, and the parent waits for its end.
    global pid
    flag = ac.empty_host(1, np.int32).sync()
    view = flag.numpy()
    view[0] = 0
    held = hold(flag.address, grid=1, block=1).submit()
    assert not checking.finish_work(0)
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        view[0] = 1
        held.sync()
        assert os.waitstatus_to_exitcode(status) == 0

def test_goes_on_in_a_child(child): pass

def test_ends_the_child():
    if pid == 0:
        os._exit(0 if checking.finish_work(0) else 1)
'''


def run(place: Path, source: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (place / "test_kernels.py").write_text(source)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "AIOCUDA_E", "AIOCUDA_D"))
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *arguments, "test_kernels.py"],
        cwd=place,
        env={**kept, "COLUMNS": "999", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_test_fails_with_the_reports_of_its_kernels(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, "--aiocuda-check=memory,races,init,sync")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout
    for name in ("test_correct", "test_is_left_alone"):
        assert f"PASSED test_kernels.py::{name}" in done.stdout
    reported = done.stdout[done.stdout.index("_ test_overruns _") :]
    assert "the checks of kernels reported:\n- memory: kernel shift, " in reported
    assert "thread (99,0,0): reads 4 bytes" in reported
    # Where the program made the array.
    assert f"0 bytes behind an allocation of 400 bytes, made at {tmp_path}/test_kernels.py:14" in reported
    by_itself = done.stdout[done.stdout.index("_ test_fails_by_itself _") :]
    assert "the test's own failure" in by_itself
    assert "aiocuda checks call" in by_itself


def test_only_the_checks_named_are_made(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, "--aiocuda-check=races")
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr


def test_without_the_option_nothing_is_imported_or_checked(tmp_path: Path) -> None:
    assert run(tmp_path, NO_KERNELS).returncode == 0
    done = run(tmp_path, TESTS, AIOCUDA_DRIVER="emulated")
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr


def test_a_kernel_that_waits_for_a_fixtures_end_holds_no_test_up(tmp_path: Path) -> None:
    done = run(tmp_path, LATCHES, "--aiocuda-check=memory,races,init,sync")
    assert "3 passed, " in done.stdout, done.stdout + done.stderr
    assert "2 errors" in done.stdout
    # A report comes with the phase in which its kernel went on.
    for name in ("test_waits_for_what_comes_after_it", "test_comes_last"):
        assert f"ERROR test_kernels.py::{name} - Failed: the checks of kernels reported:" in done.stdout


def test_a_forked_child_waits_for_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, FORKS, "--aiocuda-check=memory")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("option", "environment", "complaint"),
    [
        ("--aiocuda-check=race", {}, "there is no check 'race'"),
        ("--aiocuda-check=races", {"AIOCUDA_DRIVER": "nvidia"}, "AIOCUDA_DRIVER is 'nvidia'"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, option: str, environment: dict[str, str], complaint: str) -> None:
    done = run(tmp_path, NO_KERNELS, option, **environment)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert complaint in done.stderr
