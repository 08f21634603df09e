"""The types in public annotations can be read while a program runs, as pydantic, FastAPI and beartype read them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

import aiocuda as ac

MODULES = (ac, *(getattr(ac, name) for name in ac.__all__ if isinstance(getattr(ac, name), ModuleType)))
FRAMEWORKS = tuple(getattr(ac.interop, name) for name in ac.interop.__all__)


def functions_in(member: Any) -> Iterator[FunctionType]:
    """The functions of the package that a class's attribute consists of."""
    parts = [member.fget, member.fset] if isinstance(member, property) else [getattr(member, "__func__", member)]
    for each in parts:
        if isinstance(each, FunctionType) and each.__module__.startswith("aiocuda"):
            yield each


def annotated(module: ModuleType) -> Iterator[Any]:
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            continue
        place = f"{module.__name__}.{name}"
        if isinstance(value, type | FunctionType):
            yield pytest.param(value, id=place)
        for owner in inspect.getmro(value) if isinstance(value, type) else ():
            for attribute, member in vars(owner).items():
                for index, function in enumerate(functions_in(member)):
                    yield pytest.param(function, id=f"{place}.{attribute}" + "'" * index)


ALL = [each for module in (*MODULES, *FRAMEWORKS) for each in annotated(module)]
ANNOTATED = {each.values[0]: each for each in reversed(ALL)}.values()  # what classes inherit: once


@pytest.mark.parametrize("thing", ANNOTATED)
def test_each_annotation_names_something_that_is_there(thing):
    hints = typing.get_type_hints(thing)
    assert set(hints) >= set(inspect.get_annotations(thing))


def test_methods_properties_and_functions_are_looked_at():
    found = {each.id for each in ALL}
    assert {
        *("aiocuda.zeros", "aiocuda.Device", "aiocuda.Device.memory_info", "aiocuda.Module.from_source"),
        *("aiocuda.DeviceOp.T", "aiocuda.cluster.ClusterGroup.__init__", "aiocuda.interop.torch.op"),
    } <= found


def test_a_type_that_comes_later_is_the_public_one(in_process):
    """Nobody needs to ask for it first."""
    done = in_process(
        """
        import typing
        import aiocuda as ac
        types = [
            typing.get_type_hints(each)["return"]
            for each in (ac.CudaGraph.statistics, ac.DeviceOp.draw, ac.Kernel.occupancy, ac.select_driver)
        ]
        print(*types, types == [ac.GraphStatistics, ac.Picture, ac.Occupancy, ac.DriverInfo])
        """
    )
    names = ("GraphStatistics", "Picture", "Occupancy", "DriverInfo")
    assert done.stdout.split() == [word for name in names for word in ("<class", f"'aiocuda.{name}'>")] + ["True"], (
        done.stderr
    )
