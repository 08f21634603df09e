"""What import-linter cannot see of the floors in docs/design.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
MODULES = sorted((SOURCES / "aiocuda").rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCES)))
def test_only_the_native_module_is_imported_from_the_package_itself(module):
    nodes = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
    names = {
        alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "aiocuda" and node.level == 0
        for alias in node.names
    }
    submodules = {path.stem for path in (SOURCES / "aiocuda").iterdir()}
    assert names <= submodules | {"_native"}
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert "aiocuda" not in plain
