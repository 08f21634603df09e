"""Editors and notebooks complete names, and show how functions and kernels are called."""

from __future__ import annotations

import inspect
import site
import sys
from pathlib import Path

import jedi
import pytest
from IPython.core.completer import IPCompleter, provisionalcompleter
from IPython.core.oinspect import Inspector

import aiocuda as ac

SOURCE = Path(ac.__file__).parents[1]
PROGRAM = '''
import aiocuda as ac

double = ac.kernel("""
extern "C" __global__ void twice(const float* x, float* y, int n) {}
""")
op = ac.ones(3)
array = op.sync()
future = op.submit()
'''
KINDS = {
    "ac": set(ac.__all__),
    "op": {"sync", "submit", "then", "map", "within", "reshape", "share"},
    "array": {"shape", "dtype", "device", "share", "partition", "reshape"},
    "future": {"result", "done", "cancel", "within"},
    "double": {"compile", "occupancy", "attributes", "signature"},
}
# An editable install replaces Python's loaders, and jedi does not read what it puts there. So jedi gets a Python
# without the install, and the folders, as a wheel would have them.
PROJECT = jedi.Project(SOURCE, sys_path=[str(SOURCE), *site.getsitepackages()])
PYTHON = jedi.create_environment(sys._base_executable, safe=False)


@pytest.fixture(scope="module")
def names():
    """The names of the program, as a notebook has them after it has run."""
    names: dict[str, object] = {}
    exec(PROGRAM, names)
    return names


def by_jedi(text: str) -> jedi.Script:
    return jedi.Script(PROGRAM + text, project=PROJECT, environment=PYTHON)


def in_notebook(text: str, names: dict[str, object]) -> set[str]:
    with provisionalcompleter():
        completer = IPCompleter(namespace=names, use_jedi=False)
        return {each.text.rpartition(".")[2] for each in completer.completions(text, len(text))}


@pytest.mark.parametrize("name", KINDS)
def test_an_editor_completes_the_members(name):
    found = {each.name for each in by_jedi(f"{name}.").complete()}
    assert KINDS[name] - found == set()


@pytest.mark.parametrize("name", KINDS)
def test_a_notebook_completes_the_members(name, names):
    found = in_notebook(f"{name}.", names)
    assert KINDS[name] - found == set()


@pytest.mark.parametrize(
    ("call", "parameters"),
    [
        ("ac.empty(", ["shape", "dtype", "device", "pitched", "managed", "interprocess"]),
        ("ac.kernel(", ["source", "name", "options", "signature", "structures"]),
        ("op.within(", ["seconds"]),
        ("array.partition(", ["tile_shape"]),
    ],
)
def test_an_editor_shows_the_parameters(call, parameters):
    (signature,) = by_jedi(call).get_signatures()
    assert [each.name for each in signature.params if each.name != "*"] == parameters
    assert signature.docstring()


def test_a_notebook_shows_the_parameters_of_a_kernel_as_cuda_declares_them(names):
    double = names["double"]
    assert list(inspect.signature(double).parameters)[:3] == ["x", "y", "n"]
    shown = Inspector(theme_name="nocolor").info(double)
    assert "const float" in shown["docstring"]


def test_a_program_may_write_what_a_kernel_writes():
    assert ac.Kernel[ac.DeviceArray].__args__ == (ac.DeviceArray,)
