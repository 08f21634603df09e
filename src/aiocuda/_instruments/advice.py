"""What is asked of arrays and operations by the habits of other libraries: errors that say how aiocuda does it.

Always true: a class gets such an error only in the place of what it does not have, so nothing that exists is hidden,
and nothing that exists becomes slower. A missing name is still missing to `hasattr`, `inspect.isawaitable` and NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from aiocuda import _native
from aiocuda.errors import ArgumentTypeError, MissingAttributeError

__all__ = ["advise_on", "advised_names", "refuse", "refuse_await", "refuse_copies", "refuse_operators"]


class _Advice:
    """Stands in the place of an attribute that a class does not have."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise MissingAttributeError(self._text)


def advise_on(cls: type, kind: str, advice: Mapping[str, str]) -> None:
    """Have a class say what to do instead, where it is asked for attributes that it does not have.

    Parameters
    ----------
    cls
        The class.
    kind
        What messages call one of it, such as ``"an operation"``.
    advice
        By the attribute's name; what the class has itself is left as it is.
    """
    for name, text in advice.items():
        if not _has(cls, name):
            setattr(cls, name, _Advice(f"{kind} has no {name}: {text}"))
    setattr(cls, "__dir__", _without_advice)  # noqa: B010 - a method that the class' own source does not show


def advised_names(cls: type) -> frozenset[str]:
    """Return the names that a class has nothing but advice for."""
    return frozenset(name for each in cls.__mro__ for name, found in vars(each).items() if isinstance(found, _Advice))


def _without_advice(self: Any) -> list[str]:
    return sorted(set(object.__dir__(self)) - advised_names(type(self)))


_BINARY: Final = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "lshift": "<<",
    "rshift": ">>", "and": "&", "or": "|", "xor": "^", "matmul": "@",
}  # fmt: skip
_COMPARING: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNARY: Final = {"neg": "-", "pos": "+", "abs": "abs()", "invert": "~"}
_NUMBERS: Final = ("int", "float", "complex")


def refuse_operators(cls: type, kind: str, *, compute: str, product: str, assign: str, number: str) -> None:
    """Have a class say what to do instead of computing with it: of what operators it does not have itself.

    Parameters
    ----------
    cls, kind
        As for `advise_on`; `kind` in the plural.
    compute, product, assign, number
        What to do instead of arithmetic, of ``x @ y``, of ``x[i] = value`` and of ``float(x)``.
    """
    for name, symbol in {**_BINARY, "divmod": "divmod()"}.items():
        instead = product if name == "matmul" else compute
        for method in (f"__{name}__", f"__r{name}__"):
            refuse(cls, method, f"{kind} have no operator {symbol}: {instead}")
    for name, symbol in {**_COMPARING, **_UNARY}.items():
        refuse(cls, f"__{name}__", f"{kind} have no operator {symbol}: {compute}")
    for name in _NUMBERS:
        refuse(cls, f"__{name}__", f"{name}() does not take {kind}: {number}")
    refuse(cls, "__setitem__", f"items of {kind} are not assigned: {assign}")
    refuse(cls, "__delitem__", f"items of {kind} are not deleted: {assign}")
    refuse(cls, "__contains__", f"{kind} are not searched with 'in': {number}")


def refuse(cls: type, method: str, text: str) -> None:
    """Have a method that a class does not have raise an `ArgumentTypeError` with a text."""
    if _has(cls, method):
        return

    def method_of_none(*_: object, **__: object) -> NoReturn:
        raise ArgumentTypeError(text)

    method_of_none.__name__ = method_of_none.__qualname__ = method
    setattr(cls, method, method_of_none)


def refuse_copies(cls: type, what: str, *, copy: str, pickle: str) -> None:
    """Have a class say what to do instead of copying its objects with `copy`, and instead of pickling them."""
    refuse(cls, "__copy__", f"{what} is not copied by copy.copy(): {copy}")
    refuse(cls, "__deepcopy__", f"{what} is not copied by copy.deepcopy(): {copy}")
    refuse(cls, "__reduce_ex__", f"{what} is not pickled: {pickle}")


def refuse_await(cls: type, text: str) -> None:
    """Have ``await`` of a class' objects say what to await instead; they do not become awaitable by that."""

    def refuse(self: object) -> NoReturn:
        raise ArgumentTypeError(text)

    _native.refuse_await(cls, refuse)


def _has(cls: type, name: str) -> bool:
    """Whether a class has something of its own by a name, and not just what all objects have."""
    return any(name in vars(each) for each in cls.__mro__ if each is not object)
