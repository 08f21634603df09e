"""Graphs are made while a kernel runs: the driver is not asked for what it would wait for.

NVIDIA's driver keeps a store for executables on each device. To enlarge it, the driver waits until the device has done
all its work, and launches wait meanwhile. The emulated driver does the same. So these programs run in a process of
their own, which is ended where it does not come back.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

import aiocuda as ac

Program = Callable[[str], None]

BEGIN = r"""
import os, sys, threading
os.environ["CUDA_MODULE_LOADING"] = "EAGER"  # loading a kernel waits for those that run
import numpy as np
import aiocuda as ac

SOURCE = '''
extern "C" __global__ void increment(int* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}
extern "C" __global__ void hold(unsigned long long flag) { while (*(volatile int*)flag == 0) {} }
'''
increment, hold = (ac.kernel(SOURCE, name) for name in ("increment", "hold"))
for device in ac.devices():
    increment.compile(device)
    hold.compile(device)

flag = ac.empty_host(1, np.int32).sync()
flag.numpy()[0] = 0
arrays = {device: ac.zeros(8, np.int32, device=device).sync() for device in ac.devices()}

# What does not come back is told by a status of its own.
def give_up():
    os._exit(77)
watch = threading.Timer(60, give_up)
watch.daemon = True

def begin_to_hold(device):
    watch.start()
    with ac.use(device.stream()):
        hold(flag.address, grid=1, block=1).submit()

def end():
    assert flag.numpy()[0] == 0, "the kernel that holds the device was to run until now"
    flag.numpy()[0] = 1
    for device in ac.devices():
        device.synchronize().sync()

def chain(device, length=3):
    x = arrays[device]
    for _ in range(length):
        x = increment(x, 8, threads=8)
    return x

def branches(device, width):
    return ac.zip(*(increment(ac.full(8, i, np.int32, device=device), 8, threads=8) for i in range(width)))
"""


@pytest.fixture
def runs_well(in_process: Callable[..., subprocess.CompletedProcess[str]]) -> Program:
    """Run a program that begins with `BEGIN`, and require that it ends by itself, without an error."""

    def run(program: str) -> None:
        found = in_process(BEGIN + program)
        assert found.returncode != 77, "a graph waited for the kernel that ran"
        assert (found.returncode, found.stderr) == (0, ""), found.stdout + found.stderr

    return run


def test_many_graphs_are_made_while_a_kernel_runs(runs_well: Program):
    runs_well(
        """
device = ac.Device(0)
graphs = [chain(device).graph()]
begin_to_hold(device)
graphs += [chain(device).graph() for _ in range(60)]
futures = [graph.launch().submit() for graph in graphs]
end()
for future in futures:
    future.sync()
assert ac.to_host(arrays[device]).sync().tolist() == [3 * len(graphs)] * 8
"""
    )


def test_graphs_of_many_branches_are_made_while_a_kernel_runs(runs_well: Program):
    runs_well(
        """
device = ac.Device(0)
first = branches(device, 16).graph()
begin_to_hold(device)
graphs = [branches(device, 16).graph() for _ in range(3)]
futures = [graph.launch().submit() for graph in graphs]
end()
for future in futures:
    assert [ac.to_host(x).sync()[0] for x in future.sync()] == list(range(1, 17))
"""
    )


def test_what_graphs_took_is_used_again_when_they_are_gone(runs_well: Program):
    """Closed graphs give their places back, so a program that makes one after another never runs out."""
    runs_well(
        """
device = ac.Device(0)
chain(device).graph().close()
begin_to_hold(device)
for _ in range(300):
    chain(device).graph().close()
end()
"""
    )


def test_the_store_grows_in_time_when_the_device_has_pauses(runs_well: Program):
    runs_well(
        """
device = ac.Device(0)
graphs = [chain(device).graph() for _ in range(200)]  # the device is idle meanwhile
begin_to_hold(device)
graphs += [chain(device).graph() for _ in range(60)]
end()
"""
    )


PAUSES = r"""
def make_with_pauses(device, make, count):
    graphs = []
    for _ in range(count):
        flag.numpy()[0] = 0
        with ac.use(device.stream()):
            holding = hold(flag.address, grid=1, block=1).submit()
        graphs.append(make())  # the device is at work
        flag.numpy()[0] = 1
        holding.sync()
        device.synchronize().sync()
    flag.numpy()[0] = 0
    return graphs
"""


def test_the_store_grows_when_graphs_are_made_only_while_the_device_works(runs_well: Program):
    """What was missing when a graph was made comes when the device has done its work."""
    runs_well(
        PAUSES
        + """
device = ac.Device(0)
graphs = make_with_pauses(device, lambda: chain(device).graph(), 5)
begin_to_hold(device)
graphs += [chain(device).graph() for _ in range(60)]
end()
"""
    )


def test_the_store_grows_when_calls_are_traced_only_while_the_device_works(runs_well: Program):
    runs_well(
        PAUSES
        + """
