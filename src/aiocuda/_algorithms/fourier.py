"""Discrete Fourier transforms, of one axis or several.

Always true: on a GPU it is cuFFT that transforms, on the emulated driver kernels of this library; the checks are the
same, and so is the result, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from aiocuda._algorithms import fourier_kernels
from aiocuda._algorithms.arguments import arrays, delivered, later, lying, outs, target
from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Device, Stream
from aiocuda._driver import cufft
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import given
from aiocuda._verbs.conversion import convert
from aiocuda._verbs.copies import copy, dup
from aiocuda._verbs.create import empty, zeros
from aiocuda._verbs.foreign import call_with_workspace
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["fft", "fftn", "ifft", "ifftn", "irfft", "rfft"]


def fft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, *, out: Any = None) -> DeviceOp[Any]:
    """Transform an axis from time to frequency, as `numpy.fft.fft` does.

    Parameters
    ----------
    x
        `DeviceArray` of any strides, or an operation that yields one, of real or complex numbers.
    n
        The length of the transformed axis: `x` is cut to it, or filled up with zeros. None: as long as it is.
    axis
        Which one; negative ones count from the last.
    norm
        Where the factor 1/n goes: "backward" (or None), to the inverse transform; "forward", to this one; "ortho", its
        root to both.
    out
        Where the result goes: an array of its shape and dtype and of any strides, or an operation that yields one. It
        may be `x`.

    Returns
    -------
    DeviceOp[DeviceArray]
        A new array beside `x`, or `out`. complex64 of complex64, float32 and the 16-bit floats, else complex128.
        *Stream*: as for a kernel. *Blocks*: the first time for a shape, while cuFFT makes its plan or a kernel is
        compiled. *On cancel*: what was submitted goes on.

    Raises
    ------
    ArgumentTypeError
        `x` is no array on a device, or of another dtype.
    ArgumentValueError
        There is no such axis or norm, `n` is less than 1, there are more than 2**36 items to transform, or `out` does
        not fit.
    DeviceMismatchError, OwnershipError
        As for `aiocuda.linalg.matmul`.
    MissingPackageError
        On a GPU: nvmath-python is not installed (``pip install "aiocuda[nvmath]"``).
    OutOfMemoryError
        When executed: the device has no room for the result, or for cuFFT's work area.

    Notes
    -----
    All but the last are raised when the operation is built; of what operations yield, when it is executed. The error of
    a result, as a share of the greatest one, is a few units in the last place of its dtype. Axes other than the last,
    and arrays that do not lie in one piece, are copied first. aiocuda keeps the 64 plans of cuFFT that were used last.
    In a graph, a launch with another array in the place of `x` is a `CaptureError` on a GPU, as for `matmul`.
    """
    return _one_axis("fft", x, n, axis, norm, out)


def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, *, out: Any = None) -> DeviceOp[Any]:
    """Transform an axis from frequency to time, as `numpy.fft.ifft` does: the inverse of `fft`.

    Parameters
    ----------
    x, n, axis, norm, out
        As for `fft`.

    Returns
    -------
    DeviceOp[DeviceArray]
        As for `fft`. *Stream*, *Blocks*, *On cancel*: as for `fft`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError, MissingPackageError, OutOfMemoryError
        As for `fft`.
    """
    return _one_axis("ifft", x, n, axis, norm, out)


def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, *, out: Any = None) -> DeviceOp[Any]:
    """Transform an axis of real numbers, as `numpy.fft.rfft` does: the first n // 2 + 1 results of `fft`.

    Parameters
    ----------
    x
        As for `fft`, of real numbers.
    n, axis, norm, out
        As for `fft`.

    Returns
    -------
    DeviceOp[DeviceArray]
        As for `fft`; n // 2 + 1 items along the axis. *Stream*, *Blocks*, *On cancel*: as for `fft`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError, MissingPackageError, OutOfMemoryError
        As for `fft`; or `x` is complex.
    """
    return _one_axis("rfft", x, n, axis, norm, out)


def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, *, out: Any = None) -> DeviceOp[Any]:
    """Transform an axis to real numbers, as `numpy.fft.irfft` does: the inverse of `rfft`.

    Parameters
    ----------
    x
        As for `fft`. Its axis holds the first half of a spectrum, n // 2 + 1 items; imaginary parts of the first one,
        and of the last one if n is even, count as 0.
    n
        The length of the axis of the result. None: 2 * (m - 1) for m items.
    axis, norm, out
        As for `fft`; `out` is real, float32 or float64.

    Returns
    -------
    DeviceOp[DeviceArray]
        As for `fft`; but float32 of complex64, float32 and the 16-bit floats, else float64.
        *Stream*, *Blocks*, *On cancel*: as for `fft`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError, MissingPackageError, OutOfMemoryError
        As for `fft`.
    """
    return _one_axis("irfft", x, n, axis, norm, out)


def fftn(
    x: Any,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Any = None,
) -> DeviceOp[Any]:
    """Transform several axes, as `numpy.fft.fftn` does.

    Parameters
    ----------
    x
        As for `fft`.
    s
        The length of each transformed axis, as `n` of `fft`. None: as long as they are.
    axes
        Which ones, each once. None: the last ones, as many as `s` has; all of them without `s`.
    norm, out
        As for `fft`.

    Returns
    -------
    DeviceOp[DeviceArray]
        As for `fft`. *Stream*, *Blocks*, *On cancel*: as for `fft`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError, MissingPackageError, OutOfMemoryError
        As for `fft`; or `s` and `axes` differ in length, or name an axis twice.

    Notes
    -----
    The last one, two or three axes are one transform of cuFFT's. All else is one for each axis, with copies between.
    """
    return _several_axes("fftn", x, s, axes, norm, out)


def ifftn(
    x: Any,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Any = None,
) -> DeviceOp[Any]:
    """Transform several axes, as `numpy.fft.ifftn` does: the inverse of `fftn`.

    Parameters
    ----------
    x, s, axes, norm, out
        As for `fftn`.

    Returns
    -------
    DeviceOp[DeviceArray]
        As for `fft`. *Stream*, *Blocks*, *On cancel*: as for `fft`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, OwnershipError, MissingPackageError, OutOfMemoryError
        As for `fftn`.
    """
    return _several_axes("ifftn", x, s, axes, norm, out)


_COMPLEX: Final[dict[str, np.dtype[Any]]] = {
    **dict.fromkeys(("float16", "bfloat16", "float32", "complex64"), np.dtype(np.complex64)),
    **dict.fromkeys(("bool", "float64", "complex128"), np.dtype(np.complex128)),
    **{f"{sign}int{bits}": np.dtype(np.complex128) for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_REAL: Final[dict[str, np.dtype[Any]]] = {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}
_NORMS: Final = ("backward", "ortho", "forward")
_MOST_AXES: Final = 3  # of a plan of cuFFT's
# A convolution has up to four times as many, with a thread for each; a grid has nearly 2**39 threads.
_MOST_ITEMS: Final = 2**36


def _one_axis(asked: str, x: Any, n: int | None, axis: int, norm: Any, out: Any) -> DeviceOp[Any]:
    norm = _norm(asked, norm)
    x, out = arrays(asked, x=x)["x"], outs(asked, out, 1)[0]
    if (waiting := later(asked, lambda x, out: _one_axis(asked, x, n, axis, norm, out), x, out)) is not None:
        return waiting
    kind = _complex(asked, x)
    axis = _axis(asked, axis, x.ndim)
    items = x.shape[axis]
    length = given.whole(
        2 * (items - 1) if n is None and asked == "irfft" else items if n is None else n, f"{asked}: n"
    )
    _check_length(asked, length)
    read = length // 2 + 1 if asked == "irfft" else length
    written = length // 2 + 1 if asked == "rfft" else length
    shape = (*x.shape[:axis], written, *x.shape[axis + 1 :])
    _check_count(asked, (*x.shape[:axis], length, *x.shape[axis + 1 :]))
    result = _REAL[kind.name] if asked == "irfft" else kind
    to = target(asked, out, shape, result, [x])
    if 0 in shape:
        return delivered(to.into, to)
    order = [*(each for each in range(x.ndim) if each != axis), axis]
    line: Any = _fitted(x, axis, read).transpose(order)
    source = _REAL[kind.name] if asked == "rfft" else kind
    if x.dtype != source:
        line = convert(line, source)
    elif isinstance(line, DeviceArray) and asked != "irfft":
        line = lying(line)
    else:  # what cuFFT makes real numbers of it may overwrite
        line = dup(line)
    moved = tuple(shape[each] for each in order)
    is_last = axis == x.ndim - 1
    into = to.into if is_last else empty(moved, result, x.device)
    batch = math.prod(moved[:-1])
    made = _transform(asked, line, into, (length,), batch, kind, norm, x)
    if not is_last:
        made = copy(to.into, made.transpose([order.index(each) for each in range(x.ndim)]))
    return delivered(made, to)


def _several_axes(asked: str, x: Any, s: Any, axes: Any, norm: Any, out: Any) -> DeviceOp[Any]:
    norm = _norm(asked, norm)
    x, out = arrays(asked, x=x)["x"], outs(asked, out, 1)[0]
    if (waiting := later(asked, lambda x, out: _several_axes(asked, x, s, axes, norm, out), x, out)) is not None:
        return waiting
    kind = _complex(asked, x)
    lengths = (
        None if s is None else [given.whole(n, f"{asked}: s") for n in given.sequence(s, f"{asked}: s", "lengths")]
    )
    if axes is None:
        count = x.ndim if lengths is None else len(lengths)
        chosen = list(range(x.ndim - count, x.ndim)) if count <= x.ndim else [x.ndim]
        chosen = [_axis(asked, axis, x.ndim) for axis in chosen]
    else:
        chosen = [_axis(asked, axis, x.ndim) for axis in given.sequence(axes, f"{asked}: axes", "axes")]
    if len(set(chosen)) != len(chosen):
        raise ArgumentValueError(f"{asked}: axes={given.shown(axes)} names an axis twice")
    if lengths is not None and len(lengths) != len(chosen):
        raise ArgumentValueError(f"{asked}: s={given.shown(s)} and axes={given.shown(axes)} must be as many")
    wanted = dict(zip(chosen, [x.shape[axis] for axis in chosen] if lengths is None else lengths, strict=True))
    for length in wanted.values():
        _check_length(asked, length)
    shape = tuple(wanted.get(axis, extent) for axis, extent in enumerate(x.shape))
    _check_count(asked, shape)
    to = target(asked, out, shape, kind, [x])
    if 0 in shape:
        return delivered(to.into, to)
    fitted: Any = x
    for axis, length in wanted.items():
        fitted = _fitted(fitted, axis, length)
    if not chosen:
        return delivered(copy(to.into, convert(x, kind)), to)
    rank = len(chosen)
    if _is_by_cufft(x.device) and rank <= _MOST_AXES and set(chosen) == set(range(x.ndim - rank, x.ndim)):
        line = convert(fitted, kind) if x.dtype != kind else dup(fitted)
        made = _transform(asked, line, to.into, shape[-rank:], math.prod(shape[:-rank]), kind, norm, x)
        return delivered(made, to)
    one = "fft" if asked == "fftn" else "ifft"
    made = fitted
    for axis in chosen:
        made = _one_axis(one, made, None, axis, norm, None)
    return delivered(copy(to.into, made), to)


def _norm(asked: str, norm: Any) -> str:
    return given.one_of("backward" if norm is None else norm, f"{asked}: norm", _NORMS)


def _complex(asked: str, x: DeviceArray) -> np.dtype[Any]:
    kind = _COMPLEX.get(x.dtype.name)
    if kind is None or (asked == "rfft" and x.dtype.kind == "c"):
        numbers = "real numbers" if asked == "rfft" else "numbers"
        raise ArgumentTypeError(f"{asked} transforms {numbers}; dtype {x.dtype} was given: convert() it first")
    return kind


def _axis(asked: str, axis: Any, ndim: int) -> int:
    found = given.whole(axis, f"{asked}: axis")
    if not -ndim <= found < ndim:
        raise ArgumentValueError(f"{asked}: axis {found} is none of an array of {ndim} axes")
    return found % ndim


def _check_length(asked: str, length: int) -> None:
    if length < 1:
        raise ArgumentValueError(f"{asked}: a transform has one item or more; {length} were asked for")


def _check_count(asked: str, shape: tuple[int, ...]) -> None:
    if math.prod(shape) > _MOST_ITEMS:
        raise ArgumentValueError(f"{asked} transforms at most 2**36 items; {shape} are {math.prod(shape)}")


def _fitted(x: Any, axis: int, length: int) -> Any:
    """Return an array whose axis is cut, or filled up with zeros; an operation, where it is filled up."""
    if not isinstance(x, DeviceArray):
        return x.then(lambda known: _fitted(known, axis, length))
    begin = (slice(None),) * axis
    if length <= x.shape[axis]:
        return x if length == x.shape[axis] else x[(*begin, slice(0, length))]
    room = zeros((*x.shape[:axis], length, *x.shape[axis + 1 :]), x.dtype, x.device)
    part = (*begin, slice(0, x.shape[axis]))
    return room.then(lambda whole: copy(whole[part], x).then(lambda _: whole))


def _factor(asked: str, norm: str, count: int) -> float:
    if norm == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if (norm == "forward") == (asked in {"fft", "rfft", "fftn"}) else 1.0


def _transform(
    asked: str,
    line: Any,
    into: Any,
    lengths: tuple[int, ...],
    batch: int,
    kind: np.dtype[Any],
    norm: str,
    x: DeviceArray,
) -> Any:
    factor = _factor(asked, norm, math.prod(lengths))
    if _is_by_cufft(x.device):
        return by_cufft(asked, line, into, lengths, batch, kind, factor, x.device.ordinal)
    return fourier_kernels.transform(asked, line, into, lengths[0], batch, kind, factor, x.device)


def _is_by_cufft(device: Device) -> bool:
    return not device.is_emulated


def by_cufft(
    asked: str,
    line: Any,
    into: Any,
    lengths: tuple[int, ...],
    batch: int,
    kind: np.dtype[Any],
    factor: float,
    ordinal: int,
) -> Any:
    """Transform by cuFFT what lies in one piece, into what lies in one piece; `line` may be overwritten by irfft."""
    names = {"rfft": ("R2C", "D2Z"), "irfft": ("C2R", "Z2D")}.get(asked, ("C2C", "Z2Z"))
    plan = cufft.open_plan(ordinal, names[kind == np.complex128], lengths, batch)

    def enqueue(stream: Stream, line: DeviceArray, into: DeviceArray, area: DeviceArray) -> DeviceArray:
        inverse = asked in {"ifft", "ifftn"}
        cufft.execute(plan, stream.handle, area.address, (line.address, into.address), inverse=inverse)
        return into

    overwritten = [line] if asked == "irfft" else []
    reads = [] if overwritten else [line]
    made = call_with_workspace(
        enqueue, line, into, reads=reads, writes=[into, *overwritten], workspace_bytes=max(plan.work_bytes, 1)
    )
    return made if factor == 1 else fourier_kernels.scaled(made, kind, asked, lengths, batch, factor)
