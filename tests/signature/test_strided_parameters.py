"""``aiocuda::View`` and ``aiocuda::Partition`` as parameters: each way of spelling them, and each mistake."""

import pytest

from aiocuda._source.signature import KernelSignature, Parameter, parse_kernels, parse_signature, select_kernel
from aiocuda.errors import SignatureError


def view(dtype: str, rank: int, *, const: bool = True, width: int = 1) -> Parameter:
    return Parameter("x", "view", dtype, width, writes=not const, const=const, rank=rank)


def partition(dtype: str, rank: int, width: int = 1) -> Parameter:
    return Parameter("x", "partition", dtype, width, writes=True, rank=rank)


SPELLINGS = [
    ("aiocuda::View<const float, 2> x", view("float32", 2)),
    ("aiocuda::View<float const,2> x", view("float32", 2)),
    ("::aiocuda::View<const double, 1> x", view("float64", 1)),
    ("aiocuda :: View < const float , 3u > x", view("float32", 3)),
    ("aiocuda::View<int, 3> x", view("int32", 3, const=False)),
    ("const aiocuda::View<int, 3> x", view("int32", 3, const=False)),
    ("aiocuda::View<int, 3> const x", view("int32", 3, const=False)),
    ("const __grid_constant__ aiocuda::View<const int, 0x8> x", view("int32", 8)),
    ("aiocuda::View<const unsigned long long, 2> x", view("uint64", 2)),
    ("aiocuda::View<const std::int64_t, 2> x", view("int64", 2)),
    ("aiocuda::View<const __half, 4> x", view("float16", 4)),
    ("aiocuda::View<const float4, 2> x", view("float32", 2, width=4)),
    ("aiocuda::Partition<float, 4> x", partition("float32", 4)),
    ("const aiocuda::Partition<__nv_bfloat16, 2> x", partition("bfloat16", 2)),
    ("aiocuda::Partition<double2, 1> x", partition("float64", 1, 2)),
]
IN_A_SOURCE = [
    ("using namespace aiocuda;", "View<const float, 2> x", view("float32", 2)),
    ("using namespace ::aiocuda;", "const Partition<int, 1> x", partition("int32", 1)),
    ("using aiocuda::View;", "View<short, 2> x", view("int16", 2, const=False)),
    ("namespace ac = aiocuda;", "ac::View<const short, 2> x", view("int16", 2)),
    ("using V = aiocuda::View<const char, 5>;", "V x", view("int8", 5)),
    ("typedef aiocuda::Partition<float, 2> out;", "out x", partition("float32", 2)),
    ("typedef double real;", "aiocuda::View<const real, 2> x", view("float64", 2)),
    ("typedef const double real;", "aiocuda::View<real, 2> x", view("float64", 2)),
    ("namespace n { using aiocuda::View; using V = View<int, 1>; }", "n::V x", view("int32", 1, const=False)),
]


def only(source: str) -> Parameter:
    (parameter,) = parse_kernels(source)[-1].require_known().parameters
    return parameter


@pytest.mark.parametrize(("spelled", "expected"), SPELLINGS)
def test_spellings_are_read_from_source_and_from_signatures(spelled: str, expected: Parameter) -> None:
    assert only(f"__global__ void k({spelled}) {{}}") == expected
    assert parse_signature(spelled).parameters == (expected,)


@pytest.mark.parametrize(("before", "spelled", "expected"), IN_A_SOURCE)
def test_names_and_aliases_of_the_source_are_followed(before: str, spelled: str, expected: Parameter) -> None:
    assert only(f"#include <aiocuda/tile.cuh>\n{before}\n__global__ void k({spelled}) {{}}") == expected


def test_commas_between_angle_brackets_do_not_split() -> None:
    signature = parse_signature("aiocuda::View<const float,2> x, int n, aiocuda::Partition<float,2> y")
    assert [(p.name, p.kind, p.rank) for p in signature.parameters] == [
        ("x", "view", 2),
        ("n", "scalar", 0),
        ("y", "partition", 2),
    ]


TEMPLATE = """
template <class T, int N = 3> __global__ void k(aiocuda::View<const T, N> x, aiocuda::Partition<T, 2> y) {}
"""


@pytest.mark.parametrize(
    ("name", "dtype", "rank"), [("k<float, 2>", "float32", 2), ("k<half, 4u>", "float16", 4), ("k<int>", "int32", 3)]
)
def test_template_arguments_give_items_and_rank(name: str, dtype: str, rank: int) -> None:
    x, y = select_kernel(TEMPLATE, name).require_known().parameters
    assert (x.dtype, x.rank, x.writes) == (dtype, rank, False)
    assert (y.dtype, y.rank, y.writes) == (dtype, 2, True)


