"""Gives classes what notebooks ask them for; `aiocuda._instruments.notebook` makes it, when one asks.

Always true: no text is made here.
"""

from __future__ import annotations

from typing import Any

from aiocuda import _instruments
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._arrays.partition import Partition
from aiocuda._devices.device import Device
from aiocuda._devices.policies import Policy
from aiocuda._engine.futures import DeviceFuture
from aiocuda._graphs.graph import CudaGraph
from aiocuda._ops.operation import DeviceOp

__all__ = ["show"]


def show() -> None:
    """Give the classes their ``_repr_html_``."""
    for cls, name in (
        (DeviceOp, "operation"),
        (CudaGraph, "graph"),
        (DeviceArray, "array"),
        (HostArray, "array"),
        (Partition, "array"),
        (Device, "device"),
        (Policy, "policy"),
        (DeviceFuture, "future"),
    ):
        _show(cls, name)


def _show(cls: type, name: str) -> None:
    def _repr_html_(self: Any) -> str:
        shown: str = getattr(_instruments.notebook, name)(self)
        return shown

    setattr(cls, "_repr_html_", _repr_html_)  # noqa: B010 - a method that the class' own source does not show
