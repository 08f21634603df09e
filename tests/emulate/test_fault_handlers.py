"""A kernel's fault loses its device, and not the process, also if another library handles the process' signals."""

from __future__ import annotations

import signal

import pytest

pytestmark = pytest.mark.emulated_only

BEGIN = '''
import ctypes, faulthandler, signal, sys
import numpy as np
import aiocuda as ac
SOURCE = """
extern "C" __global__ void access(int* x) { *(int*)8 = 1; }
extern "C" __global__ void divide(int* x) { x[0] = x[2] / x[1]; }
"""
access, divide = (ac.kernel(SOURCE, name) for name in ("access", "divide"))
arrays = [ac.zeros(4, np.int32, device=each).sync() for each in ac.devices()]

def lose(kernel=access, device=0):
    try:
        kernel(arrays[device], grid=1, block=1).sync(60)
    except ac.DeviceLostError:
        print("lost", flush=True)
'''
LATER = {
    "a handler": "faulthandler.enable()",
    "a handler that came and went": "faulthandler.enable(); faulthandler.disable()",
    "the default": "for each in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE): signal.signal(each, signal.SIG_DFL)",
    "nobody's": "for each in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE): signal.signal(each, signal.SIG_IGN)",
}


@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
def test_handlers_that_came_later_leave_it_a_lost_device(in_process, later):
    ended = in_process(BEGIN + later + "\nlose()\n")
    assert (ended.returncode, ended.stdout) == (0, "lost\n"), ended.stderr


@pytest.mark.parametrize("before", ["", "faulthandler.enable()\n"], ids=["first", "not first"])
@pytest.mark.parametrize("how", ["ctypes.string_at(8)", "signal.raise_signal(signal.SIGSEGV)"], ids=["fault", "sent"])
def test_those_handlers_hear_of_all_other_faults(in_process, before, how):
    """And the process ends by them, whoever calls whom."""
    program = BEGIN.replace("import numpy", before + "import numpy")
    ended = in_process(program + f"faulthandler.enable()\nlose()\n{how}\n")
    assert (ended.returncode, ended.stdout) == (-signal.SIGSEGV, "lost\n")
    assert ended.stderr.count("Fatal Python error: Segmentation fault") == 1


def test_a_handler_of_one_signal_hears_of_those_that_are_sent(in_process):
    """A kernel that divides by zero would be at it for ever: Python's handler returns to where that was."""
    ended = in_process(
        BEGIN + "signal.signal(signal.SIGFPE, lambda *_: print('heard', flush=True))\nlose(divide)\n"
        "signal.raise_signal(signal.SIGFPE)\nprint('goes on')\n"
    )
    assert (ended.returncode, ended.stdout) == (0, "lost\nheard\ngoes on\n"), ended.stderr


def test_ray_that_begins_and_ends_later_leaves_it_a_lost_device(in_process):
    """It puts the signals back to the default when it ends."""
    pytest.importorskip("ray")
    ended = in_process(
        BEGIN + "import ray\n"
        "ray.init(num_cpus=0, include_dashboard=False, log_to_driver=False)\nlose()\n"
        "ray.shutdown()\nlose(device=1)\n"
    )
    assert (ended.returncode, ended.stdout) == (0, "lost\nlost\n"), ended.stderr
    assert ended.stderr.count("is lost with CUDA_ERROR_ILLEGAL_ADDRESS") == 2