def test_open_template_parameters_are_unknown() -> None:
    (signature,) = parse_kernels(TEMPLATE)
    assert [(p.kind, p.rank) for p in signature.parameters] == [("unknown", 0)] * 2


def test_signatures_take_the_rank_as_a_template_argument() -> None:
    signature = parse_signature("aiocuda::View<T, N> x", template_arguments={"T": "const float", "N": "2"})
    assert signature.parameters == (view("float32", 2),)


def test_kernels_that_differ_in_rank_are_overloads() -> None:
    source = "".join(f"__global__ void k(aiocuda::View<const int, {rank}> x) {{}}\n" for rank in (1, 2))
    assert [s.parameters[0].rank for s in parse_kernels(source)] == [1, 2]


def test_printed_as_cpp_has_it() -> None:
    signature = KernelSignature("k", (view("float32", 2), view("int8", 1, const=False), partition("float16", 4)))
    assert str(signature) == (
        "k(aiocuda::View<const float32, 2> x, aiocuda::View<int8, 1> x, aiocuda::Partition<float16, 4> x)"
    )


@pytest.mark.parametrize("name", ["View<const float, 2>", "Partition<float, 2>"])
@pytest.mark.parametrize("form", ["aiocuda::{}& x", "const aiocuda::{}& x", "aiocuda::{}* x", "const aiocuda::{} x[]"])
def test_references_and_pointers_to_them_are_refused(form: str, name: str) -> None:
    with pytest.raises(SignatureError, match="pass it by value") as raised:
        parse_kernels(f"\n__global__ void k({form.format(name)}) {{}}")
    assert raised.value.line == 2
    with pytest.raises(SignatureError, match="pass it by value"):
        parse_signature(form.format(name))


@pytest.mark.parametrize("rank", [0, 9, -1])
@pytest.mark.parametrize("name", ["View", "Partition"])
def test_ranks_outside_one_to_eight_are_refused(name: str, rank: int) -> None:
    with pytest.raises(SignatureError, match=rf"line 1: .* has rank {rank}: give it 1 to 8 dimensions"):
        parse_kernels(f"__global__ void k(aiocuda::{name}<float, {rank}> x) {{}}")


def test_a_partition_of_const_items_is_refused() -> None:
    with pytest.raises(SignatureError, match=r"read through an aiocuda::View"):
        parse_signature("aiocuda::Partition<const float, 2> x")


@pytest.mark.parametrize(
    ("spelled", "reason"),
    [
        ("aiocuda::View<const float> x", "needs two template arguments"),
        ("aiocuda::View<const S, 2> x", "'S' is not defined"),
        ("aiocuda::View<const float*, 2> x", "no numbers"),
        ("aiocuda::View<void, 2> x", "no numbers"),
        ("aiocuda::View<const float, N + 1> x", r"'N \+ 1' is neither"),
        ("aiocuda::View<const float, int> x", "no integer literal"),
        ("aiocuda::View<2, 2> x", "no numbers"),
        ("aiocuda::Tile<float, 2> x", "'aiocuda::Tile<float, 2>' is not defined"),
        ("View<const float, 2> x", "'View<const float, 2>' is not defined"),
        ("other::View<const float, 2> x", "is not defined"),
    ],
)
def test_what_cannot_be_known_is_unknown_with_its_reason(spelled: str, reason: str) -> None:
    with pytest.raises(SignatureError, match=reason):
        only(f"__global__ void k({spelled}) {{}}")


@pytest.mark.parametrize("form", ["struct View", "class View"])
def test_a_class_template_of_the_source_itself_is_another(form: str) -> None:
    source = f"""using namespace aiocuda;
    namespace mine {{
    template <class T, int N> {form} {{ T* data; }};
    __global__ void k(View<const float, 2> x) {{}}
    }}
    __global__ void other(View<const float, 2> x) {{}}"""
    mine, other = parse_kernels(source)
    assert mine.parameters[0].kind == "unknown"
    assert other.parameters == (view("float32", 2),)


def test_a_template_argument_that_is_a_number_is_no_type() -> None:
    with pytest.raises(SignatureError, match="'N' is no type but a number"):
        select_kernel("template <int N> __global__ void k(N x) {}", "k<2>").require_known()
