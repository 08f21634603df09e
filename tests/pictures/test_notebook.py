"""What a notebook shows of each object: facts, escaped, without running or waiting for anything."""

from __future__ import annotations

import inspect
import re
import sys

import numpy as np
import pytest

import aiocuda as ac


def rows(shown: str) -> dict[str, str]:
    return dict(re.findall(r"<th[^>]*>(.*?)</th><td[^>]*>(.*?)</td>", shown))


def test_an_operation_shows_its_state_its_line_and_its_picture(kernels):
    op, line = kernels.increment(ac.zeros(8, np.int32), 8, threads=8), inspect.currentframe().f_lineno
    shown = op._repr_html_()
    assert rows(shown)["state"] == "pending"
    assert rows(shown)["built at"].endswith(f"test_notebook.py:{line}")
    assert "<svg" in shown
    assert "pending" in repr(op)
    op.sync()
    assert rows(op._repr_html_())["state"] == "submitted"
    assert "<svg" not in op._repr_html_()


def test_without_a_layouter_and_for_large_ones_there_is_text(kernels, monkeypatch):
    op = ac.zeros(1, np.int32)
    for _ in range(150):
        op = kernels.increment(op, 1, threads=1)
    assert "<svg" not in op._repr_html_()
    assert "and 121 more lines" in op._repr_html_()
    monkeypatch.setitem(sys.modules, "igraph", None)
    shown = ac.zeros(8)._repr_html_()
    assert "<svg" not in shown
    assert "allocate float32(8,)" in shown


def test_an_operation_that_cannot_run_is_shown_with_the_reason():
    assert "ArgumentIndexError" in ac.zip().first()._repr_html_()


def test_names_are_escaped(device):
    def named(stream: object, x: object) -> None:
        pass

    named.__name__ = named.__qualname__ = "<b>bold</b>"
    x = ac.ones(3).sync()
    op = ac.call(named, x, writes=[x])
    for shown in (op._repr_html_(), op.schedule(device)._repr_html_()):
        assert "<b>bold" not in shown
        assert "&lt;b&gt;bold" in shown


def test_an_array_shows_what_it_is_and_where_and_no_items():
    x = ac.full((4, 6), 7.25).sync()
    shown = rows(x._repr_html_())
    assert (shown["dtype"], shown["shape"], shown["size"]) == ("float32", "(4, 6)", "96 bytes")
    assert shown["memory"] == "device 0"
    assert "strides" not in shown
    assert "strides" in rows(x[:, ::2]._repr_html_())
    assert "7.25" not in x._repr_html_()
    assert rows(ac.empty_host(3).sync()._repr_html_())["memory"] == "page-locked host memory"


def test_a_moved_array_says_where_it_went():
    x = ac.ones(3).sync()
    ac.move(x)
    assert "moved at" in rows(x._repr_html_())["state"]


def test_a_graph_shows_its_nodes(kernels):
    x = ac.full(8, 1, np.int32).sync()
    graph = kernels.increment(x, 8, threads=8).graph(x=x)
    shown = graph._repr_html_()
    assert (rows(shown)["nodes"], rows(shown)["inputs"]) == ("1", "x")
    assert "<svg" in shown
    graph.close()
    assert rows(graph._repr_html_())["state"] == "closed"


def test_a_device_shows_what_its_arrays_hold(device, used_bytes):
    before = used_bytes()
    x = ac.empty(1000, np.uint8).sync()
    assert used_bytes() >= before + x.nbytes  # on all devices
    assert rows(device._repr_html_())["memory in use"] == f"{device.memory_info().used_bytes} bytes"


def test_a_policy_shows_its_streams():
    assert rows(ac.Dataflow(3)._repr_html_()) == {"streams": "3", "priority": "0"}
    assert rows(ac.SingleStream()._repr_html_())["streams"] == "1"


@pytest.mark.parametrize("state", ["scheduled", "cancelled", "done"])
def test_a_future_shows_what_it_is_of_and_its_state(state, device):
    future = ac.ones(3).schedule(device)
    if state == "cancelled":
        future.cancel()
    elif state == "done":
        future.sync()
    assert rows(future._repr_html_())["state"] == state
    assert rows(future._repr_html_())["of"] == "the creation of an array"
