"""Graphs and compiled functions in numbers.

Always true: they are those of the moment when they were asked for, and change no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiocuda._naming import name_publicly

__all__ = ["CacheInfo", "GraphStatistics"]


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """A compiled function's graphs, in numbers.

    Attributes
    ----------
    hits
        Calls that found a graph.
    misses
        Calls for which one was made.
    graphs
        That are kept now.
    max_graphs
        The most that are kept; the one that was used longest ago goes first.
    """

    hits: int
    misses: int
    graphs: int
    max_graphs: int


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """A graph in numbers.

    Attributes
    ----------
    nodes, edges
        Of the graph; what a function of `call` captured is one node.
    asked_bytes
        Device memory of all arrays that are made inside.
    shared_bytes
        What the graph holds for those of them that are not its result: arrays whose uses do not meet share memory.
    output_bytes
        Memory of the result.
    launches
        So far.
    parameter_sets
        Nodes whose parameters launches have set.
    instantiations
        How often the driver had to make it executable: once, and once more for each launch that replaced the memory of
        a two-dimensional copy or fill, which cannot be set.
    """

    nodes: int
    edges: int
    asked_bytes: int
    shared_bytes: int
    output_bytes: int
    launches: int
    parameter_sets: int
    instantiations: int


name_publicly("aiocuda", globals(), __all__)
