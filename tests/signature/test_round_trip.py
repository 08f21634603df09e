"""Any declaration that a model can print is read back as that model."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from aiocuda._source.signature import Parameter, parse_kernels, parse_signature, select_kernel
from aiocuda.errors import SignatureError

BASES = {
    "float": ("float32", 1),
    "double": ("float64", 1),
    "unsigned": ("uint32", 1),
    "unsigned long long int": ("uint64", 1),
    "signed char": ("int8", 1),
    "bool": ("bool", 1),
    "std::size_t": ("uint64", 1),
    "int16_t": ("int16", 1),
    "__half": ("float16", 1),
    "nv_bfloat16": ("bfloat16", 1),
    "float4": ("float32", 4),
    "ushort2": ("uint16", 2),
    "real": ("float64", 1),
    "T": ("uint8", 1),
}
PROLOGUE = "/* __global__ void no(int) */ typedef double real;\n"
NOISE = ["", " ", "\n", " /* , ) { */ ", " // __global__ void no(int);\n", "\t"]
HEADS = ["__global__ void ", "static __global__ void ", "__launch_bounds__(64) __global__ void "]
HEADS += ["__global__ __cluster_dims__(1, 2, 1) void ", "__global__ void __launch_bounds__(64) "]
TAILS = [";", "{}", '{ if (a < b) { f<<<1, 2>>>("}"); } }', " noexcept { }"]

noise = st.sampled_from(NOISE)


@st.composite
def parameters(draw: st.DrawFn) -> tuple[str, Parameter]:
    """A parameter as printed, and as it must be read."""
    base = draw(st.sampled_from(sorted(BASES)))
    dtype, width = BASES[base]
    name = draw(st.from_regex(r"[a-z_][a-z0-9_]{0,5}x", fullmatch=True))
    const = draw(st.booleans())
    printed = base
    if const:
        before = draw(st.booleans())
        printed = f"const {base}" if before else f"{base} const"
    space = draw(noise)
    match draw(st.sampled_from(["value", "pointer", "array", "array pointer"])):
        case "value":
            kind = "scalar" if width == 1 else "struct"
            return f"{printed} {space}{name}", Parameter(name, kind, dtype, width, const=const)
        case "pointer":
            qualifier = draw(st.sampled_from(["", "const ", "__restrict__ ", "const __restrict__ "]))
            printed += f"{space}*{draw(noise)}{qualifier}{name}"
        case "array":
            printed += f" {name}{space}[{draw(st.sampled_from(['', '4', 'N + 1']))}]"
        case _:
            printed += f" (*{name}){space}[8]"
    return printed, Parameter(name, "array", dtype, width, writes=not const, const=const)


lists = st.lists(parameters(), max_size=6)


@given(
    lists,
    st.sampled_from(HEADS),
    st.sampled_from(TAILS),
    noise,
    st.lists(st.sampled_from(["a", "b", "v1"])),
)
def test_declarations_are_read_back(
    drawn: list[tuple[str, Parameter]], head: str, tail: str, space: str, scopes: list[str]
) -> None:
    printed = f",{space}".join(text for text, _ in drawn)
    opening = "".join(f"namespace {scope} {{\n" for scope in scopes)
    source = f"{PROLOGUE}{opening}template <class T>{space}{head}k{space}({printed}{space}){tail}"
    source += "}" * len(scopes) + "\n__global__ void after(int n) { }"
    signature = select_kernel(source, "::".join([*scopes, "k"]) + "<unsigned char>")
    assert signature.parameters == tuple(parameter for _, parameter in drawn)
    assert signature.max_threads == (64 if "64" in head else None)
    assert [s.name for s in parse_kernels(source)] == ["::".join([*scopes, "k"]), "after"]


@given(lists)
def test_explicit_signatures_are_read_back(drawn: list[tuple[str, Parameter]]) -> None:
    text = ", ".join(text for text, _ in drawn)
    signature = parse_signature(text, template_arguments={"T": "unsigned char", "real": "double"})
    assert signature.parameters == tuple(parameter for _, parameter in drawn)


@given(st.text(alphabet="_global void k(){};<>,*&\"'/\\#\n0templanspcEC", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    source = text + "\n__global__ void k(" + text
    with contextlib.suppress(SignatureError):
        for signature in parse_kernels(source):
            assert 1 <= signature.line <= source.count("\n") + 1
