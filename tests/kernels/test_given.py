"""Whatever a kernel, a module or a launch is given, what comes is a result or an error of aiocuda's that names it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiocuda as ac

SOURCE = r"""
extern "C" __global__ void f(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] += 1; }
__constant__ float c[4];
__device__ int d[4];
"""


class Nameless:
    def __repr__(self) -> str:
        raise RuntimeError("has no repr")


WRONG = [
    *(None, 3, -1, 1.5, float("nan"), 2**100, -(2**100), True),
    *("x", "", "a\0b", "\ud800", b"", b"x", b"a\0"),
    *((), ("x",), (1, 2, 3, 4), (-1,), (2**70,), (None,), [], [[1]], ("\ud800",), ("-D\0",)),
    *({}, {"a": 1}, {1: 2}, {"a\0b": "x"}, {"": "x"}, {"N": "\0"}, {"N": [1]}),
    *(np.zeros(2), np.float32(1), int, object(), Nameless(), lambda: 0),
]


@pytest.fixture(scope="module")
def module() -> ac.Module:
    found = ac.Module.from_source(SOURCE)
    found.compile()
    return found


@pytest.fixture(scope="module")
def f(module: ac.Module) -> Any:
    return module.kernel("f")


def survives(call: Callable[[Any], object]) -> None:
    for wrong in WRONG:
        with contextlib.suppress(ac.AiocudaError):
            call(wrong)


@pytest.mark.parametrize("keyword", ["source", "name", "options", "signature", "structures"])
def test_kernels_are_made_of_what_they_take_or_of_nothing(module, keyword):
    survives(lambda wrong: ac.kernel(**{"source": SOURCE, "name": "f", keyword: wrong}))
    if keyword in {"name", "signature", "structures"}:
        survives(lambda wrong: module.kernel(**{"name": "f", keyword: wrong}))


@pytest.mark.parametrize("keyword", ["source", "name", "options"])
def test_modules_are_made_of_what_they_take_or_of_nothing(keyword):
    survives(lambda wrong: ac.Module.from_source(**{"source": SOURCE, keyword: wrong}))


def test_modules_of_files_and_code_are_made_of_what_they_take_or_of_nothing(tmp_path):
    file = tmp_path / "k.cu"
    file.write_text(SOURCE)
    survives(lambda wrong: ac.Module.from_file(wrong))
    survives(lambda wrong: ac.Module.from_file(file, options=wrong))
    for make in (ac.Module.from_ptx, ac.Module.from_cubin, ac.Module.from_fatbin):
        survives(make)
        survives(lambda wrong, make=make: make(b".target", name=wrong))


@pytest.mark.parametrize(
    "field",
    [
        *("include_paths", "defines", "standard", "fast_math", "fused_multiply_add", "max_registers", "debug"),
        *("line_info", "more"),
    ],
)
def test_options_are_what_they_say(field):
    survives(lambda wrong: ac.CompileOptions(**{field: wrong}).arguments())


@pytest.mark.parametrize("keyword", ["threads", "grid", "block", "shared_memory", "cluster", "cooperative"])
def test_launches_take_what_they_say(f, keyword):
    x = ac.zeros(4).sync()
    others: dict[str, Any] = {"threads": {}, "grid": {"block": 1}, "block": {"grid": 1}}
    survives(lambda wrong: f(x, 4, **{**others.get(keyword, {"grid": 1, "block": 1}), keyword: wrong}))


def test_attributes_and_occupancy_take_what_they_say(f):
    for keyword in ("device", "max_dynamic_shared_bytes", "preferred_carveout", "cache"):
        survives(lambda wrong, keyword=keyword: f.set_attributes(**{keyword: wrong}))
    for keyword in ("block", "shared_memory", "device"):
        survives(lambda wrong, keyword=keyword: f.occupancy(**{"block": 32, keyword: wrong}))
    for call in (f.attributes, f.compile):
        survives(call)


@pytest.mark.parametrize("kind", ["constant", "variable"])
def test_variables_take_what_they_say(module, kind):
    get, name = getattr(module, kind), kind[0] if kind == "constant" else "d"
    survives(get)
    for keyword in ("device", "dtype", "shape"):
        survives(lambda wrong, keyword=keyword: get(name, **{keyword: wrong}))
    survives(lambda wrong: get(name, dtype="int32", shape=wrong))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: ac.kernel(SOURCE, 3),
            ac.ArgumentTypeError,
            r"name= is a kernel's name or None; 3 was given, of type int",
        ),
        (lambda: ac.kernel(SOURCE + "\0", "f"), ac.ArgumentValueError, r"source holds a NUL character at index \d+"),
        (lambda: ac.kernel(SOURCE, "f\0"), ac.ArgumentValueError, r"name= holds a NUL character at index 1"),
        (lambda: ac.kernel(SOURCE, "f", options=("-DA\0",)), ac.ArgumentValueError, r"options= holds a NUL"),
        (lambda: ac.kernel(SOURCE, "f", signature=3), ac.ArgumentTypeError, r"signature= is a str .*; 3 was given"),
        (
            lambda: ac.kernel(SOURCE, "f", structures=3),
            ac.ArgumentTypeError,
            r"structures= is a mapping .*; 3 was given",
        ),
        (lambda: ac.Module.from_source(SOURCE, name=""), ac.ArgumentValueError, "an empty one was given"),
        (lambda: ac.Module.from_source({"a\0.cu": SOURCE}), ac.ArgumentValueError, "a source's name holds a NUL"),
        (lambda: ac.Module.from_file(3), ac.ArgumentTypeError, r"from_file: a file is a path.*; 3 was given"),
        (lambda: ac.Module.from_file("a\0.cu"), ac.ArgumentValueError, "a file holds a NUL"),
        (lambda: ac.CompileOptions(max_registers=2**40).arguments(), ac.ArgumentValueError, "1 to 255"),
        (
            lambda: ac.CompileOptions(fast_math="no").arguments(),
            ac.ArgumentTypeError,
            "fast_math= is True or False; 'no'",
        ),
        (
            lambda: ac.CompileOptions(defines={"N": [1]}).arguments(),
            ac.ArgumentTypeError,
            r"what N stands for .*; \[1\]",
        ),
        (lambda: ac.CompileOptions(defines={"N": float("nan")}).arguments(), ac.ArgumentValueError, "nan"),
        (lambda: ac.CompileOptions(more=3).arguments(), ac.ArgumentTypeError, "more= is a sequence .*; 3 was given"),
    ],
)
def test_the_error_names_what_was_given_and_what_is_accepted(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("wrong", ["x", "", None, 1, 2, np.zeros(2)])
def test_cooperative_is_true_or_false(f, wrong):
    x = ac.zeros(4).sync()
    with pytest.raises(ac.ArgumentTypeError, match="cooperative takes True or False, not "):
        f(x, 4, grid=1, block=4, cooperative=wrong)
    f(x, 4, grid=1, block=4, cooperative=np.True_)


@pytest.mark.parametrize("wrong", ["32", "", b"32", (), (1, 1, 1, 1)])
def test_the_block_of_an_occupancy_is_one_to_three_whole_numbers(f, wrong):
    with pytest.raises((ac.ArgumentTypeError, ac.ArgumentValueError), match="block="):
        f.occupancy(wrong)


def test_macros_that_are_truth_values_are_0_and_1():
    assert ac.CompileOptions(defines={"A": True, "B": False, "C": None, "D": "", "E": 2}).arguments()[:5] == tuple(
        f"--define-macro={each}" for each in ("A=1", "B=0", "C", "D=", "E=2")
    )


def test_the_name_of_a_file_is_no_source():
    with pytest.raises(ac.ArgumentValueError, match=r"'double\.cu' is the name of a file: `ac\.Module\.from_file"):
        ac.kernel("double.cu")


def test_a_source_without_a_kernel_says_what_makes_one():
    with pytest.raises(
        ac.SignatureError, match=r"holds no __global__ function .* a kernel begins with `__global__ void`"
    ):
        ac.kernel("void plain(float* x) {}")
