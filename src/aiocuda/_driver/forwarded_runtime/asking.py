"""How the runtime's calls ask the driver: in the thread's context, and with the runtime's own answers."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

import numpy as np

from aiocuda._driver.forwarded_runtime.tables import FOR_CALLER, FOR_DRIVER, SAME_BYTES

__all__ = ["INVALID_DEVICE", "INVALID_VALUE", "NOT_REGISTERED", "SUCCESS", "Asking", "address_of"]

SUCCESS: Final = 0
INVALID_VALUE: Final = 1
_NOT_INITIALISED: Final = 3
INVALID_DEVICE: Final = 101
_NOT_READY: Final = 600
NOT_REGISTERED: Final = 713
_UNKNOWN: Final = 999
_SAME_BYTES_OF_DRIVER: Final = {driver: runtime for runtime, driver in SAME_BYTES.items()}


class _Kept(threading.local):
    """What the runtime keeps for each thread: the device it chose, and its last error."""

    device = 0
    error = SUCCESS


class Asking:
    """How the driver is asked, and what the runtime keeps: each thread's device and error, and primary contexts.

    Parameters
    ----------
    driver, runtime
        The modules of ``cuda.bindings``.
    """

    def __init__(self, driver: Any, runtime: Any) -> None:
        self._driver = driver
        self._runtime = runtime
        self._kept = _Kept()
        self._primary: dict[int, Any] = {}  # contexts by device, retained until the process ends
        self._lock = threading.Lock()

    def _ask(self, function: Any, *arguments: Any, needs_context: bool = True) -> tuple[Any, ...]:
        code = self._enter() if needs_context else SUCCESS
        if code != SUCCESS:
            return self._failed(code)
        result, *values = function(*arguments)
        if int(result) != SUCCESS:
            return self._failed(int(result), len(values))
        return (self._runtime.cudaError_t.cudaSuccess, *map(self._for_caller, values))

    def _answer(self, *values: Any) -> tuple[Any, ...]:
        return (self._runtime.cudaError_t.cudaSuccess, *values)

    def _failed(self, code: int, values: int = 0) -> tuple[Any, ...]:
        if code != _NOT_READY:
            self._kept.error = code
        return (self._error(code), *(None,) * values)

    def _error(self, code: int) -> Any:
        try:
            return self._runtime.cudaError_t(code)  # the driver's numbers are the runtime's
        except ValueError:
            return self._runtime.cudaError_t(_UNKNOWN)

    def _for_driver(self, argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return [self._for_driver(each) for each in argument]
        name = type(argument).__name__
        if name in SAME_BYTES:
            return self._with_bytes_of(argument, getattr(self._driver, SAME_BYTES[name])())
        kind = FOR_DRIVER.get(name)
        return argument if kind is None else getattr(self._driver, kind)(int(argument))

    def _with_bytes_of(self, given: Any, other: Any) -> Any:
        """Return the other structure, which gets the bytes of the given one."""
        in_driver = hasattr(self._driver, type(given).__name__)
        size = (self._driver if in_driver else self._runtime).sizeof(type(given))
        ctypes.memmove(other.getPtr(), given.getPtr(), size)
        return other

    def _for_caller(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._for_caller(each) for each in value]
        name = type(value).__name__
        if name in {"CUdevice", "CUdeviceptr"}:
            return int(value)
        if name in _SAME_BYTES_OF_DRIVER:
            return self._with_bytes_of(value, getattr(self._runtime, _SAME_BYTES_OF_DRIVER[name])())
        return getattr(self._runtime, FOR_CALLER[name])(int(value)) if name in FOR_CALLER else value

    def _enter(self) -> int:
        """Make the thread's device current, as the runtime does before each of its calls; return an error's code."""
        result, context = self._driver.cuCtxGetCurrent()
        if int(result) == _NOT_INITIALISED:
            (result,) = self._driver.cuInit(0)
            if int(result) == SUCCESS:
                result, context = self._driver.cuCtxGetCurrent()
        if int(result) != SUCCESS:
            return int(result)
        return self._enter_device(self._kept.device) if int(context) == 0 else SUCCESS

    def _enter_device(self, device: int) -> int:
        code, context = self._primary_context(device)
        if code == SUCCESS:
            code = int(self._driver.cuCtxSetCurrent(context)[0])
        return code

    def _primary_context(self, device: int) -> tuple[int, Any]:
        with self._lock:
            known = self._primary.get(device)
        if known is not None:
            return SUCCESS, known
        result, context = self._driver.cuDevicePrimaryCtxRetain(device)
        if int(result) == SUCCESS:
            with self._lock:
                self._primary[device] = context
        return int(result), context

    def _in_context(self, function: Any, *arguments: Any) -> tuple[Any, ...]:
        """Ask a function that also takes the current context, last."""
        code = self._enter()
        if code != SUCCESS:
            return self._failed(code, 1)
        return self._ask(function, *arguments, self._driver.cuCtxGetCurrent()[1])

    @staticmethod
    def _padded(answer: tuple[Any, ...], values: int) -> tuple[Any, ...]:
        return answer + (None,) * (1 + values - len(answer))


def address_of(given: Any) -> int:
    """Return the address that a caller gives: a number, a handle of ``cuda.bindings``, or an object with a buffer."""
    if given is None:
        return 0
    if hasattr(given, "__int__") and not isinstance(given, np.ndarray):
        return int(given)
    return int(np.frombuffer(given, np.uint8).ctypes.data)