device = ac.Device(0)
@ac.compile(max_graphs=64)
def twice(x):
    return increment(increment(x, x.size, threads=x.size), x.size, threads=x.size)
inputs = [ac.zeros(n, np.int32).sync() for n in range(1, 60)]
make_with_pauses(device, lambda: twice(inputs.pop()).submit(), 5)
begin_to_hold(device)
futures = [twice(x).submit() for x in inputs]
end()
for x, future in zip(inputs, futures):
    assert ac.to_host(future.sync()).sync().tolist() == [2] * x.size
"""
    )


@pytest.mark.needs_devices(2)
def test_a_device_that_works_beside_an_idle_one_gets_room_when_it_rests(runs_well: Program):
    runs_well(
        PAUSES
        + """
one, other = ac.Device(0), ac.Device(1)
def make():
    return ac.zip(chain(one), chain(other)).graph()
graphs = make_with_pauses(other, make, 3)
begin_to_hold(other)
graphs += [make() for _ in range(60)]
end()
"""
    )


@pytest.mark.needs_devices(2)
def test_graphs_of_two_devices_are_made_while_a_kernel_runs_on_either(runs_well: Program):
    runs_well(
        """
one, other = ac.Device(0), ac.Device(1)
def both():
    return ac.zip(chain(one), chain(other))
graphs = [both().graph()]
begin_to_hold(other)
graphs += [both().graph() for _ in range(60)]
end()
"""
    )


USE_STREAMS = """
for stream in streams:
    ac.fill(arrays[device], 0).sync_on(stream)
graphs.append(chain(device).graph())  # the device is idle
begin_to_hold(device)
graphs += [chain(device).graph() for _ in range(60)]
end()
"""


def test_streams_that_are_used_leave_room_for_graphs(runs_well: Program):
    """A stream has a place in the driver's store, too, from its first work on."""
    runs_well(
        """
device = ac.Device(0)
graphs = [chain(device).graph() for _ in range(10)]
streams = [device.stream() for _ in range(100)]
"""
        + USE_STREAMS
    )


def test_streams_that_are_used_later_leave_room_for_graphs(runs_well: Program):
    """Streams that were only made have no place yet: they do not make up for those that they take later."""
    runs_well(
        """
device = ac.Device(0)
streams = [device.stream() for _ in range(200)]
graphs = [chain(device).graph()]  # there is room now
"""
        + USE_STREAMS
    )


def test_calls_of_a_compiled_function_are_traced_while_a_kernel_runs(runs_well: Program):
    runs_well(
        """
device = ac.Device(0)
@ac.compile(max_graphs=64)
def twice(x):
    return increment(increment(x, x.size, threads=x.size), x.size, threads=x.size)
inputs = [ac.zeros(n, np.int32).sync() for n in range(1, 51)]
outputs = [twice(inputs[0]).sync()]
begin_to_hold(device)
futures = [twice(x).submit() for x in inputs[1:]]
end()
for x, future in zip(inputs[1:], futures):
    assert ac.to_host(future.sync()).sync().tolist() == [2] * x.size
"""
    )


def test_other_threads_run_python_while_a_graph_is_made(runs_well: Program):
    """If the store is full after all, making a graph waits for the device without the GIL."""
    runs_well(
        """
device = ac.Device(0)
begin_to_hold(device)
made = []
def make():
    for _ in range(200):  # more than there is room for, and no pause to make room in
        made.append(chain(device).graph())
thread = threading.Thread(target=make)
thread.start()
seen = -1
while thread.is_alive() and len(made) != seen:
    seen = len(made)
    thread.join(0.2)
flag.numpy()[0] = 1
thread.join()
device.synchronize().sync()
assert len(made) == 200
"""
    )


def test_a_graph_that_another_thread_closes_while_it_is_updated_is_closed(runs_well: Program):
    runs_well(
        """
device = ac.Device(0)
x = ac.zeros((8, 8), np.int32).sync()
def copies(columns):  # a copy of two dimensions cannot be set in an executable, so an update makes another
    return ac.copy(ac.empty((8, columns), np.int32), x[:, :columns])
for _ in range(20):
    graph = copies(4).graph()
    errors = []
    def update():
        try:
            graph.update(copies(4))
        except ac.ClosedError as error:
            errors.append(error)
    thread = threading.Thread(target=update)
    thread.start()
    graph.close()
    thread.join()
    assert graph.is_closed
"""
    )


def test_making_room_holds_no_memory(device: ac.Device, used_bytes: Callable[[], int]):
    before = used_bytes()
    graph = ac.zeros(8).graph()
    graph.close()
    del graph
    assert used_bytes() == before
