"""The other process of test_interprocess: does what it is asked over a pipe, one thing after another.

Always true: each request is answered with what it yields, or with the error that it raised.
"""

from __future__ import annotations

import asyncio
import os
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import aiocuda as ac

SOURCE = r"""
extern "C" __global__ void increment(int* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}
extern "C" __global__ void hold(unsigned long long flag) {
    while (*(volatile int*)flag == 0) {}
}
"""


class Other:
    """The things that the process holds, by the names that it was told, and its commands."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}
        self._increment = ac.kernel(SOURCE, "increment")
        self._hold = ac.kernel(SOURCE, "hold")
        for kernel in (self._increment, self._hold):
            kernel.compile(0)
        self._flag = ac.empty_host(1, np.int32).sync()
        self._flag.numpy()[0] = 0
        self._go = self._flag.numpy()

    def process_id(self) -> int:
        return os.getpid()

    def open(self, name: str, handle: Any) -> tuple[Any, ...]:
        opened = self._held[name] = ac.open_ipc(handle)
        if isinstance(opened, ac.Event):
            return opened.device.ordinal, repr(opened)
        return opened.device.ordinal, opened.shape, str(opened.dtype), opened.strides

    def make(self, name: str, values: Any) -> ac.IpcHandle:
        made = self._held[name] = ac.empty(values.shape, values.dtype, interprocess=True).sync()
        ac.copy(made, values).sync()
        return made.ipc_handle()

    def read(self, name: str) -> Any:
        return ac.to_host(self._held[name]).sync(timeout=60).copy()

    def fill(self, name: str, value: int) -> None:
        array = self._held[name]
        ac.copy(array, ac.full(array.shape, value, array.dtype)).sync(timeout=60)

    def increment(self, name: str) -> None:
        array = self._held[name]
        self._increment(array, array.size, threads=array.size).sync(timeout=60)

    def begin_increment(self, name: str, future: str) -> bool:
        array = self._held[name]
        self._held[future] = self._increment(array, array.size, threads=array.size).submit()
        return bool(self._held[future].done())

    def increment_behind_hold(self, name: str) -> ac.IpcEventHandle:
        """Increment when `release` is called; return an event that stands behind it."""
        stream = ac.Device(0).stream()
        array = self._held[name]
        self._go[0] = 0
        with ac.use(stream):
            self._hold(self._flag.address, grid=1, block=1).submit()
            self._increment(array, array.size, threads=array.size).submit()
        event = self._held["event"] = stream.record(interprocess=True)
        return event.ipc_handle()

    def release(self) -> None:
        self._go[0] = 1

    def done(self, name: str) -> bool:
        return bool(self._held[name].done())

    def wait_for(self, name: str) -> None:
        async def wait() -> None:
            await self._held[name]

        asyncio.run(asyncio.wait_for(wait(), 60))

    def wait_in_stream(self, event: str, array: str, future: str) -> bool:
        """Put an increment behind an event; say whether it has run."""
        stream = ac.Device(0).stream()
        stream.wait(self._held[event])
        each = self._held[array]
        self._held[future] = self._increment(each, each.size, threads=each.size).on(stream).submit()
        return bool(self._held[future].done())

    def elapsed(self, name: str) -> float:
        event = self._held[name]
        return float(event.elapsed(event))

    def close(self, name: str) -> None:
        """Close an array; the device has nothing left to do with it."""
        ac.Device(0).synchronize().sync()
        self._held.pop(name).close()

    def drop(self, name: str) -> None:
        del self._held[name]

    def used_bytes(self) -> int:
        return ac.Device(0).memory_info().used_bytes


def serve(connection: Connection) -> None:
    """Answer requests, ``(method, arguments)``, until None comes."""
    other = Other()
    while (request := connection.recv()) is not None:
        method, arguments = request
        try:
            connection.send((True, getattr(other, method)(*arguments)))
        except Exception as error:  # noqa: BLE001 - it is for who asked
            connection.send((False, (type(error).__name__, str(error))))
