"""The Python examples of README.md and docs/ run, and print what the page says they print.

The examples of a page run in order and share their names, as a reader would type them. A block
marked ``text`` right after an example is what it prints.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Python source, and the fenced text block that follows it, if nothing but blank lines is between.
EXAMPLE = re.compile(
    r"^```python\n(?P<source>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Example:
    """One example: the line of the page where its source starts, and what it prints."""

    line: int
    source: str
    output: str | None


def examples_of(page: Path) -> list[Example]:
    text = page.read_text(encoding="utf-8")
    return [
        Example(text.count("\n", 0, match.start("source")), match["source"], match["output"])
        for match in EXAMPLE.finditer(text)
    ]


NEED_DEVICES = {"docs/reference/collectives.md": 2}
PAGES = [
    page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if page.exists() and examples_of(page)
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def needs_of(page: Path) -> pytest.MarkDecorator:
    return pytest.mark.needs_devices(NEED_DEVICES.get(name_of(page), 1))


def test_every_page_with_python_code_has_examples_that_run():
    written = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert {page for page in written if page.exists() and "\n```python\n" in page.read_text(encoding="utf-8")} <= {
        *PAGES
    }


@pytest.mark.driver_refuses("cuMemAllocFromPoolAsync")  # of the page that shows what is told then
@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page), marks=needs_of(page)) for page in PAGES])
def test_examples_of_the_page_run_and_print_what_it_says(page):
    names: dict[str, object] = {"__name__": "__main__"}
    try:
        for example in examples_of(page):
            printed = io.StringIO()
            # Blank lines before, so that a traceback names the page's own line.
            code = compile("\n" * example.line + example.source, str(page), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            if example.output is not None:
                assert printed.getvalue() == example.output
    finally:
        names.clear()  # FastAPI, for one, keeps functions, and these keep all names of the page
