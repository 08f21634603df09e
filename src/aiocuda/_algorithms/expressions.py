"""Expressions of items: one result for each, in CUDA C++.

Always true: the expression stands in one kernel, so that each item is read once and written once.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

import numpy as np

from aiocuda._algorithms.arguments import arrays, delivered, later, lying, outs, target
from aiocuda._algorithms.numbers import NUMBERS, PRELUDE, computed_in, is_number, kind_of, number_in, real
from aiocuda._arrays.array import DeviceArray
from aiocuda._kernels.from_source import kernel
from aiocuda._kernels.kernel import Kernel
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import given
from aiocuda._values.dtypes import DTypeLike, to_dtype
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["transform"]


def transform(
    expression: str, /, *, dtype: DTypeLike = None, out: Any = None, **operands: Any
) -> DeviceOp[DeviceArray]:
    """Compute an expression for each item of arrays of one shape.

    Parameters
    ----------
    expression
        CUDA C++ in terms of the operands' names, such as ``"a * x + sqrtf(y)"``.
    dtype
        Of the result. None takes `numpy.result_type` of the arrays.
    out
        Where the result goes: an array of the arrays' shape and of the result's dtype, or an operation that yields one.
        It may be one of the operands.
    **operands
        By name: arrays of one shape and any strides, or operations that yield them, of bool, integers, float16,
        bfloat16, float32 or float64; and numbers. One array or more. The names are C++'s, and no keywords of it; "out"
        and "dtype" name no operand, nor do T0, T1 and so on.

    Returns
    -------
    DeviceOp[DeviceArray]
        An array of the operands' shape, or `out`. *Stream*: as for a kernel. *Blocks*: while the kernel is compiled,
        the first time for each expression. *On cancel*: what was submitted goes on.

    Raises
    ------
    ArgumentTypeError
        An operand is neither an array on a device nor a number, or a dtype is another.
    ArgumentValueError
        The arrays differ in shape; there is none; a name is not possible; or `out` does not fit.
    CompilationError
        When executed: the expression does not compile.
    DeviceMismatchError, OwnershipError
        As for `aiocuda.linalg.matmul`.

    Notes
    -----
    All but the expression's errors are raised when the operation is built; of what operations yield, when it is
    executed. The rules are C++'s: integers narrower than int are int, ``2.0`` is a double, and ``7 / 2`` is 3. float16
    and bfloat16 are read as float. A number is of the result's dtype, and of float for a result of 16 bits. The result
    is converted to the dtype as `aiocuda.convert` does it: rounded to nearest, integers wrap.

    Products and sums are rounded one by one, so that they are the same on every driver; the last bits of functions such
    as ``expf`` are the driver's. A number goes to the kernel as it is, so other numbers need no other kernel.
    """
    text = given.text(expression, "transform: expression", "an expression in CUDA C++")
    found: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    for name, x in operands.items():
        _name(name)
        if is_number(x):
            numbers[name] = x
        else:
            found |= arrays("transform", **{name: x})
    if not found:
        raise ArgumentValueError(
            f"transform takes one array or more, by name; {given.shown(operands)} was given: "
            "transform('2 * x', x=array); out= and dtype= are no operands"
        )
    target_given = outs("transform", out, 1)[0]

    def known(out: Any, *arrays: Any) -> DeviceOp[DeviceArray]:
        return transform(expression, dtype=dtype, out=out, **dict(zip(found, arrays, strict=True)), **numbers)

    if (waiting := later("transform", known, target_given, *found.values())) is not None:
        return waiting
    first = next(iter(found.values()))
    for name, x in found.items():
        real(x.dtype, "transform")
        if x.shape != first.shape:
            raise ArgumentValueError(
                f"transform takes arrays of one shape; {name} has {x.shape}, and {next(iter(found))} has {first.shape}"
            )
    kind = real(to_dtype(_result_type(found) if dtype is None else dtype), "transform")
    to = target("transform", target_given, first.shape, kind, list(found.values()))
    if first.size == 0:
        return delivered(to.into, to)
    kinds = tuple((name, kind_of(x.dtype)) for name, x in found.items())
    value = computed_in(kind)
    make = _kernel(text, kinds, tuple(numbers), kind_of(kind), NUMBERS[value.name])
    factors = [_number(name, x, value) for name, x in numbers.items()]
    made = make(*map(lying, found.values()), *factors, to.into, first.size, threads=first.size)
    return delivered(made, to)


def _result_type(found: dict[str, Any]) -> np.dtype[Any]:
    try:
        return np.result_type(*(x.dtype for x in found.values()))
    except TypeError as error:
        raise ArgumentTypeError(f"transform: dtype of the result: {error}; give dtype=") from error


# Those of C++20. An expression cannot mean an operand by one of them.
_KEYWORDS: Final = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await
    co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
    true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
_RESERVED: Final = frozenset(_KEYWORDS.split())
_OF_A_TEMPLATE: Final = re.compile("T[0-9]+")  # the kernel's name for an array's type


def _name(name: str) -> None:
    if not (name.isascii() and name.isidentifier()) or name.startswith("_"):
        raise ArgumentValueError(f"transform: operand {name!r:.80}: a name of C++ that begins with a letter is wanted")
    if name in _RESERVED or _OF_A_TEMPLATE.fullmatch(name):
        raise ArgumentValueError(f"transform: {name!r} is a word of C++ or of the kernel; name the operand otherwise")


def _number(name: str, x: Any, value: np.dtype[Any]) -> Any:
    found = number_in(value, x)
    if found is not None:
        return found
    raise ArgumentTypeError(f"transform: {name}={x!r} is no number of dtype {value}, in which the result is computed")


_SOURCE: Final = r"""
@TYPES@
__device__ __forceinline__ auto expression(@NAMES@) {
    return (
#line 1 "the expression of transform"
        @EXPRESSION@
    );
}

extern "C" __global__ void transform(@PARAMETERS@, void* out, unsigned long long n) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) static_cast<@RESULT@::Word*>(out)[i] = put<@RESULT@>(expression(@ITEMS@));
}
"""


@functools.lru_cache(maxsize=1024)
def _kernel(
    expression: str, kinds: tuple[tuple[str, str], ...], numbers: tuple[str, ...], result: str, value: str
) -> Kernel:
    of_arrays = [f"const void* items{i}" for i in range(len(kinds))]
    of_numbers = [f"{value} number{i}" for i in range(len(numbers))]
    items = [f"get<Kind{i}>(static_cast<const Kind{i}::Word*>(items{i})[i])" for i in range(len(kinds))]
    parameters = ", ".join(of_arrays + of_numbers)
    words = {
        "TYPES": "".join(f"using Kind{i} = {kind};\n" for i, (_, kind) in enumerate(kinds))
        + f"template <{', '.join(f'class T{i}' for i in range(len(kinds)))}>",
        "NAMES": ", ".join(
            [*(f"T{i} {name}" for i, (name, _) in enumerate(kinds)), *(f"{value} {x}" for x in numbers)]
        ),
        "PARAMETERS": parameters,
        "RESULT": result,
        "ITEMS": ", ".join([*items, *(f"number{i}" for i in range(len(numbers)))]),
        "EXPRESSION": expression,
    }
    source = _SOURCE
    for word, text in words.items():
        source = source.replace(f"@{word}@", text)
    signature = f"{parameters}, void* out, unsigned long long n"
    return kernel(PRELUDE + source, "transform", options=("--fmad=false",), signature=signature)
