"""The kernels that say on the device whether a loop goes on, or which branch runs.

Always true: each is one thread, and its first parameter is the handle of the condition that it sets. The driver has the
handle, so launches are built with 0 in its place.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from aiocuda._algorithms.numbers import PRELUDE, kind_of
from aiocuda._driver.compiler import PLAIN_PTX
from aiocuda._kernels.from_source import kernel
from aiocuda._kernels.kernel import Kernel
from aiocuda._ops.operation import DeviceOp

__all__ = ["choosing", "counting", "counting_source", "deciding_source", "going_on"]

_DECLARED: Final = (
    PLAIN_PTX
    + r"""
extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);
"""
)

_DECIDING: Final = r"""
using Kind = KIND;

__device__ bool holds(const void* condition) { return get<Kind>(*static_cast<const Kind::Word*>(condition)) != 0; }

// `step`: how many iterations have ended since it was asked last, 0 before the first one and 1 behind each.
extern "C" __global__ void go_on(unsigned long long handle, const void* condition, long long* iterations,
                                 bool* is_finished, long long most, int step) {
    const long long done = *iterations + step;
    const bool is_wanted = holds(condition);
    *iterations = done;
    *is_finished = !is_wanted;
    cudaGraphSetConditional(handle, is_wanted && done < most);
}

extern "C" __global__ void choose(unsigned long long handle, const void* condition) {
    cudaGraphSetConditional(handle, holds(condition));
}
"""

_COUNTING: Final = r"""
extern "C" __global__ void count(unsigned long long handle, long long* iterations, long long n, int step) {
    const long long done = *iterations + step;
    *iterations = done;
    cudaGraphSetConditional(handle, done < n);
}
"""


def going_on(condition: Any, iterations: Any, is_finished: Any, most: int, step: int) -> DeviceOp[Any]:
    """Decide about a loop with a condition: a scalar on the device, of any dtype of real numbers."""
    decide = _deciding("go_on", kind_of(condition.dtype))
    return decide(0, condition, iterations, is_finished, most, step, grid=1, block=1)


def choosing(condition: Any) -> DeviceOp[Any]:
    """Decide about a branch, by a scalar on the device."""
    return _deciding("choose", kind_of(condition.dtype))(0, condition, grid=1, block=1)


def counting(iterations: Any, n: Any, step: int) -> DeviceOp[Any]:
    """Decide about a loop of so many iterations; `n` is a number, or an operation that yields one."""
    return _counting()(0, iterations, n, step, grid=1, block=1)


@functools.cache
def _deciding(name: str, kind: str) -> Kernel:
    signatures = {
        "go_on": "unsigned long long handle, const void* condition, long long* iterations, bool* is_finished, "
        "long long most, int step",
        "choose": "unsigned long long handle, const void* condition",
    }
    return kernel(deciding_source(kind), name, signature=signatures[name])


@functools.cache
def _counting() -> Kernel:
    return kernel(counting_source(), "count")


def deciding_source(kind: str) -> str:
    """Return the kernels that decide by a scalar of a kind."""
    return PRELUDE + _DECLARED + _DECIDING.replace("KIND", kind)


def counting_source() -> str:
    """Return the kernel that decides by a count."""
    return _DECLARED + _COUNTING
