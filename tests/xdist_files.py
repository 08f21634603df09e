"""Which process runs which files of tests.

Always true: one process runs all files that share a cluster, which takes seconds to start. A test that ended its
process has failed, and is not run again: one that hangs would hang in each process that came after. All others are run.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling

__all__ = ["Files"]

CLUSTER = "tests/cluster/"


class Files(LoadFileScheduling):  # type: ignore[misc]
    """Hands out files as xdist does, and goes on when a process has ended, where xdist (3.8) may stand still."""

    def _split_scope(self, nodeid: str) -> str:
        return CLUSTER if nodeid.startswith(CLUSTER) else super()._split_scope(nodeid)

    def remove_node(self, node: Any) -> str | None:
        work = self.assigned_work[node]
        ended = next((one for tests in work.values() for one, has_run in tests.items() if not has_run), None)
        if ended is not None:
            work[self._split_scope(ended)][ended] = True
        # Files that have run would be handed out again, to processes that would wait for more to do.
        for file in [each for each, tests in work.items() if all(tests.values())]:
            del work[file]
        super().remove_node(node)
        return ended

    def schedule(self) -> None:
        super().schedule()
        for node in self.nodes:  # a process that has one test waits for another
            self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        if node in self.registered_collections:  # a new process may still collect
            super()._reschedule(node)
