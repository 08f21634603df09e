"""Which driver a process gets, for every machine and every wish."""

from __future__ import annotations

import os

import pytest

SELECT = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    chosen = selection.select_driver()
    again = selection.select_driver()
report(kind=chosen.kind, path=chosen.library_path, nvrtc=chosen.nvrtc_path, reason=chosen.reason,
       version=chosen.version_text, same=chosen is again,
       warnings=[[w.category.__name__, str(w.message)] for w in caught],
       drivers=sorted(set(loaded("libcuda.so.1"))))
"""

FAIL = """
try:
    selection.select_driver()
except errors.AiocudaError as error:
    report(kind=type(error).__name__, text=str(error))
else:
    report(kind="none", text="")
"""


def test_auto_without_a_device_node_takes_the_emulated_driver_and_warns_once(machine):
    found = machine.run(SELECT, has_node=False).values
    assert found["kind"] == "emulated"
    assert found["same"]
    assert found["drivers"] == [found["path"]]
    ((category, message),) = found["warnings"]
    assert category == "EmulatedDeviceWarning"
    assert "no NVIDIA device node" in message
    assert "AIOCUDA_DRIVER=emulated" in message


def test_auto_takes_nvidias_driver_where_it_has_a_device(machine):
    found = machine.run(SELECT, FAKE_COUNT=2, FAKE_VERSION=13020).values
    assert found["kind"] == "nvidia"
    assert found["path"] == str(machine.library)
    assert found["version"] == "13.2"
    assert found["nvrtc"] is None
    assert "2 devices" in found["reason"]
    assert found["warnings"] == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"FAKE_COUNT": 0}, "has no device"),
        ({"FAKE_RESULT": 100}, "CUresult 100, a fake explanation"),
        ({"FAKE_COUNT": 1, "FAKE_VERSION": 12080}, "of CUDA 12.8, and 13.0 or newer is needed"),
        ({"FAKE_CRASH": 1}, "ended its process"),
        ({"FAKE_COUNT": 0, "CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES is ''"),
    ],
)
def test_auto_leaves_a_driver_that_is_not_usable_outside_the_process(machine, settings, reason):
    found = machine.run(SELECT, **settings).values
    assert found["kind"] == "emulated"
    assert reason in found["reason"]
    assert found["drivers"] == [found["path"]]


def test_auto_does_not_wait_for_ever_for_a_driver_that_hangs(machine):
    found = machine.run("choosing._PROBE_TIMEOUT_S = 0.5\n" + SELECT, FAKE_HANG=1).values
    assert found["kind"] == "emulated"
    assert "did not initialise within 0.5 s" in found["reason"]


def test_auto_passes_over_a_library_that_does_not_load(machine):
    machine.library.write_bytes(b"not a library")
    found = machine.run(SELECT).values
    assert found["kind"] == "emulated"
    assert "does not load" in found["reason"]


def test_asking_for_the_emulated_driver_gives_no_warning(machine):
    found = machine.run(SELECT, AIOCUDA_DRIVER="Emulated ", FAKE_COUNT=1).values
    assert found["kind"] == "emulated"
    assert found["warnings"] == []
    assert found["drivers"] == [found["path"]]


def test_threads_that_select_at_once_agree_and_warn_once(machine):
    script = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    chosen, start = [], threading.Barrier(8)
    def choose():
        start.wait()
        chosen.append(selection.select_driver())
    threads = [threading.Thread(target=choose) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
report(selections=len({id(one) for one in chosen}), count=len(chosen), warnings=len(caught))
"""
    found = machine.run(script, has_node=False).values
    assert found == {"selections": 1, "count": 8, "warnings": 1}


def test_the_warning_names_the_line_of_the_user(machine):
    script = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    inside = {"__name__": "aiocuda.somewhere", "select_driver": selection.select_driver}
    exec(compile("def use():\\n    select_driver()", "inside.py", "exec"), inside)
    inside["use"]()
