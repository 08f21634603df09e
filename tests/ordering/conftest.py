"""The modules of this folder are imported by their names."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def unhurried() -> None:
    """Awaits have a turn of the loop for as long as users' have."""
