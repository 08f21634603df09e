"""Tests import the parts of random graphs by name: this folder's modules, and those of the programs they extend."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("graphs", "ordering", "loops")]
