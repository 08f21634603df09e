"""Exceptions of a worker's, as values that travel, and as exceptions again."""

from __future__ import annotations

import contextlib
import pickle
import traceback

from aiocuda._cluster import ray
from aiocuda._cluster.messages import Raised
from aiocuda.errors import RemoteError

__all__ = ["error_from", "raised_of"]


def raised_of(error: BaseException) -> Raised:
    """Return an exception as a value."""
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    pickled: bytes | None = None
    if isinstance(error, Exception):
        with contextlib.suppress(Exception):  # one that cannot be pickled is told in words
            pickled, _ = ray.dumps(error, lambda _: NotImplemented, "an exception")
            pickle.loads(pickled)  # many can be pickled, and not be made of that again
    return Raised(pickled, words, "".join(traceback.format_exception(error)).rstrip())


def error_from(raised: Raised, worker: int, name: str) -> BaseException:
    """Return the exception of a worker's, with notes of where it comes from."""
    error: BaseException
    if raised.pickled is None:
        error = RemoteError(worker, name, raised.words, raised.traceback)
    else:
        error = pickle.loads(raised.pickled)
    error.add_note(f"{name} raised it on worker {worker}:\n{raised.traceback}")
    return error
