"""Reading CUDA C++: kernels, their parameters, structs and variables; knows no device.

The room's modules are imported when a program makes its first kernel.
"""

from typing import TYPE_CHECKING

from aiocuda import _later

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda._source import questions as questions
    from aiocuda._source.signature import PASS_SIGNATURE as PASS_SIGNATURE
    from aiocuda._source.signature import KernelSignature as KernelSignature
    from aiocuda._source.signature import names_in as names_in
    from aiocuda._source.signature import parse_kernels as parse_kernels
    from aiocuda._source.signature import parse_signature as parse_signature
    from aiocuda._source.signature import parse_variables as parse_variables
    from aiocuda._source.signature import select_kernel as select_kernel
    from aiocuda._source.structs import leaves as leaves
    from aiocuda._source.variables import Variable as Variable
else:
    __getattr__, __dir__ = _later.names_of(
        __name__,
        globals(),
        {
            "aiocuda._source.questions": ("questions",),
            "aiocuda._source.signature": (
                "PASS_SIGNATURE",
                "KernelSignature",
                "names_in",
                "parse_kernels",
                "parse_signature",
                "parse_variables",
                "select_kernel",
            ),
            "aiocuda._source.structs": ("leaves",),
            "aiocuda._source.variables": ("Variable",),
        },
    )

__all__ = [
    "PASS_SIGNATURE",
    "KernelSignature",
    "Variable",
    "leaves",
    "names_in",
    "parse_kernels",
    "parse_signature",
    "parse_variables",
    "questions",
    "select_kernel",
]
