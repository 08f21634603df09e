"""The reference has every public name, and the links between the pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import aiocuda as ac

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

DIRECTIVE = re.compile(r"^\.\. auto(?:class|data|exception|function):: aiocuda\.(\w+)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)(?P<target>[^)#\s]+)[^)]*\)")


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    errors = set(ac.errors.__all__) | {"errors"}
    assert ".. automodule:: aiocuda.errors" in pages
    assert set(DIRECTIVE.findall(pages)) == set(ac.__all__) - errors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_the_page_lead_to_files_that_exist(page):
    targets = {match["target"] for match in LINK.finditer(page.read_text(encoding="utf-8"))}
    assert {target for target in targets if not (page.parent / target).exists()} == set()
