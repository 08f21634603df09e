"""Await the GPU: lazy device operations, composed into DAGs, awaited or run synchronously.

The same program runs on an NVIDIA GPU and, where there is none, on aiocuda's emulated driver.
"""

from typing import TYPE_CHECKING

from aiocuda import _later, _naming, _wiring
from aiocuda import errors as errors
from aiocuda._arrays.array import DeviceArray as DeviceArray
from aiocuda._arrays.array import HostArray as HostArray
from aiocuda._arrays.array import move as move
from aiocuda._arrays.partition import Partition as Partition
from aiocuda._devices.device import Device as Device
from aiocuda._devices.device import Stream as Stream
from aiocuda._devices.device import devices as devices
from aiocuda._devices.event import Event as Event
from aiocuda._devices.placing import current_device as current_device
from aiocuda._devices.placing import set_device as set_device
from aiocuda._devices.placing import use as use
from aiocuda._devices.policies import Dataflow as Dataflow
from aiocuda._devices.policies import LeastLoaded as LeastLoaded
from aiocuda._devices.policies import Policy as Policy
from aiocuda._devices.policies import RoundRobin as RoundRobin
from aiocuda._devices.policies import SchedulingPolicy as SchedulingPolicy
from aiocuda._devices.policies import SingleStream as SingleStream
from aiocuda._devices.policies import current_policy as current_policy
from aiocuda._devices.policies import set_policy as set_policy
from aiocuda._driver.select import select_driver as select_driver
from aiocuda._engine.futures import DeviceFuture as DeviceFuture
from aiocuda._engine.stream_wait import StreamWait as StreamWait
from aiocuda._graphs.compiled import Compiled as Compiled
from aiocuda._graphs.compiled import compile as compile
from aiocuda._graphs.graph import CudaGraph as CudaGraph
from aiocuda._graphs.scope import GraphScope as GraphScope
from aiocuda._graphs.scope import graph_scope as graph_scope
from aiocuda._kernels.from_source import kernel as kernel
from aiocuda._kernels.kernel import Kernel as Kernel
from aiocuda._kernels.module import Module as Module
from aiocuda._ops.composing import value as value
from aiocuda._ops.composing import zip as zip
from aiocuda._ops.operation import DeviceOp as DeviceOp
from aiocuda._verbs.chunks import stream_chunks as stream_chunks
from aiocuda._verbs.copies import copy as copy
from aiocuda._verbs.copies import dup as dup
from aiocuda._verbs.copies import to_device as to_device
from aiocuda._verbs.copies import to_host as to_host
from aiocuda._verbs.create import empty as empty
from aiocuda._verbs.create import empty_host as empty_host
from aiocuda._verbs.create import full as full
from aiocuda._verbs.create import ones as ones
from aiocuda._verbs.create import zeros as zeros
from aiocuda._verbs.done import done as done
from aiocuda._verbs.fills import fill as fill
from aiocuda._verbs.foreign import call as call
from aiocuda._verbs.foreign import constant as constant
from aiocuda._verbs.foreign import external as external
from aiocuda._verbs.joining import concatenate as concatenate
from aiocuda._verbs.joining import stack as stack
from aiocuda._verbs.likeness import asarray as asarray
from aiocuda._verbs.likeness import empty_like as empty_like
from aiocuda._verbs.likeness import full_like as full_like
from aiocuda._verbs.likeness import ones_like as ones_like
from aiocuda._verbs.likeness import zeros_like as zeros_like
from aiocuda._verbs.parallel import gather as gather
from aiocuda._verbs.parallel import replicate as replicate
from aiocuda._verbs.parallel import shard as shard
from aiocuda._verbs.waiting import ALL_COMPLETED as ALL_COMPLETED
from aiocuda._verbs.waiting import FIRST_COMPLETED as FIRST_COMPLETED
from aiocuda._verbs.waiting import FIRST_EXCEPTION as FIRST_EXCEPTION
from aiocuda._verbs.waiting import ReturnWhen as ReturnWhen
from aiocuda._verbs.waiting import as_completed as as_completed
from aiocuda._verbs.waiting import as_coroutine as as_coroutine
from aiocuda._verbs.waiting import wait as wait
from aiocuda._version import __version__ as __version__
from aiocuda.errors import AiocudaError as AiocudaError
from aiocuda.errors import ArgumentIndexError as ArgumentIndexError
from aiocuda.errors import ArgumentRangeError as ArgumentRangeError
from aiocuda.errors import ArgumentTypeError as ArgumentTypeError
from aiocuda.errors import ArgumentValueError as ArgumentValueError
from aiocuda.errors import CancelledError as CancelledError
from aiocuda.errors import CaptureError as CaptureError
from aiocuda.errors import ClosedError as ClosedError
from aiocuda.errors import ClusterError as ClusterError
from aiocuda.errors import CollectiveError as CollectiveError
from aiocuda.errors import CompilationError as CompilationError
from aiocuda.errors import DeadlineError as DeadlineError
from aiocuda.errors import DeviceLostError as DeviceLostError
from aiocuda.errors import DeviceMismatchError as DeviceMismatchError
from aiocuda.errors import DeviceTimeoutError as DeviceTimeoutError
from aiocuda.errors import DrainTimeoutError as DrainTimeoutError
from aiocuda.errors import DriverError as DriverError
from aiocuda.errors import DriverNotFoundError as DriverNotFoundError
from aiocuda.errors import DriverSelectionError as DriverSelectionError
from aiocuda.errors import EmulatedDeviceWarning as EmulatedDeviceWarning
from aiocuda.errors import ExchangeError as ExchangeError
from aiocuda.errors import FileError as FileError
from aiocuda.errors import ForkedProcessError as ForkedProcessError
from aiocuda.errors import ItemError as ItemError
from aiocuda.errors import KernelCheckError as KernelCheckError
from aiocuda.errors import LaunchError as LaunchError
from aiocuda.errors import MissingAttributeError as MissingAttributeError
from aiocuda.errors import MissingPackageError as MissingPackageError
from aiocuda.errors import OperationInterruptedError as OperationInterruptedError
from aiocuda.errors import OutOfMemoryError as OutOfMemoryError
from aiocuda.errors import OwnershipError as OwnershipError
from aiocuda.errors import QueueFullError as QueueFullError
from aiocuda.errors import RaceError as RaceError
from aiocuda.errors import RemoteError as RemoteError
from aiocuda.errors import SignatureError as SignatureError
from aiocuda.errors import StoppingError as StoppingError
from aiocuda.errors import UndeclaredKernelError as UndeclaredKernelError
from aiocuda.errors import WorkerLostError as WorkerLostError

