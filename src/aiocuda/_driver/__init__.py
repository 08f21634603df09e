"""Which CUDA driver this process runs on, and the only importers of ``cuda.*``.

`aiocuda.select_driver` must have returned before anything of ``cuda.*`` is imported.

The modules that choose a driver, and those that compile and load, are imported when the first of that is done.
"""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._driver.choosing import DriverInfo as DriverInfo
    from aiocuda._driver.choosing import choose_by_device as choose_by_device
    from aiocuda._driver.choosing import choose_emulated as choose_emulated
    from aiocuda._driver.choosing import choose_nvidia as choose_nvidia
    from aiocuda._driver.compiler import Image as Image
    from aiocuda._driver.compiler import Source as Source
    from aiocuda._driver.compiler import compile_sources as compile_sources
    from aiocuda._driver.compiler import lowered_name as lowered_name
    from aiocuda._driver.loaded import UNKNOWN_LIMITS as UNKNOWN_LIMITS
    from aiocuda._driver.loaded import LoadedKernel as LoadedKernel
    from aiocuda._driver.loaded import load as load
    from aiocuda._driver.loaded import load_alone as load_alone
else:
    __getattr__, __dir__ = _later.names_of(
        __name__,
        globals(),
        {"aiocuda._driver.choosing": ("DriverInfo", "choose_by_device", "choose_emulated", "choose_nvidia")},
        {
            "aiocuda._driver.compiler": ("Image", "Source", "compile_sources", "lowered_name"),
            "aiocuda._driver.loaded": ("UNKNOWN_LIMITS", "LoadedKernel", "load", "load_alone"),
        },
    )

__all__ = [
    "UNKNOWN_LIMITS",
    "DriverInfo",
    "Image",
    "LoadedKernel",
    "Source",
    "choose_by_device",
    "choose_emulated",
    "choose_nvidia",
    "compile_sources",
    "load",
    "load_alone",
    "lowered_name",
]
