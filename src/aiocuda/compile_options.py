"""What a compiler may be told, with types, for both drivers.

Always true: options become text for NVRTC in one place; the emulated compiler reads the same text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Literal

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

        Raises
        ------
        ArgumentValueError
            An include path is no directory, a macro's name is none, `standard` is unknown, or `max_registers` below 1.
        ArgumentTypeError
            `include_paths` or `more` is one string and no sequence.
        """
        for name, given in (("include_paths", self.include_paths), ("more", self.more)):
            if isinstance(given, (str, PathLike)):
                raise ArgumentTypeError(f"{name}= is a sequence; write ({given!r},)")
        found = [f"--include-path={_directory(path)}" for path in self.include_paths]
        for macro, value in self.defines.items():
            if not re.fullmatch(r"[A-Za-z_]\w*", macro):
                raise ArgumentValueError(f"defines=: {macro!r} is no macro's name; a value goes behind it: {{'N': 4}}")
            found.append(f"--define-macro={macro}" + ("" if value is None else f"={value}"))
        if self.standard not in ("c++17", "c++20"):
            raise ArgumentValueError(f"standard={self.standard!r}: c++17 and c++20 are what both drivers compile")
        found.append(f"--std={self.standard}")
        if self.fast_math:
            found.append("--use_fast_math")
        if not self.fused_multiply_add:
            found.append("--fmad=false")
        if self.max_registers is not None:
            if self.max_registers < 1:
                raise ArgumentValueError(f"max_registers={self.max_registers}: a thread has at least one")
            found.append(f"--maxrregcount={self.max_registers}")
        if self.debug:
            found.append("--device-debug")
        if self.line_info:
            found.append("--generate-line-info")
        return (*found, *self.more)


def as_arguments(options: CompileOptions | Sequence[str]) -> tuple[str, ...]:
    """Return options as NVRTC takes them, however they were given.

    Raises
    ------
    ArgumentTypeError
        They are neither `CompileOptions` nor a sequence of strings.
    """
    if isinstance(options, CompileOptions):
        return options.arguments()
    if isinstance(options, str) or not isinstance(options, Sequence):
        raise ArgumentTypeError(
            f"options is CompileOptions(...) or a sequence of NVRTC's own options, not {options!r:.80}; "
            'write ("--use_fast_math",)'
        )
    for each in options:
        if type(each) is not str:
            raise ArgumentTypeError(f"options: {each!r:.80} is no option but {type(each).__name__}")
    return tuple(options)


def _directory(path: str | PathLike[str]) -> str:
    """Make a path absolute, for compilers look from where the process is when they run."""
    found = Path(fspath(path)).absolute()
    if not found.is_dir():
        raise ArgumentValueError(f"include_paths=: there is no directory {str(found)!r}")
    return str(found)
