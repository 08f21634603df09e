"""The public names: each has one home, is exported there, and is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from types import ModuleType
from typing import Any

import pytest

import aiocuda as ac

HOMES = [
    "api",
    "array",
    "chunks",
    "compile_options",
    "compiled",
    "composing",
    "conversion",
    "copies",
    "device",
    "device_limits",
    "errors",
    "event",
    "fills",
    "foreign",
    "graph",
    "interprocess",
    "joining",
    "kernel",
    "likeness",
    "limits",
    "memory",
    "module",
    "ops",
    "parallel",
    "policies",
    "randomness",
    "ranges",
    "statistics",
    "waiting",
    "_driver.loaded",
    "_engine.futures",
    "_engine.stream_wait",
]
PUBLIC = [name for name in ac.__all__ if name not in {"errors", "linalg"}]


def members(kind: type) -> list[tuple[str, Any]]:
    """The public methods and properties that a class defines."""
    return [
        (name, member)
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_")
        and (inspect.isroutine(member) or isinstance(member, property))
        and str(getattr(getattr(member, "fget", member), "__module__", "")).startswith("aiocuda")
    ]


DOCUMENTED = [
    *(pytest.param(getattr(ac, name), id=name) for name in PUBLIC),
    *(pytest.param(getattr(ac.linalg, name), id=f"linalg.{name}") for name in ac.linalg.__all__),
    *(
        pytest.param(member, id=f"{name}.{method}")
        for name in PUBLIC
        if inspect.isclass(getattr(ac, name))
        for method, member in members(getattr(ac, name))
    ),
]


def source_of_package() -> ast.Module:
    return ast.parse(inspect.getsource(ac))


def test_all_is_sorted_and_complete():
    assert ac.__all__ == sorted(ac.__all__, key=lambda name: (not name.isupper(), name))  # constants first
    assert len(set(ac.__all__)) == len(ac.__all__)
    public = {
        name for name, value in vars(ac).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(PUBLIC)


def test_the_package_only_reexports_x_as_x():
    """So that type checkers, too, take them as the package's own."""
    for node in source_of_package().body:
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                assert name.asname == name.name
        else:
            assert isinstance(node, ast.Expr | ast.Assign), ast.dump(node)


def test_every_name_has_one_home():
    homes: dict[str, list[str]] = {}
    for home in HOMES:
        for name in importlib.import_module(f"aiocuda.{home}").__all__:
            homes.setdefault(name, []).append(home)
    for name in PUBLIC:
        assert len(homes.get(name, [])) == 1, (name, homes.get(name))


def test_every_name_says_its_home():
    for name in PUBLIC:
        value = getattr(ac, name)
        module = importlib.import_module(value.__module__)
        assert getattr(module, name) is value
        assert name in module.__all__


def test_every_module_says_what_it_exports():
    for info in pkgutil.walk_packages(ac.__path__, "aiocuda."):
        name = info.name
        if name.endswith(("__main__", "_native", "trio")) or ".examples" in name or ".bench.peers." in name:
            continue  # the last import what they compare with, which need not be there
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", ())  # ruff keeps it in order
        assert len(set(exported)) == len(exported), name
        assert all(hasattr(module, each) for each in exported), name
        assert module.__doc__, name


def test_importing_starts_no_driver_and_no_loop(in_process):
    done = in_process(
        """
        import sys
        import aiocuda
        loaded = [line for line in open("/proc/self/maps") if "libcuda.so" in line]
        print(len(loaded), "trio" in sys.modules, "uvloop" in sys.modules)
        """
    )
    assert done.stdout == "0 False False\n", done.stderr


@pytest.mark.parametrize("thing", DOCUMENTED)
def test_it_is_documented_in_numpys_style(thing):
    function = thing.fget if isinstance(thing, property) else thing
    text = inspect.getdoc(function)
    assert text, "no docstring"
    summary = text.split("\n\n")[0]
    assert summary.endswith("."), summary
    headings = re.findall(r"^(\w[\w ]*)\n-+$", text, re.MULTILINE)
    known = {
        *("Parameters", "Returns", "Raises", "Notes", "Examples", "Attributes", "See Also"),
        *("Warns", "Yields", "References"),
    }
    assert set(headings) <= known
    for heading, dashes in re.findall(r"^(\w[\w ]*)\n(-+)$", text, re.MULTILINE):
        assert len(heading) == len(dashes), heading


@pytest.mark.parametrize("thing", DOCUMENTED)
def test_its_parameters_are_documented(thing):
    if isinstance(thing, property) or inspect.isclass(thing) or not callable(thing):
        return
    text = inspect.getdoc(thing) or ""
    parameters = [name for name in inspect.signature(thing).parameters if name not in ("self", "cls", "type_params")]
    if not parameters or re.search(r"\bas (for )?`\w+`", text):  # another's, which are documented
        return
    if "Parameters\n----------" not in text:
        # One sentence is enough for one parameter that the name and the sentence make plain.
        assert len(parameters) == 1, f"{parameters} are not documented"
        return
    section = text.split("Parameters\n----------\n")[1].split("\n\n")
    documented = re.findall(r"^\*?([\w, *]+)$", "\n".join(section), re.MULTILINE)
    names = {name.strip(" *") for line in documented for name in line.split(",")}
    assert set(parameters) <= names
