"""Programs that are linked: relocatable device code through cuda.core's linker, nvJitLink's and the driver's calls."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import aiocuda as ac

LAUNCHED = """
extern __device__ int weight[4];
extern __device__ int shifted(int i);

extern "C" __global__ void launched(int* out) {
    out[threadIdx.x] = weight[2] * shifted(threadIdx.x);
}
"""
# Another program's barrier and place, which the kernel must be ready for; a static name that both have.
SHIFTED = """
__device__ int weight[4] = {1, 2, 3, 4};
static __device__ int one() { return 1; }

__device__ int shifted(int i) {
    __shared__ int shared[32];
    shared[threadIdx.x] = i;
    __syncthreads();
    return shared[(threadIdx.x + one()) % blockDim.x];
}
"""
EXPECTED = [3 * ((i + 1) % 32) for i in range(32)]


@pytest.fixture
def core():
    ac.select_driver()
    from cuda import core

    core.Device(0).set_current()
    return core


def compiled(core, source, form, name="program.cu", **options):
    return core.Program(source, "c++", core.ProgramOptions(name=name, **options)).compile(form)


def relocatable(core, source, form="ptx", name="program.cu"):
    return compiled(core, source, form, name, relocatable_device_code=True)


def run(core, kernel):
    memory = core.LegacyPinnedMemoryResource().allocate(4 * 32)
    out = np.from_dlpack(memory).view(np.int32)
    out[:] = -1
    stream = core.Device(0).create_stream()
    core.launch(stream, core.LaunchConfig(grid=1, block=32), kernel, out.ctypes.data)
    stream.sync()
    return out.tolist()


@pytest.mark.parametrize(("one", "two"), [("ptx", "ptx"), ("cubin", "cubin"), ("ptx", "cubin")])
def test_programs_are_linked_and_use_each_others_functions_and_variables(core, one, two):
    linker = core.Linker(relocatable(core, LAUNCHED, one, "a.cu"), relocatable(core, SHIFTED, two, "b.cu"))
    assert run(core, linker.link("cubin").get_kernel("launched")) == EXPECTED


def test_programs_for_link_time_are_linked_to_ptx(core):
    parts = [
        compiled(core, source, "ltoir", name, link_time_optimization=True)
        for source, name in ((LAUNCHED, "a.cu"), (SHIFTED, "b.cu"))
    ]
    options = core.LinkerOptions(link_time_optimization=True, ptx=True)
    linked = core.Linker(*parts, options=options).link("ptx")
    assert linked.code.decode().count(".version") == 1
    assert run(core, linked.get_kernel("launched")) == EXPECTED


def test_ptx_is_text_that_the_driver_loads(core, tmp_path):
    source = 'extern "C" __global__ void square(int* out) { out[threadIdx.x] = threadIdx.x * threadIdx.x; }'
    text = compiled(core, source, "ptx").code.decode()
    assert ".version" in text
    assert text.isprintable() or set(text) - {"\n", "\t", "\0"} <= set(map(chr, range(32, 127)))
    path = tmp_path / "square.ptx"
    path.write_text(text.rstrip("\0"), encoding="ascii")
    for image in (text.encode(), str(path)):
        assert run(core, core.ObjectCode.from_ptx(image).get_kernel("square")) == [i * i for i in range(32)]


def test_constants_of_linked_programs_are_constants_of_one_module(core):
    asking = """
    extern __constant__ float weight[4];
    extern __device__ const void* place(int i);
    static __constant__ const int own[2] = {1, 2};
    extern "C" __global__ void ask(int* out) {
        const void* places[] = {weight, weight + 3, own + 1, place(0), place(1), place(2), out};
        for (int i = 0; i < 7; ++i) out[i] = __isConstant(places[i]) + 2 * __isGlobal(places[i]);
    }
    """
    holding = """
    __constant__ float weight[4];
    static __constant__ const int own[2] = {3, 4};
    __device__ int global;
    __device__ const void* place(int i) {
        static __constant__ int kept[2];
        return i == 0 ? (const void*)own : i == 1 ? (const void*)&global : (const void*)kept;
    }
    """
    linker = core.Linker(relocatable(core, asking, name="a.cu"), relocatable(core, holding, name="b.cu"))
    assert run(core, linker.link("cubin").get_kernel("ask"))[:7] == [1, 1, 1, 1, 2, 1, 2]


@pytest.mark.emulated_only
def test_ptx_that_was_cut_off_is_invalid(core):
    text = compiled(core, "__global__ void k() {}", "ptx").code
    with pytest.raises(Exception, match="CUDA_ERROR_INVALID_PTX"):
        core.ObjectCode.from_ptx(text[: len(text) // 2] + b"\0").get_kernel("_Z1kv")


@pytest.mark.emulated_only
def test_a_relocatable_program_that_wants_nothing_loads_alone(core):
    code = relocatable(core, 'extern "C" __global__ void seven(int* out) { out[threadIdx.x] = 7; }')
    assert run(core, code.get_kernel("seven")) == [7] * 32


@pytest.mark.emulated_only
def test_what_nobody_defines_is_named_with_the_line_that_wants_it(core):
    linker = core.Linker(relocatable(core, LAUNCHED, name="a.cu"))
    with pytest.raises(Exception, match="ERROR_INTERNAL") as caught:
        linker.link("cubin")
    told = str(caught.value)
    assert "error   : Undefined reference to '_Z7shiftedi' in 'a.cu'\nnote    : used at a.cu(6)\n" in told
    assert "Undefined reference to 'weight' in 'a.cu'" in told
    assert "/" not in told.replace("https://", "")


@pytest.mark.emulated_only
def test_what_two_programs_define_is_named_with_both(core):
    linker = core.Linker(relocatable(core, SHIFTED, name="a.cu"), relocatable(core, SHIFTED + "\n", name="b.cu"))
    with pytest.raises(Exception, match=r"Multiple definition of 'weight' in 'b.cu', first defined in 'a.cu'"):
        linker.link("cubin")


LAUNCHER = """
extern "C" __global__ void launcher(cudaGraphExec_t graph) { cudaGraphLaunch(graph, cudaStreamGraphTailLaunch); }
"""


def archive(member):
    """Return an archive of one member, whose name is long, in the form of System V."""
    names = f"{member}/\n".encode()
    names += b"\n" * (len(names) % 2)
    return b"".join(
        [b"!<arch>\n"]
        + [
            f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode() + content
            for name, content in (("/", bytes(4)), ("//", names), ("/0", b"an object "))
        ]
    )


@pytest.mark.emulated_only
@pytest.mark.parametrize("inputs", [(0,), (0, 1), (1, 0)])
def test_the_device_runtime_is_taken_and_nothing_of_it_linked(core, inputs, tmp_path):
    (tmp_path / "libcudadevrt.a").write_bytes(archive("cuda_device_runtime.o"))
    library = core.ObjectCode.from_library(str(tmp_path / "libcudadevrt.a"))
    given = [(relocatable(core, LAUNCHER), library)[i] for i in inputs]
    assert core.Linker(*given).link("cubin").get_kernel("launcher").num_arguments == 1


@pytest.mark.emulated_only
def test_another_library_is_refused_by_its_name(core, tmp_path):
    (tmp_path / "libmine.a").write_bytes(archive("my_functions_of_the_device.o"))
    library = core.ObjectCode.from_library(str(tmp_path / "libmine.a"))
    with pytest.raises(Exception, match=r"libmine.a' is a library or a fat binary, which only a GPU can run"):
        core.Linker(relocatable(core, LAUNCHER), library)


@pytest.mark.emulated_only
@pytest.mark.parametrize("content", [b"!<arch>\n", b"!<arch>\n" + b"x" * 59, archive("cuda_device_runtime.o")[:-1]])
def test_an_archive_that_is_not_whole_is_refused(core, tmp_path, content):
    (tmp_path / "libcudadevrt.a").write_bytes(content)
    with pytest.raises(Exception, match="is a library or a fat binary"):
        core.Linker(relocatable(core, LAUNCHER), core.ObjectCode.from_library(str(tmp_path / "libcudadevrt.a")))


@pytest.mark.emulated_only
def test_ptx_of_another_compiler_is_refused_with_a_way_out(core):
    code = core.ObjectCode.from_ptx(b".version 9.0\n.target sm_90\n.address_size 64\n\0", name="mine.ptx")
    with pytest.raises(Exception, match=r"'mine.ptx' is PTX, which only a GPU can run: compile CUDA C"):
        core.Linker(code)


def test_the_drivers_linker_links_and_tells_what_is_missing(core):
    from cuda.bindings import driver

    def ok(answer):
        assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer
        return answer[1] if len(answer) == 2 else answer[1:]

    inputs = [relocatable(core, LAUNCHED, name="a.cu").code, relocatable(core, SHIFTED, name="b.cu").code]
    log = bytearray(1024)
    names = driver.CUjit_option
    keys = [names.CU_JIT_ERROR_LOG_BUFFER, names.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    for given, count in ((inputs, 2), (inputs[:1], 1)):
        link = ok(driver.cuLinkCreate(2, keys, [log, len(log)]))
        for i, code in enumerate(given):
            kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
            ok(driver.cuLinkAddData(link, kind, code, len(code), b"ab"[i : i + 1], 0, [], []))
        result, image, size = driver.cuLinkComplete(link)
        if count == 1:
            refusals = [driver.CUresult.CUDA_ERROR_INVALID_SOURCE]
            if not ac.Device(0).is_emulated:  # an H100's driver has answered both
                refusals.append(driver.CUresult.CUDA_ERROR_UNKNOWN)
            assert result in refusals
            assert b"Undefined reference to '_Z7shiftedi' in 'a'" in log
        else:
            assert result == driver.CUresult.CUDA_SUCCESS
            assert size > 0
            library = ok(driver.cuLibraryLoadData(image, [], [], 0, [], [], 0))
            ok(driver.cuLibraryGetKernel(library, b"launched"))
            ok(driver.cuLibraryUnload(library))
        ok(driver.cuLinkDestroy(link))


@pytest.mark.parametrize("minor", range(6))
def test_programs_of_each_version_find_its_names(core, minor):
    """PyTorch's libraries ask for them when they are loaded."""
    from cuda.bindings import nvjitlink  # it loads the library

    nvjitlink.version()
    library = ctypes.CDLL("libnvJitLink.so.13")
    major, found = ctypes.c_uint(), ctypes.c_uint()
    assert library.nvJitLinkVersion(ctypes.byref(major), ctypes.byref(found)) == 0
    assert major.value == 13
    if not ac.Device(0).is_emulated and minor > found.value:
        pytest.skip(f"this library is of version 13.{found.value}")
    handle, option = ctypes.c_void_p(), ctypes.c_char_p(b"-arch=sm_90")
    assert library[f"__nvJitLinkCreate_13_{minor}"](ctypes.byref(handle), 1, ctypes.byref(option)) == 0
    assert library[f"__nvJitLinkDestroy_13_{minor}"](ctypes.byref(handle)) == 0
