"""Devices as the engine needs them: a context and a stream-ordered memory pool each, opened at first use.

Devices that are opened here stay open until the process ends: work, memory and finalizers may come at any time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiocuda import _forks, _native
from aiocuda._driver.select import select_driver, submission_thread
from aiocuda.errors import ArgumentValueError, DriverError, ForkedProcessError

if TYPE_CHECKING:
    from aiocuda._driver.choosing import DriverInfo

__all__ = [
    "EVERYTHING",
    "DeviceProperties",
    "call",
    "context_of",
    "device_attribute",
    "device_count",
    "driver_info",
    "error_text",
    "has_failed",
    "lacks_managed_access",
    "memory_free_total",
    "open_device",
    "open_devices",
    "pool_bound",
    "pool_reserved_used",
    "properties",
    "release_threshold",
    "require",
    "require_device",
    "require_not_forked",
    "set_pool",
    "settle_frees",
    "trim_pool",
    "uuid",
]

EVERYTHING: Final = 2**64 - 1  # as many bytes as the driver can be told to keep

_lock = _forks.reentrant_lock()  # of the driver's start, and of what is known of devices
_count: int | None = None
_opening: dict[int, threading.RLock] = {}  # by device: held while it is opened, or gets another pool
_open: dict[int, _OpenDevice] = {}  # also those that are about to be
_properties: dict[int, DeviceProperties] = {}

# Watches what takes a thread for long, which is named in words; `aiocuda._wiring` sets it, once.
watched: Callable[[str], contextlib.AbstractContextManager[None]] = contextlib.nullcontext  # type: ignore[assignment]
when_open: Callable[[], None] | None = None  # called when a device is open; `aiocuda._wiring` sets it, too


class DeviceProperties(NamedTuple):
    """The properties of a device that do not change.

    Attributes
    ----------
    ordinal
        Its number among the devices the driver shows.
    name
        The driver's name of it.
    compute_capability
        Major and minor number.
    multiprocessor_count
        Streaming multiprocessors.
    total_bytes
        Its memory.
    """

    ordinal: int
    name: str
    compute_capability: tuple[int, int]
    multiprocessor_count: int
    total_bytes: int


class _OpenDevice:
    __slots__ = ("context", "former", "most_bytes", "pool")

    def __init__(self, context: int, pool: Any) -> None:
        self.context = context
        self.pool = pool  # the driver's handle; the driver ends it with the process
        self.most_bytes = 0  # that the pool may hold; 0: no bound
        self.former: list[Any] = []  # handles of pools of before, which still hold something


def call(function: Any, *arguments: object, asked: str = "") -> Any:
    """Call a function of ``cuda.bindings.driver``; return its value, values or None.

    Raises
    ------
    DriverError
        The driver refused.
    """
    require_not_forked()
    result, *values = function(*arguments)
    require(result, asked or function.__name__)
    return tuple(values) if len(values) > 1 else (values[0] if values else None)


def require(result: Any, asked: str) -> None:
    """Raise `DriverError` unless the driver's answer is success."""
    if int(result) != 0:
        raise DriverError(*error_text(int(result)), asked)


def require_not_forked() -> None:
    """Raise unless this is the process that started the driver, or nobody did.

    Raises
    ------
    ForkedProcessError
        It was forked from the one that did. To be called before a lock is taken that other threads may have had then.
    """
    parent = _native.forked_from()
    if parent:
        raise ForkedProcessError(parent)


def error_text(code: int) -> tuple[str, int, str]:
    """Return the driver's name, number and explanation of an error."""
    from cuda.bindings import driver

    try:
        result = driver.CUresult(code)
    except ValueError:
        return f"error {code}", code, "this version of cuda.bindings does not know it"
    _, text = driver.cuGetErrorString(result)
    return (
        str(result.name),
        code,
        text.decode() if isinstance(text, bytes) else "no explanation given",
    )


def driver_info() -> DriverInfo:
    """Select the driver of this process, the first time; return the choice."""
    return select_driver()


def device_count() -> int:
    """Return how many devices the driver has; selects and starts the driver the first time.

    Raises
    ------
    DriverNotFoundError, DriverSelectionError, DriverError
        There is no driver to start.
    """
    global _count
    require_not_forked()
    if _count is not None:
        return _count
    with watched("starting the driver"), _lock:
        if _count is None:
            use = submission_thread()
            select_driver()
            from cuda.bindings import driver

            (answer,) = driver.cuInit(0)
            if answer == driver.CUresult.CUDA_ERROR_NOT_INITIALIZED:
                raise ForkedProcessError  # as it answers only where a parent of this process has called it
            require(answer, "cuInit")
            _native.load_driver(use)
            _count = int(call(driver.cuDeviceGetCount))
    return _count


