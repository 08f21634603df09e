"""The steps that an operation would take, as text: streams, waits, copies, in order of submission."""

from __future__ import annotations

from typing import Any, TypeAlias

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda._engine.costs import cost_of, cost_text, totals
from aiocuda._engine.placement import Placement

__all__ = ["Step", "explain", "function_name", "line", "record"]

# What the walk wrote down, its operation, and what it touches: (buffer, first byte, byte behind the last, writes).
Step: TypeAlias = tuple[tuple[Any, ...], _native.Op, list[tuple[int, int, int, bool]]]


def record(op: _native.Op, where: Placement) -> list[Step]:
    """Walk an operation without running anything; return the steps as the walk wrote them down."""
    for ordinal in range(runtime.device_count()):
        runtime.open_device(ordinal)
    return _native.record(op, where)


def explain(op: _native.Op, where: Placement, *, costs: bool = False) -> str:
    """Return the steps of an operation as a text, one line each, numbered in order of submission.

    `costs` adds what each moves and the least time for that, and a line for each device with all of it.
    """
    steps = record(op, where)
    if not steps:
        return f"{op._title}: it has run; nothing is left to do"
    lines = [line(written) for written, _, _ in steps]
    found = [cost_of(written, uses) if costs else None for written, _, uses in steps]
    texts = [cost_text(cost) for cost in found]
    width = max(len(lane) for lane, _, _ in lines)
    what_width = max(len(what) for _, what, _ in lines)
    cost_width = max(map(len, texts))
    gap = "  " if cost_width else ""
    shown = [
        f"{number:>3}  {lane:<{width}}  {what:<{what_width}}{gap}{text:<{cost_width}}  {origin}".rstrip()
        for number, ((lane, what, origin), text) in enumerate(zip(lines, texts, strict=True), 1)
    ]
    return "\n".join([*shown, *totals(cost for cost in found if cost is not None)])


def line(step: tuple[Any, ...]) -> tuple[str, str, str]:
    """Return where a step goes, what it does, and the line of the program that asked for it."""
    kind, *rest = step
    if kind == "wait":
        stream, other, behind = rest
        until = f", but for its last {behind}" if behind else ""
        return f"stream {stream}", f"wait for stream {other}{until}", ""
    if kind == "create":
        stream, _, what, size_bytes, fill, origin = rest
        filled = "" if fill is None else f", filled with {fill}"
        lane = "host" if stream is None else f"stream {stream}"
        return lane, f"allocate {what}, {size_bytes} bytes{filled}", _at(origin)
    if kind == "launch":
        stream, device, name, shape, accesses, origin = rest
        touched = _touched(accesses)
        return f"stream {stream}", f"launch {name} on device {device}: {_size(shape)}{touched}", _at(origin)
    if kind == "call":
        stream, device, function, accesses, origin = rest
        return f"stream {stream}", f"call {function_name(function)} on device {device}{_touched(accesses)}", _at(origin)
    if kind == "replay":
        stream, device, nodes, replaced, place, loop, origin = rest
        if loop:
            return f"stream {stream}", f"run {loop} of {nodes} nodes on device {device}", _at(origin)
        inputs = f", with {replaced} inputs replaced" if replaced else ""
        return (
            f"stream {stream}",
            f"launch the graph of {nodes} nodes made at {place} on device {device}{inputs}",
            _at(origin),
        )
    if kind == "fill":
        stream, _, what, size_bytes, value, origin = rest
        if stream is None:
            return "?", f"fill what is known only at submission with {value}", _at(origin)
        return f"stream {stream}", f"fill {what}, {size_bytes} bytes, with {value}", _at(origin)
    if kind == "copy":
        stream, source, destination, _, _, size_bytes, origin = rest
        if stream is None:
            return "?", "copy of what is known only at submission", _at(origin)
        return (
            f"stream {stream}",
            f"copy {size_bytes} bytes from {source} to {destination}",
            _at(origin),
        )
    function, origin = rest
    called = function_name(function)
    when = (
        "on the host, when the value is there" if kind == "map" else "at submission; what it returns is known only then"
    )
    if kind == "inspect":
        when = "at submission"
    return "host", f"{kind} {called}: {when}", _at(origin)


def _touched(accesses: list[tuple[str, bool]]) -> str:
    text = ""
    for verb, is_write in (("reads", False), ("writes", True)):
        names = ", ".join(name for name, writes in accesses if writes == is_write)
        text += f"; {verb} {names}" if names else ""
    return text


def function_name(function: Any) -> str:
    """Return what messages call a function."""
    return getattr(function, "__qualname__", None) or repr(function)


def _size(shape: tuple[tuple[int, int, int], ...] | None) -> str:
    if shape is None:
        return "no threads, so no launch"
    if not shape:
        return "grid and block of a partition that is known only at submission"
    grid, block = shape
    return f"grid {_dims(grid)}, block {_dims(block)}"


def _dims(dims: tuple[int, int, int]) -> str:
    return "x".join(str(extent) for extent in dims)


def _at(origin: tuple[str, int] | None) -> str:
    return "" if origin is None else f"{origin[0]}:{origin[1]}"
