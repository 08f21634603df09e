"""CUDA C++ sources to an image that the driver loads, through NVRTC and cuda.core's ``Linker``.

Compiled code is kept on disk: in cuda.core's program cache for NVIDIA's driver, by the emulated compiler itself for the
emulated one. An image is used again only for the same sources, options, includes (their contents), compiler and
architecture. Kernels may include the headers of this package (``aiocuda/tile.cuh``).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from aiocuda._driver import includes, runtime
from aiocuda._driver.private_cache import PrivateCache, cache_directory, private_directory, tell
from aiocuda.errors import CompilationError

__all__ = ["PLAIN_PTX", "Image", "Source", "compile_sources", "lowered_name", "newer_than_driver"]

# A line of a source of aiocuda's own whose PTX every driver takes that has ``cudaGraphSetConditional``.
PLAIN_PTX: Final = "// aiocuda: plain PTX\n"

_PLAIN_VERSION: Final = 8, 3  # of CUDA 12.3
_PLAIN_CAPABILITY: Final = 7, 5  # the least one that NVRTC of CUDA 13 knows
_HEADERS: Final = Path(__file__).resolve().parents[1] / "include"
_CACHE_LIMIT_BYTES: Final = 512 << 20
_KINDS: Final[dict[str, Literal["cubin", "ptx"]]] = {"CUBIN": "cubin", "PTX": "ptx"}


class Source(NamedTuple):
    """CUDA C++ to compile.

    Attributes
    ----------
    name
        What the compiler's log calls it.
    text
        The source itself.
    expressions
        Kernels whose names are mangled, as C++ names them (``"scale<float>"``); of templates, these are made.
    """

    name: str
    text: str
    expressions: tuple[str, ...] = ()


class Image(NamedTuple):
    """Compiled code.

    Attributes
    ----------
    name
        What messages call it.
    kind
        "cubin", "ptx" or "fatbin". The emulated compiler's output goes by "cubin", too.
    code
        The code itself; of PTX the text.
    lowered
        The mangled name of each name expression.
    is_given
        Whether it came compiled, and not from source.
    """

    name: str
    kind: Literal["cubin", "ptx", "fatbin"]
    code: bytes
    lowered: tuple[tuple[str, bytes], ...] = ()
    is_given: bool = False


def compile_sources(sources: Sequence[Source], options: Sequence[str], ordinal: int) -> Image:
    """Compile sources for a device, and link them where they are several. Blocks: a second or less, the first time.

    Parameters
    ----------
    sources
        One, or several that use one another's functions and variables. On NVIDIA's driver several are compiled one by
        one and linked with optimisation of the whole; the emulated compiler takes them as one source.
    options
        Options of NVRTC, as it documents them.
    ordinal
        The device.

    Raises
    ------
    CompilationError
        It does not compile or link; the log has the user's own line numbers.
    """
    capability = runtime.properties(ordinal).compute_capability
    is_ptx = _output(sources) == "PTX"
    major, minor = min(capability, _PLAIN_CAPABILITY) if is_ptx and _is_plain(sources) else capability
    given = (
        f"--gpu-architecture={'compute' if is_ptx else 'sm'}_{major}{minor}",
        f"--include-path={_HEADERS}",
        *_header_options(),
        *options,
    )
    if len(sources) > 1 and runtime.driver_info().is_emulated:
        try:
            return compile_sources((_as_one(sources),), options, ordinal)
        except CompilationError as error:
            raise CompilationError(_wrong_source(sources, error.log), error.log) from None
    digest = includes.digest_of_includes([source.text for source in sources], given)
    if digest is None:  # nobody knows what it depends on
        return _compile(tuple(sources), given)
    return _kept(tuple(sources), given, digest)


def lowered_name(
    sources: Sequence[Source],
    index: int,
    options: Sequence[str],
    ordinal: int,
    wrap: Callable[[str], str],
    expression: str,
) -> str:
    """Compile a source with something behind it, for the mangled name that this gives an expression. Blocks.

    Nothing is loaded, and on NVIDIA's driver no code for a device is made. The answer is kept on disk.

    Parameters
    ----------
    sources, options, ordinal
        As for `compile_sources`.
    index
        Which source. The emulated compiler takes all of them.
    wrap
        Makes the text to compile of the source's.
    expression
        Whose name is wanted.

    Raises
    ------
    CompilationError
        It does not compile.
    """
    is_one = len(sources) == 1 or not runtime.driver_info().is_emulated
    source = sources[index] if is_one else _as_one(sources)
    source = Source(source.name, wrap(source.text), (expression,))
    major, minor = runtime.properties(ordinal).compute_capability
    # Functions of other sources need not be there.
    separate = ("--relocatable-device-code=true",) if len(sources) > 1 else ()
    given = (
        *(f"--gpu-architecture=compute_{major}{minor}", f"--include-path={_HEADERS}"),
        *(*_header_options(), *separate, *options),
    )
    digest = includes.digest_of_includes([source.text], given)
    if digest is None:
        return _run_nvrtc(source, given, "PTX")[1][0][1].decode()
    return _kept_name(source, given, digest)


@functools.lru_cache(maxsize=1024)
def _kept_name(source: Source, options: tuple[str, ...], digest: str) -> str:
    disk = _disk_cache()
    key = _key((source,), options, digest) if disk is not None else b""
    if disk is not None and (kept := disk.get(key)) is not None:
        return kept.decode()
    ((_, name),) = _run_nvrtc(source, options, "PTX")[1]
    if disk is not None:
        disk[key] = name
    return name.decode()


def _as_one(sources: Sequence[Source]) -> Source:
    """Put sources one behind the other; lines keep their numbers and their source's name."""
    text = "".join(f'#line 1 "{_quoted(source.name)}"\n{source.text}\n' for source in sources)
    return Source(sources[0].name, text, tuple(each for source in sources for each in source.expressions))


