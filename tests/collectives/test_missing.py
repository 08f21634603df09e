"""Collectives where nccl4py, or NCCL, is not installed: the error says so, and how to install it."""

from __future__ import annotations

import types

import pytest

from aiocuda._driver import nccl
from aiocuda.collective import Group, unique_id
from aiocuda.errors import MissingPackageError

PROGRAM = """
import sys
sys.modules["nccl"] = None  # as if it were not installed
import aiocuda as ac
from aiocuda.collective import Group, unique_id
for ask in (lambda: Group.local([0]), unique_id):
    try:
        ask()
    except ac.MissingPackageError as error:
        print(error)
print(ac.to_host(ac.ones(2)).sync())
"""


def test_without_nccl4py_the_error_says_how_to_install_it_and_all_else_works(in_process):
    done = in_process(PROGRAM)
    *errors, ones = done.stdout.splitlines()
    assert len(errors) == 2
    for each in errors:
        assert each.startswith("collectives need nccl4py (")
        assert each.endswith('): pip install "aiocuda[nccl]"')
    assert ones == "[1. 1.]"


WITHOUT_LIBRARY = """
import cuda.pathfinder
from aiocuda._driver import choosing
choosing.COMPANION_SONAMES = ()

def find(name):  # as if NCCL were nowhere
    raise cuda.pathfinder.DynamicLibNotFoundError(f"{name}: no such file")

cuda.pathfinder.load_nvidia_dynamic_lib = find
import aiocuda as ac
from aiocuda._driver import nccl
print(nccl.is_installed())
try:
    ac.collective.unique_id()
except ac.MissingPackageError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("program", "reason"), [("import sys; sys.modules['nccl'] = None", "nccl4py"), ("", "NCCL")], ids=["neither", "one"]
)
def test_nccl_is_installed_if_its_library_is_found(in_process, program: str, reason: str):
    """A process that has nccl4py alone, as the extra `cli` brings it, has no NCCL."""
    pytest.importorskip("nccl.bindings")
    assert nccl.is_installed()
    done = in_process(program + WITHOUT_LIBRARY, AIOCUDA_DRIVER="emulated", PYTHONWARNINGS="error")
    answer, error = done.stdout.splitlines()
    assert answer == "False"
    assert error.startswith(f"collectives need {reason} (")


def test_without_nccl_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    """nccl4py is there, and looks for the library when it is first called."""

    def get_unique_id() -> bytes:
        raise RuntimeError("Failed to dlopen libnccl.so.2")

    bindings = types.SimpleNamespace(get_unique_id=get_unique_id)
    monkeypatch.setattr(nccl, "_bindings", lambda: bindings)
    for ask in (lambda: Group.local([0]), unique_id):
        with pytest.raises(MissingPackageError, match=r'need NCCL \(.*libnccl.*\): pip install "aiocuda\[nccl\]"'):
            ask()
