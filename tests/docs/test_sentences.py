"""The pages are written in plain English: short sentences, which begin with who acts and not with a riddle."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

import aiocuda as ac

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ROADMAP.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

MOST_WORDS = 40
# "What is not wanted is not": such a beginning hides who acts. "Where ..." is "If ...", mostly.
RIDDLE = re.compile(r"(What|Who|Whoever|Where)\b")
AS_WORDS = {"softbreak": " ", "hardbreak": " ", "code_inline": "code"}
# A colon or a semicolon ends a thought, too.
END = re.compile(r"(?<=[.!?:;])[)*\"”]*\s+")


def sentences_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of each sentence of a page; a piece of code counts as one word."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type != "inline" or token.children is None:
            continue
        plain = "".join(AS_WORDS.get(child.type, child.content) for child in token.children)
        for sentence in END.split(plain):
            yield (token.map or [0])[0] + 1, sentence.strip()


def complaints(text: str) -> list[str]:
    return [f"line {line}: {fault}" for line, sentence in sentences_of(text) for fault in faults_of(sentence)]


def faults_of(sentence: str) -> Iterator[str]:
    if len(sentence.split()) > MOST_WORDS:
        yield f"more than {MOST_WORDS} words: {sentence}"
    if RIDDLE.match(sentence) and sentence.endswith((".", ":")):
        yield f"begin with who acts: {sentence}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_of_the_page_are_short_and_begin_with_who_acts(page):
    assert complaints(page.read_text(encoding="utf-8")) == []


def test_long_sentences_and_riddles_are_noticed_and_headings_questions_and_code_are_not():
    assert complaints("# What blocks\n\nWhat blocks? The `a b c d` blocks.\n\n```\nWhat blocks is this.\n```\n") == []
    assert len(complaints("- Where nobody wants it any more, it is not.\n\n" + "word " * 41 + "\n")) == 2


def documented() -> Iterator[tuple[str, Any]]:
    """Yield the public names that have a docstring, and the public members of public classes."""
    for name in sorted({*ac.__all__, *ac.errors.__all__}):
        value = getattr(ac, name, None) or getattr(ac.errors, name)
        yield name, value
        if not inspect.isclass(value):
            continue
        for member, function in inspect.getmembers(value):
            if not member.startswith("_") and (callable(function) or inspect.isdatadescriptor(function)):
                yield f"{name}.{member}", function


# Where one thought of a NumPy docstring ends, and another begins: sections, parameters, items of lists.
BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=[^\n]*\n    )|\n-{3,}\n")
CODE = re.compile(r"``[^`]+``|`[^`]+`")


def test_docstrings_of_public_names_have_short_sentences_that_begin_with_who_acts():
    found = set()
    for name, value in documented():
        text = (inspect.getdoc(value) or "").partition("\nExamples\n")[0]
        for part in BREAK.split(text):
            plain = CODE.sub("code", " ".join(part.split()))
            found |= {f"{name}: {fault}" for sentence in END.split(plain) for fault in faults_of(sentence)}
    assert found == set()
