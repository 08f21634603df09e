"""Modules of CUDA C++ or compiled code, and the kernels that come from them."""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._kernels.compile_options import as_arguments as as_arguments
    from aiocuda._kernels.files import BINARY_SUFFIXES as BINARY_SUFFIXES
    from aiocuda._kernels.files import BinaryKind as BinaryKind
    from aiocuda._kernels.files import files_of as files_of
else:
    __getattr__, __dir__ = _later.names_of(
        __name__,
        globals(),
        {
            "aiocuda._kernels.compile_options": ("as_arguments",),
            "aiocuda._kernels.files": ("BINARY_SUFFIXES", "BinaryKind", "files_of"),
        },
    )

__all__ = ["BINARY_SUFFIXES", "BinaryKind", "as_arguments", "files_of"]
