"""Kernels: called to build launches, and asked what is known of them.

Always true: a call is one crossing into native code, which builds the launch; no Python of aiocuda's runs. A kernel is
loaded on a device once, and only if what was compiled takes what its signature says.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import threading
import types
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, final

from aiocuda import _driver, _native, _source
from aiocuda._devices.device import DeviceLike, as_ordinal
from aiocuda._driver import runtime
from aiocuda._driver.context_limits import CACHE_PREFERENCES, CachePreference
from aiocuda._engine import background, faults, held_up, opening
from aiocuda._kernels import kernel_help
from aiocuda._kernels.module_image import ModuleImage
from aiocuda._kernels.packing import native_parameter, size_bytes
from aiocuda._later import aiocuda
from aiocuda._ops.operation import DeviceOp, LaunchOp
from aiocuda._values import given
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, CompilationError, DriverError, LaunchError

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import TypeVar

    from aiocuda._kernels.module import Module

    R_co = TypeVar("R_co", covariant=True, default=Any)

    class _Writes(Generic[R_co]):
        __slots__ = ()
else:
    R_co = Any

    class _Writes:
        """``Kernel[DeviceArray]`` is for type checkers; a program may write it."""

        __slots__ = ()
        __class_getitem__ = classmethod(types.GenericAlias)


__all__ = ["Kernel", "make_kernel"]


class _OwnSignature:
    """``__signature__``: of a kernel, how it is called; the class has none."""

    def __get__(self, kernel: Kernel | None, owner: type[Kernel]) -> inspect.Signature:
        if kernel is None:
            raise AttributeError("the class of kernels is not called; each kernel has a __signature__")
        return kernel_help.signature_of(kernel._known_signature())


class _OwnDoc:
    """``__doc__``: of a kernel, its CUDA parameters; of the class, what kernels are."""

    def __init__(self, of_class: str | None) -> None:
        self._of_class = of_class

    def __get__(self, kernel: Kernel | None, owner: type[Kernel]) -> str | None:
        return self._of_class if kernel is None else kernel_help.text_of(kernel.name, kernel._known_signature())


@final
class Kernel(_native.Kernel, _Writes[R_co]):
    """A function that runs on a device: call it to build a launch. Made by `aiocuda.kernel` and `Module.kernel`.

    Call it with an argument for each parameter and a shape: ``threads=`` (one for each element: an
    int or a tuple of up to three), or ``grid=`` and ``block=`` (blocks, and threads in each), and if wanted
    ``shared_memory=`` (dynamic, in bytes), ``cluster=``, ``cooperative=``. Blocks are whole, so ``threads=`` may
    start more threads than it says: a kernel must check its index. Arguments may be given by their parameters'
    names (``saxpy(a=2.0, x=x, y=y, n=n, threads=n)``), those by position first, as for a Python function; the
    keywords above are never a parameter's name. A launch with a partition needs no shape: it has
    a block for each tile and a thread for each of the tile's items. It gives a `DeviceOp` whose
    result is the array that the kernel writes; a tuple, in the order of the parameters, where it writes
    several; None where it writes none.

    Pointers to const are read, other pointers read and written. Arguments are arrays, numbers, structs (NumPy's
    structured scalars, ctypes.Structure; tuples for vectors such as ``float4``), and operations that yield them.
    A launch that writes several arrays can be unpacked: ``a, b = kernel(...)``.
    A wrong count, dtype, device or range is an error when the launch is
    built; of what an operation yields, as soon as it is known, and before the launch is submitted.

    ``inspect.signature`` and ``help`` of a kernel show its parameters, as they are declared in CUDA C++.

    CUDA C++ says what a kernel writes, and no type checker reads it. So an annotation does:
    ``double: Kernel[DeviceArray] = kernel(source)`` gives launches of the type ``DeviceOp[DeviceArray]``. Without it
    they are ``DeviceOp[Any]``.

    Notes
    -----
    A launch runs on the device of its arrays, on the stream in force there, and blocks nothing;
    cancelling an await of it leaves it on the device and keeps its memory alive.
    """

    __slots__ = (
        "_ask", "_asking", "_compilations", "_image", "_is_open", "_loaded", "_lock", "_module", "_signature", "_text"
    )  # fmt: skip

    __signature__ = _OwnSignature()
    __doc__ = _OwnDoc(__doc__)

    def __new__(cls, *_: object, **__: object) -> NoReturn:
        """Refuse: kernels have a source."""
        raise ArgumentTypeError("kernels are made by aiocuda.kernel(source) and by Module.kernel(name)")

    if TYPE_CHECKING:
        _module: Module
        _image: ModuleImage
        _text: str | None
        _signature: _source.KernelSignature
        # What the compiler says for a device; None: the source says it all.
        _ask: Callable[[int], _source.KernelSignature] | None
        _is_open: bool
        _asking: threading.Lock
        _loaded: dict[int, _driver.LoadedKernel]
        _lock: threading.Lock
        _compilations: background.Background

        # Native code has it.
        def __call__(
            self,
            *arguments: object,
            threads: int | Sequence[int] = ...,
            grid: int | Sequence[int] = ...,
            block: int | Sequence[int] = ...,
            shared_memory: int = ...,
            cluster: int | Sequence[int] = ...,
            cooperative: bool = ...,
            **named: object,
        ) -> DeviceOp[R_co]: ...

    @property
    def name(self) -> str:
        """The kernel's name, with template arguments where it has some."""
        return self._signature.name

    @property
    def module(self) -> Module:
        """The module that it is of."""
        return self._module

    @property
    def source(self) -> str | None:
        """The CUDA C++ that it was made of; None where that was compiled code."""
        return self._text

    @property
    def options(self) -> tuple[str, ...]:
        """The compiler's options, as NVRTC takes them."""
        return self._module.options

    @property
    def signature(self) -> _source.KernelSignature:
        """The parameters. If the source does not say them, the compiler does, for the device in force. Blocks."""
        return self._settled(None)

    def _settled(self, ordinal: int | None) -> _source.KernelSignature:
        with self._asking:
            if self._is_open and self._ask is not None:
                what = f"asking the compiler for the parameters of kernel {self._signature.name}"
                with held_up.Watched(what):
                    self._signature = self._ask(as_ordinal(None) if ordinal is None else ordinal)
                self._is_open = False
            return self._signature

    def _native_parameters(self) -> list[_native.Parameter]:
        return [native_parameter(each) for each in self.signature.parameters]

    def compile(self, device: DeviceLike | None = None) -> None:
        """Compile for a device and load there, if that has not been done. Blocks; the result is kept on disk.

        Parameters
        ----------
        device
            The device; None takes the one in force.

        Raises
        ------
        CompilationError
            It does not compile; the log has the source's own line numbers.
        """
        self._on(as_ordinal(device))

    def compile_async(self, device: DeviceLike | None = None) -> Coroutine[Any, Any, None]:
        """Compile for a device and load there, if that has not been done: await it. The event loop goes on.

        An awaited launch does the same, where its kernel is not there yet; this asks for it early.

        Parameters
        ----------
        device
            The device; None takes the one in force now.

        Returns
        -------
        Coroutine[None]
            Nothing begins before it is awaited. All who need the kernel meanwhile, launches too, share one compilation.

        Raises
        ------
        CompilationError
            When it is awaited: it does not compile; the log has the source's own line numbers.

        Notes
        -----
        *Stream*: none. *Blocks*: no; the end of the process waits for a compilation. *On cancel*: the compilation goes
        on, for the next one who needs it.
        """
        return self._wait_loaded(as_ordinal(device))

    async def _wait_loaded(self, ordinal: int) -> None:
        runtime.require_not_forked()
        if self._is_loaded(ordinal):
            await background.DONE  # the loop has its turn, where others wait for one
        await opening.opened(ordinal, self._words(ordinal))
        while (work := self._loading(ordinal)) is not None:
            await work
            self._raise_failure(work, self._words(ordinal), ordinal)

    def attributes(self, device: DeviceLike | None = None) -> aiocuda.KernelAttributes:
        """Return what the compiler made of it: registers a thread, bytes of shared, local and constant memory.

        Parameters
        ----------
        device
            The device; None takes the one in force. The kernel is compiled if need be.

        Returns
        -------
        KernelAttributes
            As the driver says them for the device.
        """
        ordinal = as_ordinal(device)
        loaded = self._on(ordinal)
        with faults.raised_as(f"asking for the attributes of kernel {self.name} on device {ordinal}", ordinal):
            found = loaded.attributes()
            limit_bytes = self._shared_limit(ordinal, found.max_dynamic_shared_bytes)
            return dataclasses.replace(found, max_dynamic_shared_bytes=limit_bytes)

    def set_attributes(
        self,
        device: DeviceLike | None = None,
        *,
        max_dynamic_shared_bytes: int | None = None,
        preferred_carveout: int | None = None,
        cache: CachePreference | None = None,
    ) -> None:
        """Set what the driver is to do with launches from now on; what is None stays. Compiles the kernel if need be.

        They hold for all kernels that `Module.kernel` gives of one function of one module, and for nobody else's:
        a kernel of the same source that was made apart keeps its own.

        Parameters
        ----------
        device
            The device; None takes the one in force.
        max_dynamic_shared_bytes
            The most dynamic shared memory that a launch may have. Launches that ask for more raise it by themselves.
        preferred_carveout
            The percentage of the multiprocessor's memory that is best made shared memory, a hint; -1 leaves it to the
            driver.
        cache
            Which of shared memory and the first-level cache the kernel makes more of, a hint: "shared", "l1", "equal",
            or "default" for neither.

        Raises
        ------
        LaunchError
            A block of the kernel cannot have so much shared memory on the device.
        ArgumentTypeError, ArgumentValueError
            `preferred_carveout` or `cache` is none of these; `max_dynamic_shared_bytes` is no whole number.
        """
        ordinal = as_ordinal(device)
        if preferred_carveout is not None and not -1 <= given.whole(preferred_carveout, "preferred_carveout") <= 100:
            raise ArgumentValueError(f"preferred_carveout={preferred_carveout}: a percentage is wanted, or -1")
        asked: object = cache
        if asked is not None and (not isinstance(asked, str) or asked not in CACHE_PREFERENCES):
            raise ArgumentValueError(f"cache={given.shown(cache)}: 'shared', 'l1', 'equal' and 'default' are possible")
        loaded = self._on(ordinal)
        with faults.raised_as(f"setting attributes of kernel {self.name} on device {ordinal}", ordinal):
            if max_dynamic_shared_bytes is not None:
                self._allow_shared(loaded, ordinal, given.whole(max_dynamic_shared_bytes, "max_dynamic_shared_bytes"))
            if preferred_carveout is None and cache is None:
                return
            loaded = self._alone_on(ordinal)
            if preferred_carveout is not None:
                loaded.set_attribute("PREFERRED_SHARED_MEMORY_CARVEOUT", preferred_carveout)
            if cache is not None:
                loaded.prefer(cache)

    def occupancy(
        self,
        block: int | Sequence[int] | None = None,
        *,
        shared_memory: int = 0,
        device: DeviceLike | None = None,
    ) -> aiocuda.Occupancy:
        """Say how many blocks of the kernel run at once on a device, and which block size suits it.

        Parameters
        ----------
        block
            Threads of a block, as for a launch; None asks the driver for the number that keeps most threads active.
        shared_memory
            The dynamic shared memory of a block, in bytes; as a launch would, this raises what launches may have.
        device
            The device; None takes the one in force. The kernel is compiled if need be.

        Returns
        -------
        Occupancy
            Blocks that run at once, and the block size that was asked about or found.

        Raises
        ------
        LaunchError
            A block of the kernel cannot have so many threads, or so much shared memory, on the device.
        ArgumentTypeError
            `block` or `shared_memory` does not consist of whole numbers.
        """
        ordinal = as_ordinal(device)
        threads, shared_bytes = _threads(block), given.whole(shared_memory, "shared_memory")
        loaded = self._on(ordinal)
        with faults.raised_as(f"asking for the occupancy of kernel {self.name} on device {ordinal}", ordinal):
            most = loaded.limits().max_threads
            if threads is not None and not 1 <= threads <= most:
                raise LaunchError(
                    f"{self.name}: block={block!r} is {threads} threads; on device {ordinal} this kernel takes 1 to "
                    f"{most} in a block"
                )
            if not 0 <= shared_bytes <= self._shared_limit(ordinal, loaded.limits().shared_limit_bytes):
                self._allow_shared(loaded, ordinal, shared_bytes)
            return loaded.occupancy(threads, shared_bytes)

    def _allow_shared(self, loaded: _driver.LoadedKernel, ordinal: int, size_bytes: int) -> None:
        most = loaded.limits().shared_most_bytes
        if not 0 <= size_bytes <= most:
            raise LaunchError(
                f"{self.name}: {size_bytes} bytes of dynamic shared memory; on device {ordinal} a block of this kernel "
                f"can have 0 to {most}"
            )
        loaded.allow_shared(size_bytes)
        self._image.shared_limits[self.name, ordinal] = size_bytes
        for kernel in self._image.kernels_named(self.name):
            _native.set_shared_limit(kernel, ordinal, size_bytes)

    def _shared_limit(self, ordinal: int, as_loaded: int) -> int:
        """Return the dynamic shared memory that was set, or that launches of this module's kernels have asked for."""
        asked = (_native.shared_limit(kernel, ordinal) for kernel in self._image.kernels_named(self.name))
        return max(self._image.shared_limits.get((self.name, ordinal), as_loaded), *asked, 0)

    def _alone_on(self, ordinal: int) -> _driver.LoadedKernel:
        """Give the kernel in an image that nobody else has: attributes are a function's, and so everybody's."""
        before = self._image.load(ordinal)
        if self._image.load_alone(ordinal) is not before:
            for kernel in tuple(self._image.kernels):
                if kernel._leave(ordinal):
                    _native.set_function(kernel, ordinal, kernel._load_with_limits(ordinal))
        return self._on(ordinal)

    def _leave(self, ordinal: int) -> bool:
        """Forget the function that the kernel has on a device; false where it has none."""
        with self._lock:
            return self._loaded.pop(ordinal, None) is not None

    def _is_loaded(self, ordinal: int) -> bool:
        return ordinal in self._loaded

    def _loading(self, ordinal: int) -> background.Work | None:
        """Have another thread compile the kernel and load it, unless it is there, and return what to wait for."""
        runtime.require_not_forked()
        if self._is_loaded(ordinal):
            return None
        return self._compilations.begin(ordinal, lambda: self._load_now(ordinal), f"compiling kernel {self.name}")

    def _raise_failure(self, work: background.Work, asked: _native.Op | str, ordinal: int) -> None:
        """Raise the error of compiling or loading, if it failed, as the error of the launch that needed it."""
        if not work.has_ended:
            return
        with faults.raised_as(asked, ordinal):
            try:
                work.require_done()
            except CompilationError as error:
                if not isinstance(asked, str) and (origin := faults.origin_text(asked)):
                    error.add_note(f"The kernel was needed by {asked._title}, built at {origin}.")
                raise

    def _words(self, ordinal: int) -> str:
        return f"loading kernel {self.name} on device {ordinal}"

    def _on(self, ordinal: int, launch: _native.Op | None = None) -> _driver.LoadedKernel:
        """Return the kernel on a device, compiled and loaded there by another thread if need be. Blocks."""
        runtime.require_not_forked()
        while (loaded := self._loaded.get(ordinal)) is None:
            if (work := self._loading(ordinal)) is not None:
                with held_up.Watched(self._words(ordinal)):
                    work.wait()
                self._raise_failure(work, self._words(ordinal) if launch is None else launch, ordinal)
        return loaded

    def _load_now(self, ordinal: int) -> None:
        runtime.open_device(ordinal)  # without the lock: other devices may need the kernel meanwhile
        with self._lock:
            if ordinal in self._loaded:
                return
            signature = self._settled(ordinal)
            if self._ask is not None and (there := self._ask(ordinal)).parameters != signature.parameters:
                raise ArgumentValueError(
                    f"kernel '{self.name}' has other parameters on device {ordinal}: {there}; it was made for "
                    f"{signature}: make a kernel for each kind of device"
                )
            loaded = self._image.load(ordinal).kernel(self.name)
            loaded.require_parameters(self.name, [size_bytes(each) for each in signature.parameters])
            self._loaded[ordinal] = loaded

    def _load(self, ordinal: int) -> int:
        return self._on(ordinal).function

    def _load_with_limits(self, ordinal: int, launch: _native.Op | None = None) -> _native.LoadedFunction:
        loaded = self._on(ordinal, launch)
        try:
            limits = loaded.limits()
            limit_bytes = self._shared_limit(ordinal, limits.shared_limit_bytes)
            limits = limits._replace(shared_limit_bytes=limit_bytes)
            loaded.allow_shared(limit_bytes)  # where it is another function than before
        except DriverError:  # a broken context answers nothing: the launch is refused, and tells why
            limits = _driver.UNKNOWN_LIMITS
        return _native.LoadedFunction(loaded.function, loaded.image, **limits._asdict())

    def _known_signature(self) -> _source.KernelSignature | None:
        """Return the signature; None where the compiler is still to be asked for it."""
        return None if self._is_open else self._signature

    def __repr__(self) -> str:
        return f"<Kernel {self._signature}>"


