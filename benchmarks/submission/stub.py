"""A process whose driver does nothing: what is left is aiocuda's own.

Always true: it is loaded before anything else loads a driver, so it is the driver of the whole process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

_CONTEXT, _POOL = 0x1000, 0x2000  # handles, which nothing looks into
_MEMORY_BYTES = 1 << 40


class Stub:
    """The driver that does nothing, and what was called of it."""

    def __init__(self, directory: Path, devices: int = 1) -> None:
        from submission.floor import build_library

        source = Path(__file__).with_name("stub_driver.cpp")
        library = build_library(source, directory / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
        self._library = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        self._library.release.restype = self._library.hold_flags.restype = self._library.hold_streams.restype = None
        for count in ("launch_count", "record_count", "wait_count"):
            getattr(self._library, count).restype = ctypes.c_uint64
        from aiocuda import _native
        from aiocuda._driver import runtime

        _native.load_driver()
        runtime._count = devices
        for ordinal in range(devices):
            runtime._open[ordinal] = runtime._OpenDevice(_CONTEXT + ordinal, None)
            _native.open_device(ordinal, _CONTEXT + ordinal, _POOL + ordinal, _MEMORY_BYTES, 0)

    def hold_flags(self, holds: bool, eventfd: int = -1) -> None:
        """Keep back what streams write from now on, until `release`, which rings an eventfd too."""
        self._library.hold_flags(holds, eventfd)

    def hold_streams(self, holds: bool) -> None:
        """Say whether streams have passed what they have, from now on."""
        self._library.hold_streams(holds)

    @property
    def release(self) -> Callable[[], object]:
        """The function that writes the flags that are held back: a C function."""
        return cast("Callable[[], object]", self._library.release)

    def counts(self) -> tuple[int, int, int]:
        """Return how many launches, records of events and waits there were."""
        library = self._library
        return library.launch_count(), library.record_count(), library.wait_count()


def without_code(kernel: Any, devices: int = 1) -> Any:
    """Make a kernel one that is loaded already; there is nothing to compile it."""
    from aiocuda import _native
    from aiocuda._driver.loaded import UNKNOWN_LIMITS

    for ordinal in range(devices):
        kernel._loaded[ordinal] = SimpleNamespace(
            function=1,
            image=_native.LoadedImage(1, ordinal),
            limits=lambda: UNKNOWN_LIMITS,
            allow_shared=lambda _: None,
        )
    return kernel
