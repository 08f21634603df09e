"""A Python without its global lock: aiocuda says that it cannot run there, and does not."""

import subprocess
import sys


def imported(lock: str) -> subprocess.CompletedProcess:
    program = f"import sys; sys._is_gil_enabled = lambda: {lock}; import aiocuda; print(aiocuda.__version__)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_importing_without_the_lock_is_an_error_that_says_how_to_have_it():
    done = imported("False")
    assert done.returncode == 1
    assert "ImportError: aiocuda was imported in a free-threaded Python whose global lock is off" in done.stderr
    assert "Leave the setting out" in done.stderr


def test_importing_with_the_lock_works():
    done = imported("True")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
