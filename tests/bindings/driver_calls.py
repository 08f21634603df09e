"""Calls of the driver through cuda.bindings, a device to make them on, and kernels; nothing of aiocuda's engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from aiocuda._driver.select import select_driver

SELECTED = select_driver()

from cuda.bindings import driver as cu  # noqa: E402
from cuda.bindings import nvrtc  # noqa: E402

__all__ = ["Array", "Kernels", "cu", "is_emulated", "name_of", "ok", "open_device", "read", "written"]


def ok(answer: tuple[Any, ...]) -> Any:
    """Return what a call of the driver gave, and see to it that it succeeded."""
    assert answer[0].value == 0, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


def name_of(answer: tuple[Any, ...]) -> str:
    """Return the error of a call, without the prefix that all have."""
    return str(answer[0].name).removeprefix("CUDA_ERROR_")


def is_emulated() -> bool:
    """Tell whether the driver is the emulated one."""
    return SELECTED.is_emulated


def open_device(ordinal: int = 0) -> Any:
    """Make the primary context of a device current; return it."""
    ok(cu.cuInit(0))
    context = ok(cu.cuDevicePrimaryCtxRetain(ordinal))
    ok(cu.cuCtxSetCurrent(context))
    return context


class Kernels:
    """The kernels of a source. A call launches one thread, and waits for it."""

    def __init__(self, source: str) -> None:
        program = ok(nvrtc.nvrtcCreateProgram(source.encode(), b"bindings.cu", 0, None, None))
        major = ok(cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0))
        minor = ok(cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0))
        compiled = nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=sm_{major}{minor}".encode()])
        log = b" " * max(ok(nvrtc.nvrtcGetProgramLogSize(program)), 2)  # Python has but one object for one byte
        ok(nvrtc.nvrtcGetProgramLog(program, log))
        assert compiled[0].value == 0, log.decode()
        image = b" " * ok(nvrtc.nvrtcGetCUBINSize(program))
        ok(nvrtc.nvrtcGetCUBIN(program, image))
        self._module = ok(cu.cuModuleLoadData(image))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Launch a kernel. Integers are passed in 64 bits, NumPy's scalars as they are."""
        function = ok(cu.cuModuleGetFunction(self._module, name.encode()))
        values = [np.asarray(np.uint64(each) if isinstance(each, int) else each) for each in arguments]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        ok(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, pointers.ctypes.data, 0))
        ok(cu.cuCtxSynchronize())


def written(values: np.ndarray[Any, Any]) -> int:
    """Return the address of device memory that holds the values."""
    values = np.ascontiguousarray(values)
    address = ok(cu.cuMemAlloc(values.nbytes))
    ok(cu.cuMemcpyHtoD(address, values.ctypes.data, values.nbytes))
    return int(address)


def read(address: int, shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """Return what device memory holds."""
    values: np.ndarray[Any, Any] = np.empty(shape, dtype)
    ok(cu.cuMemcpyDtoH(values.ctypes.data, address, values.nbytes))
    return values


FORMATS = {
    "uint8": cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8,
    "uint16": cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT16,
    "uint32": cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32,
    "int8": cu.CUarray_format.CU_AD_FORMAT_SIGNED_INT8,
    "int16": cu.CUarray_format.CU_AD_FORMAT_SIGNED_INT16,
    "int32": cu.CUarray_format.CU_AD_FORMAT_SIGNED_INT32,
    "float16": cu.CUarray_format.CU_AD_FORMAT_HALF,
    "float32": cu.CUarray_format.CU_AD_FORMAT_FLOAT,
}


class Array:
    """A CUDA array of the shape [depth,] [height,] width, and perhaps channels, that holds the values."""

    def __init__(self, values: np.ndarray[Any, Any], channels: int = 1, flags: int = 0) -> None:
        self.dtype = values.dtype
        self.shape = values.shape
        extents = values.shape if channels == 1 else values.shape[:-1]
        width, height, depth = (*reversed(extents), 0, 0)[:3]
        description = cu.CUDA_ARRAY3D_DESCRIPTOR()
        description.Width, description.Height, description.Depth = width, height, depth
        description.Format = FORMATS[str(values.dtype)]
        description.NumChannels = channels
        description.Flags = flags
        self.handle = ok(cu.cuArray3DCreate(description))
        self._row_bytes = width * channels * values.itemsize
        self._rows, self._slices = max(height, 1), max(depth, 1)
        self.write(values)

    def _copy(self, host: np.ndarray[Any, Any], writes: bool) -> None:
        copy = cu.CUDA_MEMCPY3D()
        here, there = ("src", "dst") if writes else ("dst", "src")
        setattr(copy, f"{here}MemoryType", cu.CUmemorytype.CU_MEMORYTYPE_HOST)
        setattr(copy, f"{here}Host", host.ctypes.data)
        setattr(copy, f"{here}Pitch", self._row_bytes)
        setattr(copy, f"{here}Height", self._rows)
        setattr(copy, f"{there}MemoryType", cu.CUmemorytype.CU_MEMORYTYPE_ARRAY)
        setattr(copy, f"{there}Array", self.handle)
        copy.WidthInBytes, copy.Height, copy.Depth = self._row_bytes, self._rows, self._slices
        ok(cu.cuMemcpy3D(copy))

    def write(self, values: np.ndarray[Any, Any]) -> None:
        self._copy(np.ascontiguousarray(values), writes=True)

    def read(self) -> np.ndarray[Any, Any]:
        values: np.ndarray[Any, Any] = np.empty(self.shape, self.dtype)
        self._copy(values, writes=False)
        return values

    def resource(self) -> Any:
        resource = cu.CUDA_RESOURCE_DESC()
        resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
        resource.res.array.hArray = self.handle
        return resource

    def close(self) -> None:
        ok(cu.cuArrayDestroy(self.handle))
