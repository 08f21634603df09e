"""The documentation in a browser: whole pages, at several widths, in light and dark; links, pictures and the search.

All faults of all pages are listed at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

WIDE, NARROW = 1280, 400
# A little wider than the windows from which on the page's table of contents stands beside it: by Furo's style, by ours.
WITHOUT_TABLE, WITH_TABLE = 1320, 1690
# What a page tells of its own layout. A line of code that does not fit has a bar to scroll, and hides columns.
LAYOUT = """() => ({
  width: document.documentElement.scrollWidth,
  pictures: [...document.images].filter(each => !(each.complete && each.naturalWidth)).map(each => each.src),
  code: [...document.querySelectorAll(".highlight pre")].filter(each => each.scrollWidth > each.clientWidth + 1)
      .map(each => each.textContent.split("\\n").reduce((a, b) => a.length >= b.length ? a : b)),
})"""
COLORS = """() => ["background-color", "color"].map(name => getComputedStyle(document.body).getPropertyValue(name))"""


class Page(HTMLParser):
    """The links of a page, and the places in it that links lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value is not None:
                self.links.append(value)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    found = {str(path.relative_to(site)): Page(path) for path in sorted(site.rglob("*.html"))}
    assert len(found) > 50
    return found


def own(pages: dict[str, Page]) -> list[str]:
    """The pages that were written; the others show the source of modules."""
    return [name for name in pages if not name.startswith("_modules/")]


def test_links_lead_somewhere(site, pages):
    faults = list(broken(site, pages))
    assert not faults, "\n".join(faults)


def broken(site: Path, pages: dict[str, Page]) -> Iterator[str]:
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = ((site / name).parent / unquote(parts.path)).resolve() if parts.path else site / name
            if not target.is_file():
                yield f"{name}: {link} is no file"
            elif target.suffix == ".html":
                anchors = pages[str(target.relative_to(site))].anchors
                if unquote(parts.fragment) not in anchors:
                    yield f"{name}: {link} is no place in the page"


@pytest.mark.parametrize("widths", [(WIDE, WITHOUT_TABLE, WITH_TABLE), (NARROW,)], ids=["wide", "narrow"])
def test_pages_are_whole(browser, address, pages, widths):
    faults: list[str] = []
    tab = browser.new_page(viewport={"width": widths[0], "height": 900})
    name = ""
    tab.on("console", lambda said: faults.append(f"{name}: {said.text}") if said.type == "error" else None)
    tab.on("pageerror", lambda error: faults.append(f"{name}: {error}"))
    tab.on("requestfailed", lambda request: faults.extend(f"{name}: {each}" for each in load_faults(request)))
    for name in own(pages):
        tab.goto(f"{address}/{name}")
        for width in widths:
            tab.set_viewport_size({"width": width, "height": 900})
            faults += [f"{name}: {fault}" for fault in layout_faults(tab.evaluate(LAYOUT), width)]
    tab.close()
    assert not faults, "\n".join(faults)


def load_faults(request: Any) -> Iterator[str]:
    if request.failure != "net::ERR_ABORTED":  # by the next page: it came before the icon
        yield f"{request.url} was not loaded: {request.failure}"


def layout_faults(layout: dict[str, Any], width: int) -> Iterator[str]:
    if layout["width"] > width:
        yield f"the page is {layout['width']} pixels wide in a window of {width}"
    yield from (f"no picture: {each}" for each in layout["pictures"])
    if width != NARROW:  # a telephone scrolls
        yield from (f"code is too wide in a window of {width}: {line}" for line in layout["code"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_follow_the_color_scheme(browser, address, scheme):
    context = browser.new_context(color_scheme=scheme)
    tab = context.new_page()
    for name in ("index.html", "reference/kernels.html"):
        tab.goto(f"{address}/{name}")
        background, text = map(brightness, tab.evaluate(COLORS))
        assert (background > text) == (scheme == "light")
        assert abs(background - text) > 128
    context.close()


def brightness(color: str) -> float:
    """The brightness, from 0 to 255, of what CSS calls ``rgb(r, g, b)``."""
    numbers = [float(each) for each in color.partition("(")[2].rstrip(")").split(",")]
    return sum(numbers[:3]) / 3


def test_the_search_finds_a_word_and_the_page_that_explains_it(browser, address):
    tab = browser.new_page()
    tab.goto(f"{address}/index.html")
    tab.fill("input[name=q]", "page-locked")
    tab.press("input[name=q]", "Enter")
    tab.wait_for_selector("#search-results ul.search a[href*='glossary.html']")  # results come one by one
    assert "page-locked" in tab.locator("#search-results").inner_text()
    tab.close()


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_first_page_shows_the_example_and_the_picture(browser, address, width):
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.goto(f"{address}/index.html")
    assert "await ac.to_host(y)" in tab.locator(".highlight-python").first.inner_text()
    picture = tab.locator("article img").first
    assert picture.is_visible()
    assert picture.get_attribute("alt")
    tab.close()
