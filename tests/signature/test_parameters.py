"""Each way of writing a parameter, and what it must be read as."""

import re

import ml_dtypes
import numpy as np
import pytest

from aiocuda._source.signature import Parameter, parse_kernels, parse_signature
from aiocuda.errors import SignatureError

SCALARS = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "short int": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "signed": "int32",
    "signed int": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "int unsigned": "uint32",
    "long": "int64",
    "long int": "int64",
    "unsigned long": "uint64",
    "long unsigned int": "uint64",
    "long long": "int64",
    "unsigned long long": "uint64",
    "unsigned long long int": "uint64",
    "float": "float32",
    "double": "float64",
    "size_t": "uint64",
    "std::size_t": "uint64",
    "ptrdiff_t": "int64",
    "uintptr_t": "uint64",
    "int8_t": "int8",
    "uint8_t": "uint8",
    "std::int16_t": "int16",
    "cuda::std::uint16_t": "uint16",
    "::int32_t": "int32",
    "uint32_t": "uint32",
    "int64_t": "int64",
    "uint64_t": "uint64",
    "__half": "float16",
    "half": "float16",
    "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    "cuFloatComplex": "complex64",
    "cuDoubleComplex": "complex128",
    "thrust::complex<float>": "complex64",
    "cuda::std::complex<double>": "complex128",
    "cudaTextureObject_t": "uint64",
}
VECTORS = {
    "float2": ("float32", 2),
    "float3": ("float32", 3),
    "float4": ("float32", 4),
    "double2": ("float64", 2),
    "uchar4": ("uint8", 4),
    "int2": ("int32", 2),
    "uint3": ("uint32", 3),
    "longlong2": ("int64", 2),
    "double4_16a": ("float64", 4),
    "half2": ("float16", 2),
    "__nv_bfloat162": ("bfloat16", 2),
    "dim3": ("uint32", 3),
}
READ = [
    "const {} *x",
    "{} const* x",
    "const {}* __restrict__ x",
    "const {} *const x",
    "const {} x[]",
]
READ += ["{} const x[16]", "const {}* __restrict x", "const volatile {}* x", "const {} (*x)[8]"]
READ += ["const {} x[][4]", "[[maybe_unused]] const {}* x", "const /* in */ {} * x // read"]
WRITTEN = ["{} *x", "{}* __restrict__ x", "{} *const x", "{} *const __restrict__ x", "{} x[]"]
WRITTEN += ["{} x[4]", "volatile {}* x", "{} (*x)[8]", "{}*x", "__attribute__((unused)) {}* x"]


def only(text: str) -> Parameter:
    (parameter,) = parse_kernels(f"__global__ void k({text}\n) {{}}")[0].parameters
    return parameter


@pytest.mark.parametrize(("spelled", "dtype"), SCALARS.items())
def test_scalar_types_have_the_dtype_of_lp64(spelled: str, dtype: str) -> None:
    expected = Parameter("x", "scalar", dtype)
    assert only(f"{spelled} x") == expected
    assert only(f"const {spelled} x") == Parameter("x", "scalar", dtype, const=True)
    assert parse_signature(f"{spelled} x").parameters == (expected,)
    assert np.dtype(getattr(ml_dtypes, dtype, dtype)).name == dtype


@pytest.mark.parametrize(("spelled", "dtype"), SCALARS.items())
def test_pointers_are_arrays_of_what_they_point_to(spelled: str, dtype: str) -> None:
    assert only(f"{spelled}* x") == Parameter("x", "array", dtype, writes=True)
    assert only(f"const {spelled}* x") == Parameter("x", "array", dtype, const=True)


@pytest.mark.parametrize(("spelled", "element"), VECTORS.items())
def test_vector_types_note_their_width(spelled: str, element: tuple[str, int]) -> None:
    dtype, width = element
    assert only(f"{spelled} x") == Parameter("x", "struct", dtype, width)
    assert only(f"{spelled}* x") == Parameter("x", "array", dtype, width, writes=True)


@pytest.mark.parametrize("base", ["float", "unsigned long long", "std::uint8_t"])
@pytest.mark.parametrize("form", READ)
def test_pointers_to_const_are_read(form: str, base: str) -> None:
    parameter = only(form.format(base))
    assert (parameter.name, parameter.kind, parameter.writes) == ("x", "array", False)


@pytest.mark.parametrize("base", ["float", "unsigned long long", "std::uint8_t"])
@pytest.mark.parametrize("form", WRITTEN)
def test_pointers_to_what_is_not_const_are_written(form: str, base: str) -> None:
    parameter = only(form.format(base))
    assert (parameter.name, parameter.kind, parameter.writes) == ("x", "array", True)


