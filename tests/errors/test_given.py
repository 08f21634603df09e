"""What checks the arguments of callers: each takes what it says, gives it back, and refuses all else by its name."""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._values import given


class Nameless:
    def __repr__(self) -> str:
        raise RuntimeError("has no repr")


TAKEN: dict[str, tuple[Any, Any]] = {
    "text": (given.text("n", "it"), "n"),
    "an empty text": (given.text("", "it", may_be_empty=True), ""),
    "a path": (given.path(PurePosixPath("/a/b"), "it"), "/a/b"),
    "a path as text": (given.path("a", "it"), "a"),
    "a flag": (given.flag(np.bool_(True), "it"), True),
    "no flag": (given.flag(False, "it"), False),
    "a whole number": (given.whole(np.int8(3), "it"), 3),
    "one extent": (given.extents(4, "it"), (4,)),
    "extents": (given.extents([1, np.int64(2)], "it", 2), (1, 2)),
    "any number of extents": (given.extents((), "it"), ()),
    "a sequence": (given.sequence(["a", 1], "it", "things"), ["a", 1]),
    "a mapping": (given.mapping({"a": 1}, "it", "things"), {"a": 1}),
    "the least": (given.between(2, "it", 2, 5), 2),
    "the most": (given.between(np.int16(5), "it", 2, 5), 5),
    "whole numbers": (given.whole_numbers(np.array([2, 3]), "it"), (2, 3)),
    "one whole number": (given.whole_numbers(np.int64(7), "it"), (7,)),
    "one in an array without axes": (given.whole_numbers(np.array(7), "it"), (7,)),
    "a known name": (given.one_of("b", "it", ["a", "b"]), "b"),
}


@pytest.mark.parametrize("what", TAKEN)
def test_what_is_taken_comes_back(what):
    found, expected = TAKEN[what]
    assert found == expected
    assert type(found) is type(expected)


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda: given.text(b"n", "it", "a name"), ac.ArgumentTypeError, "it is a name; b'n' was given, of type bytes"),
    (lambda: given.text("", "it", "a name"), ac.ArgumentValueError, "it is a name; an empty one was given"),
    (
        lambda: given.text("ab\0", "it"),
        ac.ArgumentValueError,
        "it holds a NUL character at index 2, where compilers and drivers see its end: leave it out",
    ),
    (lambda: given.text("\ud800", "it"), ac.ArgumentValueError, "it is no Unicode text that UTF-8 can hold: "),
    (lambda: given.path(3, "it"), ac.ArgumentTypeError, "it is a path: a str or an os.PathLike; 3 was given"),
    (lambda: given.flag(1, "it"), ac.ArgumentTypeError, "it is True or False; 1 was given"),
    (lambda: given.whole(1.5, "it"), ac.ArgumentTypeError, "it=1.5: a whole number is wanted"),
    (lambda: given.extents((), "it", 3), ac.ArgumentValueError, "it=(): one to 3 whole numbers are wanted"),
    (lambda: given.extents((1, 2, 3), "it", 2), ac.ArgumentValueError, "it=(1, 2, 3): one to 2 whole numbers"),
    (lambda: given.sequence("ab", "it", "names"), ac.ArgumentTypeError, "it is a sequence of names; write ('ab',)"),
    (
        lambda: given.sequence(PurePosixPath("a"), "it", "files"),
        ac.ArgumentTypeError,
        "it is a sequence of files; write (PurePosixPath('a'),)",
    ),
    (lambda: given.sequence(b"ab", "it", "names"), ac.ArgumentTypeError, "it is a sequence of names; b'ab' was given"),
    (lambda: given.sequence({1}, "it", "names"), ac.ArgumentTypeError, "it is a sequence of names; {1} was given"),
    (lambda: given.mapping([1], "it", "names"), ac.ArgumentTypeError, "it is a mapping of names; [1] was given"),
    (lambda: given.between(1, "it", 2, 5), ac.ArgumentValueError, "it is a whole number from 2 to 5; 1 was given"),
    (lambda: given.between(6, "it", 2, 5), ac.ArgumentValueError, "it is a whole number from 2 to 5; 6 was given"),
    (lambda: given.between(True, "it", 0, 5), ac.ArgumentTypeError, "it is a whole number; True was given"),
    (lambda: given.between(math.inf, "it", 0, 5), ac.ArgumentTypeError, "it is a whole number; inf was given"),
    (lambda: given.whole_numbers(1.5, "it"), ac.ArgumentTypeError, "it is an int or a sequence of ints; 1.5 was given"),
    (lambda: given.whole_numbers([1.5], "it"), ac.ArgumentTypeError, "it is an int or a sequence of ints; [1.5] was"),
    (lambda: given.one_of("c", "it", ["a", "b"]), ac.ArgumentValueError, "it is 'a' or 'b'; 'c' was given"),
    (lambda: given.one_of(1, "it", [1, "a", "b"]), ac.ArgumentValueError, "it is 1, 'a' or 'b'; 1 was given"),
    (lambda: given.whole(Nameless(), "it"), ac.ArgumentTypeError, "it=a Nameless: a whole number is wanted"),
    (lambda: given.whole("x" * 200, "it"), ac.ArgumentTypeError, "it='" + "x" * 79 + ": a whole number is wanted"),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED, ids=[text for _, _, text in REFUSED])
def test_what_is_refused_is_named_with_what_was_given(call, kind, text):
    with pytest.raises(kind) as raised:
        call()
    assert str(raised.value).startswith(text)
