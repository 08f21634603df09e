"""The report of arrays that are still held when the process ends (``AIOCUDA_DEBUG``).

Always true: it names what somebody holds, and not what waits for the collector or for the device.
"""

from __future__ import annotations

import atexit
import gc
import sys

from aiocuda import _native
from aiocuda._driver import runtime, select
from aiocuda._engine import accounts

__all__ = ["report_at_exit"]

_MOST_LINES = 20  # of one device's arrays


def report_at_exit() -> None:
    """Have the report made when the process ends, if it is asked for.

    Functions that are registered later run earlier: the native module still knows everything by then.
    """
    if select.is_debugging():
        atexit.register(_report)


def _report() -> None:
    """Write to standard error which arrays are held, by the lines that made them; nothing where there are none."""
    if sys.stderr is None:  # a program may do without; print() would take standard output instead
        return
    gc.collect()
    _native.collect()
    rooms = [(f"on device {device}", accounts.each_array(device)) for device in runtime.open_devices()]
    rooms += [
        (f"in managed memory of device {device}", accounts.each_array(device, is_managed=True))
        for device in runtime.open_devices()
    ]
    rooms.append(("in page-locked memory", accounts.each_array(_native.HOST)))
    for where, arrays_there in rooms:
        held = [each for each in accounts.by_place(arrays_there) if each.place != accounts.ENGINE]
        if not held:
            continue
        count, size_bytes = sum(each.arrays for each in held), sum(each.size_bytes for each in held)
        arrays = "1 array is" if count == 1 else f"{count} arrays are"
        print(f"aiocuda: at exit, {arrays} still held {where}, {size_bytes} B:", file=sys.stderr)
        for each in accounts.largest(held, _MOST_LINES):
            print(f"  {each.size_bytes} B by {each}", file=sys.stderr)
        if len(held) > _MOST_LINES:
            print(f"  and those that {len(held) - _MOST_LINES} other lines made", file=sys.stderr)
