"""Where kernels stand in a source, and which of them a name picks."""

import pickle

import pytest

from aiocuda._source.signature import KernelSignature, parse_kernels, select_kernel
from aiocuda.errors import AiocudaError, SignatureError

ATTRIBUTES = """
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256, 2) a(float* x, int n) { }
__cluster_dims__(2, 1, 1) __global__ void b(float* x, int n) { }
__global__ __cluster_dims__(2, 1, 1) void c(float* x, int n) { }
extern "C" __global__ __launch_bounds__(128) void d(float* x, int n) { }
static __global__ void __launch_bounds__(0x40u) e(float* x, int n) { }
__launch_bounds__(512) static inline __global__ void f(float* x, int n) { }
void __global__ g(float* x, int n) { }
[[deprecated("(use h)")]] __global__ void __attribute__((used, aligned(8))) h(float* x, int n) { }
__global__ void __launch_bounds__(32 * WARPS) i(float* x, int n) { }
__global__ auto j(float* x, int n) -> void { }
__global__ void k(float* x, int n) noexcept { }
KERNEL_API(1) __global__ BOUNDS(7) void l(float* x, int n) __launch_bounds__(96);
template <typename T> requires (sizeof(T) > 2) __global__ void m(float* x, int n) { }
__global__
void
__launch_bounds__(1'024)
n(float* x,
  int n)
{
}
"""


def names(source: str) -> list[str]:
    return [signature.name for signature in parse_kernels(source)]


def test_attributes_may_stand_before_and_after_void() -> None:
    found = parse_kernels(ATTRIBUTES)
    assert "".join(signature.name for signature in found) == "abcdefghijklmn"
    for signature in found:
        assert [(p.name, p.kind) for p in signature.parameters] == [("x", "array"), ("n", "scalar")]


def test_launch_bounds_are_read_where_they_are_literals() -> None:
    bounds = {signature.name: signature.max_threads for signature in parse_kernels(ATTRIBUTES)}
    expected = dict.fromkeys("abcdefghijklmn")
    expected |= {"a": 256, "d": 128, "e": 64, "f": 512, "l": 96, "n": 1024}
    assert bounds == expected


def test_lines_are_those_of_the_user() -> None:
    source = '// one\n/* two\nthree */\n#define A \\\n  b\nconst char* s = R"(\n)";\r\n'
    source += "__global__ void k(int);"
    assert [signature.line for signature in parse_kernels(source)] == [8]


@pytest.mark.parametrize(
    "text",
    [
        "// __global__ void no(int x) {}",
        "// continued \\\n __global__ void no(int x) {}",
        "/* __global__ void no(int x) {} */",
        'const char* s = "__global__ void no(int x) {}";',
        'const char* s = "\\"__global__ void no(int x) {}";',
        'const char* s = R"cu(" __global__ void no(int x) {} )" )cu";',
        "#define KERNEL(T) __global__ void no_##T(T x) {}",
        "#define KERNEL(T) \\\n __global__ void no_##T(T x) {}",
        "#if 0\n__global__ void no(int x) {}\n#endif",
        "#if 0\nif (a) {\n__global__ void no(int);\n#else\nnamespace {\n#endif\n}",
        "#if 0\n#if 1\n__global__ void no(int x) {}\n#endif\n__global__ void no(int x) {}\n#endif",
        "typedef void (*pointer)(int); using other = __global__ void (*)(int);",
        "DECLARE(__global__, no)",
        "__global__ void NAME(no)(float* x) {}",
        "int not__global__(int x);",
        "char quote = '\"'; int thousand = 1'000;",
        "#include <it's.h>",
        "#error don't",
    ],
)
def test_what_is_not_a_declaration_is_no_kernel(text: str) -> None:
    assert names(f"{text}\n__global__ void yes(int x) {{}}\n") == ["yes"]


@pytest.mark.parametrize(
    "noise",
    [
        '__device__ float f(float x) { asm("mov.u32 %0, %1;" : "=r"(a) : "r"(b)); return x; }',
        "void launch() { k<<<dim3(1, 2), 32, 0, s>>>(x, 3); }",
        "DEVICE_INLINE float2 g(float2 a) { return a; }",
        "MACRO_WITHOUT_SEMICOLON(a, b)",
        "template <typename T> struct S { T x; __device__ S() : x(0) {} };",
        "__device__ __constant__ float table[] = { 1.f, 2.f };",
        "#pragma unroll\n",
        'static_assert(sizeof(int) == 4, "é ü 漢");',
        "auto f = [] __device__ (int x) { return x; };",
    ],
)
def test_kernels_are_found_among_anything(noise: str) -> None:
    kernel = "__global__ void k(float* x) { { } }"
    source = f"{noise}\nnamespace a {{\n{noise}\n{kernel}\n{noise}\n}}\n{noise}"
    (signature,) = parse_kernels(source)
    assert signature.name == "a::k"
    assert signature.line == 4 + 2 * noise.count("\n")


