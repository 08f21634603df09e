"""Later operations on a lost device are told which one failed first, and are not blamed for it.

Each test breaks a device, so each runs in a process of its own.
"""

from __future__ import annotations

import textwrap

import pytest

FIRST = """
import anyio, re, sys

def told(function):
    try:
        function()
    except ac.DeviceLostError as error:
        return error
    raise AssertionError("a lost device took work")

x, y, managed = ac.zeros(4, np.int32).sync(), ac.zeros(4, np.int32).sync(), ac.empty(4, np.int32, managed=True).sync()
graph = k["increment"](ac.dup(x), grid=1, block=1).graph()
event = ac.Device(0).default_stream.record()
line = sys._getframe().f_lineno + 1
bad = k["illegal"](ac.zeros(4, np.int32), FAR, grid=1, block=1)
first = told(bad.sync)
assert not first.is_earlier and first.first_operation == "", first
was = f"the launch of illegal (built at <string>:{line}) did not complete: device 0 was lost: CUDA_ERROR_ILLEGAL"
assert str(first).startswith(was), first

async def awaited(op):
    return await op

def check(error, named):
    print(error)
    assert error.is_earlier and error.operation == named, error
    assert (error.first_operation, error.first_origin) == ("the launch of illegal", f"<string>:{line}"), error
    assert error.error.code == 700 and error.__cause__ is error.error
    assert f"device 0 was lost earlier, when the launch of illegal (built at <string>:{line}) failed" in str(error)
    assert "new one" in str(error)
"""

LATER = {
    "a launch": ("k['increment'](x, grid=1, block=1).sync()", "the launch of increment"),
    "a new array": ("ac.ones(3).sync()", "the creation of an array"),
    "a copy to the host": ("ac.to_host(x).sync()", None),
    "a future": ("ac.to_host(x).submit()", None),
    "an await": ("asyncio.run(awaited(ac.dup(x)))", None),
    "an await under trio": ("anyio.run(awaited, ac.dup(x), backend='trio')", None),
    "branches": ("ac.zip(ac.fill(x, 1), ac.fill(y, 2)).sync()", None),
    "a graph": ("graph.launch().sync()", "a launch of a graph"),
    "a graph in the making": ("ac.dup(x).graph()", None),
    "a device": ("ac.Device(0).synchronize().sync()", "synchronizing device 0"),
    "a device, awaited": ("asyncio.run(awaited(ac.Device(0).synchronize()))", "synchronizing device 0"),
    "an event": ("event.sync()", None),
    "another library's work": ("ac.call(lambda stream, _: stream.record(), x, writes=[x]).sync()", None),
    "a prefetch": ("managed.prefetch(0).sync()", "a call of prefetch to device 0"),
}


def test_later_operations_are_told_of_the_first(broken):
    asked = "\n".join(
        f"error = told(lambda: {operation})\ncheck(error, {named!r} or error.operation)"
        for operation, named in LATER.values()
    )
    assert broken(FIRST + asked).count("lost earlier") == len(LATER)


def test_an_operation_keeps_its_error(broken):
    broken(
        FIRST
        + textwrap.dedent("""
        assert told(bad.sync) is first
        later = ac.ones(3)
        second = told(later.sync)
        assert told(lambda: later.submit().sync()) is second
        """)
    )


def test_those_that_were_on_the_device_too_may_have_been_it(broken):
    out = broken(
        """
        import sys
        ac.set_policy(ac.SingleStream())
        x = ac.zeros(4, np.int32).sync()
        latch = Latch()
        line = sys._getframe().f_lineno + 1
        bad = k["illegal"](ac.zeros(4, np.int32), FAR, grid=1, block=1)
        behind = ac.fill(x, 1)
        bad.submit(); behind.submit()
        latch.release()
        for op in (bad, behind):
            try:
                op.sync()
            except ac.DeviceLostError as error:
                print(error.is_earlier, error.first_operation, error.first_origin == f"<string>:{line}")
        """
    )
    assert out.splitlines()[-3:-1] == ["False  False", "False the launch of illegal True"]


def test_who_was_on_the_device_is_named_before_who_was_refused(broken):
    out = broken(
        """
        from cuda.bindings import driver
        x = ac.zeros(4, np.int32).sync()
        stream = ac.Device(0).default_stream
        bad = illegal()
        bad.on(stream).submit()
        while int(driver.cuStreamQuery(driver.CUstream(stream.handle))[0]) in (0, 600):
            pass  # until the fault is there, of which aiocuda has not heard
        for op in (ac.fill(x, 1).on(stream), bad, ac.fill(x, 2)):
            try:
                op.sync()
            except ac.DeviceLostError as error:
                print(error.is_earlier, error.first_operation)
        """
    )
    assert out.splitlines()[-4:-1] == ["False ", "False ", "True the launch of illegal"]


def test_what_a_function_asks_first_is_the_operations(broken):
    out = broken(
        """
        ac.set_policy(ac.SingleStream())
        x = ac.zeros(4, np.int32).sync()
        stream = ac.Device(0).stream()
        latch = Latch()
        bad = illegal()
        bad.submit()
        def ask(given, array):
            latch.release()
            ac.Device(0).synchronize().sync()
        for op in (ac.call(ask, x, writes=[x]).on(stream), ac.ones(3)):
            try:
                op.sync()
            except ac.DeviceLostError as error:
                print(error.is_earlier, error.operation, error.first_operation, sep="|")
        """
    )
    assert out.splitlines()[-3:-1] == ["False|a call of ask|", "True|the creation of an array|a call of ask"]


@pytest.mark.needs_devices(2)
def test_two_devices(broken, device):
    out = broken(
        """
        x, y = ac.zeros(4, np.int32).sync(), ac.zeros(4, np.int32, device=1).sync()
        def ask(op):
            try:
                op.sync()
            except ac.DeviceLostError as error:
                print(error.device, error.is_earlier, error.first_operation or "-", sep="|")
            else:
                print("done")
        ask(illegal())
        ask(ac.fill(y, 1))
        ask(illegal(y))
        ask(ac.fill(y, 2))
        ask(ac.fill(x, 2))
        """
    )
    found = out.splitlines()[-6:-1]
    assert found[0] == "device 0|False|-"
    if device.is_emulated:  # each device has a fault of its own
        assert found[1:3] == ["done", "device 1|False|-"]
    else:  # NVIDIA's driver answers for all devices of a process once one has had a fault
        assert found[1:3] == ["device 1|True|the launch of illegal"] * 2
    assert found[3:] == ["device 1|True|the launch of illegal", "device 0|True|the launch of illegal"]


def test_errors_are_pickled_whole(broken):
    broken(
        FIRST
        + textwrap.dedent("""
        import pickle
        for error in (first, told(lambda: ac.ones(3).sync())):
            again = pickle.loads(pickle.dumps(error))
            assert str(again) == str(error) and again.is_earlier == error.is_earlier
        """)
    )
