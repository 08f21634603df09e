"""With AIOCUDA_DEBUG a process says at its end which arrays are still held, and where they were made."""

from __future__ import annotations

import pytest

PROGRAM = """
import numpy as np, aiocuda as ac
class Holder: pass
kept = [ac.zeros(1000, np.uint8).sync() for _ in range(3)]
larger = ac.ones(5000, np.uint8).sync()
view = larger[:10]
del larger
host = ac.empty_host(300, np.uint8).sync()
gone = ac.zeros(7000, np.uint8).sync()
del gone
lost = Holder(); lost.itself = lost; lost.array = ac.zeros(9000, np.uint8).sync(); del lost
"""


def test_what_is_held_at_exit_is_told_by_the_lines_that_made_it(in_process):
    done = in_process(PROGRAM, AIOCUDA_DEBUG="1")
    assert done.returncode == 0
    assert done.stderr == (
        "aiocuda: at exit, 4 arrays are still held on device 0, 8000 B:\n"
        "  5000 B by 1 array made at <string>:5\n"
        "  3000 B by 3 arrays made at <string>:4\n"
        "aiocuda: at exit, 1 array is still held in page-locked memory, 300 B:\n"
        "  300 B by 1 array made at <string>:8\n"
    )


@pytest.mark.parametrize("value", ["", "0"])
def test_nothing_is_told_unless_asked_for(in_process, value):
    assert in_process(PROGRAM, AIOCUDA_DEBUG=value).stderr == ""


def test_nothing_is_told_where_nothing_is_held(in_process):
    program = "import numpy as np, aiocuda as ac\nac.to_host(ac.to_device(np.zeros(5 << 20, np.uint8))).sync()"
    assert in_process(program, AIOCUDA_DEBUG="1").stderr == ""
    assert in_process("import aiocuda", AIOCUDA_DEBUG="1").stderr == ""


def test_many_lines_are_cut_short(in_process):
    lines = "\n".join(f"a{i} = ac.zeros({100 + i}, np.uint8).sync()" for i in range(25))
    told = in_process(f"import numpy as np, aiocuda as ac\n{lines}", AIOCUDA_DEBUG="1").stderr.splitlines()
    assert len(told) == 22
    assert told[1] == "  124 B by 1 array made at <string>:26"
    assert told[-1] == "  and those that 5 other lines made"


def test_a_lost_device_does_not_hinder_the_report(in_process):
    done = in_process(
        """
        import numpy as np, aiocuda as ac
        crash = ac.kernel('extern "C" __global__ void crash(int* x) { *(volatile int*)0 = 1; }')
        kept = ac.zeros(1000, np.uint8).sync()
        try:
            crash(ac.zeros(1, np.int32), grid=1, block=1).sync()
        except ac.DeviceLostError:
            print("lost")
        """,
        AIOCUDA_DEBUG="1",
    )
    assert (done.returncode, done.stdout) == (0, "lost\n")
    assert "1000 B by 1 array made at <string>:4\n" in done.stderr
