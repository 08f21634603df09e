"""A preview shows what NumPy shows of an array, and copies no more than that."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac

DTYPES = ["float32", "int64", "bool", "complex64", "uint8"]


def items(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return (np.arange(math.prod(shape)) % 97).reshape(shape).astype(dtype)


@given(
    shape=st.lists(st.integers(0, 20), max_size=4).map(tuple),
    dtype=st.sampled_from(DTYPES),
    edge_items=st.integers(1, 4),
)
def test_it_shows_what_numpy_shows(shape: tuple[int, ...], dtype: str, edge_items: int) -> None:
    x = items(shape, dtype)
    is_whole = all(n <= 2 * edge_items + 1 for n in shape)
    expected = np.array2string(x, edgeitems=edge_items, threshold=max(x.size, 1) if is_whole else 0)
    shown = ac.preview(ac.to_device(x).sync(), edge_items=edge_items).sync()
    assert (shown.dtype, shown.shape, shown.text) == (dtype, shape, expected)


def test_views_page_locked_memory_and_operations_are_shown(run: Any) -> None:
    async def main() -> None:
        x = items((40, 30), "int32")
        device = await ac.to_device(x)
        every_third = await ac.preview(device[:, ::3])
        assert every_third.text == np.array2string(x[:, ::3], threshold=0)
        assert (await ac.preview(ac.to_device(x))).text == np.array2string(x, threshold=0)
        host = await ac.empty_host(3, "int32")
        host.numpy()[:] = 5
        assert (await ac.preview(host)).text == "[5 5 5]"

    run(main)


def test_it_says_itself_in_a_terminal_and_a_notebook() -> None:
    shown = ac.preview(ac.arange(1000)).sync()
    assert repr(shown) == "int64(1000,)\n[  0   1   2 ... 997 998 999]"
    assert shown._repr_html_() == "<b>int64(1000,)</b><pre>[  0   1   2 ... 997 998 999]</pre>"
    assert "ac.preview()" in ac.arange(3).sync()._repr_html_()


def test_only_what_is_shown_is_copied(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    x = ac.zeros((1000, 1000), np.float32).sync()
    with ac.trace("preview", output=tmp_path, report=False) as traced:
        ac.preview(x).sync()
    copies = [each.size_bytes for each in traced.result.operations if each.kind == "copy"]
    assert copies == [36, 36, 36, 36]


@pytest.mark.parametrize("edge_items", [0, 1001, -1])
def test_other_counts_are_refused(edge_items: int) -> None:
    with pytest.raises(ac.ArgumentValueError, match="edge_items"):
        ac.preview(ac.zeros(3), edge_items=edge_items)


def test_what_is_no_array_or_is_gone_is_refused() -> None:
    with pytest.raises(ac.ArgumentTypeError, match="preview"):
        ac.preview(3)  # type: ignore[arg-type]
    with pytest.raises(ac.ArgumentTypeError, match="preview"):
        ac.preview(ac.value(3)).sync()
    x = ac.zeros(3).sync()
    x.close()
    with pytest.raises(ac.OwnershipError, match=re.escape("closed at")):
        ac.preview(x)