if TYPE_CHECKING:  # at run time, they are imported when they are first asked for
    from aiocuda import algorithms as algorithms
    from aiocuda import cluster as cluster
    from aiocuda import collective as collective
    from aiocuda import fft as fft
    from aiocuda import interop as interop
    from aiocuda import linalg as linalg
    from aiocuda._arrays.interprocess import open_ipc as open_ipc
    from aiocuda._arrays.ipc_handle import IpcHandle as IpcHandle
    from aiocuda._devices.event_handle import IpcEventHandle as IpcEventHandle
    from aiocuda._devices.limits import memory_limit as memory_limit
    from aiocuda._devices.limits_read import DeviceLimits as DeviceLimits
    from aiocuda._devices.memory import MemoryHolder as MemoryHolder
    from aiocuda._devices.memory import MemoryInfo as MemoryInfo
    from aiocuda._devices.memory import MemoryPool as MemoryPool
    from aiocuda._driver.choosing import DriverInfo as DriverInfo
    from aiocuda._driver.loaded import KernelAttributes as KernelAttributes
    from aiocuda._driver.loaded import Occupancy as Occupancy
    from aiocuda._graphs.counts import CacheInfo as CacheInfo
    from aiocuda._graphs.counts import GraphStatistics as GraphStatistics
    from aiocuda._graphs.loops import LoopResult as LoopResult
    from aiocuda._graphs.loops import cond as cond
    from aiocuda._graphs.loops import repeat as repeat
    from aiocuda._graphs.loops import while_ as while_
    from aiocuda._instruments.progress import progress as progress
    from aiocuda._instruments.statistics import MemoryUse as MemoryUse
    from aiocuda._instruments.statistics import Statistics as Statistics
    from aiocuda._instruments.statistics import statistics as statistics
    from aiocuda._kernels.compile_options import CompileOptions as CompileOptions
    from aiocuda._live.monitor import Monitor as Monitor
    from aiocuda._live.monitor import monitor as monitor
    from aiocuda._pictures.picture import Picture as Picture
    from aiocuda._serve.batching import Batched as Batched
    from aiocuda._serve.batching import batched as batched
    from aiocuda._serve.counts import BatchStatistics as BatchStatistics
    from aiocuda._serve.health import DeviceHealth as DeviceHealth
    from aiocuda._serve.health import Health as Health
    from aiocuda._serve.health import healthy as healthy
    from aiocuda._serve.lifespan import lifespan as lifespan
    from aiocuda._serve.padding import bucket as bucket
    from aiocuda._serve.padding import pad_stack as pad_stack
    from aiocuda._trace.debugging import Debugging as Debugging
    from aiocuda._trace.debugging import debug as debug
    from aiocuda._trace.findings import Finding as Finding
    from aiocuda._trace.tracing import Tracing as Tracing
    from aiocuda._trace.tracing import trace as trace
    from aiocuda._verbs.conversion import convert as convert
    from aiocuda._verbs.files import read as read
    from aiocuda._verbs.files import write as write
    from aiocuda._verbs.formats import load as load
    from aiocuda._verbs.formats import save as save
    from aiocuda._verbs.preview import Preview as Preview
    from aiocuda._verbs.preview import preview as preview
    from aiocuda._verbs.randomness import rand as rand
    from aiocuda._verbs.randomness import randint as randint
    from aiocuda._verbs.randomness import randn as randn
    from aiocuda._verbs.ranges import arange as arange
    from aiocuda._verbs.ranges import eye as eye
    from aiocuda._verbs.ranges import linspace as linspace
