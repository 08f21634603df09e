"""Await the GPU: lazy device operations, composed into DAGs, awaited or run synchronously.

The same program runs on an NVIDIA GPU and, where there is none, on aiocuda's emulated driver.
"""

from aiocuda import errors as errors
from aiocuda import linalg as linalg
from aiocuda._driver.loaded import KernelAttributes as KernelAttributes
from aiocuda._driver.loaded import Occupancy as Occupancy
from aiocuda._engine.futures import DeviceFuture as DeviceFuture
from aiocuda._engine.stream_wait import StreamWait as StreamWait
from aiocuda.api import empty as empty
from aiocuda.api import empty_host as empty_host
from aiocuda.api import full as full
from aiocuda.api import ones as ones
from aiocuda.api import zeros as zeros
from aiocuda.array import DeviceArray as DeviceArray
from aiocuda.array import HostArray as HostArray
from aiocuda.array import Partition as Partition
from aiocuda.array import move as move
from aiocuda.chunks import stream_chunks as stream_chunks
from aiocuda.compile_options import CompileOptions as CompileOptions
from aiocuda.compiled import CacheInfo as CacheInfo
from aiocuda.compiled import Compiled as Compiled
from aiocuda.compiled import compile as compile
from aiocuda.composing import value as value
from aiocuda.composing import zip as zip
from aiocuda.conversion import convert as convert
from aiocuda.copies import copy as copy
from aiocuda.copies import dup as dup
from aiocuda.copies import to_device as to_device
from aiocuda.copies import to_host as to_host
from aiocuda.device import Device as Device
from aiocuda.device import Stream as Stream
from aiocuda.device import current_device as current_device
from aiocuda.device import devices as devices
from aiocuda.device import set_device as set_device
from aiocuda.device import use as use
from aiocuda.device_limits import DeviceLimits as DeviceLimits
from aiocuda.errors import AiocudaError as AiocudaError
from aiocuda.errors import ArgumentIndexError as ArgumentIndexError
from aiocuda.errors import ArgumentRangeError as ArgumentRangeError
from aiocuda.errors import ArgumentTypeError as ArgumentTypeError
from aiocuda.errors import ArgumentValueError as ArgumentValueError
from aiocuda.errors import CancelledError as CancelledError
from aiocuda.errors import CaptureError as CaptureError
from aiocuda.errors import ClosedError as ClosedError
from aiocuda.errors import CompilationError as CompilationError
from aiocuda.errors import DeviceLostError as DeviceLostError
from aiocuda.errors import DeviceMismatchError as DeviceMismatchError
from aiocuda.errors import DeviceTimeoutError as DeviceTimeoutError
from aiocuda.errors import DriverError as DriverError
from aiocuda.errors import DriverNotFoundError as DriverNotFoundError
from aiocuda.errors import DriverSelectionError as DriverSelectionError
from aiocuda.errors import EmulatedDeviceWarning as EmulatedDeviceWarning
from aiocuda.errors import ForkedProcessError as ForkedProcessError
from aiocuda.errors import LaunchError as LaunchError
from aiocuda.errors import MissingAttributeError as MissingAttributeError
from aiocuda.errors import MissingPackageError as MissingPackageError
from aiocuda.errors import OperationInterruptedError as OperationInterruptedError
from aiocuda.errors import OutOfMemoryError as OutOfMemoryError
from aiocuda.errors import OwnershipError as OwnershipError
from aiocuda.errors import RaceError as RaceError
from aiocuda.errors import SignatureError as SignatureError
from aiocuda.errors import UndeclaredKernelError as UndeclaredKernelError
from aiocuda.event import Event as Event
from aiocuda.fills import fill as fill
from aiocuda.foreign import call as call
from aiocuda.foreign import external as external
from aiocuda.graph import CudaGraph as CudaGraph
from aiocuda.graph import GraphScope as GraphScope
from aiocuda.graph import GraphStatistics as GraphStatistics
from aiocuda.graph import graph_scope as graph_scope
from aiocuda.interprocess import IpcEventHandle as IpcEventHandle
from aiocuda.interprocess import IpcHandle as IpcHandle
from aiocuda.interprocess import open_ipc as open_ipc
from aiocuda.joining import concatenate as concatenate
from aiocuda.joining import stack as stack
from aiocuda.kernel import kernel as kernel
from aiocuda.likeness import asarray as asarray
from aiocuda.likeness import empty_like as empty_like
from aiocuda.likeness import full_like as full_like
from aiocuda.likeness import ones_like as ones_like
from aiocuda.likeness import zeros_like as zeros_like
from aiocuda.limits import memory_limit as memory_limit
from aiocuda.memory import MemoryHolder as MemoryHolder
from aiocuda.memory import MemoryInfo as MemoryInfo
from aiocuda.memory import MemoryPool as MemoryPool
from aiocuda.module import Module as Module
from aiocuda.ops import DeviceOp as DeviceOp
from aiocuda.parallel import gather as gather
from aiocuda.parallel import replicate as replicate
from aiocuda.parallel import shard as shard
from aiocuda.policies import Dataflow as Dataflow
from aiocuda.policies import LeastLoaded as LeastLoaded
from aiocuda.policies import Policy as Policy
from aiocuda.policies import RoundRobin as RoundRobin
from aiocuda.policies import SchedulingPolicy as SchedulingPolicy
from aiocuda.policies import SingleStream as SingleStream
from aiocuda.policies import current_policy as current_policy
from aiocuda.policies import set_policy as set_policy
from aiocuda.randomness import rand as rand
from aiocuda.randomness import randint as randint
from aiocuda.randomness import randn as randn
from aiocuda.ranges import arange as arange
from aiocuda.ranges import eye as eye
from aiocuda.ranges import linspace as linspace
from aiocuda.statistics import Statistics as Statistics
from aiocuda.statistics import statistics as statistics
from aiocuda.version import __version__ as __version__
from aiocuda.waiting import ALL_COMPLETED as ALL_COMPLETED
from aiocuda.waiting import FIRST_COMPLETED as FIRST_COMPLETED
from aiocuda.waiting import FIRST_EXCEPTION as FIRST_EXCEPTION
from aiocuda.waiting import ReturnWhen as ReturnWhen
from aiocuda.waiting import as_completed as as_completed
from aiocuda.waiting import as_coroutine as as_coroutine
from aiocuda.waiting import wait as wait

