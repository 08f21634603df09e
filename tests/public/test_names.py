"""The public names: each has one home, is exported there, and is documented."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import re
import typing
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

import pytest

import aiocuda as ac

MODULES = {"algorithms", "cluster", "collective", "errors", "fft", "interop", "linalg"}
FRAMEWORKS = [getattr(ac.interop, name) for name in ac.interop.__all__]
PUBLIC = [name for name in ac.__all__ if name not in MODULES]


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
    *(pytest.param(getattr(ac.algorithms, name), id=f"algorithms.{name}") for name in ac.algorithms.__all__),
    *(pytest.param(getattr(ac.cluster, name), id=f"cluster.{name}") for name in ac.cluster.__all__),
    *(pytest.param(getattr(ac.collective, name), id=f"collective.{name}") for name in ac.collective.__all__),
    *(pytest.param(getattr(ac.fft, name), id=f"fft.{name}") for name in ac.fft.__all__),
    *(pytest.param(getattr(ac.linalg, name), id=f"linalg.{name}") for name in ac.linalg.__all__),
    *(pytest.param(getattr(each, name), id=f"{each.__name__}.{name}") for each in FRAMEWORKS for name in each.__all__),
    *(
        pytest.param(member, id=f"{name}.{method}")
        for name in PUBLIC
        if inspect.isclass(getattr(ac, name))
        for method, member in members(getattr(ac, name))
    ),
]


# Rooms of which some modules come later: others ask the room for what they need of these.
ROOMS_WITH_NAMES = [
    importlib.import_module(f"aiocuda.{room}")
    for room in (
        "_arrays",
        "_cluster",
        "_devices",
        "_driver",
        "_engine",
        "_graphs",
        "_instruments",
        "_kernels",
        "_live",
        "_source",
    )
]


def source_of(package: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(package))


def test_all_is_sorted_and_complete():
    assert ac.__all__ == sorted(ac.__all__, key=lambda name: (not name.isupper(), name))  # constants first
    assert len(set(ac.__all__)) == len(ac.__all__)
    public = {name for name in dir(ac) if not name.startswith("_") and not isinstance(getattr(ac, name), ModuleType)}
    assert public == set(PUBLIC)


def reexported(package: str, nodes: Iterable[ast.stmt]) -> dict[str, str]:
    """What is imported `X as X`, so that type checkers, too, take it as the package's own; by its module."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                if name.name not in {"TYPE_CHECKING", "_later", "_naming", "_wiring"}:
                    assert name.asname == name.name
                    is_module = node.module.count(".") == package.count(".")  # of the package itself
                    found[name.name] = f"{node.module}.{name.name}" if is_module else node.module
    return found


def later(package: ModuleType) -> tuple[dict[str, str], dict[str, str]]:
    """What type checkers are told of names that come later, and from where they come at run time."""
    (node,) = (each for each in source_of(package).body if isinstance(each, ast.If))
    assert ast.unparse(node.test) == "TYPE_CHECKING"
    ((functions),) = node.orelse
    assert ast.unparse(functions.targets[0]) == "(__getattr__, __dir__)"
    groups = map(ast.literal_eval, functions.value.args[2:])
    homes = [each for group in groups for each in group.items()]
    return reexported(package.__name__, node.body), {name: home for home, names in homes for name in names}


def test_the_package_only_reexports_x_as_x():
    """And it has itself tied together, and named."""
    body = source_of(ac).body
    assert set(reexported("aiocuda", body)) | set(later(ac)[0]) == set(ac.__all__) | {"__version__"}
    calls = []
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            calls.append(ast.unparse(node.value.func))
        else:
            assert isinstance(node, ast.ImportFrom | ast.If | ast.Delete | ast.Expr | ast.Assign), ast.dump(node)
    assert calls == ["_wiring.wire", "_naming.name_publicly"]


@pytest.mark.parametrize("package", [ac, *ROOMS_WITH_NAMES], ids=lambda package: package.__name__)
def test_names_that_come_later_are_those_that_type_checkers_see(package):
    told, run = later(package)
    assert told == run
    assert set(run) <= set(package.__all__) <= set(dir(package))


def test_a_name_that_comes_later_brings_its_group_with_public_names(in_process):
    done = in_process(
        """
        import pickle
        import aiocuda as ac
        assert "aiocuda._serve" not in __import__("sys").modules
        ac.healthy
        print(vars(ac)["Health"].__module__, pickle.loads(pickle.dumps(ac.Finding)) is ac.Finding)
        """
    )
    assert done.stdout == "aiocuda True\n", done.stderr


def test_a_name_that_nobody_has_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'aiocuda' has no attribute 'trase'"):
        ac.trase  # noqa: B018


def own_modules() -> list[ModuleType]:
    """All modules of the package, but for those that import what they compare with, which need not be there."""
    names = [info.name for info in pkgutil.walk_packages(ac.__path__, "aiocuda.")]
    return [
        importlib.import_module(name)
        for name in names
        if not name.endswith(("__main__", "_native", "trio"))
        and "._examples" not in name
        and "._bench.peers." not in name
    ]


