"""The modules of this folder are imported by their names, by processes that tests start, too."""

import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def nothing_of_other_tests() -> None:
    """Free what other tests have left in circles: these tests look at all memory that the process holds."""
    gc.collect()
