"""Processes that are forked: where aiocuda was used before, they are told so at once, never wait, and end cleanly."""

from __future__ import annotations

import pytest

# `in_child(function)`: calls it in a forked process; raises unless that ends with status 0.
FORK = """
import faulthandler, gc, traceback

def in_child(function, leaves=os._exit):
    faulthandler.cancel_dump_traceback_later()  # its thread would be missed in the child
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        leaves(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, os.waitstatus_to_exitcode(status)

parent = os.getpid()
def refused(function):
    try:
        function()
    except ac.ForkedProcessError as error:
        assert error.parent_pid == parent, error
        assert f"forked after aiocuda was used in process {parent}" in str(error) and "spawn" in str(error)
    else:
        raise AssertionError("it was not refused")
"""

USED = """
x, y = ac.zeros(1000).sync(), ac.zeros(1000).sync()
stream, graph = ac.Device(0).stream(), ac.fill(y, 1).graph()
number = ac.value(5).map(lambda n: n)
number.sync()
pending = hung().submit()
"""

USES = """
def executing():
    refused(lambda: ac.fill(x, 1).sync())
    refused(lambda: ac.zeros(3).sync())
    refused(lambda: ac.fill(x, 1).submit())
    refused(lambda: hold(flag.address, grid=1, block=1).sync())
    refused(hold.compile)
    refused(lambda: ac.kernel('extern "C" __global__ void k() {}')(threads=1).sync())
def awaiting():
    async def main(): await ac.fill(x, 1)
    refused(lambda: asyncio.run(main()))
def asking():
    refused(pending.sync)
    refused(pending.done)
    refused(pending.result)
def streams():
    refused(lambda: ac.Device(0).stream())
    refused(stream.record)
    refused(lambda: stream.synchronize().sync())
    refused(lambda: ac.Device(0).synchronize().sync())
def graphs():
    refused(lambda: graph.launch().sync())
    refused(lambda: ac.fill(x, 2).graph())
def devices():
    refused(ac.devices)
    refused(lambda: ac.Device(0).memory_info())
    refused(ac.statistics)
def finalizers():
    global x, y, stream, graph, pending
    del x, y, stream, graph, pending
    gc.collect()
def complete(): assert number.sync() == 5
def once_more(): in_child(executing)
for leaves in os._exit, sys.exit:
    for use in executing, awaiting, asking, streams, graphs, devices, finalizers, complete, once_more:
        in_child(use, leaves)
"""


@pytest.fixture
def ends_well(begin):
    """Run a program that must end with status 0 and say nothing."""

    def run(program: str) -> None:
        process = begin(FORK + program)
        output, errors = process.communicate(timeout=240)
        assert (process.returncode, output, errors) == (0, "", "")

    return run


def test_a_process_forked_after_the_first_use_is_told(ends_well):
    ends_well(USED + USES)


def test_awaits_in_a_new_loop_are_refused_however_long_each_takes(ends_well):
    """Awaits that have used up their loop's turn wait in a line for the next one. They come to their turn, and end."""
    ends_well(
        """
import aiocuda._loops.asyncio
aiocuda._loops.asyncio.TURN_US = 0
x = ac.zeros(10).sync()
async def many():
    async def one(): await ac.fill(x, 1)
    for error in await asyncio.gather(*(one() for _ in range(10)), return_exceptions=True):
        assert isinstance(error, ac.ForkedProcessError), error
def child(): asyncio.run(many())
in_child(child)
in_child(child, sys.exit)
in_child(lambda: in_child(child))
"""
    )


def test_the_parent_goes_on(ends_well):
    ends_well("x = ac.zeros(10).sync()\nin_child(gc.collect, sys.exit)\nassert ac.to_host(x).sync().sum() == 0")


def test_locks_of_threads_that_are_not_there_hold_up_nobody(ends_well):
    """Threads submit, wait, copy and call back while the process is forked; one stays in a function, and may submit."""
    ends_well(
        """
x = ac.zeros(100).sync()
many = np.ones(1 << 20, np.float32)
def turn():
    ac.fill(x, 1).sync()
    ac.to_host(ac.to_device(many)).submit().add_done_callback(lambda _: None)
endlessly(turn, threads=3)
def child():
    refused(lambda: ac.fill(x, 1).sync())
    gc.collect()
for _ in range(10): in_child(child)
for _ in range(3): in_child(child, sys.exit)
inside, never = threading.Event(), threading.Event()
def stay(y):
    inside.set()
    never.wait()
thread(lambda: ac.fill(x, 1).then(stay).sync())
inside.wait()
for leaves in os._exit, sys.exit: in_child(child, leaves)
"""
    )


