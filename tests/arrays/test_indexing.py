"""Reading an index: whatever stands for an integer is one, what does not is an error that says so, and what an index's
own code does meanwhile harms nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiocuda as ac


class Integer:
    """Stands for an integer, and does something else first."""

    def __init__(self, value: int, first: Any = lambda: None) -> None:
        self.value = value
        self.first = first

    def __index__(self) -> int:
        self.first()
        return self.value


def numbers(*shape: int) -> tuple[np.ndarray, ac.DeviceArray]:
    data = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    return data, ac.to_device(data).sync()


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (Integer(2), 2),
        (np.int8(-1), -1),
        ((Integer(1), np.uint64(2)), (1, 2)),
        (slice(Integer(1), np.int64(4), Integer(2)), slice(1, 4, 2)),
        (slice(-(10**30), 10**30, 10**30), slice(None, None, 100)),
        (slice(10**30, None), slice(100, None)),
        ((..., slice(1, None), 0), np.s_[:, 1:, 0]),
        ((1, ..., slice(None, None, 2)), np.s_[1, :, ::2]),
        ((), ()),
        (np.s_[1:, ..., 2:], np.s_[1:, :, 2:]),
        (np.s_[0, 1, ..., 2], np.s_[0, 1, 2]),
        (np.s_[0, 1, 2, ...], np.s_[0, 1, 2]),
    ],
)
def test_what_stands_for_an_integer_is_one(key: Any, plain: Any) -> None:
    data, array = numbers(5, 4, 3)
    view = array[key]
    assert view.shape == data[plain].shape
    np.testing.assert_array_equal(ac.to_host(view).sync(), data[plain])


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (4, ac.ArgumentIndexError, "index 4 is out of range for axis 0, which has 4 items"),
        (np.s_[1:, -4], ac.ArgumentIndexError, "index -4 is out of range for axis 1, which has 3 items"),
        (10**30, ac.ArgumentIndexError, f"index {10**30} is out of range for axis 0, which has 4 items"),
        (-(10**30), ac.ArgumentIndexError, f"index {-(10**30)} is out of range for axis 0, which has 4 items"),
        (-5, ac.ArgumentIndexError, "index -5 is out of range for axis 0, which has 4 items"),
        ((0, 0, 0), ac.ArgumentIndexError, "3 indices were given for an array of 2 axes"),
        ((0, ..., 0, 0), ac.ArgumentIndexError, "3 indices were given for an array of 2 axes"),
        ((..., ...), ac.ArgumentIndexError, "an index has at most one ellipsis"),
        (None, ac.ArgumentTypeError, "an index adds no axes: None was given; reshape() does"),
        ((0, 0, 0, None), ac.ArgumentTypeError, "an index adds no axes: None was given; reshape() does"),
        ("a", ac.ArgumentTypeError, "an array is indexed by integers, slices and '...'; 'a' was given"),
        (True, ac.ArgumentTypeError, "an array is indexed by integers, slices and '...'; True was given"),
        ([0, 1], ac.ArgumentTypeError, "an array is indexed by integers, slices and '...'; [0, 1] was given"),
        (np.s_[:, 1.5], ac.ArgumentTypeError, "an array is indexed by integers, slices and '...'; 1.5 was given"),
        (np.s_[0.5:], ac.ArgumentTypeError, "a slice has integers; slice(0.5, None, None) was given"),
        (np.s_[::"2"], ac.ArgumentTypeError, "a slice has integers; slice(None, None, '2') was given"),
        (
            np.s_["a"::-1],
            ac.ArgumentValueError,
            "a slice of step -1 was given; views go forward, in steps of 1 or more: reverse the items in a kernel, or "
            "on the host",
        ),
        (
            np.s_[:: -(10**30)],
            ac.ArgumentValueError,
            f"a slice of step {-(10**30)} was given; views go forward, in steps of 1 or more: reverse the items in a "
            "kernel, or on the host",
        ),
    ],
)
def test_the_error_says_what_was_given(key: Any, error: type[Exception], text: str) -> None:
    _, array = numbers(4, 3)
    with pytest.raises(error) as caught:
        array[key]
    assert type(caught.value) is error
    assert str(caught.value) == text
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "key", [lambda bad: bad, lambda bad: slice(bad, None), lambda bad: slice(None, None, bad), lambda bad: (0, bad)]
)
@pytest.mark.parametrize(
    ("raised", "seen", "text"),
    [
        (ZeroDivisionError, ZeroDivisionError, "^on purpose$"),
        (TypeError, ac.ArgumentTypeError, r"(an array is indexed by integers|a slice has integers).* was given$"),
    ],
)
def test_what_an_index_raises_comes_through(
    key: Any, raised: type[Exception], seen: type[Exception], text: str
) -> None:
    def fail() -> None:
        raise raised("on purpose")

    _, array = numbers(4, 3)
    with pytest.raises(seen, match=text):
        array[key(Integer(0, fail))]


@pytest.mark.parametrize(
    "use",
    [
        lambda array, index: array[index],
        lambda array, index: array[0, index:],
        lambda array, index: array[:, ::index],
        lambda array, index: array.split_at(index),
    ],
)
def test_an_index_that_closes_the_array_finds_it_closed(use: Any) -> None:
    _, array = numbers(4, 3)
    with pytest.raises(ac.ClosedError, match="was closed at"):
        use(array, Integer(1, array.close))


def test_a_closed_array_is_told_before_the_index_is_read() -> None:
    _, array = numbers(4, 3)
    array.close()
    with pytest.raises(ac.ClosedError, match=r"indexing: .* was closed"):
        array["no index"]
    with pytest.raises(ac.ClosedError, match=r"split_at: .* was closed"):
        array.split_at(99)


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        (5, ac.ArgumentIndexError, "an array of length 4 cannot be split at 5"),
        (-1, ac.ArgumentIndexError, "an array of length 4 cannot be split at -1"),
        (10**30, ac.ArgumentIndexError, f"an array of length 4 cannot be split at {10**30}"),
        (1.0, ac.ArgumentTypeError, "an array is split at an integer; 1.0 was given"),
        (None, ac.ArgumentTypeError, "an array is split at an integer; None was given"),
    ],
)
def test_where_an_array_cannot_be_split(index: Any, error: type[Exception], text: str) -> None:
    _, array = numbers(4, 3)
    with pytest.raises(error) as caught:
        array.split_at(index)
    assert str(caught.value) == text


def test_an_array_without_axes_cannot_be_split() -> None:
    _, array = numbers(4, 3)
    with pytest.raises(ac.ArgumentIndexError, match="without axes"):
        array[0, 0].split_at(0)


def test_a_part_of_huge_nothing_is_nothing() -> None:
    array = ac.empty((0, 2**60), np.int32).sync()
    assert array[:, 2**59].shape == (0,)
    assert array[:, 2**59 :: 2].shape == (0, 2**58)
    assert array[:, -1].address == array.address


def test_views_are_of_their_array_s_class() -> None:
    host = ac.empty_host((4, 3), np.int32).sync()
    assert type(host[1:]) is ac.HostArray
    assert [type(half) for half in host.split_at(2)] == [ac.HostArray] * 2
    assert type(ac.zeros(4).sync()[1]) is ac.DeviceArray
