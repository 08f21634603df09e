"""CUDA C++ source to functions of the driver, through cuda.core's ``Program``.

What has been compiled is kept on disk: by cuda.core's program cache on NVIDIA's driver, by the
emulated compiler itself on the emulated one. Kernels may include the headers of this package
(``aiocuda/tile.cuh``), and what was compiled with other contents of them is not used again.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from aiocuda._driver import runtime
from aiocuda.errors import CompilationError, DriverError

__all__ = ["CompiledKernel", "compile_kernel"]

_HEADERS: Final = Path(__file__).resolve().parents[1] / "include"


class CompiledKernel:
    """A kernel loaded on one device; it lives as long as this object."""

    __slots__ = ("_kernel", "_module", "_ordinal", "function")

    def __init__(self, module: Any, kernel: Any, ordinal: int) -> None:
        from cuda.bindings import driver

        self._module = module
        self._kernel = kernel
        self._ordinal = ordinal
        self.function = int(runtime.call(driver.cuKernelGetFunction, driver.CUkernel(int(kernel.handle))))

    def attributes(self) -> dict[str, int]:
        """Return what the compiler made of the kernel: sizes in bytes, counts a thread or a block."""
        found = self._kernel.attributes[self._ordinal]
        return {
            "max_threads_per_block": found.max_threads_per_block,
            "registers": found.num_regs,
            "shared_bytes": found.shared_size_bytes,
            "local_bytes": found.local_size_bytes,
            "constant_bytes": found.const_size_bytes,
        }


def compile_kernel(
    source: str,
    symbol: str,
    *,
    is_name_expression: bool,
    source_name: str,
    options: Sequence[str],
    ordinal: int,
) -> CompiledKernel:
    """Compile a kernel for a device and load it there. Blocks: a second or less, the first time.

    Parameters
    ----------
    source
        CUDA C++.
    symbol
        The kernel's name; a name expression (``"scale<float>"``) where `is_name_expression`.
    source_name
        What the compiler's log calls the source.
    options
        Options of NVRTC, as it documents them.
    ordinal
        The device.

    Raises
    ------
    CompilationError
        It does not compile; the log has the user's own line numbers.
    DriverError
        The driver does not load it.
    """
    runtime.open_device(ordinal)
    from cuda.bindings import driver
    from cuda.core import ObjectCode

    before = runtime.call(driver.cuCtxGetCurrent)
    try:
        from cuda.core import Device

        Device(ordinal).set_current()
        major, minor = runtime.properties(ordinal).compute_capability
        image, names = _compile(
            source,
            symbol if is_name_expression else "",
            source_name,
            tuple(options),
            f"sm_{major}{minor}",
            _digest_of_headers(),
        )
        module = ObjectCode.from_cubin(image, name=source_name, symbol_mapping=dict(names))
        try:
            return CompiledKernel(module, module.get_kernel(symbol), ordinal)
        except DriverError:
            raise
        except Exception as error:
            raise CompilationError(source_name, f"the compiled module has no kernel {symbol!r}: {error}") from error
    finally:
        runtime.call(driver.cuCtxSetCurrent, before)


@functools.lru_cache(maxsize=256)
def _compile(
    source: str, name_expression: str, source_name: str, options: tuple[str, ...], arch: str, headers: str
) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Compile for an architecture; return the image, and the mangled name where there is one.

    `headers` tells the contents of this package's own, which the source may include by way of others.
    """
    from cuda.bindings import nvrtc

    def check(program: Any, result: Any) -> None:
        if int(result) == 0:
            return
        log = _log(program) if program is not None else ""
        raise CompilationError(source_name, log or f"{result.name} without a log")

    options = (f"--gpu-architecture={arch}", f"--include-path={_HEADERS}", *_header_options(), *options)
    disk = _disk_cache()
    key = _key(source, name_expression, options, headers) if disk is not None else None
    if disk is not None and (kept := disk.get(key)) is not None:
        mangled, _, image = bytes(kept).partition(b"\0")
        return image, ((name_expression, mangled),) if name_expression else ()

    result, program = nvrtc.nvrtcCreateProgram(source.encode(), source_name.encode(), 0, None, None)
    check(None, result)
    try:
        if name_expression:
            check(program, nvrtc.nvrtcAddNameExpression(program, name_expression.encode())[0])
        check(
            program,
            nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])[0],
        )
        result, size = nvrtc.nvrtcGetCUBINSize(program)
        check(program, result)
        cubin = bytearray(size)
        check(program, nvrtc.nvrtcGetCUBIN(program, cubin)[0])
        mangled = b""
        if name_expression:
            result, mangled = nvrtc.nvrtcGetLoweredName(program, name_expression.encode())
            check(program, result)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    if disk is not None:
        disk[key] = mangled + b"\0" + cubin
    return bytes(cubin), ((name_expression, mangled),) if name_expression else ()


def _log(program: Any) -> str:
    from cuda.bindings import nvrtc

    result, size = nvrtc.nvrtcGetProgramLogSize(program)
    if int(result) != 0 or size <= 1:
        return ""
    text = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, text)
    return bytes(text).rstrip(b"\0").decode(errors="replace")


@functools.lru_cache(maxsize=1)
def _header_options() -> tuple[str, ...]:
    """Say where CUDA's own headers are (cuda_fp16.h and the like); the emulated compiler has its own."""
    if runtime.driver_info().is_emulated:
        return ()
    from cuda.pathfinder import find_nvidia_header_directory

    found = (find_nvidia_header_directory(name) for name in ("cudart", "cccl"))
    return tuple(f"--include-path={directory}" for directory in found if directory)


@functools.lru_cache(maxsize=1)
def _disk_cache() -> Any | None:
    """Return the store of compiled images; None where there is none.

    The emulated compiler keeps its own, and a machine may have no directory that can be written.
    """
    if runtime.driver_info().is_emulated:
        return None
    from cuda.core.utils import FileStreamProgramCache

    try:
        return FileStreamProgramCache(max_size_bytes=512 << 20)
    except OSError:
        return None


def _digest_of_headers() -> str:
    digest = hashlib.sha256()
    for path in sorted(_HEADERS.rglob("*.cuh")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _key(source: str, name_expression: str, options: tuple[str, ...], headers: str) -> bytes:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    digest = hashlib.sha256()
    for part in ("aiocuda 1", f"{major}.{minor}", name_expression, headers, *options, source):
        digest.update(f"{len(part)}:".encode() + part.encode())
    return digest.digest()
