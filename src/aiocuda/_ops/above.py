"""Functions of higher rooms that methods of operations and arrays need; `aiocuda._wiring` sets them, once.

Always true: nobody else assigns these names, and they are there when `aiocuda` has been imported.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from aiocuda._devices.device import DeviceLike, Stream

if TYPE_CHECKING:
    from aiocuda._arrays.array import DeviceArray
    from aiocuda._graphs.graph import CudaGraph
    from aiocuda._ops.operation import DeviceOp

__all__ = ["CaptureMode"]

CaptureMode: TypeAlias = Literal["global", "thread_local", "relaxed"]

to_device: Callable[[Any, DeviceLike], DeviceOp[DeviceArray]]
make_graph: Callable[[DeviceOp[Any], Stream | None, CaptureMode, Mapping[str, Any]], CudaGraph[Any]]
make_graph_async: Callable[[DeviceOp[Any], CaptureMode, Mapping[str, Any]], Coroutine[Any, Any, CudaGraph[Any]]]
