"""CUDA C++ as a syntax tree: tree-sitter's nodes, and the small questions that readers of it ask.

Pure: a node is part of the tree of one text, and is only looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser


@cache
def _language() -> Language:
    return Language(tree_sitter_cuda.language())


def parse(text: str) -> Node:
    """Parse ASCII text; the root of its syntax tree."""
    return Parser(_language()).parse(text.encode("ascii")).root_node


def text_of(node: Node | None) -> str:
    """Give the source of a node, its white space made single."""
    return " ".join(node.text.decode().split()) if node is not None and node.text else ""


def without_extents(text: str) -> str:
    """Drop the extents of C arrays from a declarator: whatever gives them, they are numbers."""
    return re.sub(r"\[[^][]*\]", "[]", text)


def integer_in(text: str) -> int | None:
    """Read an integer literal of C++; None where the text is something else."""
    try:
        return int(text.rstrip("uUlL").replace("'", ""), 0)
    except ValueError:
        return None


def scope_of(node: Node) -> tuple[str, ...]:
    """List the named namespaces and classes around a node, outermost first."""
    path: list[str] = []
    parent = node.parent
    while parent is not None:
        if parent.type in ("namespace_definition", "struct_specifier", "class_specifier"):
            name = text_of(parent.child_by_field_name("name"))
            path[:0] = [part.strip() for part in name.split("::") if part.strip()]
        parent = parent.parent
    return tuple(path)


def declarator_name(declarator: Node | None) -> str:
    """Find the name that a declarator declares, or an empty string."""
    while declarator is not None:
        if declarator.type in ("identifier", "type_identifier", "field_identifier", "primitive_type"):
            return text_of(declarator)
        declarator = inner_declarator(declarator)
    return ""


def inner_declarator(declarator: Node) -> Node | None:
    """Step into the declarator inside this one; references and parentheses name no field."""
    inner = declarator.child_by_field_name("declarator")
    if inner is None:
        for child in declarator.named_children:
            if child.type.endswith("declarator") or child.type in ("identifier", "type_identifier"):
                return child
    return inner


def qualifiers(node: Node) -> list[Node]:
    """List the qualifiers that stand in a node itself: ``const`` and the like."""
    return [child for child in node.children if child.type == "type_qualifier"]


def descendants(node: Node, kind: str) -> Iterator[Node]:
    """Find the outermost nodes of a kind within a node."""
    for child in node.named_children:
        if child.type == kind:
            yield child
        else:
            yield from descendants(child, kind)


SPECIFIERS: Final = frozenset({"enum_specifier", "struct_specifier", "class_specifier", "union_specifier"})
IMPORTING: Final = frozenset({"using_declaration", "namespace_alias_definition"})
_DEFINING: Final = SPECIFIERS | IMPORTING | {"type_definition", "alias_declaration", "declaration"}


def outside_functions(root: Node) -> Iterator[Node]:
    """Find what defines or imports names, namespaces and templates; nothing inside functions and templates."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type in ("template_declaration", "namespace_definition"):
            yield node
        if node.type in ("compound_statement", "template_declaration", "parameter_list"):
            continue
        if node.type in _DEFINING and (node.type not in SPECIFIERS or node.child_by_field_name("body")):
            yield node
        waiting.extend(reversed(node.named_children))
