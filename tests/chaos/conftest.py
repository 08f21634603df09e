"""Long runs: awaits share their loops as those of users do."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def unhurried() -> None:
    """Awaits have a turn of the loop for as long as users' have."""
