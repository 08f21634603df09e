"""The emulated driver's own checks: races it reports and races it must not, disorder that changes no result.

Each way of running `programs` is one process of its own, shared by the tests that look at what it found.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aiocuda._driver.checking import RaceReport, take_race_reports
from aiocuda.errors import AiocudaError, RaceError

pytestmark = pytest.mark.emulated_only

PROGRAMS = Path(__file__).with_name("programs.py")
# What each racing program is told of: what its two operations are, in the order of submission.
RACES = {
    "write_then_read": ("kernel write", "kernel read"),
    "read_then_write": ("kernel read", "kernel write"),
    "write_then_write": ("kernel write", "kernel write"),
    "copies_and_memsets": ("a memset of 4096 bytes", "a copy of 4096 bytes"),
    "one_shared_byte_of_structures": ("kernel copy_lines", "a memset of 1 byte"),
    "rows_of_a_pitched_copy": ("a copy of 128 bytes", "a copy of 128 bytes"),
    "a_batch_of_copies": ("a copy of 64 bytes", "a memset of 1 byte"),
    "page_locked_memory_read_too_early": ("a copy of 4096 bytes", "a copy of 4096 bytes"),
    "event_recorded_too_early": ("kernel write", "kernel read"),
    "event_waited_for_too_late": ("kernel write", "kernel read"),
    "only_a_third_stream_waits": ("kernel write", "kernel read"),
    "non_blocking_stream_beside_the_default_stream": ("kernel write", "kernel read"),
    "unsuccessful_query": ("kernel write", "kernel read"),
    "ended_and_the_driver_was_not_asked": ("kernel write", "kernel read"),
    "written_again_after_the_host_looked": ("kernel write", "kernel read"),
    "used_after_its_free": ("kernel read", "the free of 4096 bytes"),
    "used_before_its_allocation": ("the allocation of 4096 bytes", "kernel write"),
    "value_written_elsewhere": ("kernel write", "kernel read"),
    "atomic_and_plain": ("kernel count", "kernel write"),
    "peer_copy_too_early": ("kernel write", "a copy of 4096 bytes"),
}
ORDERED = (
    "waits_for_an_event",
    "waits_for_an_event_that_has_passed",
    "through_a_third_stream_of_another_device",
    "host_synchronises_the_stream",
    "host_synchronises_the_event",
    "host_synchronises_the_context",
    "host_queries_the_stream",
    "host_queries_the_event",
    "host_copies_synchronously",
    "host_function",
    "host_watches_a_value_that_a_stream_writes",
    "default_and_blocking_streams",
    "value_written_and_waited_for",
    "interleaved_columns",
    "disjoint_columns_of_pitched_copies",
    "readers",
    "atomics",
    "polling_page_locked_memory",
    "freed_memory_given_to_another_stream",
    "freed_behind_its_users",
)


@cache
def run_programs(**settings: str) -> dict[str, Any]:
    """Run all programs in a process with these settings of the driver; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIOCUDA_EMULATOR_")}
    environment |= {"AIOCUDA_DRIVER": "emulated", "AIOCUDA_EMULATED_DEVICES": "2", "AIOCUDA_EMULATED_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS)],
        env=environment | settings,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compilers() -> list[str]:
    """Return the compilers of kernels that are here, or the one that was asked for."""
    asked = os.environ.get("AIOCUDA_CXX")
    if asked:
        return [asked]
    paths = os.environ.get("PATH", "").split(os.pathsep)
    return [name for name in ("clang++", "g++") if any(os.access(Path(path) / name, os.X_OK) for path in paths)]


WAYS = [{"AIOCUDA_CXX": name} for name in compilers()] + [{"AIOCUDA_EMULATOR_SHUFFLE": seed} for seed in ("1", "2")]


@pytest.fixture(params=WAYS or [{}], ids=lambda way: "-".join(way.values()) or "default")
def found(request: pytest.FixtureRequest) -> dict[str, list[dict[str, Any]]]:
    """What was reported of each program, with each compiler and with work shuffled."""
    return run_programs(AIOCUDA_EMULATOR_CHECK="races", **request.param)["reports"]


@pytest.mark.parametrize("program", RACES)
def test_operations_without_an_order_are_reported_however_they_ran(program: str, found: dict[str, Any]) -> None:
    reports = [RaceReport(**each) for each in found[program]]
    assert [(each.first, each.second) for each in reports] == [RACES[program]]
    assert reports[0].first_stream != reports[0].second_stream
    assert reports[0].begin < reports[0].end
    number = [re.match(r"stream \d+", each).group() for each in (reports[0].first_stream, reports[0].second_stream)]  # type: ignore[union-attr]
    assert reports[0].message.endswith(f"after {reports[0].first}, {number[1]} never waited for {number[0]}")


@pytest.mark.parametrize("program", ORDERED)
def test_operations_with_an_order_are_not_reported(program: str, found: dict[str, Any]) -> None:
    assert found[program] == []


def test_every_program_has_its_expectation(found: dict[str, Any]) -> None:
    assert set(found) == set(RACES) | set(ORDERED)


def test_a_report_says_which_bytes_of_which_allocation(found: dict[str, Any]) -> None:
    (report,) = found["rows_of_a_pitched_copy"]
    assert report["end"] - report["begin"] == 4
    assert "both write 32 bytes in 8 ranges" in report["message"]
    assert "offset 12 of an allocation of 4096 bytes" in report["message"]


def test_nothing_is_reported_where_nothing_is_checked() -> None:
    assert not any(run_programs()["reports"].values())


def test_blocks_start_in_an_order_that_the_seed_decides() -> None:
    plain = run_programs()["block_order"]
    assert plain == sorted(plain)
    orders = [run_programs(AIOCUDA_EMULATOR_SHUFFLE=seed)["block_order"] for seed in ("1", "2")]
    assert all(sorted(order) == plain and order != plain for order in orders)
    assert orders[0] != orders[1]
    assert run_programs(AIOCUDA_EMULATOR_SHUFFLE="1", AIOCUDA_EMULATOR_CHECK="")["block_order"] == orders[0]


@pytest.mark.parametrize("seed", ["0", "1", "2", "18446744073709551615"])
def test_shuffled_programs_have_the_results_of_plain_ones(seed: str, in_process: Callable[..., Any]) -> None:
    done = in_process(
        """
        import numpy as np
        import aiocuda as ac

        step = ac.kernel('''extern "C" __global__ void step(const int* x, int* y, unsigned n) {
            unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = 3 * y[i] + x[i];
        }''')
        streams = [ac.Device(0).stream() for _ in range(4)]
        n = 5000
        arrays = [ac.to_device(np.arange(n, dtype=np.int32) + k).sync() for k in range(4)]
        mirror = [np.arange(n, dtype=np.int32) + k for k in range(4)]
        for turn in range(60):
            source, target = turn % 4, (turn * 7 + 1) % 4
            if source == target:
                continue
            with ac.use(streams[turn % 3]):
                step(arrays[source], arrays[target], n, threads=n).submit()
            mirror[target] = 3 * mirror[target] + mirror[source]
        for array, expected in zip(arrays, mirror):
            assert (ac.to_host(array).sync() == expected).all()
        print("equal")
        """,
        AIOCUDA_EMULATOR_SHUFFLE=seed,
        AIOCUDA_EMULATOR_CHECK="races",
    )
    assert (done.returncode, done.stdout.strip()) == (0, "equal"), done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("AIOCUDA_EMULATOR_CHECK", "everything", "must be a list of 'memory', 'races', 'init' and 'sync'"),
        ("AIOCUDA_EMULATOR_SHUFFLE", "often", "must be an unsigned integer"),
        ("AIOCUDA_EMULATED_PEER_ACCESS", "maybe", "must be 0 or 1"),
    ],
)
def test_an_unknown_setting_is_an_error_that_names_it(
    variable: str, value: str, complaint: str, in_process: Callable[..., Any]
) -> None:
    done = in_process(START + "print(cu.cuInit(0)[0].name)", **{variable: value})
    assert done.stdout.strip() == "CUDA_ERROR_INVALID_VALUE", done.stderr
    assert f"{variable} {complaint}" in done.stderr
    assert f"'{value}'" in done.stderr