else:
    __getattr__, __dir__ = _later.names_of(
        __name__,
        globals(),
        {"aiocuda.algorithms": ("algorithms",)},
        {"aiocuda.fft": ("fft",)},
        {"aiocuda.linalg": ("linalg",)},
        {"aiocuda._graphs.loops": ("LoopResult", "cond", "repeat", "while_")},
        {"aiocuda._verbs.preview": ("Preview", "preview")},
        {"aiocuda._instruments.progress": ("progress",)},
        {"aiocuda._live.monitor": ("Monitor", "monitor")},
        {"aiocuda._instruments.statistics": ("MemoryUse", "Statistics", "statistics")},
        {"aiocuda._verbs.randomness": ("rand", "randint", "randn")},
        {"aiocuda._verbs.ranges": ("arange", "eye", "linspace")},
        {"aiocuda._verbs.formats": ("load", "save")},
        {"aiocuda._verbs.files": ("read", "write")},
        {"aiocuda._verbs.conversion": ("convert",)},
        {"aiocuda._devices.limits": ("memory_limit",)},
        {"aiocuda._driver.choosing": ("DriverInfo",)},
        {"aiocuda._driver.loaded": ("KernelAttributes", "Occupancy")},
        {"aiocuda._devices.memory": ("MemoryHolder", "MemoryInfo", "MemoryPool")},
        {"aiocuda._devices.limits_read": ("DeviceLimits",)},
        {
            "aiocuda._arrays.ipc_handle": ("IpcHandle",),
            "aiocuda._devices.event_handle": ("IpcEventHandle",),
            "aiocuda._arrays.interprocess": ("open_ipc",),
        },
        {"aiocuda._graphs.counts": ("CacheInfo", "GraphStatistics")},
        {"aiocuda._kernels.compile_options": ("CompileOptions",)},
        {"aiocuda._pictures.picture": ("Picture",)},
        {"aiocuda.cluster": ("cluster",)},
        {"aiocuda.collective": ("collective",)},
        {"aiocuda.interop": ("interop",)},
        {
            "aiocuda._serve.batching": ("Batched", "batched"),
            "aiocuda._serve.counts": ("BatchStatistics",),
            "aiocuda._serve.health": ("DeviceHealth", "Health", "healthy"),
            "aiocuda._serve.lifespan": ("lifespan",),
            "aiocuda._serve.padding": ("bucket", "pad_stack"),
        },
        {
            "aiocuda._trace.debugging": ("Debugging", "debug"),
            "aiocuda._trace.findings": ("Finding",),
            "aiocuda._trace.tracing": ("Tracing", "trace"),
        },
    )
