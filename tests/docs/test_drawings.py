"""The drawings are those of their script, and can be read on a telephone, on light pages and on dark ones."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "drawings"
PAGES = [FOLDER.parents[1] / "README.md", *FOLDER.parent.rglob("*.md")]
DRAWINGS = sorted(FOLDER.glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("draw", FOLDER / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawings_are_those_of_the_script(tmp_path, monkeypatch):
    module = script()
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    module.main()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        path.name: path.read_text() for path in DRAWINGS
    }


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_is_narrow_has_a_title_and_colours_for_dark_pages(path):
    drawing = ElementTree.parse(path).getroot()
    left, top, width, height = map(float, drawing.attrib["viewBox"].split())
    assert (left, top) == (0, 0)
    assert width <= 400
    assert drawing.findtext(f"{SVG}title")
    style = drawing.findtext(f"{SVG}style") or ""
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    assert min(int(size) for size in re.findall(r"(\d+)px", style)) >= 13
    assert {"text", ".card", ".box"} <= set(re.findall(r"^ *([.\w]+) \{", dark, re.MULTILINE))
    for part in drawing.iter(f"{SVG}rect"):
        assert float(part.attrib["x"]) + float(part.attrib["width"]) <= width
        assert float(part.attrib["y"]) + float(part.attrib["height"]) <= height
        assert f".{part.attrib['class']} {{" in light


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_page_shows_the_drawing_and_says_in_words_what_is_on_it(path):
    shown = re.compile(rf"!\[(?P<words>[^\]]+)\]\([./\w]*drawings/{re.escape(path.name)}\)")
    found = [match["words"] for page in PAGES for match in shown.finditer(page.read_text(encoding="utf-8"))]
    assert found
    assert all(len(words.split()) >= 5 for words in found)