@pytest.mark.parametrize("base", ["void", "S", "ns::S", "struct S"])
def test_elements_without_a_dtype_are_arrays_of_any(base: str) -> None:
    defined = "struct S { int n; }; namespace ns { struct S { float x; }; }"
    x, y = parse_kernels(f"{defined}\n__global__ void k({base}* x, const {base}* y) {{}}")[0].parameters
    assert x == Parameter("x", "array", None, writes=True)
    assert y == Parameter("y", "array", None, const=True)


@pytest.mark.parametrize("base", ["S", "ns::S", "struct S", "T<int, 4>", "ns::T<float>::type", "typename T::type"])
def test_a_pointer_to_what_the_source_does_not_define_is_no_pointer_to_void(base: str) -> None:
    parameter = only(f"const {base}* x")
    assert (parameter.name, parameter.kind, parameter.is_askable) == ("x", "unknown", True)


@pytest.mark.parametrize(
    "text",
    [
        "S x",
        "const __grid_constant__ S x",
        "struct S x",
        "ns::S<float, 4> x",
        "float** x",
        "const float* const* x",
        "float* x[]",
        "void (*x)(int)",
        "int (*x[2])(int)",
        "auto x",
        "long double x",
        "typename T::type x",
        "decltype(1) x",
    ],
)
def test_what_cannot_be_known_is_unknown_with_its_reason(text: str) -> None:
    parameter = only(text)
    assert parameter.kind == "unknown"
    assert parameter.reason
    with pytest.raises(SignatureError, match=r"line 1: kernel 'k'.*signature="):
        parse_kernels(f"__global__ void k({text}) {{}}")[0].require_known()


def test_a_macro_spoils_only_its_own_parameter() -> None:
    (signature,) = parse_kernels("__global__ void k(const float* x, POINTER(float) y z, int n) {}")
    assert [p.kind for p in signature.parameters] == ["array", "unknown", "scalar"]


@pytest.mark.parametrize("text", ["int& x", "const float& x", "float (&x)[4]", "float&& x", "R x"])
def test_references_are_refused_with_the_line(text: str) -> None:
    with pytest.raises(SignatureError, match="is a reference") as raised:
        parse_kernels(f"using R = int&;\n__global__ void k(int n, {text}) {{}}")
    assert raised.value.line == 2


def test_grid_constants_and_defaults_are_plain_values() -> None:
    assert only("const __grid_constant__ int x") == Parameter("x", "scalar", "int32", const=True)
    assert only("int x = 3") == Parameter("x", "scalar", "int32")


def test_commas_inside_a_parameter_do_not_split_it() -> None:
    (signature,) = parse_kernels("__global__ void k(ns::A<int, 4>* a, int n = f(1, 2), int m) {}")
    assert [p.name for p in signature.parameters] == ["a", "n", "m"]


@pytest.mark.parametrize("text", ["", "  ", "void", "/* nothing */"])
def test_no_parameters(text: str) -> None:
    assert parse_kernels(f"__global__ void k({text}) {{}}")[0].parameters == ()


def test_parameters_without_names_are_named_by_position() -> None:
    (signature,) = parse_kernels("__global__ void k(float, const int*, int (*)[4]);")
    assert [p.name for p in signature.parameters] == ["argument0", "argument1", "argument2"]
    assert [p.writes for p in signature.parameters] == [False, False, True]


@pytest.mark.parametrize(
    ("alias", "spelled", "expected"),
    [
        ("typedef float real;", "real* x", Parameter("x", "array", "float32", writes=True)),
        ("typedef const float cf;", "cf* x", Parameter("x", "array", "float32", const=True)),
        ("typedef const float* in;", "in x", Parameter("x", "array", "float32", const=True)),
        ("typedef float *out;", "const out x", Parameter("x", "array", "float32", writes=True)),
        ("typedef float real, *out;", "out x", Parameter("x", "array", "float32", writes=True)),
        ("typedef float row[4];", "const row* x", Parameter("x", "array", "float32", const=True)),
        ("using I = unsigned long;", "const I x", Parameter("x", "scalar", "uint64", const=True)),
        (
            "using A = const half*; using B = A;",
            "B x",
            Parameter("x", "array", "float16", const=True),
        ),
        ("typedef unsigned char u8;", "u8 x[]", Parameter("x", "array", "uint8", writes=True)),
        ("namespace n { using F = double; }", "n::F x", Parameter("x", "scalar", "float64")),
        (
            "struct S { typedef short V; };",
            "S::V* x",
            Parameter("x", "array", "int16", writes=True),
        ),
        ("enum Mode { A, B };", "Mode x", Parameter("x", "scalar", "int32")),
        ("enum class Mode : unsigned char { A };", "Mode x", Parameter("x", "scalar", "uint8")),
        ("using V = float4;", "const V* x", Parameter("x", "array", "float32", 4, const=True)),
    ],
)
def test_aliases_in_the_source_are_followed(alias: str, spelled: str, expected: Parameter) -> None:
    (signature,) = parse_kernels(f"{alias}\n__global__ void k({spelled}) {{}}")
    assert signature.parameters == (expected,)


