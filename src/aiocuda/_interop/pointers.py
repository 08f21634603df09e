"""Which parameters a kernel's intermediate representation writes: stores, traced back to the pointers they come from.

Always true: a parameter that is written counts as written. One that an operation takes of which nothing is known counts
as unclear, and so do all where a store goes through a pointer that comes from none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

__all__ = ["Step", "Written", "written_of"]


class Step(NamedTuple):
    """One operation of the representation, as MLIR has them. Numbers stand for values, blocks and regions.

    Attributes
    ----------
    name
        With its dialect: ``tt.store``.
    operands, results
        Values.
    regions
        Its own.
    block, region
        Those it stands in.
    block_arguments
        Values that the block takes.
    symbol
        The name of the function that it calls, or that it is; else empty.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    regions: tuple[int, ...]
    block: int
    region: int
    block_arguments: tuple[int, ...]
    symbol: str = ""


class Written(NamedTuple):
    """Positions of a kernel's parameters: those that it writes, and those of which nothing can be said."""

    surely: frozenset[int]
    unclear: frozenset[int]


# These write to where their first operand points.
_STORES: Final = frozenset(
    {
        "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_store", "tt.descriptor_scatter",
        "tt.descriptor_reduce",
    }
)  # fmt: skip
# These read memory. A pointer that they give leads anywhere.
_LOADS: Final = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.atomic_rmw", "tt.atomic_cas"})
# These give pointers made of those they take, and write nothing.
_PASSING: Final = frozenset(
    {
        "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast",
        "tt.ptr_to_int", "tt.int_to_ptr", "tt.join",
        "tt.split", "tt.cat", "tt.gather", "tt.reduce", "tt.scan", "tt.func", "tt.call", "tt.return", "tt.print",
        "tt.assert",
    }
)  # fmt: skip
# These give a pointer made of the first that they take, and of numbers.
_MOVING: Final = frozenset({"tt.addptr", "tt.make_tensor_descriptor", "tt.make_tensor_ptr", "tt.advance"})
_PASSING_DIALECTS: Final = ("arith.", "math.", "scf.", "cf.", "ub.", "builtin.")
# A number may lead from one array into another: one that is a parameter, or the distance of two pointers.
_TO_NUMBER: Final = "tt.ptr_to_int"
_OF_NUMBER: Final = "tt.int_to_ptr"
_ANYWHERE: Final = -1  # in the place of a parameter: a value that was read from memory, or a pointer made of a number
_ENDS: Final = ("yield", "return", "condition")  # of a region: what follows takes their operands


class _Function(NamedTuple):
    parameters: tuple[int, ...]
    steps: list[Step]


class _Summary(NamedTuple):
    """What a function does to its parameters, by position."""

    surely: frozenset[int]
    unclear: frozenset[int]
    is_anywhere: bool  # it writes through a pointer that comes from no parameter
    returns: tuple[frozenset[int], ...]  # where each of its results may come from, `_ANYWHERE` among them


def written_of(steps: Sequence[Step], kernel: str) -> Written:
    """Return what a kernel writes.

    Parameters
    ----------
    steps
        All operations of the module, the inner ones before those that hold them.
    kernel
        The name of its function. Its parameters are numbered by position.
    """
    functions = _functions(steps)
    summary = _Functions(functions, any(step.name == _TO_NUMBER for step in steps)).summary(kernel)
    unclear = frozenset(range(len(functions[kernel].parameters))) if summary.is_anywhere else summary.unclear
    return Written(summary.surely, unclear - summary.surely)


def _functions(steps: Iterable[Step]) -> dict[str, _Function]:
    functions: dict[str, _Function] = {}
    inner: list[Step] = []
    for step in steps:
        if step.name != "tt.func":
            inner.append(step)
            continue
        if entry := [each for each in inner if each.region in step.regions]:  # else it has no body
            functions[step.symbol] = _Function(entry[0].block_arguments, inner)
        inner = []
    return functions


