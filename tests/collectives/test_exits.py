"""The end of a process that has used NCCL: its own exit status, whatever NCCL still does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ranks import run_ranks

pytest.importorskip("nccl.bindings")

# `say_at_exit(what=...)`: an exit handler of the C library's says that handlers are run.
HANDLERS = """
import ctypes, fcntl
libc = ctypes.CDLL(None)
libc.strdup.restype = libc.fdopen.restype = ctypes.c_void_p
def say_at_exit(**what):
    text = libc.strdup(json.dumps(what).encode())  # Python's own memory is gone by then
    libc.__cxa_atexit(ctypes.cast(libc.puts, ctypes.c_void_p), ctypes.c_void_p(text), None)
"""


@pytest.mark.parametrize("status", [0, 3])
def test_a_process_ends_with_its_status_while_a_thread_is_in_nccl(tmp_path, status):
    """CUDA's exit handlers would take the driver down under NCCL: none is run.

    NCCL keeps a rank until the other one is destroyed, and that one waits for the end of the process. A forked child
    has no such thread, so it ends as any process does.
    """
    ends = run_ranks(
        HANDLERS
        + """
from aiocuda._collective import ending
ending._WAIT_S = ending._EXIT_S = 0.05  # for the thread, which never ends
g = group()
lives = open(folder / "lives", "w")
if rank == 0:
    fcntl.flock(lives, fcntl.LOCK_EX)
    tell("locked")
    g.close()
    child = os.fork()
    say_at_exit(handlers_of="child" if child == 0 else "parent")
    if child == 0:
        sys.exit(4)
    say(child=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stream = ctypes.c_void_p(libc.fdopen(1, b"w"))  # Python itself flushes C's stdout
    libc.fputs(b'{"buffered": "by C"}\\n', stream)
    sys.exit(STATUS)
wait_for("locked")
fcntl.flock(lives, fcntl.LOCK_EX)  # when the other process is gone
g.close()
""".replace("STATUS", str(status)),
        2,
        tmp_path,
        {"PYTHONWARNINGS": "ignore"},  # Python 3.12 warns of a fork
    )
    assert [each.status for each in ends] == [status, 0], ends
    assert ends[0].said == [{"handlers_of": "child"}, {"child": 4}, {"buffered": "by C"}], ends
    assert ends[0].errors == ""


def test_exit_handlers_run_where_no_thread_is_in_nccl_any_more(tmp_path):
    (ended,) = run_ranks(
        HANDLERS
        + """
g = group()
g.barrier().sync()
g.close()
say_at_exit(handlers="ran")
sys.exit(3)
""",
        1,
        tmp_path,
    )
    assert (ended.status, ended.said) == (3, [{"handlers": "ran"}]), ended
