"""Run rounds of a program that uses a bit of everything, and print how much of what there is more afterwards."""

from __future__ import annotations

import collections
import concurrent.futures
import ctypes
import gc
import json
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import numpy as np

import aiocuda as ac
from aiocuda import _native

SOURCE = r"""
extern "C" __global__ void increment(int* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}
extern "C" __global__ void hold(unsigned long long flag) { while (*(volatile int*)flag == 0) {} }
"""
N = 64
LOOPS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}
increment = ac.kernel(SOURCE, "increment")
hold = ac.kernel(SOURCE, "hold")
for each in ac.devices():
    increment.compile(each)
    hold.compile(each)


class Boom(Exception):
    """The exception that functions of operations raise."""


def counted(x: Any) -> ac.DeviceOp[Any]:
    return increment(x, N, threads=N)


def boom(_: object) -> None:
    raise Boom


def check(found: Any, expected: int) -> None:
    assert (np.asarray(found) == expected).all(), (found, expected)


async def held(flag: ac.HostArray, stream: ac.Stream) -> None:
    """Give up waiting in each way there is, while a kernel holds the stream."""
    flag.numpy()[0] = 0
    x, y = (ac.zeros(N, np.int32).sync() for _ in range(2))
    with ac.use(stream):
        holding = hold(flag.address, grid=1, block=1).submit()
        waits: list[Any] = [
            ac.to_host(counted(x)),
            ac.to_host(counted(y)).submit(),
            stream.record(),
            stream.synchronize(),
        ]
        for waiting in waits:
            with anyio.move_on_after(0):
                await waiting
        for waiting in waits:
            try:
                await waiting.within(0)
            except ac.DeviceTimeoutError:
                continue
            raise AssertionError("a held stream has passed")
        waits[1].cancel()
        async with anyio.create_task_group() as group:
            for waiting in waits[2:]:
                group.start_soon(ac.as_coroutine, waiting)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    flag.numpy()[0] = 1
    await holding
    check(await waits[0], 1)
    await ac.Device(0).synchronize()
    check(await ac.to_host(y), 1)


async def composed() -> None:
    """Operations, futures, errors, callbacks, graphs and functions that are compiled."""
    x = await ac.zeros(N, np.int32)
    both = ac.zip(counted(ac.dup(x)), ac.dup(x).then(counted).inspect(lambda _: None)).map(lambda pair: pair[0])
    check(await ac.to_host(both.then(counted)), 2)
    for fail in (
        lambda: ac.dup(x).then(boom),
        lambda: ac.to_host(x).map(boom),
        lambda: ac.to_host(x).map(boom).submit(),
    ):
        try:
            await fail()
        except Boom:
            continue
        raise AssertionError("an error was lost")
    called = threading.Event()
    future = ac.to_host(ac.dup(x)).submit()
    future.add_done_callback(lambda _: called.set())
    check(await future, 0)
    check(await future, 0)
    ac.dup(x).schedule(ac.Device(0)).cancel()
    counted(ac.ones(N, np.int32))  # never executed
    async for done in ac.as_completed([ac.dup(x), ac.to_host(x).submit()]):
        done.result()
    await ac.wait([ac.dup(x), ac.dup(x).submit()])
    concurrent.futures.wait([ac.dup(x).submit().as_concurrent()])
    graph = ac.to_host(counted(ac.dup(x))).graph(x=x)
    for _ in range(2):
        check(await graph.launch(x=await ac.ones(N, np.int32)), 2)
    graph.close()
    check(await ac.to_host(counted(ac.dup(x)).graph().launch()), 1)
    double = ac.compile(lambda array: counted(counted(ac.dup(array))))
    for _ in range(3):
        check(await ac.to_host(double(x)), 2)


async def everything(flag: ac.HostArray) -> None:
    """One round on one event loop."""
    stream = ac.Device(0).stream()
    await held(flag, stream)
    await composed()
    event = stream.record(timing=True)
    await event
    stream.wait(event)
    await stream.synchronize()
    stream.close()
    fresh = ac.kernel(SOURCE, "increment")
    check(await ac.to_host(fresh(ac.zeros(N, np.int32), N, threads=N)), 1)
    data = np.arange(200_000, dtype=np.int32)
    for device in ac.devices():
        there = await ac.to_device(data, device)
        assert (await ac.to_host(there[::2]) == data[::2]).all()
        np.testing.assert_array_equal(await ac.to_host(there, out=np.empty_like(data)), data)
        managed = await ac.empty(N, np.int32, device=device, managed=True)
        await ac.fill(managed, 3)
        shared = (await ac.dup(there)).share()
        kept = [shared, shared[1:]]
        kept.append(kept)  # type: ignore[arg-type] # only the collector ends it
    assert (await ac.to_host(ac.to_device(data).to(len(ac.devices()) - 1)) == data).all()


def without_a_loop() -> None:
    """One round in a thread."""
    with ac.use(ac.RoundRobin(2)):
        x = ac.zeros(N, np.int32)
        for _ in range(5):
            x = counted(x)
        check(ac.to_host(x).sync(), 5)
        shared = x.sync().share()
        check(ac.to_host(shared[1:]).sync(), 5)
        shared.close()


def one_round(number: int, flag: ac.HostArray) -> None:
    anyio.run(everything, flag, **LOOPS[list(LOOPS)[number % 3]])
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(without_a_loop).result()


class _Mallinfo2(ctypes.Structure):  # glibc's; only its bytes in use count
    _fields_ = [("unused", ctypes.c_size_t * 7), ("uordblks", ctypes.c_size_t), ("others", ctypes.c_size_t * 2)]


def counts() -> dict[str, int]:
    """Everything that exists, once all that can be freed was."""
    for device in ac.devices():
        device.synchronize().sync()
    for _ in range(3):
        gc.collect()
    statistics = ac.statistics()
    found = {
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "submissions in flight": statistics.in_flight,
        "pending waits": statistics.pending,
        "staging memory": statistics.staging_bytes,
        "staging threads": statistics.staging_threads,
        "page-locked memory": _native.page_locked_memory()[0],
    }
    for device in ac.devices():
        found[f"memory of device {device.ordinal}"] = device.memory_info().used_bytes
        found[f"streams of device {device.ordinal}"] = len(_native.streams_of(device.ordinal))
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo2
    found["bytes of C++"] = libc.mallinfo2().uordblks
    found["blocks of Python"] = sys.getallocatedblocks()
    kinds = collections.Counter(type(each).__name__ for each in gc.get_objects())
    found.update({f"objects: {name}": n for name, n in kinds.items()})
    return found


def main() -> None:
    rounds, windows = int(sys.argv[1]), int(sys.argv[2])
    flag = ac.empty_host(1, np.int32).sync()
    before: dict[str, int] = {}
    least: dict[str, int] = {}
    for _ in range(windows + 1):
        for number in range(rounds):
            one_round(number, flag)
        after = counts()
        if before:
            # Caches fill up, so what a window adds gets less. A leak grows in each of them.
            for name in after:
                grown = after[name] - before.get(name, 0)
                least[name] = min(least.get(name, grown), grown)
        before = after
    print(json.dumps({name: grown for name, grown in least.items() if grown > 0}))


if __name__ == "__main__":
    main()