__all__ = [
    "ALL_COMPLETED",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "AiocudaError",
    "ArgumentIndexError",
    "ArgumentRangeError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "CacheInfo",
    "CancelledError",
    "CaptureError",
    "ClosedError",
    "CompilationError",
    "CompileOptions",
    "Compiled",
    "CudaGraph",
    "Dataflow",
    "Device",
    "DeviceArray",
    "DeviceFuture",
    "DeviceLimits",
    "DeviceLostError",
    "DeviceMismatchError",
    "DeviceOp",
    "DeviceTimeoutError",
    "DriverError",
    "DriverNotFoundError",
    "DriverSelectionError",
    "EmulatedDeviceWarning",
    "Event",
    "ForkedProcessError",
    "GraphScope",
    "GraphStatistics",
    "HostArray",
    "IpcEventHandle",
    "IpcHandle",
    "KernelAttributes",
    "LaunchError",
    "LeastLoaded",
    "MemoryHolder",
    "MemoryInfo",
    "MemoryPool",
    "MissingAttributeError",
    "MissingPackageError",
    "Module",
    "Occupancy",
    "OperationInterruptedError",
    "OutOfMemoryError",
    "OwnershipError",
    "Partition",
    "Policy",
    "RaceError",
    "ReturnWhen",
    "RoundRobin",
    "SchedulingPolicy",
    "SignatureError",
    "SingleStream",
    "Statistics",
    "Stream",
    "StreamWait",
    "UndeclaredKernelError",
    "arange",
    "as_completed",
    "as_coroutine",
    "asarray",
    "call",
    "compile",
    "concatenate",
    "convert",
    "copy",
    "current_device",
    "current_policy",
    "devices",
    "dup",
    "empty",
    "empty_host",
    "empty_like",
    "errors",
    "external",
    "eye",
    "fill",
    "full",
    "full_like",
    "gather",
    "graph_scope",
    "kernel",
    "linalg",
    "linspace",
    "memory_limit",
    "move",
    "ones",
    "ones_like",
    "open_ipc",
    "rand",
    "randint",
    "randn",
    "replicate",
    "set_device",
    "set_policy",
    "shard",
    "stack",
    "statistics",
    "stream_chunks",
    "to_device",
    "to_host",
    "use",
    "value",
    "wait",
    "zeros",
    "zeros_like",
    "zip",
]