def open_device(ordinal: int) -> None:
    """Open a device for the engine: retain its primary context and make its memory pool.

    It waits for the driver, without the GIL. Other devices can be used and opened meanwhile.

    Raises
    ------
    ArgumentValueError
        There is no such device.
    DriverError
        The driver refused.
    """
    require_not_forked()
    if _native.is_open(ordinal):
        return
    require_device(ordinal)
    with watched(f"opening device {ordinal}"), _lock_of(ordinal), _native.RelaxedCaptures():
        if ordinal not in _open:  # else by another thread; or by this one, which is asked while it opens the device
            _open_now(ordinal)
    if when_open is not None:
        when_open()


def _open_now(ordinal: int) -> None:
    from cuda.bindings import driver

    device = call(driver.cuDeviceGet, ordinal)
    context = call(driver.cuDevicePrimaryCtxRetain, device)
    before = call(driver.cuCtxGetCurrent)
    try:
        call(driver.cuCtxSetCurrent, context)
        highest_priority = int(call(driver.cuCtxGetStreamPriorityRange)[1])
        pool = _make_pool(ordinal, 0)
    finally:
        call(driver.cuCtxSetCurrent, before)
    _open[ordinal] = _OpenDevice(int(context), pool)
    try:
        memory_bytes = int(call(driver.cuDeviceTotalMem, device))
        _native.open_device(ordinal, int(context), int(pool), memory_bytes, highest_priority)
    except BaseException:  # it is not open, and can be opened another time
        del _open[ordinal]
        driver.cuMemPoolDestroy(pool)
        raise


def _lock_of(ordinal: int) -> threading.RLock:
    with _lock:
        if ordinal not in _opening:
            _opening[ordinal] = _forks.reentrant_lock()
        return _opening[ordinal]


def open_devices() -> list[int]:
    """Return the ordinals of the devices that are open."""
    return sorted(ordinal for ordinal in _open.copy() if _native.is_open(ordinal))


def _make_pool(ordinal: int, most_bytes: int) -> Any:
    from cuda.bindings import driver

    wanted = driver.CUmemPoolProps()
    wanted.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED  # the only one for a device
    wanted.handleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = ordinal
    wanted.maxSize = most_bytes
    pool = call(driver.cuMemPoolCreate, wanted)
    try:
        # Memory that is freed stays with the pool: giving it back at every synchronisation, as a threshold of 0
        # does, makes the next allocation map it anew.
        _set_release_threshold(pool, EVERYTHING)
        _let_peers_reach(pool, ordinal)
    except BaseException:
        driver.cuMemPoolDestroy(pool)
        raise
    return pool


def _set_release_threshold(pool: Any, size_bytes: int) -> None:
    from cuda.bindings import driver

    attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    call(driver.cuMemPoolSetAttribute, pool, attribute, driver.cuuint64_t(size_bytes))


def _let_peers_reach(pool: Any, ordinal: int) -> None:
    """Open a pool's memory to the devices that can reach it, so that peer copies need no staging."""
    from cuda.bindings import driver

    reaching = []
    for other in range(device_count()):
        if other != ordinal and call(driver.cuDeviceCanAccessPeer, other, ordinal):
            access = driver.CUmemAccessDesc()
            access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            access.location.id = other
            access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            reaching.append(access)
    if reaching:
        call(driver.cuMemPoolSetAccess, pool, reaching, len(reaching))


def require_device(ordinal: int) -> None:
    """Raise unless there is a device of that number; starts the driver.

    Raises
    ------
    ArgumentValueError
        There is none.
    """
    count = device_count()
    if not 0 <= ordinal < count:
        there = f"there are {count}, numbered from 0" if count != 1 else "there is one, number 0"
        raise ArgumentValueError(f"there is no device {ordinal}: {there}")


def properties(ordinal: int) -> DeviceProperties:
    """Return what does not change about a device; does not open it."""
    require_device(ordinal)
    if (known := _properties.get(ordinal)) is not None:
        return known
    from cuda.bindings import driver

    device = call(driver.cuDeviceGet, ordinal)
    known = DeviceProperties(
        ordinal,
        call(driver.cuDeviceGetName, 256, device).split(b"\0", 1)[0].decode(),
        (
            device_attribute(ordinal, "COMPUTE_CAPABILITY_MAJOR"),
            device_attribute(ordinal, "COMPUTE_CAPABILITY_MINOR"),
        ),
        device_attribute(ordinal, "MULTIPROCESSOR_COUNT"),
        int(call(driver.cuDeviceTotalMem, device)),
    )
    return _properties.setdefault(ordinal, known)


def device_attribute(ordinal: int, name: str) -> int:
    """Return an attribute of a device, by the name that CUDA gives it behind ``CU_DEVICE_ATTRIBUTE_``.

    Does not open the device.
    """
    require_device(ordinal)
    from cuda.bindings import driver

    attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(call(driver.cuDeviceGetAttribute, attribute, call(driver.cuDeviceGet, ordinal)))


def lacks_managed_access() -> int | None:
    """Return the first device during whose work the host must not touch managed memory; None where there is none."""
    count = device_count()
    from cuda.bindings import driver

    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
    for ordinal in range(count):
        if not call(driver.cuDeviceGetAttribute, attribute, call(driver.cuDeviceGet, ordinal)):
            return ordinal
    return None


