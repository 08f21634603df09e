"""What a notebook shows of operations, graphs, arrays, devices, policies and futures, in the place of their text.

Always true: showing an object runs nothing, waits for no work and brings no item to the host. What others named is
escaped. Showing an operation that has not run opens the devices, as `explain` does.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from typing import Any, Final

from aiocuda import _engine, _native
from aiocuda._devices.device import Device
from aiocuda._driver import runtime
from aiocuda._engine import faults, placement
from aiocuda._graphs.graph import CudaGraph
from aiocuda.errors import AiocudaError, MissingPackageError

__all__ = ["array", "device", "future", "graph", "operation", "policy"]

# Larger ones are drawn when somebody asks: a notebook shows an object at each mention.
_MOST_BOXES: Final = 100
_MOST_LINES: Final = 30

Row = tuple[str, object]


def _table(title: str, rows: Iterable[Row]) -> str:
    cells = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(str(value))}</td></tr>'
        for name, value in rows
        if value not in ("", None)
    )
    return f"<table><caption><b>{html.escape(title)}</b></caption>{cells}</table>"


def _drawn(draw: Callable[[], object], text: Callable[[], str], boxes: int) -> str:
    """Return a picture; or a text, where it would be large or what lays it out is not installed."""
    if boxes <= _MOST_BOXES:
        try:
            return f'<div style="overflow:auto">{draw()}</div>'
        except MissingPackageError:
            pass  # draw() says so to those who ask for a picture
    lines = text().splitlines()
    left_out = [f"and {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
    return f"<pre>{html.escape(chr(10).join(lines[:_MOST_LINES] + left_out))}</pre>"


def operation(op: Any) -> str:
    table = _table(op._title, [("state", op._state), ("built at", faults.origin_text(op))])
    if op._state != "pending":
        return table
    try:
        steps = _engine.explain.record(op, placement.current.get())
        return table + _drawn(op.draw, op.explain, len(steps))
    except AiocudaError as error:  # what running it would raise; a notebook shows the object all the same
        return f"{table}<pre>{html.escape(f'{type(error).__name__}: {error}')}</pre>"


def graph(graph: CudaGraph[Any]) -> str:
    rows: list[Row] = [("made at", graph._native.place), ("inputs", ", ".join(graph.inputs))]
    if graph.is_closed:
        return _table("CudaGraph", [*rows, ("state", "closed")])
    counts = graph.statistics()
    rows += [("nodes", counts.nodes), ("launches", counts.launches), ("memory", f"{counts.shared_bytes} bytes")]
    return _table("CudaGraph", rows) + _drawn(graph.draw, graph.to_dot, counts.nodes)


def array(array: Any) -> str:
    state = _native.story_of(array)
    if array._is_closed:
        return _table(type(array).__name__, [("state", state)])
    where = "page-locked host memory" if array._device == _native.HOST else f"device {array._device}"
    return _table(
        type(array).__name__,
        [
            ("dtype", array.dtype.name),
            ("shape", tuple(array.shape)),
            ("size", f"{array._size_bytes} bytes"),
            ("strides", "" if array._is_contiguous else f"{array._strides}"),
            ("memory", f"managed, of {where}" if array._is_managed else where),
            ("handles", array._holders),
            ("state", state),
            ("items", "ac.preview() shows some"),
        ],
    )


def device(device: Device) -> str:
    rows: list[Row] = [("name", device.name), ("emulated", "yes" if device.is_emulated else "no")]
    if device.ordinal in runtime.open_devices():  # showing it does not open it
        used, peak = _native.memory(device.ordinal)
        rows += [("memory in use", f"{used} bytes"), ("most so far", f"{peak} bytes")]
    else:
        rows.append(("state", "not in use yet"))
    return _table(f"Device {device.ordinal}", rows)


def policy(policy: Any) -> str:
    if not _native.is_made(policy):
        return f"<pre>{html.escape(repr(policy))}</pre>"
    return _table(type(policy).__name__, [("streams", policy._streams), ("priority", policy._priority)])


def future(future: Any) -> str:
    op = future._op
    state = repr(future).rpartition(", ")[2].rstrip(">")
    return _table("DeviceFuture", [("of", op._title), ("state", state), ("built at", faults.origin_text(op))])