def test_a_function_of_the_program_s_that_forks(ends_well):
    """In the child the rest of the operation is refused; the right to submit ends as it does elsewhere."""
    ends_well(
        """
x = ac.zeros(100).sync()
def fork(y):
    child = os.fork()
    if child: children.append(child)
    return ac.fill(y, 2)
children = []
operation = ac.fill(x, 1).then(fork)
try:
    operation.sync()
except ac.ForkedProcessError:
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 3
"""
    )


def test_a_process_forked_before_the_first_use_has_aiocuda_for_itself(in_process):
    done = in_process(
        """
        import os, sys
        import aiocuda as ac
        from aiocuda import _native
        child = os.fork()
        if child:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert ac.ones(3).sync().shape == (3,)
            sys.exit(status)
        assert ac.to_host(ac.ones(3)).sync().tolist() == [1, 1, 1]
        told = []
        ac.ones(3).submit().add_done_callback(told.append)
        while not told: pass
        sys.exit(7)
        """
    )
    assert (done.returncode, done.stderr) == (7, "")


def test_a_process_forked_after_something_else_started_the_driver_is_told(in_process):
    done = in_process(
        """
        import os, sys
        import aiocuda as ac
        from aiocuda._driver.select import select_driver
        select_driver()
        from cuda.bindings import driver
        driver.cuInit(0)
        child = os.fork()
        if child: sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        try:
            ac.devices()
        except ac.ForkedProcessError as error:
            sys.exit(7 if error.parent_pid == 0 and "CUDA was started there" in str(error) else 1)
        """
    )
    assert (done.returncode, done.stderr) == (7, "")


# `fill_ring()`: leaves calls of the driver with the submission thread, mostly; `has_calls()`: are some there?
RING = """
import contextlib
from aiocuda import _native
x = ac.zeros(10).sync()
waiting = []
def fill_ring():
    for _ in range(100):
        waiting.append(ac.fill(x, 1).__await__())
        with contextlib.suppress(StopIteration): waiting[-1].send(None)
        if has_calls(): break
def has_calls():
    given, made = _native.submission_calls()
    return given > made
"""


@pytest.fixture
def ends_well_with_the_submission_thread(ends_well, monkeypatch):
    monkeypatch.setenv("AIOCUDA_SUBMISSION_THREAD", "always")
    return lambda program: ends_well(RING + program)


def test_calls_in_the_submission_threads_ring_are_made_before_a_fork(ends_well_with_the_submission_thread):
    """The child has none of them, and no thread that could make them: it is told so, and waits for nothing."""
    ends_well_with_the_submission_thread(
        """
had_calls = []
os.register_at_fork(before=lambda: had_calls.append(has_calls()))
faulthandler.cancel_dump_traceback_later()
def in_the_child():
    try:
        assert not has_calls(), _native.submission_calls()
        refused(lambda: ac.fill(x, 2).sync())
        waiting.clear()
        gc.collect()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
def forked():
    had_calls.clear()
    with ac.use(spin_us=0):
        fill_ring()
        child = os.fork()
    if child == 0: in_the_child()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    waiting.clear()
    return had_calls[0]
async def main():
    assert any(forked() for _ in range(100)), "no call was ever left"
    await ac.fill(x, 3)
    assert (await ac.to_host(x)).sum() == 30
asyncio.run(main())
"""
    )


@pytest.mark.parametrize("leave", ["sys.exit()", "os._exit(0)"])
def test_a_process_ends_with_calls_in_the_submission_threads_ring(ends_well_with_the_submission_thread, leave):
    ends_well_with_the_submission_thread(
        f"""
async def main():
    for _ in range(200):
        with ac.use(spin_us=0): fill_ring()
        if has_calls(): {leave}
        waiting.clear()
        await ac.fill(x, 3)
    raise AssertionError("no call was ever left")
asyncio.run(main())
"""
    )
