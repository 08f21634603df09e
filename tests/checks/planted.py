"""Launches a kernel of `planted.cu` on the CUDA driver itself: ``python planted.py NAME``.

With the emulated driver it runs under ``AIOCUDA_EMULATOR_CHECK``, with NVIDIA's under compute-sanitizer. Nothing of
aiocuda's engine is used. What was reported is printed as JSON, one report a line.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("planted.cu")
ITEMS = 100  # of 4 bytes, in the array y


@dataclass(frozen=True)
class Case:
    """How a kernel is launched, and what finds its bug: a check of the emulated driver, and a tool of NVIDIA's."""

    check: str
    tool: str
    blocks: int = 1
    threads: int = 64
    shared_bytes: int = 0
    prepare: str = "written"  # a function below


CASES = {
    "overrun_of_global": Case("memory", "memcheck", blocks=2),
    "overrun_of_static_shared": Case("memory", "memcheck", threads=32),
    "overrun_of_dynamic_shared": Case("memory", "memcheck", threads=32, shared_bytes=128),
    "shared_not_requested": Case("memory", "memcheck", threads=32),
    "use_after_free": Case("memory", "memcheck", prepare="freed"),
    "use_after_pool_free": Case("memory", "memcheck", prepare="freed_to_pool"),
    "misaligned": Case("memory", "memcheck", threads=8),
    "race_between_blocks": Case("races", "racecheck", blocks=4, threads=1),
    "race_missing_barrier": Case("races", "racecheck"),
    "race_next_round": Case("races", "racecheck"),
    "race_missing_syncwarp": Case("races", "racecheck", threads=32),
    "race_in_global": Case("races", "racecheck"),
    "race_atomic_and_plain": Case("races", "racecheck"),
    "uninitialised_global": Case("init", "initcheck", prepare="beside_another"),
    "uninitialised_shared": Case("init", "initcheck"),
    "divergent_barrier": Case("sync", "synccheck"),
    "barrier_after_return": Case("sync", "synccheck"),
    "shuffle_outside_mask": Case("sync", "synccheck", threads=32),
    "shuffle_from_gone_lane": Case("sync", "synccheck", threads=32),
    "vote_without_own_lane": Case("sync", "synccheck", threads=32),
}
# The clean twin of a case is launched as the case is, except for what makes its bug.
CLEAN = {
    f"{name}_clean": Case(
        case.check,
        case.tool,
        case.blocks,
        case.threads,
        128 if name == "shared_not_requested" else case.shared_bytes,
        {"freed": "written", "freed_to_pool": "used_again", "beside_another": "beside_a_written_one"}.get(
            case.prepare, case.prepare
        ),
    )
    for name, case in CASES.items()
}
# Correct ways to work together, which no tool and no check may report.
CORRECT = {
    "last_block_adds_up": Case("races", "racecheck", blocks=8, prepare="with_parts"),
    "volatile_lanes_in_step": Case("races", "racecheck"),
    "flag_between_warps": Case("races", "racecheck"),
    "counted_in_shared": Case("races", "racecheck", blocks=4),
    "grid_meets": Case("races", "racecheck", blocks=4, prepare="for_a_grid"),
    "groups_of_lanes": Case("races", "racecheck"),
    "structures_by_value": Case("init", "initcheck", threads=16, prepare="unwritten"),
    "bytes_side_by_side": Case("races", "racecheck"),
    "argument_of_the_grid": Case("memory", "memcheck"),
}
EVERY = CASES | CLEAN | CORRECT


def ok(answer: tuple[Any, ...]) -> Any:
    """Return what a call of the driver gave, and see to it that it succeeded."""
    if answer[0].value != 0:
        raise SystemExit(f"a call answered {answer[0]!r}")
    return answer[1] if len(answer) == 2 else answer[1:]


def array(cu: Any) -> int:
    return int(ok(cu.cuMemAlloc(4 * ITEMS)))


def written_array(cu: Any) -> int:
    made = array(cu)
    ok(cu.cuMemsetD32(made, 0, ITEMS))
    return made


