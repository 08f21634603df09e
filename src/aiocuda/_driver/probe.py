"""Asks a CUDA driver library whether it is usable; run as a script, it asks in its own process.

As a script it prints one line of JSON: the fields of `Answer`, or ``{"unloadable": why}``. It
imports nothing but the standard library, so that it starts in a few hundredths of a second.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import NamedTuple


class Answer(NamedTuple):
    """The answer of a driver: a ``CUresult``, its meaning, the driver's version, its devices."""

    result: int
    explanation: str
    version: int
    device_count: int


def ask(library: ctypes.CDLL) -> Answer:
    """Initialise a loaded driver and count its devices."""
    count = ctypes.c_int(0)
    explanation = ctypes.c_char_p(None)
    result: int = library.cuInit(0)
    if result == 0:
        result = library.cuDeviceGetCount(ctypes.byref(count))
    library.cuGetErrorString(result, ctypes.byref(explanation))
    meaning = (explanation.value or b"").decode(errors="replace")
    return Answer(result, meaning, driver_version(library), count.value)


def driver_version(library: ctypes.CDLL) -> int:
    """Return the CUDA version of a loaded driver: 13000 for 13.0, 0 where it gives none."""
    version = ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    return version.value


def main(soname: str) -> None:
    """Load the driver of that name, ask, and print the answer."""
    try:
        library = ctypes.CDLL(soname)
    except OSError as error:
        print(json.dumps({"unloadable": str(error)}))
        return
    print(json.dumps(ask(library)._asdict()))


if __name__ == "__main__":
    main(sys.argv[1])