def test_namespaces_and_linkage() -> None:
    source = """
    namespace a::b { namespace { inline namespace v1 { __global__ void deep(int); } } }
    extern "C" { __global__ void plain(int); namespace n { __global__ void spaced(int); } }
    extern "C++" { __global__ void mangled(int); }
    extern "C" __global__ void single(int);
    __global__ void n::outside(int) {}
    """
    assert [(s.name, s.name_expression_needed) for s in parse_kernels(source)] == [
        ("a::b::v1::deep", True),
        ("plain", False),
        ("n::spaced", False),
        ("mangled", True),
        ("single", False),
        ("n::outside", True),
    ]


def test_a_declaration_and_its_definition_are_one_kernel() -> None:
    source = "__global__ void k(float*, int);\n__global__ void k(float* x, int n) {}\n"
    (signature,) = parse_kernels(source)
    assert [p.name for p in signature.parameters] == ["x", "n"]
    assert signature.line == 2


def test_branches_are_open_when_named() -> None:
    source = "#ifdef A\n__global__ void k(float* x) {\n#else\n__global__ void k(double* x) {\n#endif\n}"
    assert names(source) == ["k", "k"]
    signature = select_kernel(source, "k")
    assert signature.is_open
    assert "lines 2, 4" in signature.problem


def test_overloads_are_ambiguous_when_named() -> None:
    source = "\n__global__ void k(float* x) {}\n\n__global__ void k(double* x) {}"
    assert names(source) == ["k", "k"]
    with pytest.raises(SignatureError, match=r"names 2 kernels.*signature=.*\n.*line 2.*\n.*line 4"):
        select_kernel(source, "k")


@pytest.mark.parametrize("where", ["", "__global__ void first(int n) ", "__device__ void first() "])
def test_braces_opened_once_per_branch_do_not_shift_what_follows(where: str) -> None:
    branches = "{\n#if A\nif (a) {\n#elif B\nif (b) {\n#else\nif (c) {\n#endif\n} }"
    function = f"{where}{branches}\n" if where else "#ifdef A\n#else\n#endif\n"
    source = f"{function}namespace n {{ typedef int I; __global__ void k(I n) {{}} }}"
    signature = select_kernel(source, "k").require_known()
    assert (signature.name, signature.parameters[0].dtype) == ("n::k", "int32")


def test_a_conditional_in_the_parameter_list_is_told_when_used() -> None:
    source = "__global__ void k(float* x,\n#ifdef A\nint n\n#else\nlong n\n#endif\n) {}"
    (signature,) = parse_kernels(source)
    with pytest.raises(SignatureError, match=r"preprocessor conditionals.*signature="):
        signature.require_known()


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(float* x { }",
        "__global__ void k float* x) { }",
        "__global__ k(float* x) { }",
        "__global__ void { }",
        "__global__",
        "__global__ void k(float x) float y;",
    ],
)
def test_a_declaration_that_cannot_be_read_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(SignatureError, match=r"line 3: .*cannot be read") as raised:
        parse_kernels(f"\n\n{text}")
    assert raised.value.line == 3
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, AiocudaError)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


TEMPLATES = """
using real = double;
namespace ns {
template <typename T, int N = 4> __global__ void __launch_bounds__(N)
scale(T* x, const T factor, const float* y) {}
template <class T = float, typename U = const T, bool = (1 > 0)>
__global__ void defaulted(T* x, U* y);
template <typename... Ts> __global__ void pack(int n, Ts... values);
template <int BLOCK> __global__ void __launch_bounds__(BLOCK, 2) only_value(bool* x);
template <class T, enable_if_t<is_same<T, int>::value, int> = 0> __global__ void constrained(int n);
}
template __global__ void ns::scale<float>(float*, const float, const float*);
template <> __global__ void ns::scale<int>(int* x, const int factor, const float* y) {}
"""