def _wrong_source(sources: Sequence[Source], log: str) -> str:
    """Name the source that the first error of a log is in."""
    errors = (line for line in log.splitlines() if ": error" in line)
    names = (source.name for line in errors for source in sources if line.startswith(f"{source.name}("))
    return next(names, sources[0].name)


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


@functools.lru_cache(maxsize=256)
def _kept(sources: tuple[Source, ...], options: tuple[str, ...], digest: str) -> Image:
    disk = _disk_cache()
    if disk is None:
        return _compile(sources, options)
    key = _key(sources, options, digest)
    expressions = [each for source in sources for each in source.expressions]
    if (kept := disk.get(key)) is not None:
        # Mangled names hold no zero byte; what comes behind the last of them is the code.
        *mangled, code = kept.split(b"\0", len(expressions))
        kind = _KINDS[_output(sources)]
        return Image(sources[0].name, kind, code, tuple(zip(expressions, mangled, strict=True)))
    image = _compile(sources, options)
    lowered = dict(image.lowered)
    disk[key] = b"\0".join([*(lowered[each] for each in expressions), image.code])
    return image


def _output(sources: Sequence[Source]) -> Literal["CUBIN", "PTX"]:
    """Return what one source becomes: code for the device, or PTX, where the driver has to link a function of its own.

    The compiler knows nothing of ``cudaGraphSetConditional`` but its name; NVIDIA's driver links it into PTX alone.
    """
    is_linked = len(sources) == 1 and "cudaGraphSetConditional" in sources[0].text
    return "PTX" if is_linked and not runtime.driver_info().is_emulated else "CUBIN"


def _is_plain(sources: Sequence[Source]) -> bool:
    return len(sources) == 1 and PLAIN_PTX in sources[0].text


def _plain_ptx(code: bytes) -> bytes:
    """Declare PTX as of the oldest version that is needed: the compiler says its own, which older drivers refuse."""

    def older(found: re.Match[bytes]) -> bytes:
        version = min((int(found[1]), int(found[2])), _PLAIN_VERSION)
        return b".version %d.%d" % version

    code, count = re.subn(rb"^\.version (\d+)\.(\d+)", older, code, count=1, flags=re.MULTILINE)
    assert count == 1
    return code


