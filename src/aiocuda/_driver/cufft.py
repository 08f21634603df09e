"""Fourier transforms by cuFFT, through the bindings of nvmath-python; the only importer of that part of them.

Always true: a plan is used by one thread at a time, and executing it allocates nothing and waits for nothing, so that
it can be captured: its work area is given to it. Whoever holds a `Plan` may use it; the 64 that were used last are held
here.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict
from typing import Any, Final

from aiocuda import _forks, _native
from aiocuda._driver import runtime
from aiocuda.errors import LaunchError, MissingPackageError

__all__ = ["Plan", "execute", "open_plan"]

_lock = _forks.lock()
_Key = tuple[int, str, tuple[int, ...], int]
_plans: OrderedDict[_Key, Plan] = OrderedDict()
MOST_PLANS: Final = 64

_EXECUTE: Final = {
    "C2C": "exec_c2c", "Z2Z": "exec_z2z", "R2C": "exec_r2c", "D2Z": "exec_d2z", "C2R": "exec_c2r", "Z2D": "exec_z2d",
}  # fmt: skip


class Plan:
    """How cuFFT transforms arrays of a shape; destroyed when nobody holds it any more.

    Attributes
    ----------
    kind
        "C2C" and so on, cuFFT's name.
    work_bytes
        The size of the work area that an execution needs.
    """

    def __init__(self, ordinal: int, kind: str, lengths: tuple[int, ...], batch: int) -> None:
        from nvmath.bindings import cufft

        *outer, last = lengths
        real, half = [*outer, last], [*outer, last // 2 + 1]
        read = half if kind in {"C2R", "Z2D"} else real
        written = half if kind in {"R2C", "D2Z"} else real
        self.kind = kind
        with runtime.context_of(ordinal):
            self.handle = int(cufft.create())
            weakref.finalize(self, _destroy_aside, ordinal, self.handle, cufft.destroy).atexit = False
            cufft.set_auto_allocation(self.handle, 0)
            self.work_bytes = int(
                cufft.make_plan_many64(
                    self.handle,
                    len(lengths),
                    list(lengths),
                    read,
                    1,
                    _product(read),
                    written,
                    1,
                    _product(written),
                    int(cufft.Type[kind]),
                    batch,
                )
            )


def _product(lengths: list[int]) -> int:
    found = 1
    for each in lengths:
        found *= each
    return found


def _destroy_aside(ordinal: int, handle: int, destroy_plan: Any) -> None:
    """Destroy a plan on a thread of its own: cuFFT waits for the device, which may wait for this thread."""
    if _native.forked_from():
        return

    def destroy() -> None:
        with runtime.context_of(ordinal):
            destroy_plan(handle)

    with contextlib.suppress(RuntimeError):  # no thread begins when the interpreter ends, and the plan ends with it
        threading.Thread(target=destroy, name="aiocuda: destroying a plan of cuFFT").start()


def open_plan(ordinal: int, kind: str, lengths: tuple[int, ...], batch: int) -> Plan:
    """Return a plan; blocks the first time for a kind, a shape and a device, while cuFFT makes it.

    Raises
    ------
    MissingPackageError
        nvmath-python or cuFFT is not installed.
    LaunchError
        cuFFT has no plan for it.
    """
    key = (ordinal, kind, lengths, batch)
    with runtime.watched(f"making a plan of cuFFT for {batch} times {lengths}"), _lock:
        if key in _plans:
            _plans.move_to_end(key)
            return _plans[key]
        try:
            from nvmath.bindings import cufft
        except ImportError as error:
            raise MissingPackageError(f"fft on a GPU needs nvmath-python ({error}): {_INSTALL}") from error
        try:
            plan = Plan(ordinal, kind, lengths, batch)
        except cufft.cuFFTError as error:
            raise LaunchError(f"cuFFT has no plan for {batch} transforms of {lengths} ({kind}): {error}") from error
        except RuntimeError as error:  # of the search for the library
            raise MissingPackageError(f"fft on a GPU needs cuFFT ({error}): {_INSTALL}") from error
        _plans[key] = plan
        dropped = _plans.popitem(last=False) if len(_plans) > MOST_PLANS else None
    del dropped  # outside of the lock
    return plan


_INSTALL: Final = 'pip install "aiocuda[nvmath]"'


def execute(plan: Plan, stream: int, work_area: int, addresses: tuple[int, int], *, inverse: bool) -> None:
    """Put a transform on a stream; the plan's device has the current context.

    Parameters
    ----------
    stream, work_area
        The driver's handle; the address of memory that nothing else uses meanwhile.
    addresses
        Of what is read, and of the result. Transforms to real numbers may overwrite the first.

    Raises
    ------
    LaunchError
        cuFFT refused.
    """
    from nvmath.bindings import cufft

    direction: tuple[Any, ...] = ((1 if inverse else -1),) if plan.kind in {"C2C", "Z2Z"} else ()
    with _lock:
        try:
            cufft.set_stream(plan.handle, stream)
            cufft.set_work_area(plan.handle, work_area)
            getattr(cufft, _EXECUTE[plan.kind])(plan.handle, *addresses, *direction)
        except cufft.cuFFTError as error:
            raise LaunchError(f"cuFFT refused a transform ({plan.kind}): {error}") from error
