"""The page, in a browser: it draws, zooms, selects, and shows the numbers of the trace; no network is asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import aiocuda as ac
from aiocuda._trace.analysis import analyse


@pytest.fixture(params=["light", "dark"])
def show(browser: Any, request: pytest.FixtureRequest) -> Iterator[Callable[[ac.Tracing], Any]]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=request.param, offline=True)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("request", lambda asked: None if asked.url.startswith("file:") else wrong.append(asked.url))

    def open_page(traced: ac.Tracing) -> Any:
        page.goto(traced.page_path.resolve().as_uri())
        page.wait_for_function("canvas.dataset.drawn")
        return page

    yield open_page
    assert not wrong
    context.close()


def drawn(page: Any) -> int:
    return int(page.evaluate("canvas.dataset.drawn"))


def colours(page: Any) -> int:
    """Return how many colours the timeline has."""
    return int(
        page.evaluate(
            """() => {
              const {width, height} = canvas;
              const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, width, height).data.buffer);
              return new Set(pixels).size;
            }"""
        )
    )


def test_it_draws_every_slice_and_shows_the_numbers_of_the_trace(
    show: Callable[[ac.Tracing], Any], two_branches: ac.Tracing
) -> None:
    page = show(two_branches)
    result, analysis = two_branches.result, analyse(two_branches.result)
    assert page.title() == "branches · aiocuda trace"
    assert f"{len(result.operations)} operations" in page.inner_text("#facts")
    assert 0 < drawn(page) <= page.evaluate("data.tracks.flatMap((each) => each.slices).length")
    assert colours(page) > 4
    rows = page.locator("#rows tr").all_inner_texts()[1:]
    assert [row.split("\t")[:3] for row in rows] == [[row.name, row.kind, str(row.count)] for row in analysis.rows]
    assert page.locator(".node").count() == len(result.operations)
    assert page.locator("#dag path:not(.head)").count() == sum(len(each.needs) for each in result.operations)
    critical = page.locator("#critical tr[data-operation]").evaluate_all(
        "(all) => all.map((each) => each.dataset.operation)"
    )
    assert [int(each) for each in critical] == list(analysis.critical)
    (parts,) = page.locator("#awaits tr[data-asked]").all_inner_texts()
    assert "done" in parts
    emulated = "emulated" in page.inner_text("#facts")
    assert emulated == result.is_emulated


def test_it_is_no_wider_than_the_window(show: Callable[[ac.Tracing], Any], two_branches: ac.Tracing) -> None:
    page = show(two_branches)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_wheel_zooms_dragging_moves_and_a_button_shows_all(
    show: Callable[[ac.Tracing], Any], two_branches: ac.Tracing
) -> None:
    page = show(two_branches)
    before = json.loads(page.evaluate("JSON.stringify(view)"))
    box = page.locator("#timeline").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.wheel(0, -600)
    page.wait_for_function("view.end - view.begin < (whole.end - whole.begin) / 3")
    zoomed = json.loads(page.evaluate("JSON.stringify(view)"))
    assert before["begin"] < zoomed["begin"] < zoomed["end"] < before["end"]
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 100, box["y"] + 60)
    page.mouse.up()
    assert page.evaluate("view.begin") < zoomed["begin"]
    page.click("#whole")
    assert json.loads(page.evaluate("JSON.stringify(view)")) == before


def test_a_click_selects_an_operation_here_and_there(
    show: Callable[[ac.Tracing], Any], two_branches: ac.Tracing
) -> None:
    page = show(two_branches)
    (add,) = (each for each in two_branches.result.operations if each.name == "add")
    page.locator(f'.node[data-operation="{add.number}"]').dispatch_event("click")
    panel = page.inner_text("#selected")
    assert "launch of add" in panel
    assert add.place in panel
    assert f"device 0, stream {add.stream}" in panel
    where = page.evaluate(
        """(number) => {
          const lane = lanes.find((each) => each.kind === "track" && each.slices.some((one) => one[4] === number));
          const slice = lane.slices.find((one) => one[4] === number);
          return [x(slice[0] + slice[1] / 2), lane.top + slice[6] * ROW + ROW / 2];
        }""",
        add.number,
    )
    page.evaluate("select(null)")
    assert "Nothing is selected" in page.inner_text("#selected")
    page.locator("#timeline").click(position={"x": where[0], "y": where[1]})
    assert "launch of add" in page.inner_text("#selected")
    assert page.locator(".node.selected").get_attribute("data-operation") == str(add.number)


def test_text_of_the_program_is_shown_as_it_is(show: Callable[[ac.Tracing], Any], tmp_path: Any) -> None:
    with ac.trace("<b>&", output=tmp_path, report=False) as traced:
        ac.value(1).map(lambda x: x).sync()
    page = show(traced)
    assert page.inner_text("h1") == "<b>&"


def test_no_name_ends_the_pages_script(show: Callable[[ac.Tracing], Any], tmp_path: Any) -> None:
    name = "</script><script>throw 1</script>"
    thread = threading.Thread(target=lambda: ac.ones(3).sync(), name=name)
    with ac.trace("named", output=tmp_path, report=False) as traced:
        thread.start()
        thread.join()
    page = show(traced)
    assert name in page.inner_text("#awaits")
