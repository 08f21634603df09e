"""Loops and branches that run on the device: `while_`, `repeat` and `cond`.

Always true: the host is not asked between iterations. One launch of a graph runs all of them; its conditional nodes
decide by values that kernels set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, overload

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._driver import runtime
from aiocuda._graphs.loop_kernels import choosing, counting, going_on
from aiocuda._graphs.loop_state import State
from aiocuda._graphs.loop_trace import LoopOp, LoopTrace, with_arrays
from aiocuda._ops.operation import DeviceOp
from aiocuda._values.functions import checked_function
from aiocuda._values.given import between, shown
from aiocuda._verbs.create import empty, zeros
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, CaptureError

__all__ = ["LoopResult", "cond", "repeat", "while_"]

S = TypeVar("S")
R = TypeVar("R")


class LoopResult(NamedTuple, Generic[S]):
    """The result of a loop of `while_`.

    Attributes
    ----------
    state
        As the last iteration left it.
    iterations
        How many iterations ran: an int64 on the device, without axes.
    is_finished
        Whether the loop ended because its condition did not hold any more: a bool on the device, without axes. False:
        `max_iterations` stopped it.
    """

    state: S
    iterations: DeviceArray
    is_finished: DeviceArray


def while_(
    condition: Callable[[Any], Any], body: Callable[[Any], Any], state: S, *, max_iterations: int
) -> DeviceOp[LoopResult[Any]]:
    """Repeat work on the device as long as a condition holds there; the host is not asked.

    Parameters
    ----------
    condition
        A function of the state. It returns an array of one real number on the device, or an operation that yields one:
        the loop goes on as long as that is not 0. It is called twice, when the loop is built.
    body
        A function of the state. It returns the next state: the same structure, with arrays of the same dtypes and
        shapes, or operations that yield them. It is called once, when the loop is built. It may write the arrays of the
        state, and return them.
    state
        An array on a device, or a tuple, list, dict or dataclass of them; or operations that yield them. The arrays
        themselves are not written: if the body writes one, it gets a copy. An array that it only reads and returns is
        not copied.
    max_iterations
        The most iterations, 0 or more. Nothing else can stop a loop whose condition always holds: a time-out ends a
        wait, and not the work on the device.

    Returns
    -------
    DeviceOp[LoopResult]
        Yields the last state, how many iterations there were, and whether the condition has ended them. *Stream*: as
        for a kernel. *Blocks*: while the functions are traced, and memory is allocated for the arrays that they make.
        That is when the loop is built, or when it is submitted if the state has operations. Another thread makes the
        graph when the operation is executed. *On cancel*: a loop that was submitted runs to its end.

    Raises
    ------
    CaptureError
        A body does what the device cannot do by itself: it makes arrays in the host's memory, reads the host's data,
        or calls a function on the host. Or it uses an operation that was built outside of it and has not run. Or the
        driver is older than CUDA 12.3.
    ArgumentTypeError, ArgumentValueError
        The state has something other than arrays on a device; a function returns another structure, dtype or shape;
        the condition is not one number.
    DeviceMismatchError
        The arrays of the state are on several devices, or a body works on another device than they are on.
    OwnershipError
        An array of the state was closed, moved or partitioned.

    Notes
    -----
    The operation is ordered by all that its bodies read and write, also arrays that they name without getting them by
    the state. A body may use such arrays and write them. If it writes an array of the state by another name, the state
    has a copy. A body cannot use operations that were built outside of it and have not run, except for `value()`: put
    them into the state. In a graph or a compiled function, those count as run that come before the loop there.

    Each call makes a graph. Call it inside of a function that `compile` has been given to make the graph once.

    Examples
    --------
    >>> import aiocuda as ac
    >>> halve = ac.kernel('extern "C" __global__ void halve(float* x, bool* large) { *x /= 2; *large = *x > 1; }')
    >>> def body(state):
    ...     return halve(*state, grid=1, block=1)
    >>> x, large = ac.full((), 100.0), ac.full((), True, bool)
    >>> done = ac.while_(lambda state: state[1], body, (x, large), max_iterations=50).sync()
    >>> print(*(ac.to_host(array).sync() for array in (done.state[0], done.iterations, done.is_finished)))
    0.78125 7 True
    """
    condition = checked_function(condition, "while_ takes a function of the state as its condition")
    body = checked_function(body, "while_ takes a function of the state as its body")
    most = between(max_iterations, "while_: max_iterations", 0, _LONGEST)
    _require_driver("while_", _LOOPS)
    kept = State(state, "state")

    def build(arrays: list[DeviceArray]) -> DeviceOp[Any]:
        loop = LoopTrace("while_", kept.names, arrays)
        given = kept.filled(loop.placeholders)
        with loop.tracing():
            iterations, is_finished = (loop.record(zeros((), dtype, loop.device)) for dtype in (np.int64, np.bool_))
            goes_on = loop.add_condition()

            def decide(step: int) -> None:
                found = loop.scalar(condition, given, "the condition")
                loop.set_condition(goes_on, going_on(found, iterations, is_finished, most, step))

            decide(0)
            with loop.body(goes_on, repeats=True):
                loop.keep(loop.placeholders, kept, loop.call(body, given), "the body")
                decide(1)
        filled, launch, states, counts = loop.finish([iterations, is_finished])

        def result(found: Sequence[Any]) -> LoopResult[Any]:
            return LoopResult(kept.filled(found[:-2]), *found[-2:])

        return LoopOp("while_", filled, launch, [*states, *counts], result)

    return with_arrays("while_", kept.names, kept.leaves, build)


def repeat(n: int | DeviceOp[int], body: Callable[[Any], Any], state: S) -> DeviceOp[S]:
    """Repeat work on the device so many times; nothing is unrolled, and the host is not asked.

    Parameters
    ----------
    n
        How many times; none if it is 0 or less. A number of a compiled function is put in at each call, without making
        another graph. So is one that an operation yields (`value`), where launches of a graph replace it.
    body, state
        As for `while_`. The body gets no number of the iteration: keep one in the state if you need it.

    Returns
    -------
    DeviceOp
        Yields the last state; otherwise as `while_`.

    Raises
    ------
    CaptureError, ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError
        As for `while_`.

    Examples
    --------
    >>> import aiocuda as ac
    >>> double = ac.kernel('extern "C" __global__ void twice(int* x) { x[threadIdx.x] *= 2; }')
    >>> ac.to_host(ac.repeat(10, lambda x: double(x, grid=1, block=3), ac.ones(3, 'int32'))).sync()
    array([1024, 1024, 1024], dtype=int32)
    """
    body = checked_function(body, "repeat takes a function of the state as its body")
    if not isinstance(n, _native.Op):
        n = between(n, "repeat: n", -_LONGEST, _LONGEST)
    _require_driver("repeat", _LOOPS)
    kept = State(state, "state")

    def build(arrays: list[DeviceArray]) -> DeviceOp[Any]:
        loop = LoopTrace("repeat", kept.names, arrays)
        with loop.tracing():
            most = loop.number(n) if isinstance(n, _native.Op) else n
            iterations = loop.record(zeros((), np.int64, loop.device))
            goes_on = loop.add_condition()
            loop.set_condition(goes_on, counting(iterations, most, 0))
            with loop.body(goes_on, repeats=True):
                returned = loop.call(body, kept.filled(loop.placeholders))
                loop.keep(loop.placeholders, kept, returned, "the body")
                loop.set_condition(goes_on, counting(iterations, most, 1))
        filled, launch, states, _ = loop.finish([])
        return LoopOp("repeat", filled, launch, states, kept.filled)

    return cast("DeviceOp[S]", with_arrays("repeat", kept.names, kept.leaves, build))


_NOTHING: Final = object()  # stands for no state


@overload
def cond(predicate: Any, a: Callable[[], R], b: Callable[[], Any] | None = None) -> DeviceOp[Any]: ...
@overload
def cond(predicate: Any, a: Callable[[S], R], b: Callable[[S], Any] | None, state: S) -> DeviceOp[Any]: ...
@overload
def cond(predicate: Any, a: Callable[[S], R], b: None = None, *, state: S) -> DeviceOp[S]: ...
def cond(predicate: Any, a: Any, b: Any = None, state: Any = _NOTHING) -> DeviceOp[Any]:
    """Do one thing or another, as a number on the device says; the host is not asked.

    Parameters
    ----------
    predicate
        An array of one real number on a device, or an operation that yields one.
    a, b
        Functions of the state, or of nothing where no state is given. `a` runs if the predicate is not 0, and `b` if it
        is. They return arrays of the same structure, dtypes and shapes, or operations that yield them. They are called
        once each, when the branch is built.
    state
        As for `while_`.

    Returns
    -------
    DeviceOp
        Yields what the branch returned that ran. Without `b`, the state is left as it is if the predicate is 0: `a`
        returns the next state then, or None where there is no state, and it works on arrays that it names. Otherwise as
        `while_`.

    Raises
    ------
    CaptureError
        As for `while_`; or there are two branches, and the driver is older than CUDA 12.8.
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError
        As for `while_`.

    Examples
    --------
    >>> import aiocuda as ac
    >>> greatest = ac.algorithms.reduce(ac.arange(3), "max")
    >>> ac.to_host(ac.cond(greatest, lambda: ac.full(3, 7), lambda: ac.zeros(3))).sync()
    array([7., 7., 7.], dtype=float32)
    """
    has_state = state is not _NOTHING
    takes = "the state" if has_state else "nothing"
    a = checked_function(a, f"cond takes a function of {takes} for each branch")
    if b is not None:
        b = checked_function(b, f"cond takes a function of {takes} for each branch")
    _require_driver("cond", _LOOPS if b is None else _TWO_BRANCHES)
    kept = State(state if has_state else None, "state")

    def build(arrays: list[DeviceArray]) -> DeviceOp[Any]:
        branch = LoopTrace("cond", ["the predicate", *kept.names], arrays)
        which, *placeholders = branch.placeholders
        given = (kept.filled(placeholders),) if has_state else ()
        outputs: list[Any] = []
        returned = State(None, "")
        with branch.tracing():
            decides = branch.add_condition()
            branch.set_condition(decides, choosing(branch.require_scalar(which, "the predicate")))
            with branch.body(decides, repeats=False, bodies=1 if b is None else 2):
                found = branch.call(a, *given)
                if b is None:
                    _require_nothing(found, has_state)
                    branch.keep(placeholders, kept, found, "the branch")
                else:
                    returned = State(found, "the result")
                    outputs = [branch.record(_like(x)) for x in returned.leaves]
                    branch.keep(outputs, returned, found, "the first branch")
                    branch.next_body()
                    branch.keep(outputs, returned, branch.call(b, *given), "the second branch")
        filled, launch, (_, *states), made = branch.finish(outputs)
        if b is None:
            return LoopOp("cond", filled, launch, states, kept.filled)
        return LoopOp("cond", filled, launch, made, returned.filled)

    return with_arrays("cond", ["the predicate", *kept.names], [predicate, *kept.leaves], build)


_LONGEST: Final = int(np.iinfo(np.int64).max)
_LOOPS: Final = 12_030, "has no loops and branches of its own"
_TWO_BRANCHES: Final = 12_080, "has no second branch"


def _like(x: Any) -> DeviceOp[DeviceArray]:
    if not isinstance(x, DeviceArray):
        raise ArgumentTypeError(
            f"cond: the first branch returned {shown(x)}; it returns arrays on the device, in tuples, lists and dicts"
        )
    return empty(x.shape, x.dtype, x.device)


def _require_nothing(found: Any, has_state: bool) -> None:
    if found is not None and not has_state:
        raise ArgumentValueError(
            "cond: the branch returned something, and nothing says what stands there if the predicate is 0; give a "
            "second branch, or a state that is left as it is"
        )


def _require_driver(asked: str, needed: tuple[int, str]) -> None:
    version, lacks = needed
    driver = runtime.driver_info()
    if driver.version < version:
        raise CaptureError(
            f"{asked}: the driver is of CUDA {driver.version_text}, which {lacks}; update it to CUDA "
            f"{version // 1000}.{version % 1000 // 10} or newer, or decide on the host"
        )
