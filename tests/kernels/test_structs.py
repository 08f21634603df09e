"""Structs by value: their layout is the compiler's, and what is passed must lie in memory as they do."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._source.signature import select_kernel

# A definition, and its members.
LAYOUTS = {
    "plain": ("struct S { float a; int n; };", "a n"),
    "padded": ("struct S { char c; double d; short s; };", "c d s"),
    "arrays": ("struct S { char c[3]; float m[2][2]; bool b; };", "c m b"),
    "nested": ("struct I { char c; double d; }; struct S { int n; I i[2]; char e; };", "n i e"),
    "vectors": ("struct S { char c; float2 a; char d; float3 b; char e; float4 f; };", "c a d b e f"),
    "small vectors": ("struct S { char c; char4 q; short2 s; char d; short4 t; uchar3 u; };", "c q s d t u"),
    "wide vectors": ("struct S { char c; double2 d; char e; longlong2 l; };", "c d e l"),
    "several of a type": ("struct S { short a, b[3], c; long long d; };", "a b c d"),
    "names of types": (
        "typedef unsigned char byte_t; enum Kind : short { one }; struct S { byte_t a; Kind k; unsigned long n; };",
        "a k n",
    ),
    "functions": (
        "struct S { char c; __device__ int twice() const { return 2 * n; } static const int z = 4; int n; };",
        "c n",
    ),
    "a namespace": ("namespace deep { struct I { char c; long n; }; } struct S { char a; deep::I i; };", "a i"),
    "a class": ("class S { public: char c; float x; };", "c x"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_layout_is_the_compilers(name: str):
    definition, members = LAYOUTS[name]
    tell = "".join(
        f"out[{1 + i}] = (const char*)&s.{member} - (const char*)&s;" for i, member in enumerate(members.split())
    )
    source = f'{definition}\nextern "C" __global__ void tell(S s, int* out) {{ out[0] = sizeof(S); {tell} }}'
    layout = select_kernel(source).parameters[0].layout
    op = ac.kernel(source)(np.zeros((), layout), ac.zeros(8, np.int32), grid=1, block=1)
    size, *offsets = ac.to_host(op).sync().tolist()
    assert layout.itemsize == size
    assert [layout.fields[member][1] for member in members.split()] == offsets[: len(members.split())]


SOURCE = r"""
struct Point { float x; int n; double w[2]; };
extern "C" __global__ void spread(Point p, double* out, int scale) {
    out[0] = p.x; out[1] = p.n; out[2] = p.w[0] * scale; out[3] = p.w[1] * scale;
}
"""
POINT = np.dtype([("x", "f4"), ("n", "i4"), ("w", "f8", (2,))], align=True)
VALUE = np.array((1.5, -2, (3.0, 4.0)), POINT)


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("n", ctypes.c_int), ("w", ctypes.c_double * 2))


@pytest.fixture(scope="module")
def spread():
    return ac.kernel(SOURCE)


def result_of(spread, point):
    return ac.to_host(spread(point, ac.zeros(4, np.float64), 10, grid=1, block=1)).sync().tolist()


@pytest.mark.parametrize(
    "point",
    [VALUE[()], VALUE, Point(1.5, -2, (ctypes.c_double * 2)(3, 4)), VALUE.view(POINT)[()], np.array([VALUE])[0]],
    ids=["scalar", "array", "ctypes", "view", "item"],
)
def test_a_struct_is_passed_member_by_member(spread, point):
    assert result_of(spread, point) == [1.5, -2, 30, 40]


def test_names_of_members_may_differ(spread):
    other = np.dtype([("a", "f4"), ("b", "i4"), ("c", "f8"), ("d", "f8")], align=True)
    assert result_of(spread, np.array((1.5, -2, 3, 4), other)[()]) == [1.5, -2, 30, 40]


def test_the_value_is_taken_when_the_launch_is_built(spread):
    point = VALUE.copy()
    op = spread(point, ac.zeros(4, np.float64), 10, grid=1, block=1)
    point["x"] = 9
    assert ac.to_host(op).sync()[0] == 1.5


def test_a_struct_that_an_operation_yields(spread, run):
    async def program():
        point = ac.to_host(ac.to_device(np.float64([3, 4]))).map(lambda w: np.array((1.5, -2, w), POINT)[()])
        return (await ac.to_host(spread(point, ac.zeros(4, np.float64), 10, grid=1, block=1))).tolist()

    assert run(program) == [1.5, -2, 30, 40]


def test_an_operation_that_yields_the_wrong_struct_is_an_error_before_the_launch(spread):
    wrong = ac.value(3).map(lambda _: np.float32(1))
    with pytest.raises(ac.ArgumentTypeError, match=r"spread: argument 1 \(p\)"):
        spread(wrong, ac.zeros(4, np.float64), 1, grid=1, block=1).sync()


class Short(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float),)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "a struct of 24 bytes (float32 at 0, int32 at 4, float64 at 8, float64 at 16) is expected, int was given"),
        ({"x": 1}, "dict was given"),
        (np.zeros((), POINT.newbyteorder())[()], "number 0 is float32 at byte 0 in the kernel, >f4 at byte 0 here"),
        (np.zeros((), [("x", "f4"), ("n", "f4"), ("w", "f8", (2,))])[()], "number 1 is int32 at byte 4 in the kernel"),
        (np.zeros((), [("x", "f4"), ("n", "i4")])[()], "the kernel's has 4 numbers, this one 2"),
        (Short(1), "a struct of 4 bytes (float32 at 0) was given: the kernel's has 4 numbers, this one 1"),
        (np.zeros(2, POINT), "ndarray was given"),
    ],
)
def test_a_value_that_lies_otherwise_is_an_error_that_says_where(spread, wrong, message):
    with pytest.raises(ac.ArgumentTypeError, match=re.escape(message)):
        spread(wrong, ac.zeros(4, np.float64), 1, grid=1, block=1)


def test_a_number_at_another_byte_is_an_error():
    kernel = ac.kernel('struct S { char c; int n; }; extern "C" __global__ void k(S s) {}')
    shifted = np.dtype({"names": ["c", "n"], "formats": ["i1", "i4"], "offsets": [1, 4], "itemsize": 8})
    with pytest.raises(ac.ArgumentTypeError, match="number 0 is int8 at byte 0 in the kernel, int8 at byte 1 here"):
        kernel(np.zeros((), shifted)[()], grid=1, block=1)


def test_a_dtype_without_its_padding_is_told_to_align():
    kernel = ac.kernel('struct S { double d; char c; }; extern "C" __global__ void k(S s) {}')
    with pytest.raises(ac.ArgumentTypeError, match="their sizes differ; make the dtype with align=True"):
        kernel(np.zeros((), [("d", "f8"), ("c", "i1")])[()], grid=1, block=1)


VECTORS = r"""
extern "C" __global__ void vectors(float4 f, int3 i, uchar2 u, double* out) {
    out[0] = f.x; out[1] = f.w; out[2] = i.z; out[3] = u.y;
}
"""


def test_vectors_take_tuples_lists_and_arrays():
    kernel = ac.kernel(VECTORS)
    op = kernel((1, 2.0, 3, 4.5), [5, 6, -7], np.uint8([8, 9]), ac.zeros(4, np.float64), grid=1, block=1)
    assert ac.to_host(op).sync().tolist() == [1, 4.5, -7, 9]


@pytest.mark.parametrize(
    ("vectors", "error", "message"),
    [
        (((1, 2, 3), (1, 2, 3), (1, 2)), ac.ArgumentTypeError, r"argument 1 \(f\): 4 numbers of float32"),
        (((1, 2, 3, 4), (1, 2, 3.5), (1, 2)), ac.ArgumentTypeError, r"argument 2 \(i\): int32 are expected"),
        (((1, 2, 3, 4), (1, 2, 3), (1, 256)), ac.ArgumentRangeError, r"argument 3 \(u\): .*does not fit uint8"),
        (((1, 2, 3, 1e300), (1, 2, 3), (1, 2)), ac.ArgumentRangeError, r"argument 1 \(f\): .*does not fit float32"),
        ((("a", 2, 3, 4), (1, 2, 3), (1, 2)), ac.ArgumentTypeError, "4 numbers of float32"),
        ((4, (1, 2, 3), (1, 2)), ac.ArgumentTypeError, "int was given"),
    ],
)
def test_vectors_of_other_numbers_are_errors(vectors, error, message):
    with pytest.raises(error, match=message):
        ac.kernel(VECTORS)(*vectors, ac.zeros(4, np.float64), grid=1, block=1)


ALIGNED = """
struct __align__(16) Wide { int n; float x; };
extern "C" __global__ void k(Wide w, float* out) { out[0] = w.n + w.x; }
"""


class Wide(ctypes.Structure):
    _fields_ = (("n", ctypes.c_int), ("x", ctypes.c_float), ("padding", ctypes.c_int * 2))


@pytest.mark.parametrize("described", [Wide, np.dtype(Wide)], ids=["ctypes", "dtype"])
@pytest.mark.parametrize("signature", [None, "Wide w, float* out"])
def test_a_struct_that_the_source_does_not_show_is_described(described, signature):
    kernel = ac.kernel(ALIGNED, structures={"Wide": described}, signature=signature)
    assert ac.to_host(kernel(Wide(3, 0.5), ac.zeros(1), grid=1, block=1)).sync().tolist() == [3.5]


def test_a_struct_that_is_described_with_another_size_is_an_error_before_the_launch():
    kernel = ac.kernel(ALIGNED, structures={"Wide": [("n", "i4"), ("x", "f4")]})
    with pytest.raises(
        ac.LaunchError, match="2 parameters of 8, 8 bytes, the compiled kernel 2 parameters of 16, 8 bytes"
    ):
        kernel(np.zeros((), [("n", "i4"), ("x", "f4")])[()], ac.zeros(1), grid=1, block=1).sync()


def test_a_struct_that_nobody_describes_says_what_to_do():
    with pytest.raises(ac.ArgumentValueError, match=r"'Wide' has an alignment .*structures=\{name: "):
        ac.kernel(ALIGNED)
    with pytest.raises(ac.ArgumentTypeError, match="is not a dtype"):
        ac.kernel(ALIGNED, structures={"Wide": 3})


def test_a_struct_stays_the_same_in_a_graph(spread):
    graph = spread(VALUE[()], ac.zeros(4, np.float64), 10, grid=1, block=1).graph()
    for _ in range(2):
        assert ac.to_host(graph.launch()).sync().tolist() == [1.5, -2, 30, 40]


def test_a_struct_is_no_input_of_a_graph(spread):
    point = ac.value(VALUE[()])
    with pytest.raises(ac.CaptureError, match="p\\): the input point is a struct"):
        spread(point, ac.zeros(4, np.float64), 10, grid=1, block=1).graph(point=point)


def test_a_struct_of_many_bytes_among_many_parameters():
    members = "".join(f"double d{i};" for i in range(60))
    names = ", ".join(f"int i{i}" for i in range(20))
    total = " + ".join([*(f"b.d{i}" for i in range(60)), *(f"i{i}" for i in range(20))])
    source = f'struct B {{ {members} }};\nextern "C" __global__ void k({names}, B b, double* out) {{ *out = {total}; }}'
    value = np.ones(60).view([(f"d{i}", "f8") for i in range(60)])[0]
    assert ac.to_host(ac.kernel(source)(*range(20), value, ac.zeros(1, "f8"), grid=1, block=1)).sync()[0] == 60 + 190
