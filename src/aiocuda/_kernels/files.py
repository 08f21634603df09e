"""The files that a module is made of: CUDA C++, or compiled code.

Always true: a file's suffix says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Final, Literal

from aiocuda._values import given
from aiocuda.errors import ArgumentValueError

__all__ = ["BINARY_SUFFIXES", "BinaryKind", "files_of"]

BinaryKind = Literal["cubin", "ptx", "fatbin"]
_SOURCE_SUFFIXES: Final = frozenset({".cu", ".cuh", ".cpp", ".cxx", ".cc"})
BINARY_SUFFIXES: Final[dict[str, BinaryKind]] = {".ptx": "ptx", ".cubin": "cubin", ".fatbin": "fatbin"}


def files_of(paths: Sequence[str | PathLike[str]]) -> list[Path]:
    """Return the files that `Module.from_file` was given.

    Raises
    ------
    ArgumentValueError
        There is none, one is not there, or its suffix says neither.
    """
    if not paths:
        raise ArgumentValueError("from_file was given no file")
    files = [Path(given.path(path, "from_file: a file")) for path in paths]
    for file in files:
        if not file.is_file():
            raise ArgumentValueError(f"from_file: there is no file {str(file.absolute())!r}")
        if file.suffix not in _SOURCE_SUFFIXES and file.suffix not in BINARY_SUFFIXES:
            raise ArgumentValueError(
                f"from_file: {str(file)!r} ends in {file.suffix!r}; known are .cu, .ptx, .cubin and .fatbin, "
                "and from_source, from_ptx, from_cubin and from_fatbin take contents"
            )
    return files
