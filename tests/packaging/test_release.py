"""A release: the tag, the version and the changelog agree, or nothing is released."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import aiocuda as ac

ROOT = Path(__file__).parents[2]
CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.0] - 2026-12-01

### Added

- Much.

## [1.1.0] - 2026-11-01

- Little.
"""


@pytest.fixture(scope="module")
def notes_of():
    spec = importlib.util.spec_from_file_location("release", ROOT / "packaging" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.notes_of


@pytest.fixture
def root(tmp_path):
    (tmp_path / "src/aiocuda").mkdir(parents=True)
    (tmp_path / "src/aiocuda/_version.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_the_text_of_a_release_is_its_section_of_the_changelog(notes_of, root):
    assert notes_of("v1.2.0", root) == "### Added\n\n- Much.\n"


@pytest.mark.parametrize("tag", ["v1.1.0", "1.2.0", "v1.2.0.post1"])
def test_a_tag_of_another_version_is_refused(notes_of, root, tag):
    with pytest.raises(ValueError, match=r"_version.py says 1.2.0; the tag must be v1.2.0"):
        notes_of(tag, root)


def test_a_version_without_a_day_in_the_changelog_is_refused(notes_of, root):
    (root / "CHANGELOG.md").write_text(CHANGELOG.replace(" - 2026-12-01", " - not released yet"))
    with pytest.raises(ValueError, match=r"says '## \[1.2.0\] - not released yet'; give it the day"):
        notes_of("v1.2.0", root)


def test_a_version_that_the_changelog_does_not_have_is_refused(notes_of, root):
    (root / "CHANGELOG.md").write_text(CHANGELOG.replace("1.2.0", "1.3.0"))
    with pytest.raises(ValueError, match=r"has no section '## \[1.2.0\] - YYYY-MM-DD'"):
        notes_of("v1.2.0", root)


def test_the_changelog_begins_with_the_version_of_the_package_or_with_what_comes_after():
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines() if line.startswith("## [")]
    assert headings[0] == "## [Unreleased]" or headings[0].startswith(f"## [{ac.__version__}]")
