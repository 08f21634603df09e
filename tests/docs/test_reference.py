"""The reference has every public name, and the links between the pages lead somewhere."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest

import aiocuda as ac

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ROADMAP.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

DIRECTIVE = re.compile(r"^\.\. auto(?:class|data|exception|function):: aiocuda\.(\w+)", re.MULTILINE)
FILE = re.compile(r"`([\w./-]+\.(?:py|hpp|cpp|cuh|md))`")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"\bac((?:\.[A-Za-z_]\w*)+)")
LINK = re.compile(r"\]\((?!https?:|#)(?P<target>[^)#\s]+)[^)]*\)")


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    errors = set(ac.errors.__all__) | {"errors"}
    assert ".. automodule:: aiocuda.errors" in pages
    assert set(DIRECTIVE.findall(pages)) == set(ac.__all__) - errors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_the_page_lead_to_files_that_exist(page):
    text = CODE.sub("code", page.read_text(encoding="utf-8"))  # C++ has "](", too
    targets = {match["target"] for match in LINK.finditer(text)}
    assert {target for target in targets if not (page.parent / target).exists()} == set()


# Measurements are of their day, with the files of that day.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name != "measurements"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_files_that_the_page_names_exist(page):
    """A page names a file by the end of its path, as far as a reader needs it."""
    named = set(FILE.findall(page.read_text(encoding="utf-8")))
    assert {name for name in named if not (ROOT / name).exists() and not is_end_of_a_path(name)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_the_package_on_the_page_exist(page):
    """Those of `ac` that tables and examples say, also where no example runs."""
    assert [name for name in NAME.findall(page.read_text(encoding="utf-8")) if not exists(name)] == []


def exists(name: str) -> bool:
    """Say whether a dotted name leads somewhere; an attribute of what a function returns is not looked up."""
    value: object = ac
    for part in name.split(".")[1:]:
        if not isinstance(value, (type, types.ModuleType)):
            return True
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def test_a_name_that_does_not_exist_is_noticed():
    assert not exists(".ones_and_zeros")
    assert not exists(".Module.from_nothing")
    assert not exists(".algorithms.sorted")
    assert exists(".ones")
    assert exists(".linalg.matmul")


def is_end_of_a_path(name: str) -> bool:
    folders = ("src", "native", "emulator", "tests", "benchmarks", "examples", "docs")
    return any(path.match(name) for folder in folders for path in (ROOT / folder).rglob(Path(name).name))
