"""An error of a lost device names what was asked of it: an operation, with its line; or words, if there is no
operation.

Things that the library asks for an operation (a mark behind other work, a wait, a flag, memory on the way) count as the
operation's. Each test breaks a device, so each runs in a process of its own.
"""

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
        assert str(error).startswith(f"{error.operation} did not complete: device 0 was lost"), error
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
        refused(illegal().sync)
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


OF_OPERATIONS = """
import functools, sys, anyio
ac.set_policy(ac.SingleStream())
one, two, three = (ac.Device(0).stream() for _ in range(3))
x, y, z, last = (ac.zeros(4, np.int32).sync() for _ in range(4))
managed = ac.empty(4, np.int32, managed=True).sync()
host, other_host = (ac.empty_host(4, np.int32).sync() for _ in range(2))
increment = functools.partial(k["increment"], grid=1, block=1)
compiled = ac.compile(lambda array: increment(ac.dup(array)))
results = [compiled(x).sync() for _ in range(2)]
latch = Latch()
bad = illegal()
bad.submit()
behind = increment(x)
behind.submit()
ac.dup(x).on(two).submit()  # has a mark made behind x, for which it waits
unmarked = increment(last)
unmarked.submit()
latch.release()
try:
    bad.sync()
except ac.DeviceLostError:
    pass

def record(stream, array):
    stream.record()

def ask(make):
    async def main():
        await make()
    ways = [
        lambda: make().sync(),
        lambda: make().submit().sync(),
        lambda: anyio.run(main, backend="asyncio", backend_options={"use_uvloop": False}),
        lambda: anyio.run(main, backend="asyncio", backend_options={"use_uvloop": True}),
        lambda: anyio.run(main, backend="trio"),
    ]
    for way in ways:
        try:
            way()
        except ac.DeviceLostError as error:
            assert error.device == "device 0" and error.__cause__ is error.error, error
            print(error.operation, "|", error.origin)
"""

NAMED = {
    "a mark behind other work": ("increment(y)", "the launch of increment"),
    "a mark behind other work, for a new array": ("ac.ones(4)", "the creation of an array"),
    "a wait": ("increment(x).on(three)", "the launch of increment"),
    "a flag that tells how far a stream is": (  # of launches of no threads, which the driver is not asked for
        "functools.reduce(lambda array, _: k['increment'](array, threads=0).on(one), range(130), y)",
        "the launch of increment",
    ),
    "a mark that was held back": ("ac.zip(increment(y), increment(z).on(one))", "the launch of increment"),
    "a wait that was held back": ("ac.zip(increment(x).on(three), increment(z).on(one))", "the launch of increment"),
    "a flag of a stream whose calls were held back": (
        "ac.zip(functools.reduce(lambda array, _: increment(array).on(one), range(130), y), increment(z).on(two))",
        "the launch of increment",
    ),
    "memory on a copy's way": ("ac.copy(host, other_host).on(three)", "a copy"),
    "a policy's first streams": ("increment(y).on(ac.RoundRobin(2))", "the launch of increment"),
    "what a function of call() asks": ("ac.call(record, y, writes=[y]).on(one)", "a call of record"),
    "a prefetch": ("managed.prefetch(0).on(one)", "a call of prefetch to device 0"),
    "memory for what a compiled function yields": ("compiled(ac.value(x))", "a call of <lambda>"),
}


@pytest.mark.parametrize("what", NAMED)
def test_what_the_library_asks_for_an_operation_on_a_lost_device_is_the_operations(broken, what):
    operation, named = NAMED[what]
    out = broken(
        OF_OPERATIONS
        + textwrap.dedent(f"""
        line = sys._getframe().f_lineno + 1
        ask(lambda: {operation})
        print(line)
        """)
    )
    *found, line, _ = out.splitlines()
    assert len(found) == 5
    assert found[0] == f"{named} | <string>:{line}", found


def test_what_is_asked_to_explain_an_operation_is_the_operations(broken):
    out = broken(
        OF_OPERATIONS
        + textwrap.dedent("""
        try:
            increment(y).on(ac.RoundRobin(2)).explain()
        except ac.DeviceLostError as error:
            print(error.operation, "|", error.origin.rpartition(":")[0])
        """)
    )
    assert out.splitlines()[-2] == "the launch of increment | <string>"


@pytest.mark.parametrize(
    ("work", "named"),
    [
        ("graph.update(increment(ac.dup(y)))", "making an array of the graph made at <string>:{update}"),
        ("increment(ac.dup(x)).graph()", "making an array of the graph made at <string>:{update}"),
        ("graph.upload(one)", "working on the graph made at <string>:{made}"),
        ("compiled(x)", "a call of <lambda>"),
    ],
)
def test_what_is_asked_for_a_graph_names_its_line(broken, work, named):
    making = textwrap.dedent("""
    made = sys._getframe().f_lineno + 1
    graph = increment(ac.dup(x)).graph()
    latch = Latch()
    """)
    out = broken(
        OF_OPERATIONS.replace("latch = Latch()\n", making)
        + textwrap.dedent(f"""
        try:
            update = sys._getframe().f_lineno + 1
            {work}
        except ac.DeviceLostError as error:
            print(made, update, error.operation, sep="|")
            assert error.device == "device 0", error
        """)
    )
    made, update, operation = out.splitlines()[-2].split("|")
    assert operation == named.format(made=made, update=update)


def test_calls_of_events_of_a_lost_device_name_the_event(broken):
    out = broken(
        """
        stream = ac.Device(0).stream()
        first, second = stream.record(timing=True), stream.record(timing=True)
        second.sync()
        refused(illegal().sync)
        for call in (first.done, lambda: first.elapsed(second), lambda: stream.wait(first), stream.record):
            try:
                call()
            except ac.DeviceLostError as error:
                print(error.operation.replace(f"stream {stream._number} ", "the stream "))
        """
    )
    assert out.splitlines()[:-1] == [
        "asking whether an event on the stream of device 0 has passed",
        "asking whether an event on the stream of device 0 has passed",
        "ordering the stream of device 0 after an event on the stream of device 0",
        "recording an event on the stream of device 0",
    ]
