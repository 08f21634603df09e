"""The options of a compiler, with types, for both drivers.

Always true: options become text for NVRTC in one place; the emulated compiler reads the same text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Final, Literal

import numpy as np

from aiocuda._values import given
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["CompileOptions", "as_arguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """Options for the compiler of CUDA C++.

    Attributes
    ----------
    include_paths
        Directories in which includes are looked for, in this order, before those of aiocuda and CUDA.
    defines
        Macros: a name and what it stands for; None defines it as 1.
    standard
        The language.
    fast_math
        Faster and less exact functions, division and square roots; denormals are flushed to zero on a GPU.
    fused_multiply_add
        Whether ``a * b + c`` may be rounded once.
    max_registers
        The most registers that a thread may have; None leaves that to the compiler. Changes nothing on the emulated
        driver.
    debug
        Code for a debugger, not optimised; the checks of ``aiocuda/tile.cuh`` are on. Not for several sources.
    line_info
        Note the source's lines in the code, for profilers.
    more
        Other options of NVRTC, as it documents them: ``("--extra-device-vectorization",)``. Those that speak of a GPU's
        code alone change nothing on the emulated driver.
    """

    include_paths: Sequence[str | PathLike[str]] = ()
    defines: Mapping[str, str | int | float | None] = field(default_factory=dict)
    standard: Literal["c++17", "c++20"] = "c++17"
    fast_math: bool = False
    fused_multiply_add: bool = True
    max_registers: int | None = None
    debug: bool = False
    line_info: bool = False
    more: Sequence[str] = ()

    def arguments(self) -> tuple[str, ...]:
        """Return the options as NVRTC takes them.

        Returns
        -------
        tuple[str, ...]
            Such as ``-std=c++17`` and ``-Iinclude``.

        Raises
        ------
        ArgumentValueError
            An include path is no directory, a macro's name or value is none, `standard` is unknown, `max_registers` out
            of range, or a text holds a NUL character.
        ArgumentTypeError
            A field is of another type than it says.
        """
        paths = given.sequence(self.include_paths, "include_paths=", "directories")
        found = [f"--include-path={_directory(path)}" for path in paths]
        for macro, value in given.mapping(self.defines, "defines=", "macros' names to what they stand for").items():
            if not isinstance(macro, str) or not re.fullmatch(r"[A-Za-z_]\w*", macro, re.ASCII):
                raise ArgumentValueError(f"defines=: {macro!r} is no macro's name; a value goes behind it: {{'N': 4}}")
            found.append(f"--define-macro={macro}" + _definition(macro, value))
        standard: object = self.standard
        if not isinstance(standard, str) or standard not in ("c++17", "c++20"):
            raise ArgumentValueError(
                f"standard={given.shown(self.standard)}: c++17 and c++20 are what both drivers compile"
            )
        found.append(f"--std={self.standard}")
        if given.flag(self.fast_math, "fast_math="):
            found.append("--use_fast_math")
        if not given.flag(self.fused_multiply_add, "fused_multiply_add="):
            found.append("--fmad=false")
        if self.max_registers is not None:
            most = given.whole(self.max_registers, "max_registers")
            if not 1 <= most <= _MOST_REGISTERS:
                raise ArgumentValueError(f"max_registers={most}: a thread has 1 to {_MOST_REGISTERS}")
            found.append(f"--maxrregcount={most}")
        if given.flag(self.debug, "debug="):
            found.append("--device-debug")
        if given.flag(self.line_info, "line_info="):
            found.append("--generate-line-info")
        more = given.sequence(self.more, "more=", "options of NVRTC")
        return (*found, *(given.text(each, "an option in more=") for each in more))


# As many as an instruction can name, on every architecture (CUDA C++ Programming Guide, "Technical Specifications").
_MOST_REGISTERS: Final = 255


def _definition(macro: str, value: object) -> str:
    """Return what stands behind a macro's name."""
    if value is None:
        return ""
    name = f"defines=: what {macro} stands for"
    if isinstance(value, str):
        return f"={given.text(value, name, may_be_empty=True)}"
    if isinstance(value, bool):
        return f"={int(value)}"
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise ArgumentTypeError(f"{name} is a str, a number or None; {given.shown(value)} was given")
    if not math.isfinite(value):
        raise ArgumentValueError(f"{name} is {value}, which C++ has no literal for; write it as C++ does, as a str")
    return f"={value}"


def as_arguments(options: CompileOptions | Sequence[str]) -> tuple[str, ...]:
    """Return options as NVRTC takes them, however they were given.

    Raises
    ------
    ArgumentTypeError
        They are neither `CompileOptions` nor a sequence of strings.
    """
    if isinstance(options, CompileOptions):
        return options.arguments()
    if isinstance(options, (str, bytes, bytearray, memoryview)) or not isinstance(options, Sequence):
        raise ArgumentTypeError(
            f"options is CompileOptions(...) or a sequence of NVRTC's own options, not {given.shown(options)}; "
            'write ("--use_fast_math",)'
        )
    return tuple(given.text(each, "an option in options=") for each in options)


def _directory(path: str | PathLike[str]) -> str:
    """Make a path absolute, for compilers look from where the process is when they run."""
    found = Path(given.path(path, "a directory in include_paths=")).absolute()
    if not found.is_dir():
        raise ArgumentValueError(f"include_paths=: there is no directory {str(found)!r}")
    return str(found)
