"""Devices, kernels and streams for `programs`, on the CUDA driver itself: nothing of aiocuda's engine is used."""

from __future__ import annotations

import ctypes
from typing import Any

from aiocuda._driver.select import select_driver

select_driver()

from cuda.bindings import driver as cu  # noqa: E402
from cuda.bindings import nvrtc  # noqa: E402

SOURCE = rb"""
extern "C" __global__ void write(int* p, int begin, int end, int step) {
    int i = begin + (blockIdx.x * blockDim.x + threadIdx.x) * step;
    if (i < end) p[i] = i;
}
extern "C" __global__ void read(const int* p, int count, int* out) {
    __shared__ int sums[64];
    int sum = 0;
    for (int i = threadIdx.x; i < count; i += 64) sum += p[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) for (int i = 0; i < 64; ++i) out[0] += sums[i];
}
struct Line { int values[16]; };
extern "C" __global__ void copy_lines(const Line* from, Line* to) { to[threadIdx.x] = from[threadIdx.x]; }
extern "C" __global__ void count(int* counter) { atomicAdd(counter, 1); }
extern "C" __global__ void hold(volatile int* flag) { while (*flag == 0) {} }
extern "C" __global__ void order(int* next, int* taken) {
    if (threadIdx.x == 0) taken[blockIdx.x] = atomicAdd(next, 1);
}
"""
SIZE = 4096  # bytes of a buffer
WORDS = SIZE // 4
NON_BLOCKING = cu.CUstream_flags.CU_STREAM_NON_BLOCKING
BLOCKING = cu.CUstream_flags.CU_STREAM_DEFAULT
LEGACY = cu.CUstream(0)


def ok(answer: tuple[Any, ...]) -> Any:
    """Return what a call of the driver gave, and see to it that it succeeded."""
    assert answer[0].value == 0, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


ok(cu.cuInit(0))


def compile_source() -> bytes:
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"programs.cu", 0, None, None))
    compiled = nvrtc.nvrtcCompileProgram(program, 0, [])
    log = b" " * max(ok(nvrtc.nvrtcGetProgramLogSize(program)), 2)  # Python has but one object for one byte
    ok(nvrtc.nvrtcGetProgramLog(program, log))
    assert compiled[0].value == 0, log.decode()
    image = b" " * ok(nvrtc.nvrtcGetCUBINSize(program))
    ok(nvrtc.nvrtcGetCUBIN(program, image))
    return image


class Machine:
    """A device with kernels; buffers and streams live until the process ends."""

    def __init__(self, ordinal: int, image: bytes) -> None:
        self.context = ok(cu.cuDevicePrimaryCtxRetain(ordinal))
        self.make_current()
        module = ok(cu.cuModuleLoadData(image))
        names = ("write", "read", "copy_lines", "count", "hold", "order")
        self.kernels = {name: ok(cu.cuModuleGetFunction(module, name.encode())) for name in names}

    def make_current(self) -> None:
        ok(cu.cuCtxSetCurrent(self.context))

    def stream(self, flags: Any = NON_BLOCKING) -> Any:
        return ok(cu.cuStreamCreate(flags))

    def buffer(self) -> int:
        return int(ok(cu.cuMemAlloc(SIZE)))

    def launch(self, name: str, stream: Any, *arguments: Any, blocks: int = 1, threads: int = 64) -> None:
        types = {int: ctypes.c_int, Pointer: ctypes.c_void_p}
        values = tuple(int(each) for each in arguments)
        kinds = tuple(types[type(each)] for each in arguments)
        ok(cu.cuLaunchKernel(self.kernels[name], blocks, 1, 1, threads, 1, 1, 0, stream, (values, kinds), 0))

    def write(self, stream: Any, address: int, begin: int = 0, end: int = WORDS, step: int = 1) -> None:
        self.launch("write", stream, Pointer(address), begin, end, step, blocks=WORDS // 64)

    def read(self, stream: Any, address: int, count: int = WORDS) -> None:
        self.launch("read", stream, Pointer(address), count, Pointer(self.buffer()), threads=64)


class Pointer(int):
    """An address among a kernel's arguments."""


class Flag:
    """Page-locked memory that a kernel polls and the host sets."""

    def __init__(self) -> None:
        self.address = int(ok(cu.cuMemHostAlloc(64, 0)))
        self.value = ctypes.c_int.from_address(self.address)
        self.value.value = 0

    def set(self) -> None:
        self.value.value = 1


def event(stream: Any) -> Any:
    made = ok(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    ok(cu.cuEventRecord(made, stream))
    return made


def wait(stream: Any, made: Any) -> None:
    ok(cu.cuStreamWaitEvent(stream, made, 0))


def sync_all(*machines: Machine) -> None:
    for machine in machines:
        machine.make_current()
        ok(cu.cuCtxSynchronize())


def count_and_watch(m: Machine, stream: Any, flag: Flag) -> None:
    """Wait until the stream is here without asking the driver: a kernel counts in memory that the host can read."""
    m.launch("count", stream, Pointer(flag.address), threads=1)
    while flag.value.value == 0:
        pass


def columns(pitched: int, packed: int, x: int) -> Any:
    """Describe a copy of a column of 16 bytes at x of rows of 64."""
    copy = cu.CUDA_MEMCPY2D()
    copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.srcPitch = packed, 16
    copy.dstDevice, copy.dstPitch, copy.dstXInBytes = pitched, 64, x
    copy.WidthInBytes, copy.Height = 16, 8
    return copy


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _set_flag(address: int) -> None:
    ctypes.c_int.from_address(address).value = 1


SET_FLAG = cu.CUhostFn(ctypes.cast(_set_flag, ctypes.c_void_p).value)
