"""Tests import the parts of random programs by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
