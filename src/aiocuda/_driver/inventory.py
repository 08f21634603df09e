"""A report of the selected driver, for people to read: devices, memory, the kernels' compiler.

It asks the driver afresh each time and keeps nothing; a context that it had to make current to
ask is released again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aiocuda._driver.runtime import call
from aiocuda._driver.select import select_driver
from aiocuda.errors import CompilationError, DriverNotFoundError

__all__ = ["DeviceRow", "compiler_text", "device_rows"]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device of the driver; memory in bytes."""

    ordinal: int
    name: str
    compute_capability: tuple[int, int]
    free_bytes: int
    total_bytes: int
    is_emulated: bool


def device_rows() -> tuple[DeviceRow, ...]:
    """Return the selected driver's devices, by ordinal; none where the driver has none.

    Raises
    ------
    DriverError
        The driver refused to answer.
    """
    is_emulated = select_driver().is_emulated
    from cuda.bindings import driver

    capability = driver.CUdevice_attribute
    if driver.cuInit(0)[0] == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        return ()
    call(driver.cuInit, 0)
    rows = []
    for ordinal in range(call(driver.cuDeviceGetCount)):
        device = call(driver.cuDeviceGet, ordinal)
        name = call(driver.cuDeviceGetName, 256, device).split(b"\0", 1)[0].decode()
        major = call(
            driver.cuDeviceGetAttribute,
            capability.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            device,
        )
        minor = call(
            driver.cuDeviceGetAttribute,
            capability.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            device,
        )
        context = call(driver.cuDevicePrimaryCtxRetain, device)
        try:
            call(driver.cuCtxPushCurrent, context)
            try:
                free, total = call(driver.cuMemGetInfo)
            finally:
                call(driver.cuCtxPopCurrent)
        finally:
            call(driver.cuDevicePrimaryCtxRelease, device)
        rows.append(DeviceRow(ordinal, name, (major, minor), free, total, is_emulated))
    return tuple(rows)


def compiler_text() -> str:
    """Return what compiles kernels, with its version.

    Raises
    ------
    CompilationError
        The emulated driver finds no C++ compiler that works; the log says what it looked for.
    DriverNotFoundError
        NVRTC is not installed.
    """
    chosen = select_driver()
    from cuda.bindings import nvrtc
    from cuda.pathfinder import DynamicLibNotFoundError

    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except DynamicLibNotFoundError as error:
        raise DriverNotFoundError(
            "NVRTC, which compiles kernels, was not found",
            (" ".join(str(error).split()),),
            'Install it with: pip install "aiocuda[cu13]"',
        ) from None
    found = f"NVRTC {major}.{minor}"
    return f"{found}, emulated with {_host_compiler()}" if chosen.is_emulated else found


# A compiler that names itself in the log, which is all that NVRTC's interface gives back. Clang names itself in its
# version; its own macros are hidden from kernels.
_WHO_COMPILES = b"""
#pragma message("compiled by " __VERSION__)
extern "C" __global__ void nothing() {}
"""


def _host_compiler() -> str:
    """Compile a kernel on the emulated NVRTC; return the name and version of what compiled it."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(_WHO_COMPILES, b"who_compiles.cu", 0, [], [])
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, 0, [])
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        buffer = b"\0" * size
        nvrtc.nvrtcGetProgramLog(program, buffer)
        log = buffer.rstrip(b"\0").decode(errors="replace")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompilationError("a kernel that does nothing", log)
    named = re.search(r"compiled by ([^\d\n]*)(\d[\w.]*)", log)
    if named is None:
        return "a C++ compiler that does not name itself"
    return f"{'clang' if 'clang' in named[1].lower() else 'g++'} {named[2]}"
