"""A device's context: its limits, its preference for shared memory or the first-level cache, its streams' priorities.

Always true: the settings are the driver's to keep; nothing of them is remembered here.
"""

from __future__ import annotations

from typing import Final, Literal

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda.errors import DriverError

__all__ = [
    "CACHE_PREFERENCES",
    "INVALID_VALUE",
    "NAMES",
    "UNSUPPORTED",
    "CachePreference",
    "cache_preference",
    "highest_stream_priority",
    "limit",
    "set_cache_preference",
    "set_limit",
]

CachePreference = Literal["default", "shared", "l1", "equal"]
CACHE_PREFERENCES: Final[tuple[CachePreference, ...]] = ("default", "shared", "l1", "equal")  # as CUfunc_cache counts

INVALID_VALUE: Final = 1  # CUDA_ERROR_INVALID_VALUE
UNSUPPORTED: Final = 215  # CUDA_ERROR_UNSUPPORTED_LIMIT

# The limits by their names here, and those that CUDA has behind CU_LIMIT_.
NAMES: Final = {
    "stack_bytes": "STACK_SIZE",
    "printf_bytes": "PRINTF_FIFO_SIZE",
    "heap_bytes": "MALLOC_HEAP_SIZE",
    "sync_depth": "DEV_RUNTIME_SYNC_DEPTH",
    "pending_launches": "DEV_RUNTIME_PENDING_LAUNCH_COUNT",
    "l2_fetch_bytes": "MAX_L2_FETCH_GRANULARITY",
    "persisting_l2_bytes": "PERSISTING_L2_CACHE_SIZE",
}


def limit(ordinal: int, name: str) -> int | None:
    """Return a limit of a device's context; None where the device has no such limit."""
    with runtime.context_of(ordinal):
        from cuda.bindings import driver

        try:
            return int(runtime.call(driver.cuCtxGetLimit, getattr(driver.CUlimit, f"CU_LIMIT_{NAMES[name]}")))
        except DriverError as error:
            if error.code == UNSUPPORTED:
                return None
            raise


def set_limit(ordinal: int, name: str, value: int) -> None:
    """Set a limit of a device's context; the driver may make another value of it."""
    with runtime.context_of(ordinal):
        from cuda.bindings import driver

        runtime.call(driver.cuCtxSetLimit, getattr(driver.CUlimit, f"CU_LIMIT_{NAMES[name]}"), value)


def cache_preference(ordinal: int) -> CachePreference:
    """Return what a device's context makes more of where a kernel does not say."""
    with runtime.context_of(ordinal):
        from cuda.bindings import driver

        found = int(runtime.call(driver.cuCtxGetCacheConfig))
    return CACHE_PREFERENCES[found]


def set_cache_preference(ordinal: int, preferred: CachePreference) -> None:
    """Say what a device's context makes more of where a kernel does not say."""
    with runtime.context_of(ordinal):
        from cuda.bindings import driver

        runtime.call(driver.cuCtxSetCacheConfig, driver.CUfunc_cache(CACHE_PREFERENCES.index(preferred)))


def highest_stream_priority(ordinal: int) -> int:
    """Return the number of the most urgent streams of a device, as CUDA counts: 0 or less. The least urgent have 0."""
    runtime.open_device(ordinal)
    return _native.highest_stream_priority(ordinal)
