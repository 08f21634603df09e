"""What import-linter cannot see of the rooms in docs/design.md, section 4."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
MODULES = sorted((SOURCES / "aiocuda").rglob("*.py"))
# Packages that need not be installed, or, as cuda.*, must be imported behind the choice of a driver.
IN_FUNCTIONS = {
    "cuda",
    "cupti",
    "cupy",
    "igraph",
    "numba",
    "nccl",
    "nvmath",
    "nvtx",
    "opentelemetry",
    "perfetto",
    "ray",
    "rich",
    "rmm",
    "torch",
    "tqdm",
    "trio",
    "triton",
    "warp",
}
# These import files once what the files are for is there or wanted: an event loop's runtime, another library, the demo,
# a public name.
BY_NAME = {"_loops/__init__.py", "_bench/loops.py", "_bench/peers/loading.py", "_cli.py", "_later.py"}


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
    assert "aiocuda" not in plain or module.name == "_later.py"  # where type checkers find it


def annotations(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if isinstance(each := getattr(node, name, None), ast.AST):
                yield from ast.walk(each)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCES)))
def test_rooms_write_the_package_in_annotations_alone(module):
    """Else a lower room could use an upper one, unseen."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    written = {node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "aiocuda"}
    is_home = module.name == "_later.py"
    assert written - set(annotations(tree)) == set() or is_home


def imports_in_functions(tree: ast.AST, *, is_inside: bool = False) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if is_inside and isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif is_inside and isinstance(node, ast.ImportFrom):
            yield node.module or ""
        yield from imports_in_functions(
            node, is_inside=is_inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        )


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCES)))
def test_functions_import_nothing_but_what_need_not_be_there(module):
    text = module.read_text(encoding="utf-8")
    found = set(imports_in_functions(ast.parse(text)))
    assert {name for name in found if name.partition(".")[0] not in IN_FUNCTIONS} == set()
    if str(module.relative_to(SOURCES / "aiocuda")) not in BY_NAME:
        assert "import_module(" not in text
        assert "__import__(" not in text


def test_native_code_imports_no_module_of_the_package_but_the_errors():
    native = SOURCES.parent / "native"
    found = {
        name
        for path in native.rglob("*.[ch]pp")
        for name in re.findall(r'import_\("(aiocuda[^"]*)"\)', path.read_text(encoding="utf-8"))
    }
    assert found <= {"aiocuda.errors"}
