"""Errors of clusters: a worker that is gone, and a function that failed on a worker."""

from __future__ import annotations

from aiocuda._errors.asked import AiocudaError

__all__ = ["ClusterError", "RemoteError", "WorkerLostError"]


class ClusterError(AiocudaError):
    """A cluster cannot do what was asked: it was not started, has ended, or Ray refused.

    Parameters
    ----------
    reason
        It names the request, the finding, and a way out.

    Attributes
    ----------
    reason
        As given.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class WorkerLostError(AiocudaError):
    """A worker of a cluster is gone: its process has ended, it does not answer, or somebody restarted it.

    Parameters
    ----------
    worker
        Its number.
    doing
        The task of the worker, in words.
    reason
        What happened to it.

    Attributes
    ----------
    worker, doing, reason
        As given.
    """

    def __init__(self, worker: int, doing: str, reason: str) -> None:
        super().__init__(worker, doing, reason)
        self.worker = worker
        self.doing = doing
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"worker {self.worker} is lost ({self.reason}), and {self.doing} did not end; `await "
            f"cluster.restart({self.worker})` gives it a fresh process"
        )


class RemoteError(AiocudaError):
    """A function failed on a worker, with an exception that cannot be pickled, or that would end a process.

    Parameters
    ----------
    worker
        The worker's number.
    doing
        The task of the worker, in words.
    error
        The exception there: its type, and what it says.
    traceback
        Where it was raised there.

    Attributes
    ----------
    worker, doing, error, traceback
        As given.
    """

    def __init__(self, worker: int, doing: str, error: str, traceback: str) -> None:
        super().__init__(worker, doing, error, traceback)
        self.worker = worker
        self.doing = doing
        self.error = error
        self.traceback = traceback

    def __str__(self) -> str:
        return f"{self.doing} failed on worker {self.worker}: {self.error}"
