"""What a lost device refuses names what was asked of it, also where that was no operation."""

from __future__ import annotations

import textwrap

import pytest

ASKED = """
import inspect, re
ac.set_policy(ac.SingleStream())
device = ac.Device(0)
one, two = device.stream(), device.stream()
passed, passed_too = one.record(), one.record()
device.synchronize().sync()
latch = Latch()
pending = device.default_stream.record()
bad = illegal()
bad.submit()

def ask(function):
    try:
        found = function()
        if inspect.isawaitable(found):
            async def main():
                await found
            asyncio.run(main())
    except ac.DeviceLostError as error:
        assert error.operation and error.origin == "" and error.device == "device 0", error
        assert error.error.name == "CUDA_ERROR_ILLEGAL_ADDRESS" and error.__cause__ is error.error
        assert str(error).startswith(f"{error.operation} did not complete: device 0 was lost: "), error
        number = dict(zip((one._number, two._number, device.default_stream._number), ("one", "two", "default")))
        print(re.sub(r"stream (\\d+) of device 0", lambda found: "stream " + number[int(found[1])], error.operation))
"""

CALLS = {
    "device.synchronize().sync": "synchronizing device 0",
    "device.synchronize": "synchronizing device 0",
    "one.synchronize().sync": "synchronizing stream one",
    "one.synchronize": "synchronizing stream one",
    "one.record": "recording an event on stream one",
    "lambda: one.wait(two)": "ordering stream one after stream two",
    "lambda: one.join(two)": "ordering stream one after stream two",
    "lambda: one.wait(passed)": "ordering stream one after an event on stream one",
    "one.fork": "creating a stream on device 0",
    "device.stream": "creating a stream on device 0",
    "passed.done": "asking whether an event on stream one has passed",
    "pending.sync": "asking whether an event on stream default has passed",
    "lambda: pending": "asking whether an event on stream default has passed",
    "lambda: passed.elapsed(passed_too)": "asking whether an event on stream one has passed",
    "device.memory_info": "asking for the memory of device 0",
}


@pytest.mark.parametrize(("call", "asked"), CALLS.items())
def test_what_is_asked_of_a_lost_device_is_named(broken, call, asked):
    out = broken(
        ASKED
        + textwrap.dedent(f"""
        latch.release()
        try:
            bad.sync()
        except ac.DeviceLostError as error:
            assert error.operation == "the launch of illegal"
        ask({call})
        assert "lost" in repr(passed)
        """)
    )
    assert out.splitlines()[-2] == asked


@pytest.mark.parametrize(
    ("wait", "asked"),
    [
        ("device.synchronize()", "synchronizing device 0"),
        ("device.default_stream.synchronize()", "synchronizing stream default"),
        ("pending_behind", "waiting for an event on stream default"),
    ],
)
@pytest.mark.parametrize("blocks", [False, True])
def test_what_is_waited_for_while_the_device_is_lost_is_named(broken, wait, asked, blocks):
    out = broken(
        ASKED
        + textwrap.dedent(f"""
        pending_behind = device.default_stream.record()
        before = ac.statistics().pending
        def release():
            while ac.statistics().pending == before:
                pass
            latch.release()
        thread = threading.Thread(target=release)
        thread.start()
        awaited = {wait}
        ask(awaited.sync if {blocks} else lambda: awaited)
        thread.join()
        """)
    )
    assert out.splitlines()[-2] == asked


OF_KERNELS = {
    "k['increment'].attributes": "asking for the attributes of kernel increment on device 0",
    "k['increment'].occupancy": "asking for the occupancy of kernel increment on device 0",
    "lambda: k['increment'].set_attributes(cache='l1')": "setting attributes of kernel increment on device 0",
    "unknown.compile": "loading kernel increment on device 0",
    "lambda: unknown.module.variable('count')": "looking for variable count of increment.cu on device 0",
}


@pytest.mark.parametrize(("call", "asked"), OF_KERNELS.items())
def test_what_is_asked_of_a_kernel_on_a_lost_device_is_named(broken, device, call, asked):
    out = broken(
        ASKED
        + textwrap.dedent(f"""
        counting = '__device__ int count; extern "C" __global__ void counting(int* x) {{ x[0] = count; }}'
        unknown = ac.kernel(SOURCE + counting, "increment")
        latch.release()
        try:
            bad.sync()
        except ac.DeviceLostError:
            print("answered")
        ask({call})
        """)
    )
    # NVIDIA's driver may know the answer without the device.
    assert out.splitlines()[-2] in ({asked} if device.is_emulated else {asked, "answered"})


@pytest.mark.parametrize("wait", ["op.sync()", "asyncio.run(awaited(op))"])
def test_a_launch_whose_kernel_does_not_load_as_the_device_is_lost_is_named(broken, wait):
    out = broken(
        f"""
        async def awaited(op):
            return await op
        x = ac.zeros(4, np.int32).sync()
        try:
            illegal().sync()
        except ac.DeviceLostError:
            pass
        op = ac.kernel(SOURCE + "// loaded by nobody so far", "increment")(x, grid=1, block=1)
        try:
            {wait}
        except ac.DeviceLostError as error:
            print(error.operation, "|", error.origin, "|", error.device)
        """
    )
    operation, origin, device = out.splitlines()[-2].split(" | ")
    assert (operation, device) == ("the launch of increment", "device 0")
    assert origin.startswith("<string>:")
