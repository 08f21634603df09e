"""The PTX of the kernels that decide: each driver that has loops takes it, whichever NVRTC has made it."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.metadata
import re

import pytest
from cuda.bindings import nvrtc

import aiocuda as ac
from aiocuda._algorithms.numbers import NUMBERS, kind_of
from aiocuda._driver import compiler, loaded, runtime
from aiocuda._graphs import loop_kernels
from aiocuda._values.dtypes import to_dtype

pytestmark = pytest.mark.emulated_only

SETTING = """extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(unsigned long long, unsigned int);
extern "C" __global__ void set(unsigned long long handle) { cudaGraphSetConditional(handle, 1); }
"""


@pytest.fixture
def compile_with_nvidias(monkeypatch):
    """Have sources compiled by NVIDIA's NVRTC, as on a device of some compute capability."""
    try:
        wheel = importlib.metadata.distribution("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("NVIDIA's NVRTC is not installed: it is the wheel nvidia-cuda-nvrtc of the test group")
    paths = [file.locate() for file in wheel.files or [] if file.name == "libnvrtc.so.13"]
    if not paths:
        pytest.skip("this wheel nvidia-cuda-nvrtc has no libnvrtc.so.13")
    library = ctypes.CDLL(str(paths[0]))

    def run(source, options, output):
        assert output == "PTX"
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        library.nvrtcCreateProgram(ctypes.byref(program), source.text.encode(), b"k.cu", 0, None, None)
        encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        result = library.nvrtcCompileProgram(program, len(options), encoded)
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        assert result == 0, log.value.decode()
        library.nvrtcGetPTXSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        library.nvrtcGetPTX(program, code)
        library.nvrtcDestroyProgram(ctypes.byref(program))
        return code.raw, ()

    def compile_for(text, capability):
        info = dataclasses.replace(runtime.driver_info(), kind="nvidia")
        properties = runtime.properties(0)._replace(compute_capability=capability)
        with monkeypatch.context() as patched:
            patched.setattr(runtime, "driver_info", lambda: info)
            patched.setattr(runtime, "properties", lambda _: properties)
            patched.setattr(compiler, "_run_nvrtc", run)
            patched.setattr(compiler, "_kept", lambda sources, given, _: compiler._compile(sources, given))
            return compiler.compile_sources([compiler.Source("k.cu", text)], (), 0)

    return compile_for


def header(image):
    version, target = re.findall(rb"^\.(?:version|target) (\S+)", image.code, re.MULTILINE)
    return version.decode(), target.decode()


def test_kernels_that_decide_are_ptx_that_older_drivers_take(compile_with_nvidias):
    kinds = {kind_of(to_dtype(dtype)) for dtype in NUMBERS}
    sources = [loop_kernels.counting_source(), *map(loop_kernels.deciding_source, sorted(kinds))]
    for source, capability in [*((each, (9, 0)) for each in sources), (sources[0], (12, 1)), (sources[0], (7, 5))]:
        image = compile_with_nvidias(source, capability)
        assert image.kind == "ptx"
        assert header(image) == ("8.3", "sm_75")
        # Instructions that came later would need a later version.
        instructions = set(re.findall(rb"^\t+(?:@!?%p\d+ )?(?!param)([a-z]+)[.\d\w:]*\s", image.code, re.MULTILINE))
        assert instructions > {b"call", b"ld"}
        assert {each for each in instructions if not PLAIN.fullmatch(each)} == set()


PLAIN = re.compile(rb"add|and|bra|call|cvta?|ld|mov|mul|or|selp|setp|shl|st")


def test_kernels_of_the_callers_own_are_ptx_as_the_compiler_makes_it(compile_with_nvidias):
    image = compile_with_nvidias(SETTING, (9, 0))
    version, target = header(image)
    assert target == "sm_90"
    assert float(version) >= 9


def test_a_driver_that_is_older_than_the_compiler_is_named(monkeypatch):
    _, major, minor = nvrtc.nvrtcVersion()
    info = runtime.driver_info()
    image = compiler.Image("k.cu", "ptx", b".version 9.5\n.target sm_90\n")
    older = dataclasses.replace(info, version=12030)
    for named, version in ((True, older), (False, info)):
        monkeypatch.setattr(runtime, "driver_info", lambda version=version: version)
        with pytest.raises(ac.CompilationError, match="the driver does not load what was compiled") as refused:
            loaded.LoadedModule(image, 0)
        said = f"NVRTC {major}.{minor} made PTX, and the driver is of CUDA 12.3"
        assert (said in str(refused.value)) is named
