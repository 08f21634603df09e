"""The meaning of programs: their operations, one after another in submission order, on NumPy arrays.

Always true: a `Node` is a lazy value twice, aiocuda's and the interpreter's. Its value here (a view of some memory) is
known when it is built. Its effect, which is what its operation does to that memory, happens when the interpreter comes
to it. Nothing here keeps an array of aiocuda's longer than the program does: an effect holds memory of its own.

Submission order is, for each form of an operation:

- In one execution: depth first, arguments from left to right, each operation once; a copy's destination comes before
  its source, and of a `call` the arguments come before `writes` and `reads`.
- `then`: its input, then what its function returned, and only then the next argument of its consumer.
- `map`: all that does not depend on it, then its function, then the rest, in another round of the same order.
- Executions of one thread: one after another. A scheduled one, and a task, when it starts; a cancelled one, never.
- Executions of several threads and tasks: as it happens. Then the operations themselves write down their order, by
  `inspect`, whose function is called within the submission.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiocuda as ac


class Boom(Exception):
    """The exception that operations of programs raise."""


@dataclass(eq=False)
class Node:
    """A value of a program: aiocuda's, which is an operation or a handle, and the interpreter's."""

    real: Any
    view: Any  # NumPy's view of the interpreter's memory; a tuple where the value is one
    device: int = 0
    children: list[Node] = field(default_factory=list)  # in submission order
    effect: Callable[[], None] | None = None
    number: int = -1
    is_map: bool = False
    is_then: bool = False  # the children after the first are known when that is there
    is_mapped: bool = False
    is_done: bool = False
    has_failed: bool = False

    @property
    def op(self) -> Any:
        return ac.value(self.real)


class Interpreter:
    """Does what operations do, in submission order; or, told that order, in that."""

    def __init__(self) -> None:
        self.order: list[int] = []  # as it should be
        self.seen: list[int] = []  # as it was, where operations write it down
        self._effects: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()

    def register(self, node: Node) -> Node:
        node.number = next(self._numbers)
        return self.set_effect(node, node.effect)

    def set_effect(self, node: Node, effect: Callable[[], None] | None) -> Node:
        node.effect = effect
        if effect is not None:
            self._effects[node.number] = effect
        return node

    def replay(self) -> None:
        """Do what was written down."""
        assert len(set(self.seen)) == len(self.seen), "an operation ran twice"
        for number in self.seen:
            self._effects[number]()

    def execute(self, root: Node) -> None:
        while not self._walk(root):
            pass

    def _walk(self, root: Node) -> bool:
        stalled: set[Node] = set()
        due: list[Node] = []
        is_done = self._visit(root, stalled, due)
        for node in due:
            node.is_mapped = True
        return is_done

    def _visit(self, node: Node, stalled: set[Node], due: list[Node]) -> bool:
        if node.is_done:
            return True
        if node in stalled:
            return False
        if node.has_failed:
            raise Boom
        try:
            is_ready = True
            for child in node.children:
                is_ready = self._visit(child, stalled, due) and is_ready
                if node.is_then and not is_ready:
                    break
            if not is_ready or (node.is_map and not node.is_mapped):
                stalled.add(node)
                if is_ready:
                    due.append(node)
                return False
            if node.effect is not None:
                node.effect()
                self.order.append(node.number)
        except Boom:
            node.has_failed = True
            raise
        node.is_done = True
        node.children = []  # as operations do: what they were made of can be freed
        return True


def depends_on_a_map(node: Node) -> bool:
    return not node.is_done and ((node.is_map and not node.is_mapped) or any(map(depends_on_a_map, node.children)))
