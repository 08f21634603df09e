"""Native threads have names that other programs show."""

from pathlib import Path

import aiocuda as ac


def test_the_reactor_can_be_told_from_other_threads():
    ac.fill(ac.empty(1).sync(), 1).submit().sync(60)
    names = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
    assert "aiocuda reactor" in names
