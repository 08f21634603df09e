"""NCCL, through the bindings of nccl4py; the only importer of that.

A rank has two communicators. It joins by a root, which does not block, so that another thread can abort it at any time.
Its calls go by a child of that, which blocks: NCCL launches them on the thread that calls. For one that does not block
it has a thread of its own, which takes longer. The two share the mark of an abort, so an abort of the root frees a
thread that a call of the child holds.

Always true: nothing is asked of one that was aborted. The calls of one launch stand in one NCCL group, which is ended
whatever happens.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiocuda import _forks, _native
from aiocuda._driver import context_limits, runtime
from aiocuda.errors import CollectiveError, DriverError, MissingPackageError

__all__ = [
    "DTYPES", "OPS", "Communicators", "NcclCall", "is_installed", "lock_pages", "new_id",
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
_BETWEEN_LOOKS_S: Final = 0.0005
_STACK: Final = "stack_bytes"
_keeping: Final = _forks.lock()
_kept: Final[dict[int, tuple[int, int]]] = {}  # of a device: how many join there, and the limit before
_ABORTED: Final = "the communicators were aborted"


@functools.cache
def _bindings() -> Any:
    """Return the module of bindings.

    Raises
    ------
    MissingPackageError
        nccl4py is not installed.
    """
    runtime.driver_info()  # the driver is chosen first, and with the emulated one its NCCL
    # A launch that is the first to need so much stack waits until its device is idle, and the device may wait for other
    # ranks. So NCCL is to have the stack of all its kernels from the beginning; it reads this when it is first used.
    os.environ.setdefault("NCCL_SET_STACK_SIZE", "1")
    try:
        from nccl.bindings import nccl
    except ImportError as error:
        raise MissingPackageError(f"collectives need nccl4py ({error}): {_INSTALL}") from error
    return nccl


@functools.cache
def is_installed() -> bool:
    """Return whether nccl4py is there, and finds NCCL. *Blocks*: at first for some 30 ms, in which both are loaded."""
    try:
        _bindings().get_version()
    except (MissingPackageError, RuntimeError):  # the latter of the search for the library
        return False
    return True


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


class Communicators:
    """The places of the ranks of this process among all ranks of a group; each is on a device of its own.

    Parameters
    ----------
    devices, ranks
        The ordinals of the devices, and the rank of each.
    size
        How many ranks there are.
    most_blocks
        How many blocks NCCL's kernels have at most; None: as NCCL thinks best.
    """

    def __init__(self, devices: Sequence[int], ranks: Sequence[int], size: int, most_blocks: int | None = None) -> None:
        self._devices, self._ranks, self._size = devices, ranks, size
        self._most_blocks = most_blocks
        self._roots: list[Any] = []
        self._children: list[Any] = []  # NCCL writes their handles when they are made
        self._kept: object = None
        self._have_joined = False
        self._launching = threading.Lock()
        self._asking = threading.Lock()  # not that of launches: NCCL may hold one of them for long
        self._is_over = False

    def join(self, identity: bytes, give_up: Callable[[], str | None]) -> None:
        """Connect them with all other ranks, and wait until these have joined, too; then there can be launches.

        Not to be called by the main thread: a signal could come between NCCL's making of a communicator and its note
        here, and then NCCL would write a handle into memory that is gone, and nobody would abort it.

        Parameters
        ----------
        identity
            What `new_id` gave, in one of the processes.
        give_up
            Why to wait no longer; None: to wait on.

        Raises
        ------
        CollectiveError
            NCCL does not connect the ranks, they were aborted, or `give_up` says so.
        """
        with contextlib.ExitStack() as stacks:
            for each in self._devices:
                stacks.enter_context(_stack_kept(each))
            self._join(identity, give_up)
        self._have_joined = True

    def _join(self, identity: bytes, give_up: Callable[[], str | None]) -> None:
        bindings = _bindings()
        config = self._config(blocking=False)
        given = bytearray(identity)  # the binding takes no bytes

        def make_roots() -> None:
            for device, rank in zip(self._devices, self._ranks, strict=True):
                with runtime.context_of(device):
                    self._roots.append(bindings.comm_init_rank_scalable(self._size, rank, 1, given, config.ptr))

        with self._beginning(), _in_words(self._roots):
            _in_group(bindings, make_roots)
        self._wait_for_roots(give_up)
        config_of_children = self._config(blocking=True)

        def split_off() -> None:
            for root, rank in zip(self._roots, self._ranks, strict=True):
                self._children.append(bindings.comm_split(root, 0, rank, config_of_children.ptr))

        with self._beginning(), _in_words(self._roots):
            _in_group(bindings, split_off)
        self._wait_for_roots(give_up)

    def keep(self, arrays: object) -> None:
        """Keep arrays that no operation has, as long as NCCL may write them: an abort takes a while."""
        self._kept = arrays

    def state(self) -> str | None:
        """Return None where all is well, an empty text while something goes on, else what is wrong."""
        with self._asking:
            if self._is_over:
                return _ABORTED
            states = map(_state_of, self._children if self._have_joined else self._roots)
            return max((each for each in states if each is not None), default=None)  # what is wrong comes first

    def launch(self, streams: Sequence[int], calls: Sequence[Sequence[NcclCall]]) -> None:
        """Put calls on streams: for each rank a stream's handle, and what is called there.

        *Blocks*: NCCL connects ranks for a way of working together when they first need it, and keeps the caller until
        all of them have come, or until `abort`.

        Raises
        ------
        CollectiveError
            NCCL refuses a call, or the ranks were aborted.
        """
        bindings = _bindings()

        def make() -> None:
            for communicator, stream, of_one in zip(self._children, streams, calls, strict=True):
                for call in of_one:
                    addresses = [each for each in (call.send, call.receive) if each is not None]
                    function = getattr(bindings, call.function)
                    function(*addresses, call.count, call.dtype, *call.more, communicator, stream)

        with _native.RelaxedCaptures(), self._launching:
            if self._is_over:
                raise CollectiveError(_ABORTED)
            with _in_words(self._children):
                _in_group(bindings, make)

    def abort(self) -> None:
        """Have NCCL end what is under way, and let go of the ranks. *Blocks*: maybe for as long as a device is held."""
        if self._end():
            bindings = _bindings()
            # Roots first, and without the lock: that frees a launch.
            _each(bindings.comm_abort, self._roots)
            with self._launching:
                _each(bindings.comm_abort, [each for each in self._children if each.handle])

    def destroy(self) -> None:
        """Let go of the ranks, whose calls have all ended. *Blocks*: until others on this host do the same."""
        if self._end():
            bindings = _bindings()
            with self._launching:
                _each(bindings.comm_destroy, self._children)
                _each(bindings.comm_destroy, self._roots)

    def _end(self) -> bool:
        """Have nobody ask NCCL anything more; return whether that is new."""
        with self._asking:
            is_new, self._is_over = not self._is_over, True
        return is_new

    @contextlib.contextmanager
    def _beginning(self) -> Iterator[None]:
        with self._asking:
            if self._is_over:
                raise CollectiveError(_ABORTED)
            yield

    def _wait_for_roots(self, give_up: Callable[[], str | None]) -> None:
        while (state := self.state()) == "":
            if (reason := give_up()) is not None:
                raise CollectiveError(reason)
            time.sleep(_BETWEEN_LOOKS_S)
        if state is not None:
            raise CollectiveError(f"NCCL: {state}")

    def _config(self, *, blocking: bool) -> Any:
        config = _bindings().Config()
        config.blocking = int(blocking)
        config.split_share = 1
        if self._most_blocks is not None:
            config.max_ctas = self._most_blocks
        return config


@contextlib.contextmanager
def _stack_kept(device: int) -> Iterator[None]:
    """Put the limit of a device's stack back, where NCCL has set a lower one meanwhile for its own kernels."""
    with _keeping:
        joining, stack = _kept.get(device, (0, 0))
        if not joining:
            stack = context_limits.limit(device, _STACK) or 0
        _kept[device] = joining + 1, stack
    try:
        yield
    finally:
        if stack > (context_limits.limit(device, _STACK) or 0):
            context_limits.set_limit(device, _STACK, stack)
        with _keeping:
            joining, _ = _kept.pop(device)
            if joining > 1:
                _kept[device] = joining - 1, stack


