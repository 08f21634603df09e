"""Images loaded on a device: their kernels, what the driver knows of these, and their variables.

Always true: an image stays loaded as long as anything of it is held here, or the device still works with it. All who
load the same image on a device share it, except an image with variables: each module has its own copy of these. The
functions of a shared image keep the attributes that they were loaded with, except the dynamic shared memory that
launches may have, which is only ever raised.
"""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda._driver.compiler import Image, newer_than_driver
from aiocuda._driver.context_limits import CACHE_PREFERENCES, CachePreference
from aiocuda._driver.image_variables import has_variables
from aiocuda._naming import name_publicly
from aiocuda.errors import ArgumentValueError, CompilationError, LaunchError

__all__ = [
    "KernelAttributes",
    "LoadedKernel",
    "LoadedModule",
    "Occupancy",
    "load",
    "load_alone",
]

# Each image that somebody drops while its device is busy stays loaded until the device is idle. So that a device that
# never is does not collect them for ever, loading one more unloads them where they are as many.
_MOST_DROPPED: Final = 16

# The static and dynamic shared memory that a block can have together without asking, on every device since Volta.
_SHARED_WITHOUT_ASKING: Final = 48 * 1024


@dataclass(frozen=True, slots=True)
class KernelAttributes:
    """The compiler's figures for a kernel, on one device.

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


class _Limits(NamedTuple):
    """The limits of a device for a kernel."""

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
        self.function = int(runtime.call(driver.cuKernelGetFunction, kernel))

    @property
    def image(self) -> _native.LoadedImage:
        """The object that keeps the function loaded."""
        return self._module.image

    def attributes(self) -> KernelAttributes:
        """Return what the compiler made of the kernel, and what is set for it; the dynamic shared memory as loaded."""
        return KernelAttributes(
            registers=self.attribute("NUM_REGS"),
            shared_bytes=self.attribute("SHARED_SIZE_BYTES"),
            local_bytes=self.attribute("LOCAL_SIZE_BYTES"),
            constant_bytes=self.attribute("CONST_SIZE_BYTES"),
            max_threads_per_block=self.attribute("MAX_THREADS_PER_BLOCK"),
            binary_version=self.attribute("BINARY_VERSION"),
            ptx_version=self.attribute("PTX_VERSION"),
            max_dynamic_shared_bytes=self._module.dynamic_shared_bytes[self.symbol],
            preferred_carveout=self.attribute("PREFERRED_SHARED_MEMORY_CARVEOUT"),
        )

    def limits(self) -> _Limits:
        """Return what the device allows launches of the kernel, as it was loaded."""
        static_bytes = self.attribute("SHARED_SIZE_BYTES")
        limit_bytes = self._module.dynamic_shared_bytes[self.symbol]
        if limit_bytes <= _SHARED_WITHOUT_ASKING:
            limit_bytes = min(limit_bytes, _SHARED_WITHOUT_ASKING - static_bytes)
        return _Limits(
            shared_limit_bytes=limit_bytes,
            shared_most_bytes=self._device("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") - static_bytes,
            max_threads=self.attribute("MAX_THREADS_PER_BLOCK"),
            multiprocessors=self._device("MULTIPROCESSOR_COUNT"),
            is_cooperative=self._device("COOPERATIVE_LAUNCH") != 0,
            has_clusters=self._device("CLUSTER_LAUNCH") != 0,
        )

    def _device(self, attribute: str) -> int:
        return runtime.device_attribute(self._ordinal, attribute)

    def allow_shared(self, size_bytes: int) -> None:
        """Let launches have so much dynamic shared memory. Never lowered: others may have the same function."""
        if size_bytes > self.attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES"):
            self.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", size_bytes)

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
        from cuda.bindings import driver

        function = driver.CUfunction(self.function)
        with _on(self._ordinal):
            if block is None:
                _, suggested = runtime.call(driver.cuOccupancyMaxPotentialBlockSize, function, None, shared_bytes, 0)
                block = int(suggested)
            active = int(
                runtime.call(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, function, block, shared_bytes)
            )
            available = 0
            if active:
                available = int(runtime.call(driver.cuOccupancyAvailableDynamicSMemPerBlock, function, active, block))
        return Occupancy(
            block=block,
            active_blocks=active,
            fraction=active * block / self._device("MAX_THREADS_PER_MULTIPROCESSOR"),
            grid=active * self._device("MULTIPROCESSOR_COUNT"),
            available_shared_bytes=available,
        )

    def attribute(self, name: str) -> int:
        """Return an attribute of the kernel, by the name that CUDA gives it behind ``CU_FUNC_ATTRIBUTE_``."""
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
        from cuda.bindings import driver

        found: list[int] = []
        with _on(self._ordinal):
            while True:
                result, _, size_bytes = driver.cuKernelGetParamInfo(self._kernel, len(found))
                if result == driver.CUresult.CUDA_ERROR_INVALID_VALUE:  # behind the last one
                    break
                runtime.require(result, "cuKernelGetParamInfo")
                found.append(int(size_bytes))
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
        from cuda.bindings import driver

        self.code = image
        self.ordinal = ordinal
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        self.dynamic_shared_bytes: dict[str, int] = {}  # of each kernel, as it was loaded
        if _native.image_counts()[1] >= _MOST_DROPPED:
            _native.unload_images(ordinal)
        with _on(ordinal):
            try:
                library = runtime.call(driver.cuLibraryLoadData, image.code, None, None, 0, None, None, 0)
                self._library = int(library)
                self.image = _native.LoadedImage(self._library, ordinal)
                if image.kind == "ptx":
                    self._load_now()
            except Exception as error:
                if image.kind == "ptx" or not image.is_given:
                    what = "this PTX" if image.is_given else "what was compiled"
                    newer = newer_than_driver() if image.kind == "ptx" and not image.is_given else ""
                    because = f"; {newer}" if newer else ""
                    raise CompilationError(image.name, f"the driver does not load {what}: {error}{because}") from error
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
        symbol = dict(self.code.lowered).get(name, b"").decode() or self._symbol_of(name)
        from cuda.bindings import driver

        with _on(self.ordinal):
            found = runtime.call(driver.cuLibraryGetKernel, driver.CUlibrary(self._library), symbol.encode())
            loaded = LoadedKernel(self, found, symbol, self.ordinal)
            if symbol not in self.dynamic_shared_bytes:
                self.dynamic_shared_bytes[symbol] = loaded.attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES")
            return loaded

    def _symbol_of(self, name: str) -> str:
        found = [name] if name in self.symbols else [each for each in self.symbols if _is_mangled(name, each)]
        if len(found) == 1:
            return found[0]
        listed = "".join(f"\n  {each}" for each in self.symbols) or " none"
        what = f"several kernels '{name}': give one as it is listed" if found else f"no kernel '{name}'"
        raise ArgumentValueError(f"{self.code.name} has {what}; its kernels:{listed}")

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

        with _on(self.ordinal):
            result, address, size_bytes = driver.cuLibraryGetGlobal(driver.CUlibrary(self._library), symbol.encode())
        if result == driver.CUresult.CUDA_ERROR_NOT_FOUND:
            raise ArgumentValueError(
                f"{self.code.name} has no variable '{symbol}' on the device; one that is static, or that no kernel "
                "uses, is left out by the compiler"
            )
        runtime.require(result, "cuLibraryGetGlobal")
        return int(address), int(size_bytes)


_shared: weakref.WeakValueDictionary[tuple[Image, int], LoadedModule] = weakref.WeakValueDictionary()
_lock = threading.Lock()  # for a few steps at a time; never held while the driver is called


def load(image: Image, ordinal: int, user: Hashable) -> LoadedModule:
    """Load an image on a device for somebody, or give him the one that others have there. Blocks.

    Parameters
    ----------
    image
        Compiled code.
    ordinal
        The device.
    user
        Who holds it; a user counts for as long as he lives.

    Raises
    ------
    CompilationError, ArgumentValueError
        As `LoadedModule`.
    """
    with _lock:
        loaded = _shared.get((image, ordinal))
        if loaded is not None:
            loaded.users.add(user)
            return loaded
    loaded = LoadedModule(image, ordinal)
    if not has_variables(image):
        with _lock:  # another thread may have been quicker
            loaded = _shared.setdefault((image, ordinal), loaded)
            loaded.users.add(user)
    return loaded


def load_alone(loaded: LoadedModule, user: Hashable) -> LoadedModule:
    """Give a user of a loaded image one that nobody else has or gets: the same, or else another. Blocks.

    Parameters
    ----------
    loaded
        What the user has now.
    user
        As he was given to `load`.

    Raises
    ------
    CompilationError, ArgumentValueError
        As `LoadedModule`.
    """
    key = (loaded.code, loaded.ordinal)
    with _lock:
        if _shared.get(key) is not loaded:
            return loaded
        if set(loaded.users) <= {user}:
            del _shared[key]
            return loaded
    own = LoadedModule(loaded.code, loaded.ordinal)
    with _lock:
        loaded.users.discard(user)
    return own


@contextlib.contextmanager
def _on(ordinal: int) -> Iterator[None]:
    """Make a device current for the driver. If something fails inside because the device is lost, the error says so.

    Raises
    ------
    DriverError
        The device is lost, whatever else the call that failed says.
    """
    with runtime.context_of(ordinal):
        try:
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


name_publicly("aiocuda", globals(), ("KernelAttributes", "Occupancy"))
