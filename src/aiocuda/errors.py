"""Every exception and warning of aiocuda, in one tree under `AiocudaError`.

Each exception keeps what it knows as attributes and builds its message from them, so its
``args`` are its constructor's arguments and it survives pickling.
"""

from aiocuda._errors.asked import AiocudaError as AiocudaError
from aiocuda._errors.asked import ArgumentIndexError as ArgumentIndexError
from aiocuda._errors.asked import ArgumentRangeError as ArgumentRangeError
from aiocuda._errors.asked import ArgumentTypeError as ArgumentTypeError
from aiocuda._errors.asked import ArgumentValueError as ArgumentValueError
from aiocuda._errors.asked import CaptureError as CaptureError
from aiocuda._errors.asked import ClosedError as ClosedError
from aiocuda._errors.asked import CompilationError as CompilationError
from aiocuda._errors.asked import DeviceMismatchError as DeviceMismatchError
from aiocuda._errors.asked import ExchangeError as ExchangeError
from aiocuda._errors.asked import LaunchError as LaunchError
from aiocuda._errors.asked import MissingAttributeError as MissingAttributeError
from aiocuda._errors.asked import MissingPackageError as MissingPackageError
from aiocuda._errors.asked import OwnershipError as OwnershipError
from aiocuda._errors.asked import SignatureError as SignatureError
from aiocuda._errors.asked import UndeclaredKernelError as UndeclaredKernelError
from aiocuda._errors.clusters import ClusterError as ClusterError
from aiocuda._errors.clusters import RemoteError as RemoteError
from aiocuda._errors.clusters import WorkerLostError as WorkerLostError
from aiocuda._errors.drivers import DriverError as DriverError
from aiocuda._errors.drivers import DriverNotFoundError as DriverNotFoundError
from aiocuda._errors.drivers import DriverSelectionError as DriverSelectionError
from aiocuda._errors.drivers import EmulatedDeviceWarning as EmulatedDeviceWarning
from aiocuda._errors.drivers import ForkedProcessError as ForkedProcessError
from aiocuda._errors.drivers import KernelCheckError as KernelCheckError
from aiocuda._errors.drivers import OutOfMemoryError as OutOfMemoryError
from aiocuda._errors.drivers import RaceError as RaceError
from aiocuda._errors.executions import CancelledError as CancelledError
from aiocuda._errors.executions import CollectiveError as CollectiveError
from aiocuda._errors.executions import DeviceLostError as DeviceLostError
from aiocuda._errors.executions import DeviceTimeoutError as DeviceTimeoutError
from aiocuda._errors.executions import OperationInterruptedError as OperationInterruptedError
from aiocuda._errors.files import FileError as FileError
from aiocuda._errors.serving import DeadlineError as DeadlineError
from aiocuda._errors.serving import DrainTimeoutError as DrainTimeoutError
from aiocuda._errors.serving import ItemError as ItemError
from aiocuda._errors.serving import QueueFullError as QueueFullError
from aiocuda._errors.serving import StoppingError as StoppingError
from aiocuda._naming import name_publicly as _name_publicly

__all__ = [
    "AiocudaError",
    "ArgumentIndexError",
    "ArgumentRangeError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "CancelledError",
    "CaptureError",
    "ClosedError",
    "ClusterError",
    "CollectiveError",
    "CompilationError",
    "DeadlineError",
    "DeviceLostError",
    "DeviceMismatchError",
    "DeviceTimeoutError",
    "DrainTimeoutError",
    "DriverError",
    "DriverNotFoundError",
    "DriverSelectionError",
    "EmulatedDeviceWarning",
    "ExchangeError",
    "FileError",
    "ForkedProcessError",
    "ItemError",
    "KernelCheckError",
    "LaunchError",
    "MissingAttributeError",
    "MissingPackageError",
    "OperationInterruptedError",
    "OutOfMemoryError",
    "OwnershipError",
    "QueueFullError",
    "RaceError",
    "RemoteError",
    "SignatureError",
    "StoppingError",
    "UndeclaredKernelError",
    "WorkerLostError",
]

_name_publicly(__name__, globals(), __all__)
