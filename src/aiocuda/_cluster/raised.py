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
    said = ""
    with contextlib.suppress(Exception):  # of its __str__
        said = str(error)
    words = f"{type(error).__name__}: {said}" if said else type(error).__name__
    pickled: bytes | None = None
    if isinstance(error, Exception):
        with contextlib.suppress(Exception):  # one that cannot be pickled is told in words
            made = ray.dumps_in_one(error)
            if isinstance(pickle.loads(made), Exception):  # many can be pickled, and not be made of that again
                pickled = made
    return Raised(pickled, words, "".join(traceback.format_exception(error)).rstrip())


def error_from(raised: Raised, worker: int, name: str) -> BaseException:
    """Return the exception of a worker's, with notes of where it comes from."""
    error: BaseException = RemoteError(worker, name, raised.words, raised.traceback)
    if raised.pickled is not None:
        with contextlib.suppress(Exception):  # its class may be of a module that only the worker has
            error = pickle.loads(raised.pickled)
    error.add_note(f"{name} raised it on worker {worker}:\n{raised.traceback}")
    return error