START = """
from aiocuda._driver.select import select_driver
select_driver()
from cuda.bindings import driver as cu

"""


@pytest.mark.parametrize("possible", ["0", "1"])
def test_without_peer_access_only_copies_reach_another_device(possible: str, in_process: Callable[..., Any]) -> None:
    done = in_process(
        START
        + """
def name(answer):
    return answer[0].name

cu.cuInit(0)
contexts = [cu.cuDevicePrimaryCtxRetain(ordinal)[1] for ordinal in (0, 1)]
buffers = []
for context in contexts:
    cu.cuCtxSetCurrent(context)
    buffers.append(cu.cuMemAlloc(256)[1])
cu.cuMemsetD8(buffers[1], 7, 256)
cu.cuCtxSynchronize()
cu.cuCtxSetCurrent(contexts[0])
access = cu.CUmemAccessDesc()
access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
access.location.id = 1
access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
pool = cu.cuDeviceGetMemPool(0)[1]
attribute = cu.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
stream = cu.cuStreamCreate(1)[1]
print(cu.cuDeviceCanAccessPeer(0, 1)[1], cu.cuDeviceGetP2PAttribute(attribute, 0, 1)[1])
print(name(cu.cuCtxEnablePeerAccess(contexts[1], 0)), name(cu.cuMemPoolSetAccess(pool, [access], 1)))
print(name(cu.cuMemcpyPeerAsync(buffers[0], contexts[0], buffers[1], contexts[1], 256, stream)))
print(name(cu.cuMemcpyAsync(buffers[0], buffers[1], 256, stream)), name(cu.cuStreamSynchronize(stream)))
out = bytearray(256)
cu.cuMemcpyDtoH(out, buffers[0], 256)
print(set(out))
""",
        AIOCUDA_EMULATED_PEER_ACCESS=possible,
        AIOCUDA_EMULATED_DEVICES="2",
    )
    answers = {
        "0": ["0 0", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED CUDA_ERROR_INVALID_DEVICE"],
        "1": ["1 1", "CUDA_SUCCESS CUDA_SUCCESS"],
    }
    copied = ["CUDA_SUCCESS", "CUDA_SUCCESS CUDA_SUCCESS", "{7}"]
    assert done.stdout.splitlines() == answers[possible] + copied, done.stderr


def test_reports_are_raised_as_one_error_that_prints_them_all(in_process: Callable[..., Any]) -> None:
    done = in_process(
        START
        + """
from aiocuda._driver.checking import raise_races, take_race_reports
from aiocuda.errors import RaceError

cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
buffer = cu.cuMemAlloc(256)[1]
for _ in range(3):
    cu.cuMemsetD8Async(buffer, 1, 256, cu.cuStreamCreate(1)[1])
cu.cuCtxSynchronize()
try:
    raise_races()
except RaceError as error:
    print(len(error.reports), str(error).count("never waited for"), str(error).splitlines()[0])
print(take_race_reports(), raise_races())
""",
        AIOCUDA_EMULATOR_CHECK="races",
    )
    assert done.stdout.splitlines() == ["3 3 3 races on the device:", "[] None"], done.stderr


def test_without_checking_there_is_nothing_to_take(in_process: Callable[..., Any]) -> None:
    done = in_process(
        """
        from aiocuda._driver.checking import raise_races, take_race_reports

        print(take_race_reports())
        """
        + START.replace("\n", "\n        ")
        + """
        cu.cuInit(0)
        print(take_race_reports(), raise_races())
        """,
        AIOCUDA_EMULATOR_CHECK="",
    )
    assert done.stdout.splitlines() == ["[]", "[] None"], done.stderr


def test_a_race_error_keeps_its_reports() -> None:
    report = RaceReport("a", "b", "stream 1", "stream 2", 16, 32, "a and b race")
    error = RaceError([report])
    assert isinstance(error, AiocudaError)
    assert error.reports == (report,)
    assert str(error) == "1 race on the device:\n- a and b race"
    assert isinstance(take_race_reports(), list)