@pytest.mark.parametrize(
    ("asked", "name", "printed"),
    [
        (
            "ns::scale<float, 64>",
            "ns::scale<float, 64>",
            "float32* x, float32 factor, const float32* y",
        ),
        ("scale<half>", "ns::scale<half>", "float16* x, float16 factor, const float32* y"),
        (
            "&::ns::scale< const real >",
            "ns::scale<const real>",
            "const float64* x, float64 factor, const float32* y",
        ),
        ("scale<real*>", "ns::scale<real*>", None),
        ("ns::defaulted<>", "ns::defaulted<>", "float32* x, const float32* y"),
        ("ns::defaulted", "ns::defaulted<>", "float32* x, const float32* y"),
        ("defaulted<int>", "ns::defaulted<int>", "int32* x, const int32* y"),
        ("defaulted<int, float>", "ns::defaulted<int, float>", "int32* x, float32* y"),
        ("only_value<256>", "ns::only_value<256>", "bool* x"),
        ("only_value<(2 > 1)>", "ns::only_value<(2 > 1)>", "bool* x"),
    ],
)
def test_template_arguments_are_put_in(asked: str, name: str, printed: str | None) -> None:
    signature = select_kernel(TEMPLATES, asked)
    assert signature.name == name
    assert signature.name_expression_needed
    assert signature.template_parameters == ()
    if printed is None:
        assert signature.parameters[0].kind == "unknown"
    else:
        assert str(signature.require_known()) == f"{name}({printed})"


def test_template_arguments_reach_the_launch_bounds() -> None:
    assert select_kernel(TEMPLATES, "scale<float, 96>").max_threads == 96
    assert select_kernel(TEMPLATES, "scale<float>").max_threads == 4
    assert select_kernel(TEMPLATES, "only_value<BLOCK>").max_threads is None


def test_templates_are_listed_with_their_parameters_open() -> None:
    scale, defaulted, pack, only_value, constrained = parse_kernels(TEMPLATES)
    assert scale.template_parameters == ("T", "N")
    assert [p.kind for p in scale.parameters] == ["unknown", "unknown", "array"]
    assert defaulted.template_parameters == ("T", "U", "")
    assert pack.template_parameters == ("Ts",)
    assert only_value.parameters[0].dtype == "bool"
    assert constrained.template_parameters == ("T", "")
    assert constrained.parameters[0].dtype == "int32"


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("", None, r"no __global__ function.*signature="),
        ("int x;", "k", r"no __global__ function"),
        (ATTRIBUTES, None, r"14 kernels.*name=(.|\n)*line 2: a\(float32\* x, int32 n\)"),
        (ATTRIBUTES, "zz", r"no kernel 'zz'; found:(.|\n)*line 3: b\("),
        (TEMPLATES, "scale", r"template of <T, N> and 'T' was not given"),
        (TEMPLATES, "scale<float, 1, 2>", r"takes 2 template arguments, 3 were given"),
        (ATTRIBUTES, "a<float>", r"takes 0 template arguments, 1 were given"),
        (ATTRIBUTES, "a b", r"'a b' is not a kernel's name"),
        (ATTRIBUTES, "", r"'' is not a kernel's name"),
        (ATTRIBUTES, "a<", r"is not a kernel's name"),
        (ATTRIBUTES, "a; b", r"is not a kernel's name"),
        (ATTRIBUTES, "a*", r"is not a kernel's name"),
    ],
)
def test_a_selection_that_fails_says_what_there_is(source: str, name: str | None, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        select_kernel(source, name)


def test_the_only_kernel_needs_no_name() -> None:
    assert select_kernel('extern "C" __global__ void k(int n) {}') == KernelSignature(
        "k", select_kernel("__global__ void o(int n);").parameters, line=1
    )


def test_a_qualified_name_settles_what_a_bare_one_does_not() -> None:
    source = "namespace a { __global__ void k(int); }\nnamespace b { __global__ void k(float); }"
    assert select_kernel(source, "b::k").parameters[0].dtype == "float32"
    with pytest.raises(SignatureError, match="names 2 kernels"):
        select_kernel(source, "k")


def test_an_exact_name_wins_over_a_longer_one() -> None:
    source = "namespace a { __global__ void k(int); }\n__global__ void k(float);"
    assert select_kernel(source, "::k").parameters[0].dtype == "float32"
    assert select_kernel(source, "k").parameters[0].dtype == "float32"
