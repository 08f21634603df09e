"""Blocks of code in the pages fit a window of 1280 pixels; `tests/site` looks at them in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_it import MarkdownIt

PAGES = sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))
MOST_COLUMNS = 120
# The pages' style breaks the long lines of such blocks.
WRAPPED = ("text", "console")


def wide_lines(text: str) -> list[str]:
    return [
        f"line {token.map[0] + 1 + number}: {len(line)} columns"
        for token in MarkdownIt("commonmark").parse(text)
        if token.type == "fence"
        and token.map
        and token.info.split()[:1] not in [[kind] for kind in WRAPPED]
        and not token.info.startswith("{")
        for number, line in enumerate(token.content.splitlines(), start=1)
        if len(line) > MOST_COLUMNS
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_of_the_page_fit_its_width(page):
    assert wide_lines(page.read_text(encoding="utf-8")) == []


def test_wide_lines_are_noticed():
    wide, fits = "x" * (MOST_COLUMNS + 1), "x" * MOST_COLUMNS
    assert wide_lines(f"```\n{fits}\n{wide}\n```\n") == ["line 3: 121 columns"]
    assert wide_lines(f"```text\n{wide}\n```\n\n{wide}\n") == []
