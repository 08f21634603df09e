"""Each public name has a whole entry in the reference: a place, parameters, results, errors, how it runs, an example.

All that is missing is listed at once, one line each, so that one run says what is to be written.
"""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import inspect
import io
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import aiocuda as ac

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
MODULES = (
    ac,
    *(module for name in ac.__all__ if inspect.ismodule(module := getattr(ac, name)) and module is not ac.interop),
    *(getattr(ac.interop, name) for name in ac.interop.__all__),
)
ERRORS = {name for name in ac.errors.__all__ if issubclass(getattr(ac.errors, name), BaseException)}

DIRECTIVE = re.compile(
    r"^\.\. auto(?P<kind>class|data|exception|function|module):: (?P<name>[\w.]+)(?P<hidden>\(\))?[^\n]*\n"
    r"(?P<options>(?:   :.*\n)*)",
    re.MULTILINE,
)
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE_OF_FRAMEWORK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^(?P<heading>[A-Z][\w ]*)\n-+\n(?P<text>.*?)(?=^[A-Z][\w ]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
# "As for `aiocuda.zeros`": what the other entry says of errors, and of how it runs, holds here, unwritten.
OTHER = re.compile(r"\b[Aa]s (?:for |of |by )?`(?:aiocuda\.)?(?P<name>[\w.]+)`")
# No example of these can run in the tests, and why.
WITHOUT_EXAMPLE = {
    "aiocuda.Module.from_cubin": "takes code that is compiled for a GPU",
    "aiocuda.Module.from_fatbin": "takes code that is compiled for a GPU",
    "aiocuda.Module.from_ptx": "NVIDIA's driver alone takes PTX",
    "aiocuda.cluster.Cluster.restart": "a process of Ray's must be lost first: tests/cluster/test_faults.py does that",
    "aiocuda.cluster.Worker.lost": "as for restart",
    "aiocuda.cluster.Worker.process_id": "another number each time, and only for tools outside",
}
WAYS = ("*Stream*", "*Blocks*", "*On cancel*")


@dataclass(frozen=True)
class Entry:
    """A public name: of a module, or a member of a public class."""

    name: str
    value: Any
    owner: type | None = None

    @property
    def member(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def function(self) -> Any:
        return self.value.fget if isinstance(self.value, property) else self.value

    @property
    def text(self) -> str:
        return inspect.getdoc(self.value) or ""

    @property
    def is_function(self) -> bool:
        return inspect.isroutine(self.value)

    def sections(self) -> dict[str, str]:
        return {match["heading"]: match["text"] for match in SECTION.finditer(self.text)}


def is_own(member: object) -> bool:
    """Whether a member of a class is the package's, and no one's that it inherits from."""
    function = getattr(member, "fget", member)
    return str(getattr(function, "__module__", "") or "").startswith("aiocuda") or inspect.isdatadescriptor(member)


def entries() -> list[Entry]:
    found = []
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value) or (module is ac and name in ac.errors.__all__):
                continue
            entry = Entry(f"{module.__name__}.{name}", value)
            found.append(entry)
            if inspect.isclass(value):
                found += members(entry)
    return found


def members(of: Entry) -> Iterator[Entry]:
    fields = {each.name for each in dataclasses.fields(of.value)} if dataclasses.is_dataclass(of.value) else set()
    for name, member in inspect.getmembers_static(of.value):
        plain = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        is_member = inspect.isroutine(plain) or isinstance(plain, property)
        if name.startswith("_") or name in fields or not is_member or not is_own(plain):
            continue
        if not hasattr(of.value, name):  # a text that says what there is instead, in the place of what there is not
            continue
        yield Entry(f"{of.name}.{name}", plain, of.value)


ENTRIES = entries()
DIRECTIVES = [
    match
    for page in sorted((DOCS / "reference").glob("*.md"))
    for match in DIRECTIVE.finditer(page.read_text(encoding="utf-8"))
]


# --- a place ---------------------------------------------------------------------------------------------------------


def placed() -> set[str]:
    """The names that the pages of the reference have a directive for, or that one of their directives brings along."""
    found = set()
    for match in DIRECTIVES:
        options = dict(re.findall(r":([\w-]+):[ \t]*(.*)", match["options"]))
        found.add(match["name"])
        if match["kind"] == "module":
            found |= {f"{match['name']}.{name}" for name in importlib.import_module(match["name"]).__all__}
        found |= {f"{match['name']}.{name.strip()}" for name in options.get("members", "").split(",")}
        if options.get("members") == "":
            found |= {entry.name for entry in ENTRIES if is_brought(entry, match["name"], options)}
    return found


def is_brought(entry: Entry, name: str, options: dict[str, str]) -> bool:
    if not entry.name.startswith(f"{name}."):
        return False
    return "inherited-members" in options or entry.owner is None or entry.member in vars(entry.owner)


def without_a_place() -> list[str]:
    there = placed()
    modules = {entry.name for entry in ENTRIES if entry.name.startswith("aiocuda.errors.")} & there
    return [
        f"{entry.name}: no directive on a page of docs/reference"
        for entry in ENTRIES
        if entry.name not in there and entry.name.rpartition(".")[0] not in modules
    ]


# --- what it takes, gives and raises ---------------------------------------------------------------------------------


def without_parameters() -> Iterator[str]:
    for entry in ENTRIES:
        if not entry.is_function:
            continue
        wanted = [name for name in inspect.signature(entry.value).parameters if name not in {"self", "cls"}]
        named = named_in(entry.sections().get("Parameters", ""))
        if missing := [name for name in wanted if name not in named]:
            yield f"{entry.name}: no parameter {', '.join(missing)} under Parameters"


def without_fields() -> Iterator[str]:
    """Fields of values, and the parameters of classes that anybody may make: others have "()" in their directive."""
    made_by_anybody = {match["name"] for match in DIRECTIVES if not match["hidden"]}
    for entry in ENTRIES:
        if not inspect.isclass(entry.value) or is_error(entry):
            continue
        sections = entry.sections()
        named = named_in(sections.get("Attributes", "")) | named_in(sections.get("Parameters", ""))
        wanted = (
            [each.name for each in dataclasses.fields(entry.value)] if dataclasses.is_dataclass(entry.value) else []
        )
        made = vars(entry.value).get("__init__")
        if inspect.isfunction(made) and entry.name in made_by_anybody:
            wanted += [name for name in inspect.signature(made).parameters if name != "self"]
        if missing := [name for name in wanted if name not in named and not name.startswith("_")]:
            yield f"{entry.name}: no {', '.join(missing)} under Attributes or Parameters"


def named_in(section: str) -> set[str]:
    lines = re.findall(r"^\*{0,2}\w+(?:, \*{0,2}\w+)*(?= :|$)", section, re.MULTILINE)
    return {name.strip(" *") for line in lines for name in line.split(",")}


def whole_text(entry: Entry) -> str:
    """Its docstring, and those of the entries that it refers to by "as", and so on."""
    found: dict[str, Entry] = {}
    asked = [entry]
    while asked:
        each = asked.pop()
        if each.name not in found:
            found[each.name] = each
            names = {match["name"] for match in OTHER.finditer(each.text)}
            asked += [other for other in ENTRIES if is_named(other, names, each.name.rpartition(".")[0])]
    return "\n".join(each.text for each in found.values())


def is_named(entry: Entry, names: set[str], beside: str) -> bool:
    """Whether a docstring names the entry: by its whole name, or as a member of the same class or module."""
    return bool({entry.name, entry.name.removeprefix("aiocuda."), entry.name.removeprefix(f"{beside}.")} & names)


def without_result() -> Iterator[str]:
    for entry in ENTRIES:
        if not entry.is_function:
            continue
        result = str(getattr(entry.value, "__annotations__", {}).get("return", "None"))
        if result not in {"None", "NoReturn", "Self"} and not {"Returns", "Yields"} & entry.sections().keys():
            yield f"{entry.name}: returns {result}, and has no Returns"


def without_errors() -> Iterator[str]:
    for entry in ENTRIES:
        if not (entry.is_function or isinstance(entry.value, property)):
            continue
        if missing := sorted(raised_by(entry.function) - set(re.findall(r"\w+", whole_text(entry)))):
            yield f"{entry.name}: raises {', '.join(missing)}, which its docstring does not name"


def raised_by(function: Any) -> set[str]:
    """The errors that its own source raises, by their names."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):  # native
        return set()
    calls = [node.exc for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise)]
    names = [getattr(call.func if isinstance(call, ast.Call) else call, "id", None) for call in calls]
    return {name for name in names if name in ERRORS}


# --- how an operation runs -------------------------------------------------------------------------------------------


def without_ways() -> Iterator[str]:
    for entry in ENTRIES:
        if not gives_operation(entry):
            continue
        text = whole_text(entry)
        if missing := [way for way in WAYS if way not in text]:
            yield f"{entry.name}: an operation, and does not say {', '.join(missing)}"


def gives_operation(entry: Entry) -> bool:
    result = str(getattr(entry.function, "__annotations__", {}).get("return", ""))
    return re.search(r"\b(DeviceOp|\w*Op)\b", result) is not None


# --- an example ------------------------------------------------------------------------------------------------------


def used_in_examples() -> set[str]:
    """The words by which the examples name what they use: those of the pages and of the docstrings; all of them run."""
    used: set[str] = set()
    sources = [source for page in PAGES for source in EXAMPLE.findall(page.read_text(encoding="utf-8"))]
    for page in (DOCS / "interop").glob("*.md"):  # those run where the framework is
        sources += EXAMPLE_OF_FRAMEWORK.findall(page.read_text(encoding="utf-8"))
    for folder in ("data_parallel", "parameter_server"):  # tests/cluster runs them: clusters need Ray
        sources += [path.read_text(encoding="utf-8") for path in (ROOT / "examples" / folder).glob("*.py")]
    sources += [example.source for entry in ENTRIES for example in doctest.DocTestParser().get_examples(entry.text)]
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            used |= {getattr(node, field) or "" for field in ("attr", "id", "arg", "name") if hasattr(node, field)}
    return used


def without_example() -> Iterator[str]:
    used = used_in_examples()
    used |= given_by_examples(used)
    for entry in ENTRIES:
        if entry.member not in used and entry.name not in WITHOUT_EXAMPLE and not is_error(entry):
            yield f"{entry.name}: no example uses it"


def is_error(entry: Entry) -> bool:
    return inspect.isclass(entry.value) and issubclass(entry.value, BaseException)  # it says itself what raises it


def given_by_examples(used: set[str]) -> set[str]:
    """The classes of what the used names give, and of the fields of those: nobody writes their names."""
    classes = {entry.member for entry in ENTRIES if inspect.isclass(entry.value)}
    found: set[str] = set()
    reached = used
    while reached:
        words = {word for entry in ENTRIES if entry.member in reached for word in re.findall(r"\w+", given_by(entry))}
        reached = (words & classes) - found
        found |= reached
    return found


def given_by(entry: Entry) -> str:
    """The types of what a function returns, a property has, or the fields of a class have."""
    if inspect.isclass(entry.value):
        return " ".join(map(str, getattr(entry.value, "__annotations__", {}).values()))
    said = str(getattr(entry.function, "__annotations__", {}).get("return", ""))
    return said if said != "Any" else " ".join(results_in_source(entry.function))


def results_in_source(function: Any) -> Iterator[str]:
    """The types that the overloads of a function give; `typing.get_overloads` looks for them in its public module."""
    path = inspect.getsourcefile(function)
    assert path is not None
    for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__ and node.returns is not None:
            yield ast.unparse(node.returns)


# ---------------------------------------------------------------------------------------------------------------------


def test_every_public_name_has_a_whole_entry_in_the_reference():
    missing = [
        *without_a_place(),
        *without_parameters(),
        *without_fields(),
        *without_result(),
        *without_errors(),
        *without_ways(),
        *without_example(),
    ]
    assert not missing, f"{len(missing)} things are missing:\n" + "\n".join(missing)


EXAMPLES = [entry for entry in ENTRIES if ">>>" in entry.text]


@pytest.mark.parametrize("entry", EXAMPLES, ids=lambda entry: entry.name)
def test_examples_of_docstrings_print_what_they_say(entry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where an example writes its files
    test = doctest.DocTestParser().get_doctest(entry.text, {}, entry.name, None, None)
    told = io.StringIO()
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(test, out=told.write)
    assert told.getvalue() == ""