def uuid(ordinal: int) -> bytes:
    """Return the 16 bytes by which all processes know a device; does not open it."""
    device_count()
    from cuda.bindings import driver

    return bytes(call(driver.cuDeviceGetUuid, call(driver.cuDeviceGet, ordinal)).bytes)


@contextlib.contextmanager
def context_of(ordinal: int) -> Iterator[None]:
    """Make a device's context the thread's current one for a while; opens the device.

    Calls that are made meanwhile disturb no stream capture of another library's.
    """
    open_device(ordinal)
    from cuda.bindings import driver

    before = call(driver.cuCtxGetCurrent)
    call(driver.cuCtxSetCurrent, driver.CUcontext(_open[ordinal].context))
    try:
        with _native.RelaxedCaptures():
            yield
    finally:
        call(driver.cuCtxSetCurrent, before)


def has_failed(ordinal: int, code: int) -> bool:
    """Return whether a device answers with an error of that code, whatever it is asked."""
    with context_of(ordinal):
        from cuda.bindings import driver

        (result,) = driver.cuStreamQuery(driver.CUstream(driver.CU_STREAM_LEGACY))
    return int(result) == code


def memory_free_total(ordinal: int) -> tuple[int, int]:
    """Return a device's free and total memory as the driver gives it, in bytes.

    Memory that the pool keeps for later counts as used. Former pools give back what is free in them first.
    """
    with context_of(ordinal), _lock_of(ordinal):
        from cuda.bindings import driver

        _trim_former(ordinal)
        free, total = call(driver.cuMemGetInfo)
    return int(free), int(total)


def pool_reserved_used(ordinal: int) -> tuple[int, int]:
    """Return what a device's memory pool holds from the driver, and what of it is in use, in bytes."""
    with context_of(ordinal):  # a pool may not be asked beside a capture either
        from cuda.bindings import driver

        pool, attribute = _open[ordinal].pool, driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        return _reserved(pool), int(call(driver.cuMemPoolGetAttribute, pool, attribute))


def release_threshold(ordinal: int) -> int:
    """Return how much a device's memory pool keeps that is not in use, in bytes."""
    with context_of(ordinal):
        from cuda.bindings import driver

        attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        return int(call(driver.cuMemPoolGetAttribute, _open[ordinal].pool, attribute))


def pool_bound(ordinal: int) -> int:
    """Return how much a device's memory pool may hold, in bytes; 0: what the device has."""
    open_device(ordinal)
    return _open[ordinal].most_bytes


def settle_frees(ordinal: int) -> None:
    """Have the driver see which frees the device has passed; the pool keeps their memory, and former pools none of it.

    NVIDIA's driver sees that in calls that wait. aiocuda's own waits are none: they read memory that the device writes.
    """
    with context_of(ordinal), _lock_of(ordinal):
        pool, kept_bytes = _open[ordinal].pool, release_threshold(ordinal)
        _set_release_threshold(pool, EVERYTHING)
        try:
            _native.settle_frees(ordinal)
        finally:
            _set_release_threshold(pool, kept_bytes)


def set_pool(ordinal: int, keep_bytes: int, most_bytes: int) -> None:
    """Say how much a device's memory pool keeps that is not in use, and how much it may hold; 0: what the device has.

    With another bound it is another pool, as the driver has no other way. Memory of the former pool stays as it is. The
    former pool keeps nothing that is not in use, and stays until it holds nothing more (see ``former_pools.hpp``).
    """
    with context_of(ordinal), _lock_of(ordinal):
        opened = _open[ordinal]
        if most_bytes >= properties(ordinal).total_bytes:
            most_bytes = 0  # NVIDIA's driver makes no pool of that size
        if opened.most_bytes != most_bytes:
            pool = _make_pool(ordinal, most_bytes)
            _set_release_threshold(opened.pool, 0)
            opened.former.append(opened.pool)
            _native.set_pool(ordinal, int(pool))
            opened.pool, opened.most_bytes = pool, most_bytes
        _set_release_threshold(opened.pool, keep_bytes)
        _trim_former(ordinal)


def trim_pool(ordinal: int, keep_bytes: int) -> None:
    """Have a device's memory pool give back what is not in use, down to a size in bytes; former ones, all of it."""
    with context_of(ordinal), _lock_of(ordinal):
        from cuda.bindings import driver

        call(driver.cuMemPoolTrimTo, _open[ordinal].pool, keep_bytes)
        _trim_former(ordinal)


def _trim_former(ordinal: int) -> None:
    from cuda.bindings import driver

    opened = _open[ordinal]
    if opened.former:
        settle_frees(ordinal)
    for pool in opened.former.copy():
        call(driver.cuMemPoolTrimTo, pool, 0)
        if _reserved(pool) == 0:
            _native.forget_pool(ordinal, int(pool))
            opened.former.remove(pool)
            call(driver.cuMemPoolDestroy, pool)


def _reserved(pool: Any) -> int:
    from cuda.bindings import driver

    attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
    return int(call(driver.cuMemPoolGetAttribute, pool, attribute))
