"""NCCL, through the bindings of nccl4py; the only importer of that.

Always true: communicators do not block. A call that waits for other ranks returns at once, and its state is asked for,
so that another thread can abort it. Nothing is asked of one that was aborted. The calls of one launch stand in one NCCL
group, which is ended whatever happens.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda.errors import CollectiveError, DriverError, MissingPackageError

__all__ = [
    "DTYPES", "OPS", "Communicator", "NcclCall", "connect", "is_installed", "launch", "lock_pages", "new_id",
]  # fmt: skip

_INSTALL: Final = 'pip install "aiocuda[nccl]"'

# NCCL's numbers (nccl.h).
DTYPES: Final = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
    "float8_e4m3fn": 10,
    "float8_e5m2": 11,
}
OPS: Final = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}

_IN_PROGRESS: Final = 7
_SOON_S: Final = 0.0005  # NCCL launches on a thread of its own, which takes some 50 us
_BETWEEN_LOOKS_S: Final = 0.0005


@functools.cache
def _bindings() -> Any:
    """Return the module of bindings.

    Raises
    ------
    MissingPackageError
        nccl4py or NCCL is not installed.
    """
    runtime.driver_info()  # the driver is chosen first, and with the emulated one its NCCL
    try:
        from nccl.bindings import nccl
    except ImportError as error:
        raise MissingPackageError(f"collectives need nccl4py ({error}): {_INSTALL}") from error
    return nccl


def is_installed() -> bool:
    """Return whether nccl4py is there. Whether it finds NCCL is known when that is first used."""
    return importlib.util.find_spec("nccl") is not None


def new_id() -> bytes:
    """Return the 128 bytes by which ranks find one another."""
    bindings = _bindings()
    try:
        return bytes(bindings.get_unique_id())
    except RuntimeError as error:  # of the search for the library
        raise MissingPackageError(f"collectives need NCCL ({error}): {_INSTALL}") from error


@dataclass(frozen=True, slots=True)
class NcclCall:
    """One call of a collective on one device.

    Attributes
    ----------
    function
        The name of the binding.
    send, receive
        Addresses; None for one that the function does not take.
    count, dtype
        As NCCL counts: for most functions the items of one rank.
    more
        The operator, the root or the peer, in the order of NCCL's parameters.
    """

    function: str
    send: int | None
    receive: int | None
    count: int
    dtype: int
    more: tuple[int, ...]


class Communicator:
    """One rank's place in a group of ranks, on one device. Those of one process have one lock, held for each call."""

    def __init__(self, handle: Any, lock: threading.RLock) -> None:
        self._handle = handle
        self.lock = lock
        self._is_over = False

    def state(self) -> str | None:
        """Return None where all is well, an empty text while something goes on, else what is wrong."""
        with self.lock:
            if self._is_over:
                return "the communicator was aborted"
            bindings = _bindings()
            result = int(bindings.comm_get_async_error(self._handle))
            if result == 0:
                return None
            if result == _IN_PROGRESS:
                return ""
            said = bindings.get_last_error(self._handle)
            return str(said).strip() or str(bindings.get_error_string(result))

    def wait_until_ready(self, give_up: Callable[[], str | None]) -> None:
        """Wait until what was called has been done. `give_up`: why to wait no longer."""
        soon = time.monotonic() + _SOON_S
        while (state := self.state()) == "":
            if (reason := give_up()) is not None:
                raise CollectiveError(reason)
            time.sleep(0 if time.monotonic() < soon else _BETWEEN_LOOKS_S)
        if state is not None:
            raise CollectiveError(f"NCCL: {state}")

    def call(self, call: NcclCall, stream: int) -> None:
        if self._is_over:
            raise CollectiveError("the communicator was aborted")
        function = getattr(_bindings(), call.function)
        addresses = [each for each in (call.send, call.receive) if each is not None]
        function(*addresses, call.count, call.dtype, *call.more, self._handle, stream)

    def abort(self) -> None:
        self._end("comm_abort")

    def destroy(self) -> None:
        self._end("comm_destroy")

    def _end(self, function: str) -> None:
        with self.lock:
            if self._is_over:
                return
            self._is_over = True  # so nobody else uses it any more, and nobody waits for what may wait for a device
        getattr(_bindings(), function)(self._handle)


def connect(
    devices: Sequence[int], ranks: Sequence[int], size: int, identity: bytes, most_blocks: int | None = None
) -> list[Communicator]:
    """Begin to connect ranks of this process with all others; one rank for each device.

    `most_blocks`: how many blocks NCCL's kernels have at most; None: as NCCL thinks best.
    """
    bindings = _bindings()
    config = bindings.Config()
    config.blocking = 0
    if most_blocks is not None:
        config.max_ctas = most_blocks
    made = []
    lock = threading.RLock()
    given = bytearray(identity)  # the binding takes no bytes
    with _group(bindings):
        for device, rank in zip(devices, ranks, strict=True):
            with runtime.context_of(device):
                handle = bindings.comm_init_rank_scalable(size, rank, 1, given, config.ptr)
            made.append(Communicator(handle, lock))
    return made


@contextlib.contextmanager
def _group(bindings: Any) -> Iterator[None]:
    bindings.group_start()
    try:
        yield
    finally:
        bindings.group_end()


def launch(calls: Sequence[tuple[Communicator, int, Sequence[NcclCall]]], give_up: Callable[[], str | None]) -> None:
    """Put calls on streams: for each communicator a stream's handle, and what is called there."""
    with _native.RelaxedCaptures():
        with calls[0][0].lock, _group(_bindings()):
            for communicator, stream, of_one in calls:
                for call in of_one:
                    communicator.call(call, stream)
        for communicator, _, _ in calls:
            communicator.wait_until_ready(give_up)


def lock_pages(device: int, address: int, size_bytes: int) -> None:
    """Have memory of this process page-locked, where all devices find it at the same address."""
    from cuda.bindings import driver

    flags = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
    with runtime.context_of(device):
        runtime.call(driver.cuMemHostRegister, address, size_bytes, flags)
        seen_at = int(runtime.call(driver.cuMemHostGetDevicePointer, address, 0))
        if seen_at != address:
            runtime.call(driver.cuMemHostUnregister, address)
            raise DriverError(
                "CUDA_ERROR_NOT_SUPPORTED", 801, "devices do not find it at its address", "locking memory"
            )