def _state_of(communicator: Any) -> str | None:
    """Return None where all is well, an empty text while something goes on, else what is wrong."""
    bindings = _bindings()
    result = int(bindings.comm_get_async_error(communicator))
    if result == 0:
        return None
    if result == _IN_PROGRESS:
        return ""
    said = bindings.get_last_error(communicator)
    return str(said).strip() or str(bindings.get_error_string(result))


def _each(end: Callable[[Any], object], communicators: Sequence[Any]) -> None:
    for each in communicators:
        with contextlib.suppress(_bindings().NCCLError):  # the others are to end, too
            end(each)


@contextlib.contextmanager
def _in_words(communicators: Sequence[Any]) -> Iterator[None]:
    """Have what NCCL refuses raise `CollectiveError`."""
    bindings = _bindings()
    try:
        yield
    except bindings.NCCLError as error:
        said = " ".join(str(bindings.get_last_error(each)).strip() for each in communicators[:1] if each.handle)
        raise CollectiveError(f"NCCL: {said or error}") from error


def _in_group(bindings: Any, make: Callable[[], object]) -> None:
    """Make calls in one group of NCCL's, of this thread.

    It is ended whenever a signal comes: Python handles that behind a call, and so within the `try`. A context manager's
    own functions could be interrupted. A group that stays open would swallow all later calls of the thread.
    """
    try:
        bindings.group_start()
        make()
    finally:
        bindings.group_end()


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
