"""Triton: our stream in the place of the one that its launches ask for, and its kernels as operations.

Always true: Triton is imported when its first kernel is given, and not before. Its launches outside of our operations
go where they went before.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Stream
from aiocuda._driver import frameworks
from aiocuda._interop import kernels, triton_ir
from aiocuda._interop.operation import Entered, Framework, Made, capsule_of, require_installed
from aiocuda._interop.python_source import Found
from aiocuda._interop.torch import _pytorch
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import given
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, MissingPackageError

__all__ = ["Kernel", "kernel"]


class Kernel:
    """A kernel of Triton's whose launches are operations; made by `kernel`."""

    __slots__ = ("_checked", "_found", "_jit", "_kernel", "_required", "_writes")

    def __init__(self, kernel: Any, jit: Any, writes: list[str] | None) -> None:
        self._kernel = kernel  # it may tune `jit`, or choose arguments for it
        self._jit = jit
        self._writes = writes
        chosen = _chosen_by(kernel, {})
        parameters = jit.signature.parameters
        self._required = [name for name in jit.arg_names if parameters[name].default is parameters[name].empty]
        self._required = [name for name in self._required if name not in chosen]
        self._found: dict[Any, list[str]] = {}  # what it writes, by the types of its parameters
        self._checked: set[tuple[str, ...]] = set()  # compiled kernels, and what was said of them and is true

    def __getitem__(self, grid: Any) -> Callable[..., DeviceOp[Any]]:
        """Configure a launch, as in Triton: ``kernel[grid]``.

        Parameters
        ----------
        grid
            The instances along each axis, a tuple of up to three numbers; or a function of the arguments by name that
            returns it.

        Returns
        -------
        Callable
            It takes the kernel's arguments and Triton's launch options (``num_warps``, ``num_stages``), and makes the
            operation. That yields what it writes: an array, a tuple of several, or None. *Stream*: as for
            `aiocuda.call`; the work comes after all that Triton's current stream (PyTorch's, or the default one) holds
            at submission. *Blocks*: while Triton launches, which compiles the kernel the first time; the call itself
            runs the front end of its compiler once for each combination of types, if `writes` names nothing. *On
            cancel*: what was enqueued goes on.

        Raises
        ------
        ArgumentTypeError
            It is no grid; when called: an argument is missing, there are too many, a keyword is neither a parameter nor
            an option, or what the kernel writes is no array.
        ArgumentValueError
            When called: what it writes cannot be found, and `writes` does not name it. When executed: the kernel writes
            what `writes` does not name, or ``triton.autotune`` has not been tuned for such arguments.
        """
        if not callable(grid) and not (isinstance(grid, (tuple, list)) and 1 <= len(grid) <= 3):
            raise ArgumentTypeError(
                f"kernel[...] takes a grid of one to three numbers, (n,), or a function that returns it, not "
                f"{given.shown(grid)}"
            )

        def make(*arguments: Any, **keywords: Any) -> DeviceOp[Any]:
            return self._launched(grid, arguments, keywords)

        return make

    def _launched(self, grid: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> DeviceOp[Any]:
        title = self._jit.fn.__qualname__
        names = self._jit.arg_names
        self._require(arguments, keywords, title)
        values = [as_array(each, title) for each in (*arguments, *keywords.values())]
        by_name = dict(zip((*names[: len(arguments)], *keywords), values, strict=True))
        for name, value in by_name.items():
            _require_plain(name, value, title)
        writes = self._find(by_name, title) if self._writes is None else self._writes
        count, keys = len(arguments), list(keywords)

        def launch(*taken: Any) -> None:
            options = dict(zip(keys, taken[count:], strict=True))
            compiled = _untuned(self._kernel).run(*taken[:count], grid=grid, warmup=False, **options)
            if (
                compiled is not None and (compiled.hash, *writes) not in self._checked
            ):  # None: a hook of Triton's has it
                self._check(compiled, writes)

        written = Found(frozenset(name for name in writes if by_name.get(name) is not None))
        return kernels.launched(_triton(), title, launch, values, [*by_name], written)

    def _require(self, arguments: Sequence[Any], keywords: Mapping[str, Any], title: str) -> None:
        names = self._jit.arg_names
        if len(arguments) > len(names):
            raise ArgumentTypeError(
                f"{title} takes {len(names)} arguments ({', '.join(names)}), and {len(arguments)} were given"
            )
        by_position = names[: len(arguments)]
        if twice := [name for name in keywords if name in by_position]:
            raise ArgumentTypeError(f"{title}: '{twice[0]}' was given by position and by name")
        options = triton_ir.launch_options()
        if unknown := [name for name in keywords if name not in names and name not in options]:
            raise ArgumentTypeError(
                f"{title}: '{unknown[0]}' is no parameter ({', '.join(names)}), and no launch option of Triton's, such "
                "as num_warps; the stream and the device are the operation's"
            )
        if missing := [name for name in self._required if name not in by_position and name not in keywords]:
            raise ArgumentTypeError(f"{title}: no argument was given for {', '.join(missing)}")

    def _find(self, by_name: Mapping[str, Any], title: str) -> list[str]:
        jit = self._jit
        parameters = jit.signature.parameters
        try:
            chosen = {**by_name, **_chosen_by(self._kernel, by_name)}
            values = {name: chosen[name] if name in chosen else parameters[name].default for name in jit.arg_names}
            constants = frozenset(each.name for each in jit.params if each.is_constexpr)
            failure: Exception | None = None
            for types, fixed in triton_ir.types_of(values, constants):
                key = (tuple(types.items()), tuple(fixed.items()))
                if key in self._found:
                    return self._found[key]
                try:
                    written = triton_ir.written_by(jit, types, fixed)
                except Exception as error:  # noqa: BLE001 - it may compile with the other types
                    failure = error
                    continue
                left = triton_ir.named_in(types)
                found = {left[position] for position in written.surely | written.unclear}
                names = [name for name in jit.arg_names if name in found and kernels.is_array(values[name])]
                return self._found.setdefault(key, names)
            assert failure is not None
            raise failure
        except Exception as error:
            raise ArgumentValueError(
                f"{title}: what it writes cannot be found before it is launched ({type(error).__name__}: {error}); "
                "name it: kernel(..., writes=[...])"
            ) from error

    def _check(self, compiled: Any, writes: Sequence[str]) -> None:
        signature = compiled.src.signature
        left = triton_ir.named_in(signature)
        surely = {left[position] for position in triton_ir.written_by_compiled(compiled).surely}
        surely = {name for name in surely if str(signature[name]).startswith("*")}  # a number may be part of an address
        if unnamed := surely - set(writes):
            raise ArgumentValueError(
                f"{self._jit.fn.__qualname__} has written {', '.join(sorted(unnamed))}, which stands not in writes=; "
                "name it there: kernel(..., writes=[...])"
            )
        self._checked.add((compiled.hash, *writes))


def kernel(kernel: Any, *, writes: Sequence[str] | None = None) -> Kernel:
    """Make operations of the launches of a kernel of Triton's.

    Parameters
    ----------
    kernel
        What ``triton.jit`` made of a function; also under ``triton.autotune``, which must have been tuned before for
        such arguments, and ``triton.heuristics``.
    writes
        The names of the parameters whose arrays it writes. None finds them in Triton's representation of the kernel.
        There a parameter counts as written if that is not clear, as with a pointer that inline assembly takes.

    Returns
    -------
    Kernel
        Launched as in Triton: ``kernel(add)[grid](x, y, n, BLOCK=128)``. Arguments are arrays, operations that yield
        them, tensors, numbers and constants.

    Raises
    ------
    MissingPackageError
        Triton is not installed.
    ArgumentTypeError
        It is no kernel of Triton's, or one of the interpreter's.
    ArgumentValueError
        It has no parameter of such a name.
    """
    require_installed("triton", "Triton", "pip install triton")
    from triton.runtime import JITFunction

    jit = kernel
    while not isinstance(jit, JITFunction):
        if not _tunes(jit) and not _chooses(jit):
            raise ArgumentTypeError(
                f"kernel takes what triton.jit has made of a function, and not the interpreter's; "
                f"{given.shown(kernel)} was given"
            )
        jit = jit.fn
    return Kernel(kernel, jit, kernels.named(writes, jit.arg_names, jit.fn.__qualname__))


def _tunes(kernel: Any) -> bool:
    from triton.runtime import Autotuner

    return isinstance(kernel, Autotuner)


def _chooses(kernel: Any) -> bool:
    from triton.runtime import Heuristics

    return isinstance(kernel, Heuristics)


def _chosen_by(kernel: Any, by_name: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that the kernel's decorators choose: the first that may be; without arguments, their names."""
    chosen: dict[str, Any] = {}
    while _tunes(kernel) or _chooses(kernel):
        if _tunes(kernel):
            chosen |= kernel.configs[0].kwargs
        else:
            for name, choose in kernel.values.items():
                chosen[name] = choose({**by_name, **chosen}) if by_name else None
        kernel = kernel.fn
    return chosen


def _untuned(kernel: Any) -> Any:
    """Return a kernel that refuses to be tuned, with what the given one has learnt."""
    if not _tunes(kernel) and not _chooses(kernel):
        return kernel
    alone = copy.copy(kernel)  # it keeps the arguments of a launch, and another thread may launch meanwhile
    alone.fn = _untuned(kernel.fn)
    if _tunes(kernel):
        alone._bench = _refuse_tuning
    return alone


def _refuse_tuning(*_: Any, **__: Any) -> Any:
    raise ArgumentValueError(
        "kernel: triton.autotune has not tuned this kernel for such arguments, and tuning waits for the device: launch "
        "it by itself once, with tensors like these, before the operation is executed"
    )


def _require_plain(name: str, value: Any, title: str) -> None:
    kernels.require_no_host_memory(name, value, title)
    if hasattr(value, "base") and hasattr(value, "block_shape"):
        raise ArgumentTypeError(
            f"{title}: '{name}' is a descriptor of a tensor, whose memory is not ordered; give the array, and make the "
            "descriptor in the kernel: tl.make_tensor_descriptor"
        )
    if isinstance(value, (tuple, list)):
        for each in value:
            if kernels.is_array(as_array(each, title)):
                raise ArgumentTypeError(f"{title}: '{name}' holds arrays; give each as an argument of its own")


# The handle of the stream that launches of this context go to; None outside of our operations.
_stream: ContextVar[int | None] = ContextVar("aiocuda_triton_stream", default=None)


@functools.cache
def _triton() -> _Triton:
    return _Triton()


class _Lent:
    """An array as Triton takes one where there is no PyTorch."""

    __slots__ = ("_address", "_keeper", "dtype", "shape")

    def __init__(self, array: DeviceArray) -> None:
        self._address = array._address
        self._keeper = capsule_of(array, is_untyped=True)
        self.dtype: np.dtype[Any] = array.dtype
        self.shape = array.shape

    def data_ptr(self) -> int:
        return self._address


class _Triton(Framework):
    name = "Triton"

    def __init__(self) -> None:
        super().__init__()
        self._asked: Any = None  # Triton's driver that asks us first
        self._before: Callable[[int], int] = int  # what it asks then

    def enter(self, stream: Stream, kept: list[Any] | None) -> Entered:
        driver = self._driver()
        ordinal = stream.device.ordinal
        pytorch = _with_pytorch()
        inside = contextlib.ExitStack()
        try:
            # A kernel's hooks and Triton's allocator use PyTorch, if the program does.
            entered = None if pytorch is None else pytorch.enter(stream, kept)
            if pytorch is not None:
                inside.callback(pytorch.leave, entered)
            elif kept is not None:
                inside.enter_context(_native.RelaxedCaptures())  # to load a kernel is no work of a stream's
            there = driver.get_current_device()
            if there != ordinal:
                inside.callback(driver.set_current_device, there)
                driver.set_current_device(ordinal)
            before = self._before(ordinal) if entered is None else entered.before
            token = _stream.set(stream.handle)
        except BaseException:
            inside.close()
            raise
        return Entered(int(before), (), (token, inside))

    def leave(self, entered: Entered) -> None:
        token, inside = entered.back
        _stream.reset(token)
        inside.close()

    def lend(self, array: DeviceArray) -> Any:
        self._driver()  # which imports PyTorch, in some versions
        pytorch = _with_pytorch()
        return _Lent(array) if pytorch is None else pytorch.lend(array)

    def was_written(self, lent: Any) -> bool:
        return not isinstance(lent, _Lent) and _pytorch().was_written(lent)

    def found(self, x: Any) -> Made | None:
        return None  # a launch returns nothing

    def _driver(self) -> Any:
        import triton

        try:
            driver = triton.runtime.driver.active
        except RuntimeError as error:
            raise MissingPackageError(
                f"Triton {triton.__version__} finds no GPU ({error}); older versions need PyTorch for that: pip "
                "install torch, or a newer Triton"
            ) from error
        if driver is not self._asked:
            theirs = driver.get_current_stream

            def current_stream(ordinal: int) -> int:
                ours = _stream.get()
                return theirs(ordinal) if ours is None else ours

            driver.get_current_stream = current_stream
            self._asked, self._before = driver, theirs
        return driver


def _with_pytorch() -> Any:
    """Return PyTorch as operations use it, if the program uses it with CUDA; else None."""
    torch = sys.modules.get("torch")
    return _pytorch() if frameworks.has_cuda(torch) else None
