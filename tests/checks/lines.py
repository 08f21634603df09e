"""Where the bugs of `planted.cu` are."""

from __future__ import annotations

import re

from planted import SOURCE


def marked_lines() -> dict[str, dict[str, int]]:
    """Return the lines that are marked "bug" and "also", by kernel."""
    found: dict[str, dict[str, int]] = {}
    kernel = ""
    for number, line in enumerate(SOURCE.read_text().splitlines(), 1):
        if starts := re.match(r"__global__ void (\w+)\(", line):
            kernel = starts[1]
            found[kernel] = {}
        if mark := re.search(r"// (bug|also)$", line):
            found[kernel][mark[1]] = number
    return found