def test_the_alias_of_the_innermost_namespace_is_taken() -> None:
    source = """
    typedef float real;
    namespace a { typedef double real; namespace b {
    __global__ void inner(real* x, ::real* y) {}
    } }
    __global__ void outer(real* x, a::real* y) {}
    """
    inner, outer = parse_kernels(source)
    assert [p.dtype for p in inner.parameters] == ["float64", "float32"]
    assert [p.dtype for p in outer.parameters] == ["float32", "float64"]


def test_an_alias_with_two_meanings_is_unknown_and_the_lines_are_named() -> None:
    source = """#ifdef DOUBLE
typedef double real;
#else
typedef float real;
#endif
__global__ void k(real a) {}"""
    (parameter,) = parse_kernels(source)[0].parameters
    assert parameter.kind == "unknown"
    assert "lines 2, 4" in parameter.reason


@pytest.mark.parametrize("alias", ["typedef struct S S;", "using S = S;", "using S = T; using T = S;"])
def test_an_alias_of_itself_ends(alias: str) -> None:
    assert parse_kernels(f"{alias} __global__ void k(S x) {{}}")[0].parameters[0].kind == "unknown"


@pytest.mark.parametrize(
    "definition",
    [
        "struct Options { int n; };",
        "typedef struct Options_ { int n; } Options;",
        "typedef struct{ int n; }Options;",
        "struct Inner { int n; }; using Options = const Inner;",
    ],
)
def test_a_struct_by_value_has_a_layout(definition: str) -> None:
    (signature,) = parse_kernels(f"{definition}\n__global__ void k(Options o) {{}}")
    (parameter,) = signature.require_known().parameters
    assert (parameter.kind, parameter.layout) == ("struct", np.dtype([("n", "i4")]))


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ("union S { int n; float x; };", "'S' is a union"),
        ("struct B { int n; }; struct S : B { int m; };", "'S' has a base class"),
        ("struct S { virtual void f(); int n; };", "'S' has virtual functions"),
        ("struct S { int a : 3; };", "'S' has bit fields"),
        ("struct S { int* p; };", "'S::p': it holds a pointer"),
        ("struct S { Missing m; };", "'S::m': 'Missing' is not defined"),
        ("struct I { Missing m; }; struct S { I i; };", "'S::i': 'I::m': 'Missing' is not defined"),
        ("struct S { int n[N]; };", "the extents of 'S::n'"),
        ("struct S {};", "'S' has no members"),
        ("struct __align__(16) S { int n; };", "alignment"),
        ("struct S { char c; alignas(8) int n; };", "alignment"),
        ("struct S { char c; int n; } __attribute__((packed));", "packed"),
        ("#pragma pack(push, 1)\nstruct S { char c; int n; };", "packed"),
        ("struct S {\n#ifdef WIDE\nlong n;\n#else\nint n;\n#endif\n};", "preprocessor conditionals"),
    ],
)
def test_a_struct_whose_layout_the_source_does_not_show_says_why(definition: str, why: str) -> None:
    (signature,) = parse_kernels(f"{definition}\n__global__ void k(S o) {{}}")
    with pytest.raises(SignatureError, match=rf"'o'.*{re.escape(why)}.*structures="):
        signature.require_known()


def test_an_alignment_elsewhere_does_not_hide_a_struct() -> None:
    source = "struct __align__(16) A { int n; };\nstruct S { int n; };\nstruct alignas(8) B { int n; };"
    (signature,) = parse_kernels(f"{source}\n__global__ void k(S o) {{ __align__(8) int x; }}")
    assert signature.require_known().parameters[0].layout == np.dtype([("n", "i4")])


def test_what_a_macro_decides_is_unknown() -> None:
    source = "#define REAL float\n__global__ void k(REAL a, const REAL* x, int n) {}"
    a, x, n = parse_kernels(source)[0].parameters
    assert (a.name, a.kind, a.is_askable) == ("a", "unknown", True)
    assert (x.name, x.kind, x.is_askable) == ("x", "unknown", True)
    assert n == Parameter("n", "scalar", "int32")


def test_explicit_signatures_take_template_arguments() -> None:
    signature = parse_signature("T a, U x, T* y", name="k", template_arguments={"T": "half", "U": "const float*"})
    assert signature.parameters == (
        Parameter("a", "scalar", "float16"),
        Parameter("x", "array", "float32", const=True),
        Parameter("y", "array", "float16", writes=True),
    )
    assert signature.require_known() is signature


@pytest.mark.parametrize("text", ["real a", "int n, ", "float* x y", "int n;", "n", "int (", "T<3 x"])
def test_explicit_signatures_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(SignatureError, match=r"signature= of kernel 'k'"):
        parse_signature(text, name="k")


def test_an_empty_signature_has_no_parameters() -> None:
    assert parse_signature("").parameters == ()