del TYPE_CHECKING  # no name of this module

__all__ = [
    "ALL_COMPLETED",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "AiocudaError",
    "ArgumentIndexError",
    "ArgumentRangeError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "BatchStatistics",
    "Batched",
    "CacheInfo",
    "CancelledError",
    "CaptureError",
    "ClosedError",
    "ClusterError",
    "CollectiveError",
    "CompilationError",
    "CompileOptions",
    "Compiled",
    "CudaGraph",
    "Dataflow",
    "DeadlineError",
    "Debugging",
    "Device",
    "DeviceArray",
    "DeviceFuture",
    "DeviceHealth",
    "DeviceLimits",
    "DeviceLostError",
    "DeviceMismatchError",
    "DeviceOp",
    "DeviceTimeoutError",
    "DrainTimeoutError",
    "DriverError",
    "DriverInfo",
    "DriverNotFoundError",
    "DriverSelectionError",
    "EmulatedDeviceWarning",
    "Event",
    "ExchangeError",
    "FileError",
    "Finding",
    "ForkedProcessError",
    "GraphScope",
    "GraphStatistics",
    "Health",
    "HostArray",
    "IpcEventHandle",
    "IpcHandle",
    "ItemError",
    "Kernel",
    "KernelAttributes",
    "KernelCheckError",
    "LaunchError",
    "LeastLoaded",
    "LoopResult",
    "MemoryHolder",
    "MemoryInfo",
    "MemoryPool",
    "MemoryUse",
    "MissingAttributeError",
    "MissingPackageError",
    "Module",
    "Monitor",
    "Occupancy",
    "OperationInterruptedError",
    "OutOfMemoryError",
    "OwnershipError",
    "Partition",
    "Picture",
    "Policy",
    "Preview",
    "QueueFullError",
    "RaceError",
    "RemoteError",
    "ReturnWhen",
    "RoundRobin",
    "SchedulingPolicy",
    "SignatureError",
    "SingleStream",
    "Statistics",
    "StoppingError",
    "Stream",
    "StreamWait",
    "Tracing",
    "UndeclaredKernelError",
    "WorkerLostError",
    "algorithms",
    "arange",
    "as_completed",
    "as_coroutine",
    "asarray",
    "batched",
    "bucket",
    "call",
    "cluster",
    "collective",
    "compile",
    "concatenate",
    "cond",
    "constant",
    "convert",
    "copy",
    "current_device",
    "current_policy",
    "debug",
    "devices",
    "done",
    "dup",
    "empty",
    "empty_host",
    "empty_like",
    "errors",
    "external",
    "eye",
    "fft",
    "fill",
    "full",
    "full_like",
    "gather",
    "graph_scope",
    "healthy",
    "interop",
    "kernel",
    "lifespan",
    "linalg",
    "linspace",
    "load",
    "memory_limit",
    "monitor",
    "move",
    "ones",
    "ones_like",
    "open_ipc",
    "pad_stack",
    "preview",
    "progress",
    "rand",
    "randint",
    "randn",
    "read",
    "repeat",
    "replicate",
    "save",
    "select_driver",
    "set_device",
    "set_policy",
    "shard",
    "stack",
    "statistics",
    "stream_chunks",
    "to_device",
    "to_host",
    "trace",
    "use",
    "value",
    "wait",
    "while_",
    "write",
    "zeros",
    "zeros_like",
    "zip",
]

_wiring.wire()
_naming.name_publicly(__name__, globals(), set(__all__).intersection(globals()))
