"""If the operating system refuses a thread, an AiocudaError says so. All goes on once there are threads again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

START = """
import ctypes, sys
import numpy as np
import aiocuda as ac
allow = ctypes.CDLL(None).allow_threads

def refused(function):
    try:
        function()
    except ac.AiocudaError as error:
        assert type(error) is ac.AiocudaError and "refuses" in str(error) and "ulimit -u" in str(error), repr(error)
    else:
        raise AssertionError("it was not refused")
"""

PROGRAMS = {
    "the reactor": """
        ac.devices()
        allow(0)
        refused(lambda: ac.zeros(3).sync())
        refused(lambda: ac.zeros(3).sync())
        allow(-1)
        assert ac.to_host(ac.ones(3)).sync().tolist() == [1, 1, 1]
    """,
    "staging": """
        stream = ac.Device(0).stream()
        many = np.arange(1 << 20, dtype=np.float32)
        with ac.use(stream):
            x = ac.zeros(1 << 20, np.float32).sync()
            allow(0)
            refused(ac.copy(x, many).sync)
            refused(ac.copy(x, many).sync)
            allow(1)
            ac.copy(x, many).sync()
            assert (ac.to_host(x).sync() == many).all()
            allow(-1)
            ac.copy(x, many[::-1].copy()).sync()
            assert (ac.to_host(x).sync() == many[::-1]).all()
    """,
    "callbacks": """
        done = ac.ones(3).submit()
        done.sync()
        allow(0)
        refused(lambda: done.add_done_callback(print))
        allow(-1)
        told = []
        done.add_done_callback(told.append)
        while not told: pass
    """,
}


@pytest.fixture(scope="module")
def refusing(tmp_path_factory) -> str:
    """Compile the library that refuses threads."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    built = tmp_path_factory.mktemp("no_threads") / "libno_threads.so"
    source = Path(__file__).with_name("no_threads.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, source, "-ldl"], check=True)
    return str(built)


# NVIDIA's driver starts threads of its own when a device is opened, and which of them is refused is its affair.
EMULATED = {"the reactor": [pytest.mark.emulated_only]}


@pytest.mark.parametrize(
    "program", [pytest.param(text, id=name, marks=EMULATED.get(name, [])) for name, text in PROGRAMS.items()]
)
def test_a_thread_that_cannot_be_started_is_an_error_that_says_so(in_process, refusing, program):
    lines = "\n".join(line.removeprefix("        ") for line in program.splitlines())
    preloaded = os.environ.get("LD_PRELOAD", "")  # a sanitizer's runtime must stay the first
    done = in_process(START + lines, LD_PRELOAD=f"{preloaded}:{refusing}".removeprefix(":"))
    assert (done.returncode, done.stderr) == (0, "")