report(file=caught[0].filename)
"""
    assert machine.run(script, has_node=False).values == {"file": "<string>"}


@pytest.mark.parametrize(
    "run",
    [
        "asyncio.run(main())",
        "asyncio.new_event_loop().run_until_complete(main())",
        "uvloop.new_event_loop().run_until_complete(main())",
        "trio.run(inside['use'])",
        "inside['use_in_context']()",
    ],
)
def test_the_warning_names_no_line_of_an_event_loop(machine, run):
    """If a task is nothing but an operation, the line is the one that runs the loop."""
    script = f"""
import asyncio, sys, trio, uvloop
source = '''
import contextlib
async def use():
    select_driver()
@contextlib.contextmanager
def context():
    select_driver()
    yield
def use_in_context():
    with context():
        pass
'''
inside = {{"__name__": "aiocuda.somewhere", "select_driver": selection.select_driver}}
exec(compile(source, "inside.py", "exec"), inside)
async def main():
    await asyncio.create_task(inside["use"]())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    line = sys._getframe().f_lineno + 1
    {run}
report(file=caught[0].filename, right=caught[0].lineno == line)
"""
    assert machine.run(script, has_node=False).values == {"file": "<string>", "right": True}


def test_the_warning_names_the_line_of_a_task(machine):
    script = """
import asyncio
inside = {"__name__": "aiocuda.somewhere", "select_driver": selection.select_driver}
exec(compile("async def use():\\n    select_driver()", "inside.py", "exec"), inside)
async def here():
    await inside["use"]()
async def main():
    await asyncio.create_task(here())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    asyncio.run(main())
report(file=caught[0].filename, right=caught[0].lineno == here.__code__.co_firstlineno + 1)
"""
    assert machine.run(script, has_node=False).values == {"file": "<string>", "right": True}


def test_the_warning_of_an_await_names_the_line_that_runs_the_loop(machine):
    """The driver is chosen on a thread of aiocuda's meanwhile, which has no line of the user's."""
    script = """
import asyncio
inside = {"__name__": "aiocuda.somewhere", "select_driver": selection.select_driver, "asyncio": asyncio}
exec(compile("async def use():\\n    await asyncio.to_thread(select_driver)", "inside.py", "exec"), inside)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    line = sys._getframe().f_lineno + 1
    asyncio.run(inside["use"]())
report(file=caught[0].filename, right=caught[0].lineno == line)
"""
    assert machine.run("import sys\n" + script, has_node=False).values == {"file": "<string>", "right": True}


def test_a_warning_made_an_error_is_raised_once_and_the_choice_stays(machine):
    script = """
warnings.simplefilter("error")
try:
    selection.select_driver()
except errors.EmulatedDeviceWarning as warning:
    report(raised=True, kind=selection.select_driver().kind)
