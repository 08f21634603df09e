"""The ``__constant__`` and ``__device__`` variables that CUDA C++ source declares, with what is known of their type.

Pure: text in, frozen declarations out. An extent that the source alone cannot tell, such as a macro's, is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from tree_sitter import Node

from aiocuda._source.cuda_nodes import declarator_name, scope_of, text_of
from aiocuda._source.cuda_source import in_extern_c
from aiocuda._source.cuda_types import TypeNames
from aiocuda._source.structs import array_extents, layout_of
from aiocuda._source.type_kinds import Array

__all__ = ["Variable", "find_variables"]


class Variable(NamedTuple):
    """A variable in the memory of a device.

    Attributes
    ----------
    name
        Qualified with its namespaces.
    kind
        "constant" (``__constant__``: kernels read it) or "variable" (``__device__`` and ``__managed__``).
    item
        The dtype of one number or struct; a reason in words where that cannot be known.
    extents
        Of a C array, outermost first, and of a built-in vector; () for a single item, None where one of them is no
        integer literal.
    is_extern_c
        Whether it is declared ``extern "C"``.
    """

    name: str
    kind: Literal["constant", "variable"]
    item: np.dtype[Any] | str
    extents: tuple[int, ...] | None
    is_extern_c: bool

    @property
    def symbol(self) -> str:
        """Its name in the compiled code: within a namespace a mangled name (Itanium C++ ABI, 5.1)."""
        parts = self.name.split("::")
        if len(parts) == 1 or self.is_extern_c:
            return parts[-1]
        return f"_ZN{''.join(f'{len(part)}{part}' for part in parts)}E"


def find_variables(root: Node, names: TypeNames) -> list[Variable]:
    """List the variables that a source declares outside of functions and templates, in order."""
    found: dict[str, Variable] = {}
    for node in _declarations(root):
        words = {text_of(child) for child in node.children if not child.child_count or child.type == "type_qualifier"}
        if "__constant__" in words:
            kind: Literal["constant", "variable"] = "constant"
        elif words & {"__device__", "__managed__"}:
            kind = "variable"
        else:
            continue
        scope = scope_of(node)
        for declarator in node.children_by_field_name("declarator"):
            if declarator.type == "init_declarator":
                inner = declarator.child_by_field_name("declarator")
                if inner is None:
                    continue
                declarator = inner
            if "function_declarator" in (declarator.type, _innermost_type(declarator)):
                continue
            name = declarator_name(declarator)
            if not name:
                continue
            declared = names.type_of(node, declarator, scope)
            extents = array_extents(declared, declarator, names, scope)
            while isinstance(declared, Array):
                declared = declared.element
            item = layout_of(declared, names)
            if not isinstance(item, str) and item.subdtype is not None:
                item, vector = item.subdtype
                extents = None if extents is None else extents + vector
            qualified = "::".join((*scope, name))
            variable = Variable(qualified, kind, item, extents, in_extern_c(node))
            # A declaration without an extent is completed by its definition.
            if qualified not in found or found[qualified].extents is None:
                found[qualified] = variable
    return list(found.values())


def _declarations(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "declaration":
            yield node
        elif node.type in ("translation_unit", "namespace_definition", "linkage_specification", "declaration_list"):
            waiting.extend(reversed(node.named_children))


def _innermost_type(declarator: Node) -> str:
    """Step through pointers: a function that returns one is no variable."""
    while declarator.type == "pointer_declarator":
        inner = declarator.child_by_field_name("declarator")
        if inner is None:
            break
        declarator = inner
    return declarator.type
