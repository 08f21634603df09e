"""Algorithms on whole arrays: sorting, scans, reductions, selections, histograms, expressions."""

from aiocuda._algorithms.combining import argmax as argmax
from aiocuda._algorithms.combining import argmin as argmin
from aiocuda._algorithms.combining import reduce as reduce
from aiocuda._algorithms.combining import scan as scan
from aiocuda._algorithms.counting import histogram as histogram
from aiocuda._algorithms.expressions import transform as transform
from aiocuda._algorithms.selecting import select as select
from aiocuda._algorithms.selecting import trim as trim
from aiocuda._algorithms.selecting import unique as unique
from aiocuda._algorithms.sorting import argsort as argsort
from aiocuda._algorithms.sorting import merge as merge
from aiocuda._algorithms.sorting import sort as sort
from aiocuda._naming import name_publicly as _name_publicly

__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "histogram",
    "merge",
    "reduce",
    "scan",
    "select",
    "sort",
    "transform",
    "trim",
    "unique",
]

_name_publicly(__name__, globals(), __all__)