"""
    found = machine.run(script, has_node=False).values
    assert found == {"raised": True, "kind": "emulated"}


def test_another_value_is_refused_with_the_values_there_are(machine):
    found = machine.run(FAIL, AIOCUDA_DRIVER="gpu").values
    assert found["kind"] == "DriverSelectionError"
    assert found["text"] == "AIOCUDA_DRIVER is 'gpu'; it must be auto, nvidia or emulated"


def test_nvidia_without_a_device_says_what_was_looked_for_and_found(machine):
    found = machine.run(FAIL, AIOCUDA_DRIVER="nvidia", CUDA_VISIBLE_DEVICES="-1").values
    assert found["kind"] == "DriverNotFoundError"
    for part in (
        "AIOCUDA_DRIVER=nvidia",
        f"loaded {machine.library}",
        "has no device",
        "CUDA_VISIBLE_DEVICES is '-1'",
        f"device nodes: {machine.node}",
        "AIOCUDA_DRIVER=emulated",
    ):
        assert part in found["text"]


def test_nvidia_without_a_library_says_so(machine):
    machine.library.write_bytes(b"not a library")
    found = machine.run(FAIL, has_node=False, AIOCUDA_DRIVER="nvidia").values
    assert found["kind"] == "DriverNotFoundError"
    assert "libcuda.so.1 does not load" in found["text"]
    assert "no NVIDIA device node" in found["text"]


def test_nvidia_after_the_emulated_driver_is_refused(machine):
    script = 'ctypes.CDLL(str(choosing.emulator_directory() / "libcuda.so.1"))\n' + FAIL
    found = machine.run(script, AIOCUDA_DRIVER="nvidia", FAKE_COUNT=1).values
    assert found["kind"] == "DriverSelectionError"
    assert "already uses aiocuda's emulated" in found["text"]


@pytest.mark.parametrize("soname", ["libcuda.so.1", "libnvrtc.so.13"])
def test_emulated_after_another_library_of_that_name_is_refused(machine, fake_libraries, soname):
    other = fake_libraries / soname
    script = f"ctypes.CDLL({str(other)!r})\n" + FAIL
    found = machine.run(script, AIOCUDA_DRIVER="emulated", FAKE_COUNT=1).values
    assert found["kind"] == "DriverSelectionError"
    assert f"already uses {soname} from {other}" in found["text"]


def test_auto_keeps_the_driver_that_is_loaded_already(machine):
    script = 'ctypes.CDLL("libcuda.so.1")\n' + SELECT
    found = machine.run(script, has_node=False, FAKE_COUNT=1).values
    assert found["kind"] == "nvidia"
    assert "was loaded already" in found["reason"]


def test_auto_cannot_replace_a_loaded_driver_without_a_device(machine):
    found = machine.run('ctypes.CDLL("libcuda.so.1")\n' + FAIL).values
    assert found["kind"] == "DriverNotFoundError"
    assert "was loaded already" in found["text"]
    assert "has no device" in found["text"]


def test_an_installation_without_the_emulated_driver_says_to_reinstall(machine, tmp_path):
    script = f'sys.modules["aiocuda"].__path__ = [{str(tmp_path)!r}]\n' + FAIL
    found = machine.run(script, AIOCUDA_DRIVER="emulated").values
    assert found["kind"] == "DriverNotFoundError"
    assert str(tmp_path / "_emulator") in found["text"]
    assert "Reinstall aiocuda" in found["text"]


def test_cuda_bindings_run_on_the_selected_library(machine):
    script = """
chosen = selection.select_driver()
from cuda.bindings import driver, nvrtc
result = driver.cuInit(0)[0]
count = driver.cuDeviceGetCount()[1]
nvrtc_result = nvrtc.nvrtcVersion()[0]
report(result=int(result), count=count, nvrtc_result=int(nvrtc_result),
       driver=sorted(set(loaded("libcuda.so.1"))) == [chosen.library_path],
       nvrtc=sorted(set(loaded("libnvrtc.so.13"))) == [chosen.nvrtc_path])
"""
    found = machine.run(script, AIOCUDA_DRIVER="emulated", AIOCUDA_EMULATED_DEVICES=3).values
    assert found == {"result": 0, "count": 3, "nvrtc_result": 0, "driver": True, "nvrtc": True}


@pytest.mark.parametrize("named", [{}, {"AIOCUDA_ZIG": "/opt/another/zig"}])
def test_the_emulated_compiler_is_told_of_the_ziglang_wheel(machine, tmp_path, named):
    package = tmp_path / "site" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    path = os.pathsep.join(filter(None, [str(package.parent), os.environ.get("PYTHONPATH")]))
    found = machine.run(
        """
import os
selection.select_driver()
report(zig=os.environ["AIOCUDA_ZIG"])
""",
        AIOCUDA_DRIVER="emulated",
        PYTHONPATH=path,
        **named,
    ).values
    assert found["zig"] == named.get("AIOCUDA_ZIG", str(package / "zig"))
