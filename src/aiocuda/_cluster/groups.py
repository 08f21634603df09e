"""A group of collectives over the workers of a cluster.

Always true: each worker has a rank, which is its number. A worker that was restarted since is no member.
"""

from __future__ import annotations

import functools
from types import TracebackType
from typing import Any, Self

from aiocuda import _cluster
from aiocuda._cluster import ray
from aiocuda._cluster.crossing import side_by_side
from aiocuda._cluster.process import WorkerProcess
from aiocuda._later import aiocuda
from aiocuda.collective import Group, unique_id
from aiocuda.errors import ClusterError, CollectiveError, WorkerLostError

__all__ = ["ClusterGroup", "make_group"]


class ClusterGroup:
    """The ranks of a group, one on each worker. Given as an argument, it arrives as the worker's own `Group`.

    `Cluster.group` makes it. ``async with`` closes it; if the block fails, it is aborted first.
    """

    def __init__(self, members: list[aiocuda.cluster.Remote]) -> None:
        self._members = members

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self._members)

    def __repr__(self) -> str:
        return f"<aiocuda.cluster.ClusterGroup of {self.size} workers>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            await self.abort()
        await self.close()

    async def close(self) -> None:
        """Close the group on all workers that have not been lost. *Raises*: as `Group.close`."""
        await self._on_those_left("close")

    async def abort(self) -> None:
        """Abort the group on all workers that have not been lost: what is under way fails with `CollectiveError`."""
        await self._on_those_left("abort")

    async def _on_those_left(self, method: str) -> None:
        async def of(member: _cluster.Remote) -> None:
            try:
                await getattr(member, method)()
            except (ClusterError, WorkerLostError):
                if not member._process.calls.lost:  # else its rank has ended with its process
                    raise

        await side_by_side([functools.partial(of, each) for each in self._members], method)

    def _held_by(self, process: WorkerProcess) -> int:
        """Return the number of a process' own group, there."""
        for each in self._members:
            if each._process is process:
                return each._number
        raise ClusterError(
            f"worker {process.number} is no member of {self!r}: it was restarted since; make a new group with "
            "cluster.group()"
        )

    def __reduce__(self) -> Any:
        raise ClusterError(f"{self!r} can be an argument of calls to its workers alone")


async def make_group(workers: list[_cluster.Worker], timeout_s: float, answers_within_s: float) -> ClusterGroup:
    """Have all workers join a group. Its id is made on worker 0, which all of them reach."""
    identity = await workers[0].run(_identity, answers_within_s)
    members = await side_by_side(
        [_joiner(each, len(workers), identity, timeout_s) for each in workers], "joining the group"
    )
    return ClusterGroup(members)


def _joiner(worker: _cluster.Worker, size: int, identity: bytes, timeout_s: float) -> Any:
    async def join() -> _cluster.Remote:
        try:
            return await worker.create(Group.init, worker.number, size, identity, timeout_s=timeout_s)
        except CollectiveError as error:
            error.add_note("Ranks have the numbers of their workers, and worker 0 made the group's id.")
            raise

    return join


def _identity(answers_within_s: float) -> bytes:
    return unique_id(ray.node_address(), answers_within_s=answers_within_s)