def written(cu: Any) -> list[int]:
    return [written_array(cu)]


def unwritten(cu: Any) -> list[int]:
    return [array(cu)]


def freed(cu: Any) -> list[int]:
    made = written_array(cu)
    ok(cu.cuMemFree(made))
    return [made]


def pool_array(cu: Any) -> int:
    """Return memory of the default pool, which keeps what is freed for later."""
    pool = ok(cu.cuDeviceGetDefaultMemPool(0))
    keep = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    ok(cu.cuMemPoolSetAttribute(pool, keep, cu.cuuint64_t(1 << 30)))
    return int(ok(cu.cuMemAllocAsync(4 * ITEMS, 0)))


def freed_to_pool(cu: Any) -> list[int]:
    made = pool_array(cu)
    ok(cu.cuMemFreeAsync(made, 0))
    return [made]


def used_again(cu: Any) -> list[int]:
    ok(cu.cuMemFreeAsync(pool_array(cu), 0))
    return [pool_array(cu)]


def beside_another(cu: Any) -> list[int]:
    return [written_array(cu), array(cu)]


def beside_a_written_one(cu: Any) -> list[int]:
    return [written_array(cu), written_array(cu)]


def with_parts(cu: Any) -> list[int]:
    return [array(cu), array(cu), written_array(cu)]


def for_a_grid(cu: Any) -> list[int]:
    return [array(cu), array(cu)]


PREPARATIONS: dict[str, Callable[[Any], list[int]]] = {
    each.__name__: each
    for each in (
        written,
        unwritten,
        freed,
        freed_to_pool,
        used_again,
        beside_another,
        beside_a_written_one,
        with_parts,
        for_a_grid,
    )
}


def compiled(nvrtc: Any, cu: Any, include_options: tuple[str, ...]) -> bytes:
    """Return `planted.cu`, compiled for the first device, with its lines."""
    capability = cu.CUdevice_attribute
    major = ok(cu.cuDeviceGetAttribute(capability.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0))
    minor = ok(cu.cuDeviceGetAttribute(capability.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0))
    options = [f"--gpu-architecture=sm_{major}{minor}", "-lineinfo", *include_options]
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE.read_bytes(), SOURCE.name.encode(), 0, None, None))
    answer = nvrtc.nvrtcCompileProgram(program, len(options), [each.encode() for each in options])
    if answer[0].value != 0:
        log = b" " * max(ok(nvrtc.nvrtcGetProgramLogSize(program)), 2)  # Python has but one object for one byte
        ok(nvrtc.nvrtcGetProgramLog(program, log))
        raise SystemExit(log.decode())
    image = b" " * ok(nvrtc.nvrtcGetCUBINSize(program))
    ok(nvrtc.nvrtcGetCUBIN(program, image))
    return image


def main(names: list[str]) -> None:
    """Launch the kernels named, one after the other, and print what was reported."""
    from aiocuda._driver import compiler
    from aiocuda._driver.checking import take_kernel_reports
    from aiocuda._driver.select import select_driver

    select_driver()
    from cuda.bindings import driver as cu
    from cuda.bindings import nvrtc

    ok(cu.cuInit(0))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    module = ok(cu.cuModuleLoadData(compiled(nvrtc, cu, compiler._header_options())))
    for name in names:
        case = EVERY[name]
        function = ok(cu.cuModuleGetFunction(module, name.encode()))
        arguments = PREPARATIONS[case.prepare](cu)
        parameters = (tuple(arguments), (ctypes.c_void_p,) * len(arguments))
        shape = (function, case.blocks, 1, 1, case.threads, 1, 1, case.shared_bytes, 0)
        if case.prepare == "for_a_grid":
            ok(cu.cuLaunchCooperativeKernel(*shape, parameters))
        else:
            ok(cu.cuLaunchKernel(*shape, parameters, 0))
        status = cu.cuCtxSynchronize()[0].name
        print(json.dumps({"name": name, "status": status, "reports": [asdict(each) for each in take_kernel_reports()]}))


if __name__ == "__main__":
    main(sys.argv[1:] or list(EVERY))