def make_kernel(
    module: Module,
    image: ModuleImage,
    source: str | None,
    signature: _source.KernelSignature,
    ask: Callable[[int], _source.KernelSignature] | None = None,
) -> Kernel:
    """Make a kernel.

    Parameters
    ----------
    module, image
        Which it is of, and what of that is compiled with it.
    source
        The text that it is declared in; None of compiled code.
    signature
        What is known of its parameters.
    ask
        Asks the compiler, for a device, where that is not all; None where it is.
    """
    kernel: Kernel = _native.make_kernel(
        Kernel,
        LaunchOp,
        signature.name,
        None if ask is not None else [native_parameter(each) for each in signature.parameters],
        signature.max_threads or 1024,
        image.memory,
    )
    kernel._module = module
    kernel._image = image
    kernel._text = source
    kernel._signature = signature
    kernel._ask = ask
    kernel._is_open = ask is not None
    kernel._asking = threading.Lock()
    kernel._loaded = {}
    kernel._lock = threading.Lock()
    kernel._compilations = background.Background()
    image.kernels.add(kernel)
    return kernel


def _threads(block: int | Sequence[int] | None) -> int | None:
    """Return how many threads a block has; 0 where an extent is none."""
    if block is None:
        return None
    return math.prod(max(each, 0) for each in given.extents(block, "block", most=3))
