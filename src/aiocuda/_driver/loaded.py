"""Images loaded on a device: their kernels, what the driver knows of these, and their variables.

Always true: an image stays loaded as long as anything of it is held here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from aiocuda._driver import runtime
from aiocuda._driver.compiler import Image
from aiocuda.errors import ArgumentValueError, CompilationError, LaunchError

__all__ = ["CACHE_PREFERENCES", "CachePreference", "KernelAttributes", "LoadedKernel", "LoadedModule", "Occupancy"]

CachePreference = Literal["default", "shared", "l1", "equal"]
CACHE_PREFERENCES: Final[tuple[CachePreference, ...]] = ("default", "shared", "l1", "equal")  # as CUfunc_cache counts

# What a block can have of static and dynamic shared memory together without asking, on every device since Volta.
_SHARED_WITHOUT_ASKING: Final = 48 * 1024


@dataclass(frozen=True, slots=True)
class KernelAttributes:
    """What the compiler made of a kernel, for one device.

    Attributes
    ----------
    registers
        A thread's; a fixed number on the emulated driver.
    shared_bytes
        Static shared memory of a block.
    local_bytes
        Local memory of a thread: what did not fit into registers, and arrays.
    constant_bytes
        Constant memory that the kernel itself declares.
    max_threads_per_block
        The most threads that a block of it may have, by its registers and ``__launch_bounds__``.
    binary_version, ptx_version
        The architectures that its code is for, as ten times the major number plus the minor: 90 for 9.0.
    max_dynamic_shared_bytes
        The most dynamic shared memory that a launch may ask for as it is set now; launches that ask for more raise it.
    preferred_carveout
        The percentage of the multiprocessor's memory that is best made shared memory; -1 where the driver is free.
    """

    registers: int
    shared_bytes: int
    local_bytes: int
    constant_bytes: int
    max_threads_per_block: int
    binary_version: int
    ptx_version: int
    max_dynamic_shared_bytes: int
    preferred_carveout: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many blocks of a kernel a device runs at once.

    Attributes
    ----------
    block
        Threads of a block: those that were asked about, or those that the driver suggests.
    active_blocks
        That run at once on a multiprocessor; 0 where not one fits.
    fraction
        Of the threads that a multiprocessor can have, those in these blocks.
    grid
        Blocks that fill the device: as many as a cooperative launch may have.
    available_shared_bytes
        The dynamic shared memory that a block could have with as many of them active.
    """

    block: int
    active_blocks: int
    fraction: float
    grid: int
    available_shared_bytes: int


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a device allows a kernel, in the order in which native code has it."""

    shared_limit_bytes: int
    shared_most_bytes: int
    max_threads: int
    multiprocessors: int
    is_cooperative: bool
    has_clusters: bool


UNKNOWN_LIMITS: Final = _Limits(2**31 - 1, 2**31 - 1, 2**31 - 1, 2**31 - 1, is_cooperative=True, has_clusters=True)


class LoadedKernel:
    """A kernel on one device."""

    __slots__ = ("_kernel", "_module", "_ordinal", "function", "symbol")

    def __init__(self, module: LoadedModule, kernel: Any, symbol: str, ordinal: int) -> None:
        from cuda.bindings import driver

        self._module = module
        self._kernel = kernel
        self._ordinal = ordinal
        self.symbol = symbol
        self.function = int(runtime.call(driver.cuKernelGetFunction, driver.CUkernel(int(kernel.handle))))

    def attributes(self) -> KernelAttributes:
        """Return what the compiler made of the kernel, and what is set for it."""
        with _on(self._ordinal):
            found = self._kernel.attributes[self._ordinal]
            return KernelAttributes(
                registers=found.num_regs,
                shared_bytes=found.shared_size_bytes,
                local_bytes=found.local_size_bytes,
                constant_bytes=found.const_size_bytes,
                max_threads_per_block=found.max_threads_per_block,
                binary_version=found.binary_version,
                ptx_version=found.ptx_version,
                max_dynamic_shared_bytes=self._attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES"),
                preferred_carveout=self._attribute("PREFERRED_SHARED_MEMORY_CARVEOUT"),
            )

    def limits(self) -> _Limits:
        """Return what the device allows launches of the kernel."""
        static_bytes = self._attribute("SHARED_SIZE_BYTES")
        limit_bytes = self._attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES")
        if limit_bytes <= _SHARED_WITHOUT_ASKING:
            limit_bytes = min(limit_bytes, _SHARED_WITHOUT_ASKING - static_bytes)
        return _Limits(
            shared_limit_bytes=limit_bytes,
            shared_most_bytes=self._device("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") - static_bytes,
            max_threads=self._attribute("MAX_THREADS_PER_BLOCK"),
            multiprocessors=self._device("MULTIPROCESSOR_COUNT"),
            is_cooperative=self._device("COOPERATIVE_LAUNCH") != 0,
            has_clusters=self._device("CLUSTER_LAUNCH") != 0,
        )

    def _device(self, attribute: str) -> int:
        return runtime.device_attribute(self._ordinal, attribute)

    def set_attribute(self, name: str, value: int) -> None:
        """Set an attribute of the kernel, by the name that CUDA gives it behind ``CU_FUNC_ATTRIBUTE_``."""
        from cuda.bindings import driver

        attribute = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        with _on(self._ordinal):
            runtime.call(driver.cuFuncSetAttribute, driver.CUfunction(self.function), attribute, value)

    def prefer(self, cache: CachePreference) -> None:
        """Say which of shared memory and the first-level cache the kernel makes more of."""
        from cuda.bindings import driver

        config = driver.CUfunc_cache(CACHE_PREFERENCES.index(cache))
        with _on(self._ordinal):
            runtime.call(driver.cuFuncSetCacheConfig, driver.CUfunction(self.function), config)

    def occupancy(self, block: int | None, shared_bytes: int) -> Occupancy:
        """Ask how many blocks of so many threads run at once; None takes the number that the driver suggests."""
        asked = self._kernel.occupancy
        with _on(self._ordinal):
            if block is None:
                block = int(asked.max_potential_block_size(shared_bytes, 0).max_block_size)
            active = int(asked.max_active_blocks_per_multiprocessor(block, shared_bytes))
            available = int(asked.available_dynamic_shared_memory_per_block(active, block)) if active else 0
        return Occupancy(
            block=block,
            active_blocks=active,
            fraction=active * block / self._device("MAX_THREADS_PER_MULTIPROCESSOR"),
            grid=active * self._device("MULTIPROCESSOR_COUNT"),
            available_shared_bytes=available,
        )

    def _attribute(self, name: str) -> int:
        """Ask the driver afresh: cuda.core remembers its first answer, and these change."""
        from cuda.bindings import driver

        attribute = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        with _on(self._ordinal):
            return int(runtime.call(driver.cuFuncGetAttribute, attribute, driver.CUfunction(self.function)))

    def require_parameters(self, name: str, sizes_bytes: Sequence[int]) -> None:
        """Raise unless the compiled kernel takes parameters of these sizes.

        Raises
        ------
        LaunchError
            It takes others; both are told.
        """
        with _on(self._ordinal):
            found = [parameter.size for parameter in self._kernel.arguments_info]
        if found != list(sizes_bytes):
            raise LaunchError(
                f"{name}: the signature has {_in_words(sizes_bytes)}, the compiled kernel {_in_words(found)}; "
                "spell the parameters out as they were compiled, with signature= and structures="
            )


def _in_words(sizes_bytes: Sequence[int]) -> str:
    if not sizes_bytes:
        return "no parameters"
    listed = ", ".join(map(str, sizes_bytes))
    return f"{len(sizes_bytes)} parameter{'s' if len(sizes_bytes) > 1 else ''} of {listed} bytes"


class LoadedModule:
    """An image on one device.

    Raises
    ------
    CompilationError
        It is PTX that the driver does not compile, or was made of source and does not load.
    ArgumentValueError
        It was given, and is no image for this device.
    """

    def __init__(self, image: Image, ordinal: int) -> None:
        from cuda.core import ObjectCode

        self._image = image
        self._ordinal = ordinal
        make = {"cubin": ObjectCode.from_cubin, "ptx": ObjectCode.from_ptx, "fatbin": ObjectCode.from_fatbin}
        with _on(ordinal):
            self._code = make[image.kind](image.code, name=image.name)
            try:
                self._library = int(self._code.handle)
                if image.kind == "ptx":
                    self._load_now()
            except Exception as error:
                if image.kind == "ptx" or not image.is_given:
                    what = "this PTX" if image.is_given else "what was compiled"
                    raise CompilationError(image.name, f"the driver does not load {what}: {error}") from error
                major, minor = runtime.properties(ordinal).compute_capability
                raise ArgumentValueError(
                    f"{image.name}: the driver does not load this {image.kind} on device {ordinal}, of compute "
                    f"capability {major}.{minor}: {error}; was it compiled for that?"
                ) from error
            self.symbols = self._symbols()

    def _symbols(self) -> tuple[str, ...]:
        from cuda.bindings import driver

        library = driver.CUlibrary(self._library)
        count = int(runtime.call(driver.cuLibraryGetKernelCount, library))
        kernels = runtime.call(driver.cuLibraryEnumerateKernels, count, library) if count else []
        return tuple(sorted(runtime.call(driver.cuKernelGetName, each).decode() for each in kernels))

    def _load_now(self) -> None:
        """Have PTX compiled: a library of what does not compile loads as well, and has no kernels."""
        from cuda.bindings import driver

        runtime.call(driver.cuLibraryGetModule, driver.CUlibrary(self._library))

    def kernel(self, name: str) -> LoadedKernel:
        """Find a kernel by its symbol, the name expression that it was compiled by, or its plain name.

        Raises
        ------
        ArgumentValueError
            There is none; the error lists what there is.
        """
        symbol = dict(self._image.lowered).get(name, b"").decode() or self._symbol_of(name)
        with _on(self._ordinal):
            return LoadedKernel(self, self._code.get_kernel(symbol.encode()), symbol, self._ordinal)

    def _symbol_of(self, name: str) -> str:
        found = [name] if name in self.symbols else [each for each in self.symbols if _is_mangled(name, each)]
        if len(found) == 1:
            return found[0]
        listed = "".join(f"\n  {each}" for each in self.symbols) or " none"
        what = f"several kernels '{name}': give one as it is listed" if found else f"no kernel '{name}'"
        raise ArgumentValueError(f"{self._image.name} has {what}; its kernels:{listed}")

    def variable(self, symbol: str) -> tuple[int, int]:
        """Return the address and the size in bytes of a variable on the device.

        Raises
        ------
        ArgumentValueError
            There is none; the compiler leaves out what nothing uses.
        DriverError
            The driver refused.
        """
        from cuda.bindings import driver

        with _on(self._ordinal):
            result, address, size_bytes = driver.cuLibraryGetGlobal(driver.CUlibrary(self._library), symbol.encode())
        if result == driver.CUresult.CUDA_ERROR_NOT_FOUND:
            raise ArgumentValueError(
                f"{self._image.name} has no variable '{symbol}' on the device; one that is static, or that no kernel "
                "uses, is left out by the compiler"
            )
        runtime.require(result, "cuLibraryGetGlobal")
        return int(address), int(size_bytes)


@contextlib.contextmanager
def _on(ordinal: int) -> Iterator[None]:
    """Make a device current for the driver and for cuda.core. What fails inside as the device is lost, says so.

    Raises
    ------
    DriverError
        The device is lost, whatever cuda.core made of that.
    """
    with runtime.context_of(ordinal):
        from cuda.core import Device

        try:
            Device(ordinal).set_current()
            yield
        except Exception:
            runtime.memory_free_total(ordinal)  # which a lost device refuses
            raise


def _is_mangled(name: str, symbol: str) -> bool:
    """Say whether a symbol is that of a function, no template, with this qualified name (Itanium C++ ABI, 5.1)."""
    parts = name.split("::")
    if not all(re.fullmatch(r"[A-Za-z_]\w*", part) for part in parts):
        return False
    spelled = "".join(f"{len(part)}{part}" for part in parts)
    start = f"_ZN{spelled}E" if len(parts) > 1 else f"_Z{spelled}"
    return symbol.startswith(start) and not symbol[len(start) :].startswith("I")
