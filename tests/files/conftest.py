"""Files that tests hold: nobody else can open one until it is let go."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac


class HeldFile:
    """A file with a lease: whoever opens it sleeps in the system until the lease is given back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno in {errno.EINVAL, errno.EAGAIN}:
                pytest.skip(f"the file system of {path} has no leases: {error}")
            raise

    @property
    def is_wanted(self) -> bool:
        """Say whether somebody waits to open it: the system asks for the lease."""
        return fcntl.fcntl(self._descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK

    def let_go(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@pytest.fixture
def hold_file() -> Iterator[Callable[[Path], HeldFile]]:
    """Hold files; they are let go of at the end, whatever happened."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the system tells so that a lease is asked for
    held: list[HeldFile] = []

    def hold(path: Path) -> HeldFile:
        held.append(HeldFile(path))
        return held[-1]

    yield hold
    for each in held:
        each.let_go()
    signal.signal(signal.SIGIO, before)


@pytest.fixture
def open_files() -> Callable[[Path], list[Path]]:
    """Return which files of a name this process has open."""

    def of_name(path: Path) -> list[Path]:
        found = []
        for each in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # of the listing itself
                found.append(each.readlink())
        return [each for each in found if each == path]

    return of_name


@pytest.fixture
def there_and_back(run: Any, tmp_path: Path) -> Callable[[int, int, Any], None]:
    """Write so many files at once, each with some more items than another, and read them; under every loop."""

    async def one(path: Path, size: int, dtype: Any) -> None:
        data = (np.arange(size) % 251).astype(dtype)
        await ac.write(path, ac.to_device(data))
        np.testing.assert_array_equal(await ac.to_host(ac.read(path, data.shape, data.dtype)), data)

    async def all_at_once(count: int, least: int, dtype: Any) -> None:
        async with anyio.create_task_group() as group:
            for i in range(count):
                group.start_soon(one, tmp_path / str(i), least + i, dtype)

    return lambda count, least, dtype: run(all_at_once, count, least, dtype)
