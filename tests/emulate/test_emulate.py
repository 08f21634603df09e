"""The command ``aiocuda emulate``, as a shell sees it."""

from __future__ import annotations

import pytest
from emulate_command import command

pytestmark = pytest.mark.emulated_only


def test_a_program_of_cuda_core_runs_as_python_would_run_it(emulate):
    done = emulate(
        """
        import sys
        from cuda.core import Device

        Device(1).set_current()
        Device(1).sync()
        print(__name__, sys.argv[1:], Device(1).pci_bus_id, "aiocuda" in __file__)
        sys.exit(3)
        """,
        "-m",
        "x",
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.split() == ["__main__", "['-m',", "'x']", "0000:02:00.0", "False"]


def test_processes_that_the_program_starts_are_on_the_emulated_driver_too(emulate):
    done = emulate(
        """
        import multiprocessing

        def count(answers):
            from cuda.core import Device, system
            Device(0).set_current()
            Device(0).sync()
            answers.put((system.get_num_devices(), Device(0).pci_bus_id))

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            answers = context.Queue()
            child = context.Process(target=count, args=(answers,))
            child.start()
            print(answers.get(timeout=60))
            child.join()
        """
    )
    assert done.stdout.strip() == "(2, '0000:01:00.0')", done.stderr


CHILD = """
import subprocess, sys

code = "import aiocuda, sys; print(aiocuda.select_driver().kind, getattr(sys, 'customized', 'as it was'))"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True))
"""


def test_a_process_that_the_program_starts_says_nothing_of_its_own(emulate):
    done = emulate(CHILD)
    assert "stdout='emulated as it was\\n', stderr=''" in done.stdout, done


def test_a_process_that_the_program_starts_runs_the_sitecustomize_of_its_environment(emulate, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.customized = __file__", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    done = emulate(CHILD)
    assert f"stdout='emulated {tmp_path}/site/sitecustomize.py\\n', stderr=''" in done.stdout, done


def test_a_module_runs_by_its_name(tmp_path):
    (tmp_path / "told.py").write_text("import sys; print(sys.argv[1:], __name__)", encoding="utf-8")
    done = command("emulate", "-m", "told", "--flag", cwd=tmp_path)
    assert done.stdout.strip() == "['--flag'] __main__", done.stderr


def test_an_error_of_the_programs_shows_its_own_lines(emulate):
    done = emulate("import aiocuda\nraise aiocuda.AiocudaError('of the program')\n")
    assert done.returncode == 1
    assert 'program.py", line 2' in done.stderr
    assert "of the program" in done.stderr


MANAGEMENT = """
import ctypes
import os
import struct
from cuda.bindings import driver, nvml

def ok(answer):
    assert int(answer[0]) == 0, answer
    return answer[1:]

nvml.init_v2()
handle = nvml.device_get_handle_by_index_v2(1)
before = nvml.device_get_memory_info_v2(handle)
ok(driver.cuInit(0))
uuid = bytes(ok(driver.cuDeviceGetUuid(1))[0].bytes).hex()
assert nvml.device_get_uuid(handle).removeprefix("GPU-").replace("-", "") == uuid
assert nvml.device_get_handle_by_uuid(nvml.device_get_uuid(handle)) == handle
assert nvml.device_get_handle_by_uuidv(nvml.UUIDType.ASCII, nvml.device_get_uuid(handle).encode()) == handle
library = ctypes.CDLL("libnvidia-ml.so.1")  # cuda.bindings takes 15 bytes of a binary UUID
found = ctypes.c_void_p()
for of_bytes, result in ((bytes.fromhex(uuid), 0), (bytes(16), int(nvml.Return.ERROR_NOT_FOUND))):
    asked = struct.pack("II41s3x", 52 | 1 << 24, int(nvml.UUIDType.BINARY), of_bytes)
    assert library.nvmlDeviceGetHandleByUUIDV(asked, ctypes.byref(found)) == result
assert found.value == handle
assert nvml.device_get_virtualization_mode(handle) == nvml.GpuVirtualizationMode.NONE
assert nvml.device_get_capabilities(handle) == 0
try:
    nvml.device_set_compute_mode(handle, nvml.ComputeMode.COMPUTEMODE_PROHIBITED)
    raise SystemExit("the mode was changed")
except nvml.NoPermissionError:
    assert nvml.device_get_compute_mode(handle) == nvml.ComputeMode.COMPUTEMODE_DEFAULT
bus = ok(driver.cuDeviceGetPCIBusId(13, 1))[0].split(b"\\0")[0].decode()
assert nvml.device_get_pci_info_v3(handle).bus_id == "0000" + bus
assert nvml.device_get_handle_by_pci_bus_id_v2(bus) == handle
assert len(nvml.device_get_compute_running_processes_v3(handle)) == 0
assert nvml.device_get_utilization_rates(handle).gpu == 0
ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(1))[0]))
ok(driver.cuMemAlloc(16 << 20))
after = nvml.device_get_memory_info_v2(handle)
assert after.used - before.used == 16 << 20, (before.used, after.used)
assert after.total == before.total == 64 << 20
assert [each.pid for each in nvml.device_get_compute_running_processes_v3(handle)] == [os.getpid()]
try:
    nvml.device_get_power_usage(handle)
except nvml.NotSupportedError:
    print(nvml.device_get_count_v2(), nvml.system_get_cuda_driver_version(), nvml.device_get_name(handle))
"""


def test_nvml_tells_what_the_driver_tells(emulate):
    done = emulate(MANAGEMENT)
    assert done.stdout.strip() == "2 13050 Emulated CUDA device (CPU)", done.stderr


def test_a_kernel_that_runs_is_utilisation(emulate):
    done = emulate(
        r"""
        import numpy as np
        from cuda.bindings import nvml
        from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, launch

        device = Device(0)
        device.set_current()
        source = 'extern "C" __global__ void hold(volatile int* flag) { while (*flag == 0) {} }'
        kernel = Program(source, "c++").compile("cubin").get_kernel("hold")
        memory = LegacyPinnedMemoryResource().allocate(4)
        flag = np.from_dlpack(memory).view(np.int32)
        flag[0] = 0
        stream = device.create_stream()
        started = device.create_event()
        nvml.init_v2()
        handle = nvml.device_get_handle_by_index_v2(0)
        launch(stream, LaunchConfig(grid=1, block=1), kernel, flag.ctypes.data)
        while nvml.device_get_utilization_rates(handle).gpu < 100:
            pass
        flag[0] = 1
        stream.sync()
        print(nvml.device_get_utilization_rates(handle).gpu)
        """
    )
    assert done.stdout.strip() == "0", done.stderr


SPLIT = """
from cuda.bindings import driver
driver.cuInit(0)
error, all_of_it = driver.cuDeviceGetDevResource(0, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM)
for flags in 0, 1:
    group = driver.CU_DEV_SM_RESOURCE_GROUP_PARAMS()
    group.smCount, group.flags = 12, flags
    error, groups, rest = driver.cuDevSmResourceSplit(1, all_of_it, 0, [group])
    print(error.name, rest.sm.smCount if not error else "")
"""


def test_a_group_that_is_no_multiple_of_those_that_run_together_is_filled_up_on_demand(emulate, monkeypatch):
    driver = pytest.importorskip("cuda.bindings.driver")
    if not hasattr(driver, "cuDevSmResourceSplit"):
        pytest.skip("this cuda.bindings has no cuDevSmResourceSplit")
    monkeypatch.setenv("AIOCUDA_EMULATED_THREADS", "24")  # multiprocessors, of which 8 run together
    done = emulate(SPLIT)
    assert done.stdout.splitlines() == ["CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION ", "CUDA_SUCCESS 12"], done.stderr
