"""Operations put together: several as one, values as operations, and what holds operations.

Always true: nothing is run; what comes out is an operation like any other, or what was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from aiocuda import _native
from aiocuda._ops.operation import T1, T2, T3, T4, T5, T6, T7, T8, CallOp, DeviceOp, GatherOp, PickOp

if TYPE_CHECKING:
    from aiocuda._arrays.array import DeviceArray

__all__ = ["lift", "once_known", "value", "zip"]

T = TypeVar("T")


def value(x: T) -> DeviceOp[T]:
    """Make an operation of a value: nothing runs, and its result is the value.

    Parameters
    ----------
    x
        Anything; an array, a number, a tuple. An operation is given back as it is. In tuples, lists and dicts, to any
        depth, what stands in the place of an operation is its result.

    Returns
    -------
    DeviceOp
        *Stream*: none. *Blocks*: no. *On cancel*: nothing is lost. Operations inside of `x` run as by
        themselves.
    """
    made = x if isinstance(x, DeviceOp) else lift(x)
    return made if isinstance(made, DeviceOp) else cast("DeviceOp[T]", PickOp(GatherOp((x,)), 0))


@overload
def zip(a: DeviceOp[T1], /) -> DeviceOp[tuple[T1]]: ...
@overload
def zip(a: DeviceOp[T1], b: DeviceOp[T2], /) -> DeviceOp[tuple[T1, T2]]: ...
@overload
def zip(a: DeviceOp[T1], b: DeviceOp[T2], c: DeviceOp[T3], /) -> DeviceOp[tuple[T1, T2, T3]]: ...
@overload
def zip(a: DeviceOp[T1], b: DeviceOp[T2], c: DeviceOp[T3], d: DeviceOp[T4], /) -> DeviceOp[tuple[T1, T2, T3, T4]]: ...
@overload
def zip(
    a: DeviceOp[T1],
    b: DeviceOp[T2],
    c: DeviceOp[T3],
    d: DeviceOp[T4],
    e: DeviceOp[T5],
    /,
) -> DeviceOp[tuple[T1, T2, T3, T4, T5]]: ...
@overload
def zip(
    a: DeviceOp[T1],
    b: DeviceOp[T2],
    c: DeviceOp[T3],
    d: DeviceOp[T4],
    e: DeviceOp[T5],
    f: DeviceOp[T6],
    /,
) -> DeviceOp[tuple[T1, T2, T3, T4, T5, T6]]: ...
@overload
def zip(
    a: DeviceOp[T1],
    b: DeviceOp[T2],
    c: DeviceOp[T3],
    d: DeviceOp[T4],
    e: DeviceOp[T5],
    f: DeviceOp[T6],
    g: DeviceOp[T7],
    /,
) -> DeviceOp[tuple[T1, T2, T3, T4, T5, T6, T7]]: ...
@overload
def zip(
    a: DeviceOp[T1],
    b: DeviceOp[T2],
    c: DeviceOp[T3],
    d: DeviceOp[T4],
    e: DeviceOp[T5],
    f: DeviceOp[T6],
    g: DeviceOp[T7],
    h: DeviceOp[T8],
    /,
) -> DeviceOp[tuple[T1, T2, T3, T4, T5, T6, T7, T8]]: ...
@overload
def zip(ops: Sequence[DeviceOp[T]] | Iterator[DeviceOp[T]], /) -> DeviceOp[tuple[T, ...]]: ...
@overload
def zip(*ops: Any) -> DeviceOp[tuple[Any, ...]]: ...
def zip(*ops: Any) -> DeviceOp[Any]:
    """Make one operation of several: executed together, with the tuple of their results.

    Parameters
    ----------
    *ops
        Operations, arrays and values; or one tuple, list or iterator of them. They are submitted from left to right;
        those that do not depend on one another may overlap on the device. In tuples, lists and dicts among them, what
        stands in the place of an operation is its result.

    Returns
    -------
    DeviceOp[tuple]
        Complete when all of them are. *Stream*: each has its own, as by itself. *Blocks*: no. *On cancel*: those that
        were submitted go on, and the others are not submitted.
    """
    if len(ops) == 1 and isinstance(ops[0], (tuple, list, Iterator)):
        ops = tuple(ops[0])
    return GatherOp([lift(each) if isinstance(each, (tuple, list, dict)) else each for each in ops])


def once_known(
    function: Callable[[Any], DeviceOp[DeviceArray]],
    given: _native.Op,
    *,
    dtype: int,
    device: int | None,
    title: str,
    moves: bool = False,
) -> DeviceOp[DeviceArray]:
    """Make an operation of what another yields: what a function makes of that, at submission, is an array on a device.

    Parameters
    ----------
    function, given
        As for `DeviceOp.then`.
    dtype, device
        What is known of the array: its dtype's code, 0 for any, and its device's ordinal; None where that is not known.
    title
        What messages call it.
    moves
        Whether the array may be on another device than what the operation yields.
    """
    op = CallOp("then", function, given, yields="device_array", dtype=dtype, device=device, title=title, moves=moves)
    return cast("DeviceOp[DeviceArray]", op)


def lift(returned: Any) -> Any:
    """Make an operation of a structure that holds operations; give anything else back as it is.

    Tuples (named ones too), lists and dicts are looked into, to any depth; what stands in the place of
    each operation is its result.
    """
    found: list[Any] = []
    rebuild = _take_apart(returned, found)
    return GatherOp(found, rebuild) if found else returned


def _take_apart(structure: Any, found: list[Any]) -> Callable[[Sequence[Any]], Any]:
    """Collect a structure's operations; return what puts it together again around their results."""
    if isinstance(structure, DeviceOp):
        index = len(found)
        found.append(structure)
        return lambda results: results[index]
    if isinstance(structure, (tuple, list)):
        parts = [_take_apart(item, found) for item in structure]
        kind = type(structure)
        if hasattr(structure, "_fields"):
            return lambda results: kind(*(part(results) for part in parts))
        return lambda results: kind(part(results) for part in parts)
    if isinstance(structure, dict):
        items = [(key, _take_apart(item, found)) for key, item in structure.items()]
        return lambda results: {key: part(results) for key, part in items}
    return lambda _: structure