def newer_than_driver() -> str:
    """Say that the compiler is newer than the driver, which PTX must not be; nothing if it is not."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    driver = runtime.driver_info()
    if 1000 * major + 10 * minor <= driver.version:
        return ""
    return (
        f"NVRTC {major}.{minor} made PTX, and the driver is of CUDA {driver.version_text}, which takes none of a newer "
        f"CUDA; update the driver, or install NVRTC of CUDA {driver.version_text}"
    )


def _compile(sources: tuple[Source, ...], options: tuple[str, ...]) -> Image:
    name = sources[0].name
    if len(sources) == 1:
        output = _output(sources)
        code, lowered = _run_nvrtc(sources[0], options, output)
        if output == "PTX" and _is_plain(sources):
            code = _plain_ptx(code)
        return Image(name, _KINDS[output], code, lowered)
    parts = [_run_nvrtc(source, (*options, "-dlto", "--relocatable-device-code=true"), "LTOIR") for source in sources]
    linked = _link([(source.name, code) for source, (code, _) in zip(sources, parts, strict=True)], options)
    return Image(name, "cubin", linked, tuple(pair for _, lowered in parts for pair in lowered))


def _run_nvrtc(
    source: Source, options: tuple[str, ...], output: Literal["CUBIN", "LTOIR", "PTX"]
) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Compile one source; return the output, and the mangled names of its expressions."""
    from cuda.bindings import nvrtc

    def check(program: Any, result: Any) -> None:
        if int(result) == 0:
            return
        log = _log(program) if program is not None else ""
        raise CompilationError(source.name, log or f"{result.name} without a log")

    result, program = nvrtc.nvrtcCreateProgram(source.text.encode(), source.name.encode(), 0, None, None)
    check(None, result)
    try:
        for expression in source.expressions:
            check(program, nvrtc.nvrtcAddNameExpression(program, expression.encode())[0])
        encoded = [option.encode() for option in options]
        check(program, nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0])
        result, size = getattr(nvrtc, f"nvrtcGet{output}Size")(program)
        check(program, result)
        code = bytearray(size)
        check(program, getattr(nvrtc, f"nvrtcGet{output}")(program, code)[0])
        lowered = []
        for expression in source.expressions:
            result, mangled = nvrtc.nvrtcGetLoweredName(program, expression.encode())
            check(program, result)
            lowered.append((expression, bytes(mangled)))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return bytes(code), tuple(lowered)


def _link(parts: list[tuple[str, bytes]], options: tuple[str, ...]) -> bytes:
    from cuda.core import Linker, LinkerOptions, ObjectCode

    names = " and ".join(name for name, _ in parts)
    if str(Linker.which_backend()).lower().rpartition(".")[2] != "nvjitlink":
        raise CompilationError(
            names,
            "several sources are linked by nvJitLink 12.3 or newer, which was not found: pip install aiocuda[cu13], "
            "or put the sources into one",
        )
    # The options by which the linker generates code; all others have had their effect.
    given = {name.strip().lstrip("-"): value for name, _, value in (option.partition("=") for option in options)}
    settings = LinkerOptions(
        name=names,
        arch=given["gpu-architecture"],
        link_time_optimization=True,
        max_register_count=int(given["maxrregcount"]) if "maxrregcount" in given else None,
        lineinfo=True if {"lineinfo", "generate-line-info"} & given.keys() else None,
    )
    objects = [ObjectCode.from_ltoir(code, name=name) for name, code in parts]
    linker: Any = None
    try:
        linker = Linker(*objects, options=settings)
        return bytes(linker.link("cubin").code)
    except Exception as error:  # its classes differ with the linker's backend
        log = linker.get_error_log() if linker is not None else ""
        raise CompilationError(names, log.strip() or str(error)) from error
    finally:
        if linker is not None:
            linker.close()


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
def _disk_cache() -> PrivateCache | None:
    """Return the store of compiled images; None where there is none.

    The emulated compiler keeps its own, in the same directory, and a machine may have none that can be used.
    """
    directory = cache_directory()
    if directory is None:
        return None
    is_emulated = runtime.driver_info().is_emulated
    try:
        found = private_directory(directory / ("modules" if is_emulated else "programs"))
        return None if is_emulated else PrivateCache(found, _CACHE_LIMIT_BYTES)
    except OSError as error:
        tell(str(error))
        return None


def _key(sources: tuple[Source, ...], options: tuple[str, ...], digest: str) -> bytes:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    parts = ["aiocuda 2", f"{major}.{minor}", digest, *options]
    for source in sources:
        parts += ["source", source.name, source.text, *source.expressions]
    key = hashlib.sha256()
    for part in parts:
        encoded = os.fsencode(part)
        key.update(f"{len(encoded)}:".encode() + encoded)
    return key.digest()
