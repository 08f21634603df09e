"""Says whether a tag may be released: tag, version and changelog must agree. Prints the release's text.

    python packaging/release.py v0.2.0 [--notes notes.md]

The exit status is 1 if they do not, with what to do.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Check and print; see above."""
    parser = argparse.ArgumentParser(description="Check that a tag, the version and the changelog agree.")
    parser.add_argument("tag", help="such as v0.2.0")
    parser.add_argument("--notes", type=Path, metavar="PATH", help="write the changelog's section of the version")
    given = parser.parse_args()
    try:
        notes = notes_of(given.tag, ROOT)
    except ValueError as error:
        print(f"{given.tag} cannot be released: {error}", file=sys.stderr)
        return 1
    if given.notes is not None:
        given.notes.write_text(notes, encoding="utf-8")
    print(notes)
    return 0


def notes_of(tag: str, root: Path) -> str:
    """Return the changelog's section of the version that a tag names.

    Raises
    ------
    ValueError
        The tag names another version than the package, or the changelog has no section of it with a day.
    """
    said = re.search(r'^__version__ = "(.+)"$', (root / "src/aiocuda/_version.py").read_text("utf-8"), re.MULTILINE)
    version = said[1] if said else "none"
    if tag != f"v{version}":
        raise ValueError(f"src/aiocuda/_version.py says {version}; the tag must be v{version}")
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    heading = re.search(rf"^## \[{re.escape(version)}\](.*)$", changelog, re.MULTILINE)
    if heading is None:
        raise ValueError(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'")
    if not re.fullmatch(r" - \d{4}-\d\d-\d\d", heading[1]):
        raise ValueError(f"CHANGELOG.md says '{heading[0]}'; give it the day: '## [{version}] - YYYY-MM-DD'")
    return changelog[heading.end() :].partition("\n## ")[0].strip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