def test_every_name_has_one_home():
    homes: dict[str, list[str]] = {}
    for module in own_modules():
        if module.__name__.startswith("aiocuda._bench") or module in (
            *ROOMS_WITH_NAMES,
            ac.algorithms,
            ac.cluster,
            ac.collective,
            ac.errors,
            ac.fft,
            ac.linalg,
            *FRAMEWORKS,
        ):
            continue
        for name in getattr(module, "__all__", ()):
            if getattr(module, name) is getattr(ac, name, None):
                homes.setdefault(name, []).append(module.__name__)
    for name in PUBLIC:
        assert len(homes.get(name, [])) == 1, (name, homes.get(name))


def test_every_name_says_where_it_is_imported_from():
    for module in (ac, ac.algorithms, ac.cluster, ac.collective, ac.fft, ac.linalg, ac.errors, *FRAMEWORKS):
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type | FunctionType):
                assert value.__module__ in {module.__name__, "aiocuda.errors"}, name
                assert getattr(importlib.import_module(value.__module__), name) is value


def test_what_is_visible_is_public(in_process):
    """Whatever of the package was imported and used: no private module shows among the public names."""
    done = in_process(
        """
        import importlib, pkgutil, types
        import aiocuda as ac
        for info in pkgutil.walk_packages(ac.__path__, "aiocuda."):
            if info.name.rpartition(".")[2] not in {"__main__"} and "._bench.peers." not in info.name:
                importlib.import_module(info.name)
        ac.to_host(ac.linalg.matmul(ac.ones((2, 2)), ac.ones((2, 2)))).sync()
        modules = (ac.algorithms, ac.cluster, ac.collective, ac.errors, ac.fft, ac.interop, ac.linalg)
        frameworks = [getattr(ac.interop, name) for name in ac.interop.__all__]
        for module in (ac, ac.algorithms, ac.cluster, ac.collective, ac.errors, ac.fft, ac.linalg, *frameworks):
            print(sorted({name for name in dir(module) if not name.startswith("_")} ^ set(module.__all__)))
            print([name for name, each in vars(module).items() if isinstance(each, types.ModuleType)
                   and not name.startswith("_") and each not in modules])
        """
    )
    assert done.stdout == "[]\n" * 2 * (7 + len(FRAMEWORKS)), done.stdout + done.stderr


def test_results_and_settings_are_pickled_by_their_public_names():
    for each in (ac.Device(0), ac.CompileOptions(), ac.statistics(), ac.Device(0).memory_info(), ac.Device(0).limits()):
        pickled = pickle.dumps(each)
        assert pickle.loads(pickled) == each
        assert b"aiocuda._" not in pickled, each


def test_the_fields_of_public_classes_have_types_that_can_be_read():
    classes = [value for name in PUBLIC if dataclasses.is_dataclass(value := getattr(ac, name))]
    assert ac.CompileOptions in classes
    for each in classes:
        assert set(typing.get_type_hints(each)) == {field.name for field in dataclasses.fields(each)}


def test_no_source_is_shown_for_a_class_rather_than_another_ones():
    """`inspect` looks for a class in the module that it says it is of."""
    with pytest.raises(OSError, match=r"class definition|source code"):
        inspect.getsource(ac.Device)
    assert inspect.getsource(ac.Device.stream).lstrip().startswith("def stream(")
    assert inspect.getsource(ac.zeros).startswith("def zeros(")


def test_every_module_says_what_it_exports():
    for module in own_modules():
        exported = getattr(module, "__all__", ())  # ruff keeps it in order
        assert len(set(exported)) == len(exported), module
        assert all(hasattr(module, each) for each in exported), module
        assert module.__doc__, module


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


# Each takes milliseconds, and many programs do without.
HEAVY = {
    "asyncio", "cuda.bindings", "cuda.core", "cupy", "hashlib", "html", "http", "importlib.metadata",
    "importlib.resources", "json", "multiprocessing", "numba", "numpy.typing", "opentelemetry", "pathlib", "ray",
    "rich", "socket", "statistics", "subprocess", "tempfile", "torch", "tree_sitter", "trio", "triton", "urllib.parse",
    "urllib.request", "uvloop", "xml",
}  # fmt: skip


def test_importing_makes_no_dataclass(in_process):
    """To make one takes ten times the instructions of a named tuple; who asks for a record pays for it."""
    done = in_process(
        """
        import dataclasses, numpy
        made = []
        process = dataclasses._process_class
        dataclasses._process_class = lambda cls, *given: made.append(cls.__name__) or process(cls, *given)
        import aiocuda as ac
        print(made)
        ac.CompileOptions
        print(made)
        """
    )
    assert done.stdout == "[]\n['CompileOptions']\n", done.stdout + done.stderr


def test_importing_brings_nothing_heavy_and_not_what_comes_later(in_process):
    """Modules are counted: how long they take is in docs/measurements."""
    done = in_process(
        """
        import sys
        import ml_dtypes, numpy
        before = set(sys.modules)
        import aiocuda
        print(*sorted(set(sys.modules) - before))
        """
    )
    found = done.stdout.split()
    assert "aiocuda" in found, done.stderr
    assert HEAVY.isdisjoint(found)
    rooms = {"aiocuda._cluster", "aiocuda._collective", "aiocuda._interop", "aiocuda._serve", "aiocuda._trace"}
    assert rooms.isdisjoint(found)
    assert len([name for name in found if name.startswith("aiocuda.")]) <= 120
    assert len([name for name in found if not name.startswith("aiocuda")]) <= 20


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
