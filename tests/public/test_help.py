"""`help()` shows public names: a reader can import what a signature says."""

from __future__ import annotations

import pydoc
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import aiocuda as ac

MODULES = [ac, *(value for name in ac.__all__ if isinstance(value := getattr(ac, name), ModuleType))]
FRAMEWORKS = [getattr(ac.interop, name) for name in ac.interop.__all__]

PRIVATE = re.compile(r"(?<!\w)_\w+\.\w")
# Bases may be private: what a class inherits is said there, and is not to be imported.
OF_BASES = re.compile(r"class \w+\(|.* inherited from |__orig_bases__ = |[\w.]+$")
# Only aiocuda makes these, out of what is its own.
MADE_WITH_PRIVATE_THINGS = {"CudaGraph", "DeviceFuture", "Module"}


def shown() -> Iterator[Any]:
    for module in (*MODULES, *FRAMEWORKS):
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, ModuleType | ac.ReturnWhen):
                yield pytest.param(value, id=f"{module.__name__}.{name}")


def private_lines(thing: Any) -> list[str]:
    lines = [line.lstrip("| ") for line in pydoc.plain(pydoc.render_doc(thing)).splitlines()]
    return [line for line in lines if PRIVATE.search(line) and not OF_BASES.match(line)]


@pytest.mark.parametrize("thing", list(shown()))
def test_signatures_name_what_can_be_imported(thing):
    found = private_lines(thing)
    if thing.__name__ in MADE_WITH_PRIVATE_THINGS:
        found = [line for line in found if not line.startswith((f"{thing.__name__}(", "__init__("))]
    assert found == []


def test_a_class_that_comes_later_is_shown_by_its_public_name(in_process):
    done = in_process(
        """
        import pydoc
        import aiocuda as ac
        print(pydoc.plain(pydoc.render_doc(ac.CudaGraph.statistics)).splitlines()[2])
        """
    )
    assert done.stdout == "statistics(self) -> 'aiocuda.GraphStatistics'\n", done.stderr
