"""The picture of a DAG: laid out, escaped, the same each time, and without arrows that say nothing."""

from __future__ import annotations

import random
import re
import sys
from xml.etree import ElementTree

import pytest

from aiocuda._pictures.dag import KINDS, Edge, Node, reduced
from aiocuda._pictures.layout import laid_out
from aiocuda._pictures.svg import svg
from aiocuda.errors import MissingPackageError

_SVG = "{http://www.w3.org/2000/svg}"


def boxes(text: str) -> list[tuple[float, float, float, float]]:
    """Left, top, width and height of each box."""
    found = ElementTree.fromstring(text).iter(f"{_SVG}rect")
    return [
        tuple(float(box.get(name)) for name in ("x", "y", "width", "height"))
        for box in found
        if box.get("class") == "box"
    ]


def some_dag(nodes: int, seed: int = 1) -> list[Edge]:
    numbers = random.Random(seed)
    edges = {(numbers.randrange(max(0, i - 9), i), i) for i in range(1, nodes) for _ in range(2)}
    return [Edge(*each) for each in sorted(edges)]


def test_what_needs_another_stands_below_it():
    edges = some_dag(60)
    places = boxes(svg([Node(f"n{i}") for i in range(60)], edges, "a DAG"))
    assert len(places) == 60
    for edge in edges:
        _, top, _, height = places[edge.source]
        assert top + height < places[edge.target][1]


@pytest.mark.parametrize("seed", range(20))
def test_an_arrow_bends_once_in_each_row_between_its_boxes(seed):
    """In DAGs of several parts, too."""
    numbers = random.Random(seed)
    edges = [Edge(*sorted(numbers.sample(range(14), 2))) for _ in range(numbers.randrange(1, 16))]
    layout = laid_out(14, edges)
    for edge, bends in zip(edges, layout.bends, strict=True):
        above, below = (round(layout.boxes[box][1]) for box in (edge.source, edge.target))
        assert [round(y) for _, y in bends] == list(range(above + 1, below))


def test_boxes_do_not_lie_upon_one_another_and_lie_within_the_picture():
    text = svg([Node(f"n{i}" * 40) for i in range(60)], some_dag(60), "a DAG")
    root = ElementTree.fromstring(text)
    wide, high = float(root.get("width")), float(root.get("height"))
    places = boxes(text)
    for i, (x, y, width, height) in enumerate(places):
        assert x >= 0
        assert y >= 0
        assert x + width <= wide
        assert y + height <= high
        for other_x, other_y, _, _ in places[:i]:
            assert abs(other_x - x) >= width or abs(other_y - y) >= height


def test_the_picture_of_a_dag_is_the_same_each_time():
    nodes = [Node(f"n{i}", kind=KINDS[i % len(KINDS)], lane=f"stream {i % 3}") for i in range(200)]
    assert svg(nodes, some_dag(200), "a DAG") == svg(nodes, some_dag(200), "a DAG")


def test_names_are_escaped_and_shown_whole_in_the_tip():
    label = "<b>" + "x" * 100 + "&\x00"
    text = svg([Node(label, detail="<i>", tip=('"<u>"',))], [], "<script>")
    assert not re.search("<(b|i|u|script)>", text)
    (box,) = ElementTree.fromstring(text).iter(f"{_SVG}g")
    assert box.find(f"{_SVG}title").text == label.replace("\x00", "�") + '\n"<u>"'
    shown = box.find(f"{_SVG}text").text
    assert shown.startswith("<b>x")
    assert "…" in shown
    assert len(shown) < 50


def test_an_arrow_to_another_lane_is_dashed():
    root = ElementTree.fromstring(svg([Node("a"), Node("b"), Node("c")], [Edge(0, 1), Edge(0, 2, True)], "waits"))
    assert [path.get("class") for path in root.iter(f"{_SVG}path")] == [None, "head", "wait", "head"]


def test_each_lane_has_its_colour():
    nodes = [Node("a", lane="x"), Node("b", lane="y"), Node("c", lane="x"), Node("d")]
    root = ElementTree.fromstring(svg(nodes, [], "lanes"))
    first, second, third = (each.get("fill") for each in root.iter(f"{_SVG}rect") if each.get("class") == "stripe")
    assert first == third != second


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_nothing_one_box_and_thousands_are_drawn(count):
    assert len(boxes(svg([Node(str(i)) for i in range(count)], some_dag(count), "some"))) == count


def test_arrows_that_others_make_needless_are_left_out():
    assert reduced(4, [(0, 3), (0, 1), (1, 2), (0, 2), (2, 3), (0, 1)]) == [(0, 1), (1, 2), (2, 3)]
    assert reduced(4, [(0, 1), (0, 2), (1, 3), (2, 3)]) == [(0, 1), (0, 2), (1, 3), (2, 3)]


def test_without_a_layouter_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'aiocuda\[draw\]'"):
        svg([Node("a")], [], "one")
