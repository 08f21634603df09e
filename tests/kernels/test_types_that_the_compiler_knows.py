"""Types that the source alone does not say: the compiler is asked, or the kernel is refused; nothing is guessed."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import aiocuda as ac

BODY = "{ if (threadIdx.x == 0) *x = 7; }"
# What stands before the kernel, its first parameter, and the dtype that the compiler gives it.
TYPES = {
    "a macro": ("#define floatX double", "floatX* x", "float64"),
    "a macro of a macro": ("#define A short\n#define floatX A", "floatX* x", "int16"),
    "a macro that has a condition": (
        "#if 1\n#define floatX float\n#else\n#define floatX double\n#endif",
        "floatX* x",
        "float32",
    ),
    "a macro with arguments": ("#define POINTER(T) T*", "POINTER(float) x", "float32"),
    "a macro of words": ("#define RESTRICT __restrict__", "float* RESTRICT x", "float32"),
    "an alias under a condition": ("#if 0 + 1\ntypedef double real;\n#endif", "real* x", "float64"),
    "aliases under a condition": (
        "#ifdef WIDE\nusing real = double;\n#else\nusing real = float;\n#endif",
        "real* x",
        "float32",
    ),
    "an alias that another branch's header would give": (
        "#ifdef WIDE\ntypedef double real;\n#else\n#define real int\n#endif",
        "real* x",
        "int32",
    ),
    "an alias that another branch's macro writes": (
        "#define ALIAS(name, T) typedef T name;\n#ifdef WIDE\ntypedef double real;\n#else\nALIAS(real, int)\n#endif",
        "real* x",
        "int32",
    ),
    "an alias of a macro": ("#define BASE unsigned char\ntypedef BASE byte_type;", "byte_type* x", "uint8"),
    "an alias by a macro": ("#define ALIAS(name, T) typedef T name;\nALIAS(real, double)", "real* x", "float64"),
    "a using-declaration": ("namespace a { typedef double real; }\nusing a::real;", "real* x", "float64"),
    "a using-directive": ("namespace a { typedef double real; }\nusing namespace a;", "real* x", "float64"),
    "an alias of a namespace": ("namespace a { typedef short real; }\nnamespace b = a;", "b::real* x", "int16"),
    "a member of a template": (
        "template <typename T> struct Traits { using value_type = T; };",
        "Traits<double>::value_type* x",
        "float64",
    ),
    "a specialisation": (
        "template <typename T> struct Traits { using type = T; };\n"
        "template <> struct Traits<float> { using type = int; };",
        "typename Traits<float>::type* x",
        "int32",
    ),
    "an alias template": ("template <typename T> using Pointer = T*;", "Pointer<double> x", "float64"),
    "decltype": ("__device__ double sample = 0;", "decltype(sample)* x", "float64"),
    "an enumeration of a macro": (
        "#define BASE unsigned char\nenum Mode : BASE { one };",
        "unsigned char* x, Mode m",
        "uint8",
    ),
    "a macro of a half": ("#include <cuda_fp16.h>\n#define floatX __half", "floatX* x", "float16"),
    "a macro of a bfloat16": ("#include <cuda_bf16.h>\n#define floatX __nv_bfloat16", "floatX* x", "bfloat16"),
    "a line that goes on": ("", "flo\\\nat* \\\n  x", "float32"),
    "conditionals in the list": ("", "\n#ifdef WIDE\ndouble* x\n#else\nfloat* x\n#endif\n", "float32"),
}


def write(kernel, dtype, *more):
    x = ac.zeros(1, np.dtype(getattr(ml_dtypes, dtype, dtype)))
    return ac.to_host(kernel(x, *more, grid=1, block=1)).sync().astype(float).tolist()


@pytest.mark.parametrize("name", TYPES)
def test_the_compiler_says_what_the_source_does_not(name: str):
    before, parameter, dtype = TYPES[name]
    kernel = ac.kernel(f'{before}\nextern "C" __global__ void k({parameter}) {BODY}', "k")
    more = (0,) if "m" in parameter.split() else ()
    wrong = ac.zeros(1, np.complex128)
    with pytest.raises(ac.ArgumentTypeError, match=dtype):
        kernel(wrong, *more, grid=1, block=1)
    assert write(kernel, dtype, *more) == [7]


def test_the_nearest_name_is_the_compilers():
    source = """
    typedef float real;
    namespace outer { inline namespace v1 { typedef double real; } __global__ void k(real* x) { *x = 7; } }
    """
    assert write(ac.kernel(source), "float64") == [7]


def test_a_header_may_say_another_type(tmp_path: Path):
    (tmp_path / "types.h").write_text("namespace deep { typedef double real; }\n#define uint unsigned char\n")
    source = '#include "types.h"\ntypedef float real;\nnamespace deep { '
    source += "__global__ void k(real* x) { *x = 7; } __global__ void u(uint* x) { *x = 7; } }"
    for name, dtype in (("deep::k", "float64"), ("deep::u", "uint8")):
        assert write(ac.kernel(source, name, options=(f"-I{tmp_path}",)), dtype) == [7]


@pytest.mark.parametrize("option", [("-Duint=double",), ("-D", "uint=double"), ("--define-macro=uint=double",)])
def test_the_options_define_macros(option: tuple[str, ...]):
    source = 'extern "C" __global__ void k(uint* x) { *x = 7; }'
    assert write(ac.kernel(source, options=option), "float64") == [7]


def test_const_is_the_compilers_too():
    source = """
    #define IN const float*
    #define MAYBE const
    template <typename T> struct Box { typedef const T* in; };
    extern "C" __global__ void k(IN a, Box<float>::in b, MAYBE float* c, volatile float* x) { *x = a[0] + b[0] + c[0]; }
    """
    kernel = ac.kernel(source)
    assert [each.writes for each in kernel.signature.parameters] == [False, False, False, True]
    assert [each.name for each in kernel.signature.parameters] == ["a", "b", "c", "x"]
    ones = ac.ones(1, np.float32)
    assert ac.to_host(kernel(ones, ones, ones, ac.zeros(1, np.float32), grid=1, block=1)).sync().tolist() == [3]


def test_a_template_says_its_dependent_types_when_it_is_named():
    source = """
    struct Wide { using value_type = double; static const int rank = 1; };
    template <typename T> __global__ void k(typename T::value_type* x, typename T::value_type a) { *x = a; }
    """
    kernel = ac.kernel(source, "k<Wide>")
    assert [each.dtype for each in kernel.signature.parameters] == ["float64", "float64"]
    assert write(kernel, "float64", 7.0) == [7]


def test_a_kernel_that_a_macro_writes_is_found_by_its_name():
    source = """
    #define FILL(name, T) extern "C" __global__ void name(T* x, int n) { for (int i = 0; i < n; ++i) x[i] = 7; }
    FILL(fill_short, short)
    FILL(fill_double, double)
    """
    assert write(ac.kernel(source, "fill_short"), "int16", 1) == [7]
    assert write(ac.kernel(source, "fill_double"), "float64", 1) == [7]
    with pytest.raises(ac.ArgumentValueError, match=r"fill_float.*signature="):
        ac.kernel(source, "fill_float")(ac.zeros(1), 1, grid=1, block=1)


def test_a_kernel_in_two_branches_is_the_one_that_is_compiled():
    source = """
    #ifdef WIDE
    extern "C" __global__ void k(double* x) { *x = 7; }
    #else
    extern "C" __global__ void k(float* x) { *x = 7; }
    #endif
    """
    assert write(ac.kernel(source), "float32") == [7]
    assert write(ac.kernel(source, options=("-DWIDE",)), "float64") == [7]


def test_a_struct_whose_members_the_source_does_not_say():
    source = """
    #define real double
    #define SIZE 3
    const int N = 2;
    typedef float row[2];
    enum { COUNT = 2 };
    struct Inner { real a; char c; };
    struct Options { char c; real scale; float weights[SIZE]; short n[N]; row r; Inner inner[COUNT]; };
    extern "C" __global__ void k(Options o, double* x) {
        x[0] = o.scale; x[1] = o.weights[2]; x[2] = o.n[1]; x[3] = o.r[1]; x[4] = o.inner[1].a; x[5] = sizeof(Options);
    }
    """
    kernel = ac.kernel(source)
    layout = kernel.signature.parameters[0].layout
    value = np.zeros((), layout)
    value["scale"], value["weights"], value["n"], value["r"] = 2.5, (1, 2, 3), (4, 5), (6, 7)
    value["inner"]["a"] = (8, 9)
    found = ac.to_host(kernel(value, ac.zeros(6, np.float64), grid=1, block=1)).sync().tolist()
    assert found == [2.5, 3, 5, 7, 9, layout.itemsize]


def test_a_constant_that_is_a_type():
    source = """
    #include <cuda/std/type_traits>
    template <bool B> __global__ void k(float* x, cuda::std::bool_constant<B> flag) { *x = flag.value ? 7 : 0; }
    """
    kernel = ac.kernel(source, "k<true>")
    assert write(kernel, "float32", True) == [7]
    with pytest.raises(ac.ArgumentRangeError, match="another type"):
        kernel(ac.zeros(1), False, grid=1, block=1)
    with pytest.raises(ac.ArgumentTypeError, match="the type says 1"):
        kernel(ac.zeros(1), 1.5, grid=1, block=1)


def test_scalars_of_a_macros_type():
    source = """
    #define floatX float
    #define COUNT unsigned long long
    extern "C" __global__ void k(double* x, floatX a, COUNT n) { *x = a * n; }
    """
    kernel = ac.kernel(source)
    assert ac.to_host(kernel(ac.zeros(1, np.float64), 0.5, 1 << 40, grid=1, block=1)).sync().tolist() == [2.0**39]


REFUSED = {
    'struct Hidden; extern "C" __global__ void k(float* x, POINTERS y) {}': ("y", "float**", "pointer to pointers"),
    "template <typename T> struct Box { T a; }; __global__ void k(Box<float> y) {}": ("y", "Box<float>", "structures="),
}


@pytest.mark.parametrize("source", REFUSED)
def test_what_a_launch_cannot_pass_is_refused_with_the_type(source: str):
    name, spelled, why = REFUSED[source]
    kernel = ac.kernel(source, options=("-DPOINTERS=float**",))
    with pytest.raises(ac.ArgumentValueError, match=rf"'{name}'.*{re.escape(spelled)}.*signature=") as raised:
        kernel(ac.zeros(1), 1, grid=1, block=1)
    assert why in str(raised.value)


def test_what_does_not_compile_is_told_with_the_users_lines():
    kernel = ac.kernel('extern "C" __global__ void k(Missing* x) { }')
    with pytest.raises(ac.CompilationError, match=r"k\.cu.*Missing|Missing"):
        kernel(ac.zeros(1), grid=1, block=1)


def test_the_source_is_not_asked_about_where_it_says_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("aiocuda._driver.lowered_name", None)
    kernel = ac.kernel('#define N 4\nextern "C" __global__ void k(const float* x, float4* y, size_t n) {}')
    assert [each.kind for each in kernel.signature.parameters] == ["array", "array", "scalar"]


def test_making_a_kernel_asks_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("aiocuda._driver.lowered_name", None)
    kernel = ac.kernel('#define real float\nextern "C" __global__ void k(real* x) {}')
    assert repr(kernel) == "<Kernel k(? x)>"


def test_parameters_by_name_and_compilation_beforehand(run):
    source = '#define real double\nextern "C" __global__ void k(real* x, real a) { *x = a; }'

    async def program():
        kernel = ac.kernel(source)
        await kernel.compile_async()
        return await ac.to_host(kernel(a=7.0, x=ac.zeros(1, np.float64), grid=1, block=1))

    assert run(program).tolist() == [7]


def test_an_error_of_the_source_does_not_show_the_question():
    misspelt = ac.kernel('extern "C" __global__ void look(const flaot* x) {}')
    with pytest.raises(ac.CompilationError, match='identifier "flaot" is undefined') as raised:
        misspelt(ac.ones(3), threads=3).sync()
    assert "aiocuda_question" not in str(raised.value)
