"""What is recorded for a graph: an operation, or one after another, with the inputs that launches may replace.

Nothing runs, and no executable is made: `_graphs.graph` does that with what is recorded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from aiocuda import _native
from aiocuda._engine import placement
from aiocuda._graphs import result_template
from aiocuda._ops.above import CaptureMode
from aiocuda._ops.operation import DeviceOp
from aiocuda._values.given import one_of
from aiocuda._verbs.copies import dup
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, CaptureError

__all__ = ["recorded", "recorder_of", "require_straight"]


def recorder_of(capture_mode: CaptureMode, inputs: Mapping[str, Any]) -> _native.Recorder:
    one_of(capture_mode, "capture_mode", ("global", "thread_local", "relaxed"))
    recorder = _native.Recorder(capture_mode)
    for name, value in inputs.items():
        given = as_array(value, f"graph: the input {name}")
        is_number = isinstance(given, _native.Op) and given._spec[0] == "host_value"
        if not is_number and not isinstance(given, _native.Array):
            raise ArgumentTypeError(
                f"graph: the input {name} is an array that exists, or a number as ac.value(number); "
                f"{given!r:.80} was given"
            )
        recorder.add_input(name, given)
    return recorder


def recorded(op: DeviceOp[Any], capture_mode: CaptureMode, inputs: Mapping[str, Any]) -> tuple[_native.Recorder, Any]:
    if not isinstance(op, _native.Op):
        raise ArgumentTypeError(f"a graph is made of an operation, not of {op!r:.80}")
    if op._state == "submitted":
        raise ArgumentValueError(
            f"{op._title} has run already; a graph is made of an operation that has not: build it again"
        )
    recorder = recorder_of(capture_mode, inputs)
    where = placement.current.get()
    template = recorder.record(op, where)
    require_straight(recorder, tuple(inputs))
    # A launch gives late values memory of their own, which it cannot where the address has been captured.
    captured = [array for array in result_template.late_arrays_in(template) if recorder.is_captured(array)]
    copies = {id(array): recorder.record(cast("Any", dup(array)), where) for array in captured}
    return recorder, result_template.replaced(template, lambda array: copies.get(id(array), array))


def require_straight(recorder: _native.Recorder, names: tuple[str, ...]) -> None:
    for index in recorder.observed():
        raise CaptureError(
            f"graph: the input {names[index]} is used by something other than a kernel's parameter (a callback, a zip) "
            "that sees it only once; give it to kernels alone, or leave it out of the inputs"
        )
