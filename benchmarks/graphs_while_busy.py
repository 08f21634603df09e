"""Which executables of CUDA graphs wait for a kernel that runs, and for how long, on the driver in force.

    AIOCUDA_DRIVER=nvidia python benchmarks/graphs_while_busy.py

Each case runs in a process of its own, since a driver never gives back what it has taken for executables. Nothing of
aiocuda is measured: its engine makes room ahead of time because of what this shows.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import aiocuda as ac

PATIENCE_S = 1.0
CASES = [*((nodes, 1) for nodes in (1, 10, 40, 100, 1000, 5000)), (1, 10), (1, 100)]  # nodes in a branch, branches
# Graphs of two devices: how many branches of 3 nodes on each, what they are like, and which device is held.
TWO_DEVICES = [
    *(
        (first, second, "independent", held)
        for first, second in ((1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2, 2), (4, 4))
        for held in (0, 1)
    ),
    *((1, 1, "linked", held) for held in (0, 1)),  # the second device goes on behind the first
    *((2, 2, "linked", held) for held in (0, 1)),
    *((0, 1, "page-locked", held) for held in (0, 1)),  # fills of page-locked memory
]
BUSY_MS = [1, 10, 100]

SOURCE = """
extern "C" __global__ void hold(unsigned long long flag) { while (*(volatile int*)flag == 0) {} }
extern "C" __global__ void spin(long long cycles) { long long begin = clock64(); while (clock64() - begin < cycles) {} }
"""


def check(answer: tuple[Any, ...]) -> Any:
    result, *values = answer
    if int(result) != 0:
        raise RuntimeError(str(result))
    return values[0] if len(values) == 1 else values


class Machine:
    """Devices, a stream that a kernel holds, and a graph with so many branches on each device."""

    def __init__(self, nodes: int, *branches: int, kind: str = "independent", held: int = 0) -> None:
        for ordinal in range(len(branches)):
            ac.Device(ordinal).synchronize().sync()  # opens the device
        from cuda.bindings import driver

        self.driver = driver
        contexts = [check(driver.cuDevicePrimaryCtxRetain(ordinal)) for ordinal in range(len(branches))]
        self.context = contexts[0]
        image = ac.Module.from_source(SOURCE)
        self.kernels = {name: image.kernel(name) for name in ("hold", "spin")}
        for kernel in self.kernels.values():
            for ordinal in range(len(branches)):
                kernel.compile(ac.Device(ordinal))
        self.stream = ac.Device(held).stream()
        self.flag = ac.empty_host(2, "int32").sync()
        self.flag.numpy()[0] = 0
        self.graph = check(driver.cuGraphCreate(0))
        ends: list[Any] = []
        for context, count in zip(contexts, branches, strict=True):
            check(driver.cuCtxSetCurrent(context))
            fill = driver.CUDA_MEMSET_NODE_PARAMS()
            fill.dst = self.flag.address + 4 if kind == "page-locked" else check(driver.cuMemAlloc(4))
            fill.elementSize, fill.width, fill.height = 4, 1, 1
            firsts, ends = ends, []
            for branch in range(count):
                after = firsts[branch : branch + 1] if kind == "linked" else []
                for _ in range(nodes):
                    after = [check(driver.cuGraphAddMemsetNode(self.graph, after, len(after), fill, context))]
                ends += after
        self.executables: list[Any] = []

    def make(self) -> None:
        """Make one more executable, which stays."""
        check(self.driver.cuCtxSetCurrent(self.context))
        self.executables.append(check(self.driver.cuGraphInstantiate(self.graph, 0)))

    def hold(self) -> None:
        """Keep the device busy."""
        self.flag.numpy()[0] = 0
        with ac.use(self.stream):
            self.kernels["hold"](self.flag.address, grid=1, block=1).submit()

    def release(self) -> None:
        """Let the device go on, and wait until it has."""
        self.flag.numpy()[0] = 1
        self.stream.synchronize().sync()


def returns(function: Callable[[], None]) -> tuple[bool, threading.Thread]:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(PATIENCE_S)
    return not thread.is_alive(), thread


def count_until_they_wait(machine: Machine, most: int) -> str:
    """Return which executables waited for the kernel that runs: the numbers of the first three."""
    waited: list[int] = []
    machine.hold()
    for number in range(1, most + 1):
        is_made, thread = returns(machine.make)
        if not is_made:
            waited.append(number)
            machine.release()
            thread.join()
            machine.hold()
        if len(waited) == 3:
            break
    machine.release()
    return ", ".join(map(str, waited)) or f"none of {most}"


def measure_waits(nodes: int, branches: int) -> None:
    waited = count_until_they_wait(Machine(nodes, branches), 300 if nodes * branches < 500 else 60)
    print(f"{branches:5} branches of {nodes:5} nodes: waited for the running kernel: {waited}")


def measure_two_devices(first: int, second: int, kind: str, held: int) -> None:
    waited = count_until_they_wait(Machine(3, first, second, kind=kind, held=held), 150)
    print(f"{kind} branches {first} + {second}; device {held} is held: waited for the running kernel: {waited}")


def measure_busy(milliseconds: int) -> None:
    machine = Machine(10, 1)
    cycles = ctypes.c_longlong(int(1.7e6 * milliseconds)).value
    streams = [ac.Device(0).stream() for _ in range(2)]
    ends = threading.Event()

    def feed(stream: ac.Stream) -> None:
        ahead: list[Any] = []
        while not ends.is_set():
            with ac.use(stream):
                ahead.append(machine.kernels["spin"](cycles, grid=1, block=1).submit())
            if len(ahead) > 8:
                ahead.pop(0).sync()

    threads = [threading.Thread(target=feed, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    times = []
    for _ in range(150):
        begin = time.perf_counter()
        machine.make()
        times.append(1e3 * (time.perf_counter() - begin))
    ends.set()
    for thread in threads:
        thread.join()
    times.sort()
    print(f"kernels of {milliseconds} ms, never idle: median {times[75]:.2f} ms, slowest {times[-1]:.1f} ms")


def main() -> None:
    if len(sys.argv) > 1:
        kind, *numbers = sys.argv[1:]
        measure: Any = {"waits": measure_waits, "two": measure_two_devices, "busy": measure_busy}[kind]
        measure(*(int(word) if word.isdigit() else word for word in numbers))
        sys.stdout.flush()
        os._exit(0)
    for case in CASES:
        subprocess.run([sys.executable, __file__, "waits", *map(str, case)], check=True)
    if len(ac.devices()) > 1:
        for pair in TWO_DEVICES:
            subprocess.run([sys.executable, __file__, "two", *map(str, pair)], check=True)
    for milliseconds in BUSY_MS:
        subprocess.run([sys.executable, __file__, "busy", str(milliseconds)], check=True)


if __name__ == "__main__":
    main()
