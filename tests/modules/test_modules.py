"""Modules: where code comes from, which kernels it has, how it is compiled, and what is wrong with it."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._driver import compiler
from aiocuda._driver.compiler import Source, compile_sources

KERNELS = r"""
template <class T> __global__ void scale(T* x, T a) { x[threadIdx.x] *= a; }
namespace deep { __global__ void halve(float* x) { x[threadIdx.x] /= 2; } }
extern "C" __global__ void increment(int* x) { x[threadIdx.x] += 1; }
"""


def run_on(kernel, x, *more):
    return ac.to_host(kernel(ac.to_device(np.asarray(x)), *more, grid=1, block=len(x))).sync().tolist()


def test_a_module_gives_plain_qualified_and_instantiated_kernels():
    module = ac.Module.from_source(KERNELS)
    increment, halve, scale = (module.kernel(name) for name in ("increment", "deep::halve", "scale<double>"))
    assert run_on(increment, np.int32([1, 2])) == [2, 3]
    assert run_on(halve, np.float32([1, 2])) == [0.5, 1]
    assert run_on(scale, np.float64([1, 2]), 3.0) == [3, 6]


def test_kernels_of_a_module_run_under_every_loop(run):
    module = ac.Module.from_source(KERNELS)
    increment, scale = module.kernel("increment"), module.kernel("scale<int>")

    async def program():
        return (
            await ac.to_host(scale(increment(ac.arange(3, dtype=np.int32), grid=1, block=3), 5, grid=1, block=3))
        ).tolist()

    assert run(program) == [5, 10, 15]


def test_a_module_is_compiled_once_for_all_its_kernels(monkeypatch):
    compiled: list[object] = []
    monkeypatch.setattr(
        "aiocuda._driver.compile_sources",
        lambda *given: compiled.append(given) or compile_sources(*given),
    )
    module = ac.Module.from_source(KERNELS)
    kernels = [module.kernel(name) for name in ("increment", "deep::halve", "scale<int>")]
    for kernel in kernels:
        kernel.compile()
    assert len(compiled) == 1


def test_an_instance_that_is_asked_for_late_is_compiled_by_itself():
    module = ac.Module.from_source(KERNELS)
    assert run_on(module.kernel("scale<int>"), np.int32([2]), 5) == [10]
    assert run_on(module.kernel("scale<float>"), np.float32([2]), 5.0) == [10]
    assert run_on(module.kernel("increment"), np.int32([2])) == [3]


def test_an_instance_that_is_asked_for_late_would_not_share_the_modules_variables():
    module = ac.Module.from_source("__device__ int count;" + KERNELS)
    early = module.kernel("scale<int>")
    early.compile()
    assert module.kernel("scale<int>").name == early.name
    with pytest.raises(ac.ArgumentValueError, match=r"scale<float>.*ask for all kernels before"):
        module.kernel("scale<float>")


def test_a_name_that_is_not_there_is_an_error_that_lists_the_kernels():
    with pytest.raises(ac.ArgumentValueError, match=r"(?s)no kernel 'missing'.*scale.*deep::halve.*increment"):
        ac.Module.from_source(KERNELS).kernel("missing")


def test_what_a_macro_writes_is_found_by_its_name_and_signature():
    source = "#define KERNEL(name) __global__ void name(int* x) { x[0] = 4; }\nKERNEL(four)\n"
    module = ac.Module.from_source(source)
    assert run_on(module.kernel("four", signature="int* x"), np.int32([0])) == [4]
    with pytest.raises(ac.ArgumentValueError, match=r"(?s)module\.cu has no kernel 'five'.*four"):
        module.kernel("five", signature="int* x")(ac.zeros(1, np.int32), grid=1, block=1).sync()


def test_a_signature_that_is_not_what_was_compiled_is_an_error_before_the_launch():
    source = '#define TYPES int* x, double a\nextern "C" __global__ void k(TYPES) { x[0] = (int)a; }'
    wrong = ac.Module.from_source(source).kernel("k", signature="int* x, float a")
    with pytest.raises(
        ac.LaunchError, match="2 parameters of 8, 4 bytes, the compiled kernel 2 parameters of 8, 8 bytes"
    ):
        wrong(ac.zeros(1, np.int32), 1.0, grid=1, block=1).sync()
    short = ac.Module.from_source(source).kernel("k", signature="int* x")
    with pytest.raises(ac.LaunchError, match="1 parameter of 8 bytes"):
        short.compile()
    right = ac.Module.from_source(source).kernel("k", signature="int* x, double a")
    assert run_on(right, np.int32([0]), 3.0) == [3]


PARTS = {
    "first.cu": 'extern __device__ int twice(int);\n\nextern "C" __global__ void a(int* x) { x[0] = twice(x[0]); }',
    "second.cu": """
        __device__ int twice(int x) { return 2 * x; }
        extern "C" __global__ void b(int* x) { x[0] = twice(8); }
    """,
}


def test_several_sources_use_one_anothers_functions():
    module = ac.Module.from_source(PARTS)
    assert run_on(module.kernel("a"), np.int32([5])) == [10]
    assert run_on(module.kernel("b"), np.int32([0])) == [16]


def test_templates_of_several_sources_are_instantiated():
    parts = {
        "t.cu": "template <class T> __global__ void t(T* x) { x[0] = 1; }",
        "m.cu": "__global__ void m(int* x) { x[0] = 2; }",
    }
    module = ac.Module.from_source(parts)
    t, m = module.kernel("t<float>"), module.kernel("m")
    assert (run_on(t, np.float32([0])), run_on(m, np.int32([0]))) == ([1], [2])


def test_a_mistake_in_one_of_several_sources_is_told_by_its_name_and_line():
    parts = {**PARTS, "third.cu": "\n\n__device__ int wrong() { return nothing; }"}
    with pytest.raises(ac.CompilationError, match=r"^third\.cu does not compile:") as caught:
        ac.Module.from_source(parts).kernel("a").compile()
    assert any("third.cu" in line and "3" in line for line in str(caught.value).splitlines()), caught.value


def test_a_function_that_no_source_has_is_an_error():
    with pytest.raises(ac.CompilationError, match="twice"):
        ac.Module.from_source({"only.cu": PARTS["first.cu"], "other.cu": "__device__ int u;"}).kernel("a").compile()


def test_names_in_several_sources_are_told_apart():
    with pytest.raises(ac.ArgumentValueError, match=r"say which one|2 kernels"):
        ac.Module.from_source(PARTS).kernel()
    with pytest.raises(ac.ArgumentValueError, match=r"(?s)first\.cu: .*no kernel 'c'.*second\.cu: .*no kernel 'c'"):
        ac.Module.from_source(PARTS).kernel("c")


def test_a_file_is_compiled_with_the_includes_beside_it(tmp_path: Path):
    (tmp_path / "constants.cuh").write_text("#define ANSWER 42\n")
    file = tmp_path / "answer.cu"
    file.write_text('#include "constants.cuh"\nextern "C" __global__ void answer(int* x) { x[0] = ANSWER; }')
    assert run_on(ac.Module.from_file(file).kernel(), np.int32([0])) == [42]


def test_a_file_that_does_not_compile_is_named_with_its_line(tmp_path: Path):
    file = tmp_path / "broken.cu"
    file.write_text('\n\nextern "C" __global__ void broken(int* x) {\n  x[0] = missing;\n}\n')
    with pytest.raises(ac.CompilationError, match=r"broken\.cu does not compile:") as caught:
        ac.Module.from_file(file).compile()
    assert any("broken.cu" in line and "4" in line for line in caught.value.log.splitlines()), caught.value.log


def test_a_file_that_is_not_there_or_of_no_known_kind_is_an_error(tmp_path: Path):
    with pytest.raises(ac.ArgumentValueError, match=r"no file.*nowhere\.cu"):
        ac.Module.from_file(tmp_path / "nowhere.cu")
    (tmp_path / "code.txt").write_text("x")
    with pytest.raises(ac.ArgumentValueError, match=r"'\.txt'; known are \.cu, \.ptx"):
        ac.Module.from_file(tmp_path / "code.txt")
    with pytest.raises(ac.ArgumentValueError, match="no file"):
        ac.Module.from_file()
    (tmp_path / "latin.cu").write_bytes(b"// \xe9\n")
    with pytest.raises(ac.ArgumentValueError, match="cannot be read as UTF-8 text"):
        ac.Module.from_file(tmp_path / "latin.cu")


def test_an_included_file_that_changes_is_compiled_again(tmp_path: Path, monkeypatch):
    """Also one that is included by way of another, and from a store that knows what the key tells it."""
    stored: dict[bytes, bytes] = {}
    monkeypatch.setattr(compiler, "_disk_cache", lambda: stored)
    (tmp_path / "outer.cuh").write_text("#include <inner.cuh>\n")
    source = '#include "outer.cuh"\nextern "C" __global__ void k(int* x) { x[0] = ANSWER; }'
    options = ac.CompileOptions(include_paths=[tmp_path])
    for number in (4, 5, 4):
        (tmp_path / "inner.cuh").write_text(f"#define ANSWER {number}\n// {'x' * number}\n")
        module = ac.Module.from_source(source, options=options)
        assert run_on(module.kernel(), np.int32([0])) == [number]
    assert len(stored) == 2


def test_what_includes_by_a_macro_is_not_kept(tmp_path: Path, monkeypatch):
    stored: dict[bytes, bytes] = {}
    monkeypatch.setattr(compiler, "_disk_cache", lambda: stored)
    (tmp_path / "a.cuh").write_text("#define ANSWER 6\n")
    source = '#define FILE "a.cuh"\n#include FILE\nextern "C" __global__ void k(int* x) { x[0] = ANSWER; }'
    module = ac.Module.from_source(source, options=ac.CompileOptions(include_paths=[tmp_path]))
    assert run_on(module.kernel(), np.int32([0])) == [6]
    assert not stored


@pytest.mark.parametrize("count", [0, 1, 2])
def test_what_was_kept_is_the_image_and_its_names(monkeypatch, count: int):
    stored: dict[bytes, bytes] = {}
    monkeypatch.setattr(compiler, "_disk_cache", lambda: stored)
    expressions = ("scale<int>", "deep::halve")[:count]
    source = Source("kept.cu", KERNELS + f"// kept with {count} names", expressions)
    first = compile_sources([source], (), 0)
    compiler._kept.cache_clear()
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("it was compiled again"))
    assert compile_sources([source], (), 0) == first
    assert [name for name, _ in first.lowered] == list(expressions)


def test_options_are_part_of_what_is_kept():
    source = 'extern "C" __global__ void k(int* x) { x[0] = N; }'
    for number in (3, 4):
        options = ac.CompileOptions(defines={"N": number})
        assert run_on(ac.Module.from_source(source, options=options).kernel(), np.int32([0])) == [number]


def test_every_option_has_its_spelling(tmp_path: Path):
    options = ac.CompileOptions(
        include_paths=[tmp_path],
        defines={"A": None, "B": "x"},
        standard="c++20",
        fast_math=True,
        fused_multiply_add=False,
        max_registers=32,
        line_info=True,
        more=["--extra-device-vectorization"],
    )
    assert options.arguments() == (
        *(f"--include-path={tmp_path}", "--define-macro=A", "--define-macro=B=x", "--std=c++20", "--use_fast_math"),
        *("--fmad=false", "--maxrregcount=32", "--generate-line-info", "--extra-device-vectorization"),
    )
    source = "#if !defined(A) || __cplusplus < 202002\n#error options\n#endif\n__global__ void k(int* x) { x[0] = 9; }"
    assert run_on(ac.Module.from_source(source, options=options).kernel(), np.int32([0])) == [9]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"include_paths": ["/no/such/directory"]}, "no directory '/no/such/directory'"),
        ({"include_paths": "/tmp"}, "is a sequence"),
        ({"defines": {"N=4": None}}, "'N=4' is no macro's name"),
        ({"standard": "c++98"}, r"c\+\+98"),
        ({"max_registers": 0}, "max_registers=0"),
        ({"more": "-G"}, "is a sequence"),
    ],
)
def test_options_that_make_no_sense_are_errors_at_once(wrong, message):
    with pytest.raises(ac.AiocudaError, match=message):
        ac.Module.from_source(KERNELS, options=ac.CompileOptions(**wrong))


def test_an_option_that_the_compiler_does_not_know_is_told_in_its_words():
    with pytest.raises(ac.CompilationError, match="no-such-option"):
        ac.Module.from_source(KERNELS, options=["--no-such-option"]).compile()


@pytest.mark.parametrize("source", [b"__global__ void k() {}", {"a": b""}, 3, None])
def test_a_source_that_is_no_text_is_an_error(source):
    with pytest.raises(ac.ArgumentTypeError, match="str of CUDA C"):
        ac.Module.from_source(source)


def test_threads_that_load_one_module_get_the_same():
    module = ac.Module.from_source(KERNELS + "// for threads")
    kernels = [module.kernel("increment") for _ in range(4)]
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda k=k: found.append(run_on(k, np.int32([1])))) for k in kernels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[2]] * 4


PTX = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n"


@pytest.mark.emulated_only
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (ac.Module.from_ptx, PTX),
        (ac.Module.from_cubin, b"\x7fELF...."),
        (ac.Module.from_fatbin, b"\x50\xed\x55\xba...."),
    ],
)
def test_the_emulated_driver_says_to_pass_the_source(make, code):
    with pytest.raises(ac.ArgumentValueError, match=r"pass its source to Module\.from_source"):
        make(code)


@pytest.mark.parametrize("make", [ac.Module.from_ptx, ac.Module.from_cubin, ac.Module.from_fatbin])
def test_code_that_is_of_another_kind_is_an_error(make):
    with pytest.raises(ac.ArgumentValueError, match=r"it begins with b'something else, '"):
        make(b"something else, all of it")
    with pytest.raises(ac.ArgumentTypeError, match="is bytes, not int"):
        make(3)


@pytest.fixture
def compiled_by_nvidia() -> dict[str, bytes]:
    """A kernel as PTX and as a cubin."""
    if ac.Device(0).is_emulated:
        pytest.skip("the emulated driver loads no compiled code")
    from cuda.core import Device, Program, ProgramOptions

    Device(0).set_current()
    program = Program(KERNELS, "c++", options=ProgramOptions(name="compiled"))
    code = {kind: bytes(program.compile(kind).code) for kind in ("ptx", "cubin")}
    # The compiler may be newer than the driver, and what these kernels need is old.
    return {**code, "ptx": re.sub(rb"\.version \d+\.\d+", b".version 8.0", code["ptx"])}


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_compiled_code_runs_by_its_symbol_or_plain_name(compiled_by_nvidia, kind: str, tmp_path: Path):
    (tmp_path / f"k.{kind}").write_bytes(compiled_by_nvidia[kind])
    made = [getattr(ac.Module, f"from_{kind}")(compiled_by_nvidia[kind]), ac.Module.from_file(tmp_path / f"k.{kind}")]
    for module in made:
        assert run_on(module.kernel("increment", signature="int* x"), np.int32([1])) == [2]
        assert run_on(module.kernel("deep::halve", signature="float* x"), np.float32([1])) == [0.5]
        with pytest.raises(ac.ArgumentValueError, match="pass signature="):
            module.kernel("increment")
        with pytest.raises(ac.ArgumentValueError, match=r"(?s)no kernel 'other'.*increment"):
            module.kernel("other", signature="int* x").compile()
        with pytest.raises(
            ac.LaunchError, match="2 parameters of 8, 4 bytes, the compiled kernel 1 parameter of 8 bytes"
        ):
            module.kernel("increment", signature="int* x, int n").compile()


@pytest.mark.driver_refuses("cuLibraryGetModule")
def test_broken_ptx_is_told_by_its_name(compiled_by_nvidia):
    broken = compiled_by_nvidia["ptx"].replace(b"ret;", b"no_such_instruction;")
    with pytest.raises(ac.CompilationError, match=r"mine\.ptx"):
        ac.Module.from_ptx(broken, name="mine.ptx").compile()