class _Functions:
    """Those of a module. A call is what the function called does, with the caller's pointers."""

    def __init__(self, functions: dict[str, _Function], has_distances: bool) -> None:
        self._functions = functions
        self._lost = {_OF_NUMBER} | (_MOVING if has_distances else set())  # what gives pointers that lead anywhere
        self._summaries: dict[str, _Summary | None] = {}  # None while it is being made

    def summary(self, symbol: str) -> _Summary:
        if symbol not in self._summaries:
            self._summaries[symbol] = None
            self._summaries[symbol] = self._summarised(self._functions[symbol])
        made = self._summaries[symbol]
        assert made is not None  # `_called` asks for no function that calls itself
        return made

    def _called(self, step: Step) -> _Summary:
        is_unknown = step.symbol not in self._functions
        if is_unknown or (step.symbol in self._summaries and self._summaries[step.symbol] is None):
            everything = frozenset(range(len(step.operands)))
            return _Summary(frozenset(), everything, True, tuple(everything for _ in step.results))
        return self.summary(step.symbol)

    def _summarised(self, function: _Function) -> _Summary:
        calls = {step: self._called(step) for step in function.steps if step.name == "tt.call"}
        origins = _origins(_flows(function.steps, calls), function.parameters, _lost(function.steps, calls, self._lost))
        surely: set[int] = set()
        unclear: set[int] = set()
        is_anywhere = False
        returns: list[set[int]] = []
        for step in function.steps:
            found = [origins[each] for each in step.operands]
            stores = [0] if step.name in _STORES else []
            if (called := calls.get(step)) is not None:
                stores = [*called.surely]
                unclear |= set().union(*(found[position] for position in called.unclear))
                is_anywhere = is_anywhere or called.is_anywhere
            elif step.name == "tt.return":
                returns += [set() for _ in range(len(found) - len(returns))]
                for result, each in zip(returns, found, strict=False):
                    result |= each
            elif step.name not in _STORES and not _is_known(step.name):
                unclear |= set().union(*found)
            for position in stores:
                surely |= found[position]
                # It was read from memory, or made of a number or a constant.
                is_anywhere = is_anywhere or not found[position] or _ANYWHERE in found[position]
        none = {_ANYWHERE}
        return _Summary(
            frozenset(surely - none), frozenset(unclear - none), is_anywhere, tuple(map(frozenset, returns))
        )


def _is_known(name: str) -> bool:
    return (
        name in _LOADS
        or name in _PASSING
        or name in _MOVING
        or name.startswith(_PASSING_DIALECTS)
        or name.rpartition(".")[2] in _ENDS
    )


def _flows(steps: Sequence[Step], calls: Mapping[Step, _Summary]) -> dict[int, set[int]]:
    """Return to which values of a function its values go: those that may hold the same pointer."""
    holders = {region: step for step in steps for region in step.regions}
    arguments: dict[int, set[int]] = defaultdict(set)
    first: dict[int, tuple[int, ...]] = {}  # what the first block of a region takes
    for step in steps:
        arguments[step.region].update(step.block_arguments)
        first.setdefault(step.region, step.block_arguments)
    flows: dict[int, set[int]] = defaultdict(set)

    def each(sources: Sequence[int], to: Sequence[int]) -> None:
        for source, target in zip(sources, to, strict=False):
            flows[source].add(target)

    def mixed(sources: Iterable[int], to: Iterable[int]) -> None:
        targets = set(to)
        for source in sources:
            flows[source] |= targets

    def end(step: Step, holder: Step) -> None:
        if holder.name == "scf.for":
            each(step.operands, holder.results)
            each(step.operands, first[step.region][1:])
        elif holder.name == "scf.if":
            each(step.operands, holder.results)
        elif holder.name == "scf.while" and step.name == "scf.condition":
            each(step.operands[1:], holder.results)
            each(step.operands[1:], first.get(holder.regions[1], ()))
        elif holder.name == "scf.while":
            each(step.operands, first[holder.regions[0]])
        else:
            mixed(step.operands, holder.results)

    for step in steps:
        if step in calls:
            for result, sources in zip(step.results, calls[step].returns, strict=False):
                mixed((step.operands[position] for position in sources - {_ANYWHERE}), [result])
        elif step.name == "scf.for":
            each(step.operands[3:], first[step.regions[0]][1:])
            each(step.operands[3:], step.results)
        elif step.name == "scf.while":
            each(step.operands, first[step.regions[0]])
        elif step.name.startswith("cf."):
            mixed(step.operands, arguments[step.region])
        elif step.name.rpartition(".")[2] in _ENDS:
            if step.region in holders:  # else it is the function that ends
                end(step, holders[step.region])
        elif step.name in _MOVING:
            mixed(step.operands[:1], step.results)
        elif step.name == "arith.select":
            mixed(step.operands[1:], step.results)
        elif step.name not in _LOADS and step.name != "scf.if":
            mixed(step.operands, step.results)
            for region in step.regions:
                mixed(step.operands, arguments[region])
    return flows


def _lost(steps: Iterable[Step], calls: Mapping[Step, _Summary], makers: AbstractSet[str]) -> list[int]:
    """Return the values that may lead anywhere as pointers."""
    lost: list[int] = []
    for step in steps:
        if step.name in _LOADS or step.name in makers:
            lost += step.results
        elif step in calls:
            returns = zip(step.results, calls[step].returns, strict=False)
            lost += [result for result, sources in returns if _ANYWHERE in sources]
    return lost


def _origins(flows: dict[int, set[int]], parameters: Sequence[int], lost: Sequence[int]) -> dict[int, set[int]]:
    """Return the parameters that each value may come from, and `_ANYWHERE` for what is lost."""
    origins: dict[int, set[int]] = defaultdict(set)
    for position, sources in [*((i, [parameter]) for i, parameter in enumerate(parameters)), (_ANYWHERE, lost)]:
        pending = [*sources]
        while pending:
            value = pending.pop()
            if position not in origins[value]:
                origins[value].add(position)
                pending.extend(flows[value])
    return origins
