"""The kinds of types of a kernel's parameters in CUDA C++, and the names of numbers.

Always true: the sizes are those of LP64 (Linux).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class Value:
    """A number, or a short vector of `width` numbers; the dtype of ``void`` is None."""

    dtype: str | None
    width: int = 1
    const: bool = False
    alignment: int = 0  # in bytes; 0: that of its size


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer; `const` says whether the pointer itself, not what it points to, is const."""

    target: Type
    const: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """A C array, as a parameter a pointer to its first element; `extent` is None where it is no literal."""

    element: Type
    extent: int | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference, which CUDA forbids as a kernel parameter."""

    target: Type


@dataclass(frozen=True, slots=True)
class Function:
    """A function type; only pointers to it can be parameters."""


@dataclass(frozen=True, slots=True)
class Strided:
    """An ``aiocuda::View`` or ``aiocuda::Partition`` of items of a type, of `rank` dimensions."""

    kind: Literal["view", "partition"]
    element: Type
    rank: int


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct, class or union of the source's own, as it stands there; `aiocuda._source.structs` reads its members."""

    name: str
    at: int
    scope: tuple[str, ...]
    node: Node = field(compare=False)
    const: bool = False


@dataclass(frozen=True, slots=True)
class Described:
    """A struct that the caller describes, by a NumPy dtype."""

    dtype: Any
    const: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """No type but a number, where a template takes either."""

    number: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """A class that the compiler named and the source does not define."""

    name: str
    const: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """A type of which nothing but constness is known, and why; `is_askable` where the compiler knows more."""

    reason: str
    const: bool = False
    is_askable: bool = True


Type: TypeAlias = (
    Value | Pointer | Array | Reference | Function | Strided | Struct | Described | Constant | Opaque | Unknown
)


def as_const(kind: Type) -> Type:
    """Make a type const."""
    match kind:
        case Value() | Pointer() | Struct() | Described() | Opaque() | Unknown():
            return replace(kind, const=True)
        case Array(element, extent):
            return Array(as_const(element), extent)
        case _:
            return kind


def _value_names() -> dict[str, Value]:
    names = {
        "void": Value(None),
        "bool": Value("bool"),
        "float": Value("float32"),
        "double": Value("float64"),
        "half": Value("float16"),
        "__half": Value("float16"),
        "half2": Value("float16", 2),
        "__half2": Value("float16", 2),
        "_Float16": Value("float16"),
        "nv_bfloat16": Value("bfloat16"),
        "__nv_bfloat16": Value("bfloat16"),
        "nv_bfloat162": Value("bfloat16", 2),
        "__nv_bfloat162": Value("bfloat16", 2),
        "__nv_fp8_e4m3": Value("float8_e4m3fn"),
        "__nv_fp8_e5m2": Value("float8_e5m2"),
        "__nv_fp8_e8m0": Value("float8_e8m0fnu"),
        "cuComplex": Value("complex64"),
        "cuFloatComplex": Value("complex64"),
        "cuDoubleComplex": Value("complex128"),
        "dim3": Value("uint32", 3),
        "byte": Value("uint8"),
        "char8_t": Value("uint8"),
        "char16_t": Value("uint16"),
        "char32_t": Value("uint32"),
        "wchar_t": Value("int32"),
        "size_t": Value("uint64"),
        "ssize_t": Value("int64"),
        "ptrdiff_t": Value("int64"),
        "intptr_t": Value("int64"),
        "uintptr_t": Value("uint64"),
        "intmax_t": Value("int64"),
        "uintmax_t": Value("uint64"),
        "uint": Value("uint32"),
        "ushort": Value("uint16"),
        "ulong": Value("uint64"),
        "cudaTextureObject_t": Value("uint64"),
        "cudaSurfaceObject_t": Value("uint64"),
        "CUtexObject": Value("uint64"),
        "CUsurfObject": Value("uint64"),
        "CUdeviceptr": Value("uint64"),
    }
    for bits in (8, 16, 32, 64):
        fast = 64 if bits in (16, 32) else bits  # glibc's int_fast16_t and int_fast32_t are long
        for sign in ("", "u"):
            names[f"{sign}int{bits}_t"] = Value(f"{sign}int{bits}")
            names[f"{sign}int_least{bits}_t"] = Value(f"{sign}int{bits}")
            names[f"{sign}int_fast{bits}_t"] = Value(f"{sign}int{fast}")
    # The built-in vector types, CUDA C++ Programming Guide, "Built-in Vector Types".
    elements = {
        "char": "int8",
        "uchar": "uint8",
        "short": "int16",
        "ushort": "uint16",
        "int": "int32",
        "uint": "uint32",
        "long": "int64",
        "ulong": "uint64",
        "longlong": "int64",
        "ulonglong": "uint64",
        "float": "float32",
        "double": "float64",
    }
    for element, dtype in elements.items():
        for width in (1, 2, 3, 4):
            # A vector of one is a struct all the same; NumPy sees no difference.
            names[f"{element}{width}"] = Value(dtype, width)
        if dtype in ("int64", "uint64", "float64"):
            names[f"{element}4_16a"] = Value(dtype, 4)
            names[f"{element}4_32a"] = Value(dtype, 4, alignment=32)
    return names


VALUES: Final = _value_names()
COMPLEX: Final = {"float32": Value("complex64"), "float64": Value("complex128")}
STRIDED: Final[dict[str, Literal["view", "partition"]]] = {"View": "view", "Partition": "partition"}
LIBRARY_NAMESPACES: Final = frozenset({"", "std", "cuda::std"})
# Short names that a header of the user's may give another meaning.
COMMON_NAMES: Final = frozenset(
    {"half", "half2", "nv_bfloat16", "nv_bfloat162", "byte", "uint", "ushort", "ulong", "ssize_t"}
)
# The compiler's names for these types in its answers. All other names of the table are aliases, and never its answer.
_BUILT_IN: Final = frozenset(
    {"void", "bool", "float", "double", "_Float16", "char8_t", "char16_t", "char32_t", "wchar_t", "dim3"}
    | {"__half", "__half2", "__nv_bfloat16", "__nv_bfloat162", "__nv_fp8_e4m3", "__nv_fp8_e5m2", "__nv_fp8_e8m0"}
)
ANSWERS: Final = {
    name: value
    for name, value in VALUES.items()
    if name in _BUILT_IN or re.fullmatch(r"u?(char|short|int|long|longlong|float|double)[1-4](_\d+a)?", name)
}


def integer_type(words: list[str]) -> Value | None:
    """Name the type of ``unsigned long long int`` and its like, in any order of the words."""
    sign = "u" if "unsigned" in words else ""
    if "double" in words:
        return None  # long double has no meaning on a device
    if "char" in words:
        return Value(f"{sign}int8")
    if "short" in words:
        return Value(f"{sign}int16")
    return Value(f"{sign}int64" if "long" in words else f"{sign}int32")
