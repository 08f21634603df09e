"""draw() shows what explain() says, and what comes after what; it changes nothing."""

from __future__ import annotations

import inspect
from xml.etree import ElementTree

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._engine import drawing, explain, placement

_SVG = "{http://www.w3.org/2000/svg}"


def tips(picture: ac.Picture) -> list[list[str]]:
    return [box.find(f"{_SVG}title").text.split("\n") for box in ElementTree.fromstring(str(picture)).iter(f"{_SVG}g")]


def arrows(op: ac.DeviceOp) -> list[tuple[str, str]]:
    """The labels at the ends of each arrow, before those that others make needless are left out."""
    steps = [step for step in explain.record(op, placement.current.get()) if step[0][0] != "wait"]
    labels = [drawing._label(step[0]) for step in steps]
    return sorted({(labels[a], labels[b]) for a, b in drawing._order(steps)})


def test_a_box_says_what_is_touched_where_and_who_asked(kernels, device):
    stream = device.default_stream
    x = ac.full(8, 1, np.int32).sync()
    op, line = kernels.increment(x, 8, threads=8), inspect.currentframe().f_lineno
    with ac.use(stream):
        (tip,) = tips(op.draw())
    assert tip[0] == "launch increment"
    assert tip[1].startswith("launch increment on device 0: grid 1x1x1, block 32x1x1")
    assert tip[2].endswith("writes 32 bytes")
    assert tip[3] == f"stream {stream._number}"
    assert tip[4].endswith(f"test_draw.py:{line}")


def test_disjoint_halves_have_no_arrow_between_them_and_the_whole_comes_after_both(kernels):
    x = ac.full(8, 1, np.int32).sync()
    left, right = (kernels.increment(half, 4, threads=4) for half in (x[:4], x[4:]))
    both = ac.zip(left, right).then(lambda _: None)
    assert [pair for pair in arrows(both) if pair[1].startswith("launch")] == []
    assert len([step for step in explain.record(both, placement.current.get()) if step[0][0] == "launch"]) == 2
    assert [source for source, target in arrows(both) if target.startswith("then")] == ["launch increment"]


def test_reads_of_the_same_bytes_have_no_arrow_and_a_write_comes_after_them(kernels):
    x = ac.full(8, 1, np.int32).sync()
    reads = [ac.dup(x), ac.dup(x)]
    steps = explain.record(ac.zip(*reads), placement.current.get())
    order = list(drawing._order([step for step in steps if step[0][0] != "wait"]))
    assert order == [(0, 1), (2, 3)]  # each array, and the copy to it
    fill = ac.fill(x, 0)
    assert ("copy 32 bytes", "fill with 0") in arrows(ac.zip(*reads, fill))


def test_work_on_another_stream_has_a_dashed_arrow(kernels, device):
    a, b = device.stream(), device.stream()
    x = kernels.increment(ac.zeros(8, np.int32).on(a), 8, threads=8).on(a)
    svg = str(kernels.increment(x, 8, threads=8).on(b).draw())
    assert svg.count('<path class="wait"') == 1
    assert str(kernels.increment(x, 8, threads=8).on(a).draw()).count('<path class="wait"') == 0


def test_functions_come_after_what_they_are_given_and_are_not_called():
    op = ac.to_host(ac.ones(3)).map(lambda _: pytest.fail("draw() called it"))
    last = [source for source, target in arrows(op) if "<lambda>" in target]
    assert last == ["map HostArray.numpy"]


def test_what_has_run_is_one_box():
    op = ac.ones(3)
    op.sync()
    assert tips(op.draw()) == [["the creation of an array"]]


def test_a_kernel_named_like_an_element_is_text():
    def named(stream: object, x: object) -> None:
        pass

    named.__qualname__ = "<b>bold</b>"
    x = ac.ones(3).sync()
    svg = str(ac.call(named, x, writes=[x]).draw())
    assert "<b>" not in svg
    assert "&lt;b&gt;bold" in svg


def test_drawing_runs_nothing_and_is_the_same_each_time(kernels, device, used_bytes):
    op = ac.to_host(kernels.increment(ac.to_device(np.zeros(1000, np.int32)), 1000, threads=1000))
    before = used_bytes(), repr(device.default_stream)
    assert str(op.draw()) == str(op.draw())
    assert (used_bytes(), repr(device.default_stream)) == before
    assert "pending" in repr(op)


def test_a_graph_shows_its_nodes_and_their_order(kernels):
    x = ac.full(8, 1, np.int32).sync()
    graph = kernels.increment(kernels.increment(x, 8, threads=8), 8, threads=8).graph(x=x)
    first, second = tips(graph.draw())
    assert first[:2] == ["kernel increment", "grid 1x1x1, block 32x1x1"]
    assert "writes x (32 bytes)" in first
    assert second[0] == "kernel increment"
    assert str(graph.draw()).count('<path class="head"') == 1


def test_a_picture_is_shown_and_saved(tmp_path):
    picture = ac.ones(3).draw()
    assert picture._repr_svg_() == str(picture)
    picture.save(tmp_path / "op.svg")
    assert (tmp_path / "op.svg").read_text(encoding="utf-8") == str(picture)
    with pytest.raises(ac.ArgumentValueError, match=r"op\.png"):
        picture.save(tmp_path / "op.png")


def test_a_long_chain_is_drawn(kernels):
    op = ac.zeros(1, np.int32)
    for _ in range(1000):
        op = kernels.increment(op, 1, threads=1)
    assert len(tips(op.draw())) == 1001
