"""Ties the rooms together: what native code calls of Python's, and what lower rooms call of upper ones.

Always true: nothing else in the package tells something below of something above. Two things are told later, by
whom they concern: what asyncio and trio are asked, when one of them first runs (`aiocuda._loops`), and a driver's pool
of memory, when a device is opened (`aiocuda._driver.runtime`).
"""

from __future__ import annotations

import contextlib
import sys

from aiocuda import _loops, _native, errors
from aiocuda._arrays import partition
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._arrays.partition import Partition
from aiocuda._arrays.tensor_kinds import tensor_kind
from aiocuda._devices import event
from aiocuda._devices.device import Device, known_stream
from aiocuda._devices.policies import Dataflow, streams_for
from aiocuda._driver import frameworks, runtime
from aiocuda._engine import background, faults, futures, held_up, opening, overdue, placement
from aiocuda._graphs import making
from aiocuda._graphs.graph import CudaGraph, make_graph, make_graph_async
from aiocuda._instruments import habits, leaks, shown, unused
from aiocuda._kernels import kernel
from aiocuda._kernels.module import Module
from aiocuda._live import answering
from aiocuda._ops import above, operation, views
from aiocuda._ops.composing import lift
from aiocuda._ops.operation import DeviceOp
from aiocuda._verbs import exchanges
from aiocuda._verbs.copies import to_device
from aiocuda._verbs.foreign import external

__all__ = ["wire"]


def wire() -> None:
    """Tie the rooms together. Called once, when the package is imported."""
    _require_lock()
    _tell_native_code()
    _tell_annotations()
    above.to_device = to_device
    above.make_graph = make_graph
    above.make_graph_async = make_graph_async
    runtime.watched = held_up.Watched
    runtime.when_open = answering.begin
    leaks.report_at_exit()
    held_up.report()
    unused.report(DeviceOp)
    habits.advise()
    shown.show()


def _tell_annotations() -> None:
    """Put classes where annotations name them, for `typing.get_type_hints`.

    They are those of upper rooms, and those whose import would make a ring within a room.
    """
    for module, named in (
        (event, (Device,)),
        (operation, (CudaGraph, DeviceArray)),
        (views, (DeviceArray, DeviceOp, HostArray, Partition)),
        (partition, (DeviceArray,)),
        (kernel, (Module,)),
    ):
        vars(module).update({each.__name__: each for each in named})


def _require_lock() -> None:
    """Raise ImportError in a Python that runs without its global lock, which guards the native half's state."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # of Python 3.13 and newer
    if is_enabled is not None and not is_enabled():
        raise ImportError(
            "aiocuda was imported in a free-threaded Python whose global lock is off (PYTHON_GIL=0 or -X gil=0). "
            "aiocuda's native half needs that lock. Leave the setting out: Python then turns the lock on when aiocuda "
            "is imported. Or use a Python that is not free-threaded."
        )


def _tell_native_code() -> None:
    _native.bind_errors(errors)
    _native.set_package_directory(__file__.removesuffix("_wiring.py"), contextlib.__file__)
    _native.set_placement_variable(placement.current)
    _native.set_default_policy(Dataflow())
    _native.set_array_classes(DeviceArray, HostArray)
    _native.set_future(futures.DeviceFuture, futures.AS_ITS_OPERATION)
    _native.set_loops(_loops.current_port)
    _native.set_loop_runs(_loops.is_running)
    _native.set_overdue(overdue.overdue, overdue.overdue_streams)
    _native.set_ahead(background.get_ahead)
    _native.set_tensor_kinds(lambda kind: tensor_kind(kind, external))
    _native.set_exchange(exchanges.make, exchanges.take)
    _native.set_hooks(
        refused=faults.refused,
        lost=faults.lost,
        lift=lift,
        open_device=runtime.open_device,
        known_stream=known_stream,
        streams_for=streams_for,
        named=faults.named,
        over_limit=faults.over_limit,
        over=faults.over,
        opening=opening.begin,
        opening_file=opening.begin_file,
        making=making.begin,
        not_done=opening.require_done,
        keeper_of_stream=frameworks.keeper_of_stream,
    )
