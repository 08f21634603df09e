"""Workers as users see them, and objects that live on them.

Always true: a call goes to the process that the worker has when it is made.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar, overload

from aiocuda._cluster import ray
from aiocuda._cluster.crossing import wait_for
from aiocuda._cluster.groups import ClusterGroup
from aiocuda._cluster.held import Held
from aiocuda._cluster.messages import Facts, Raised, Reply, Request
from aiocuda._cluster.parcels import held_here, pack, unpack
from aiocuda._cluster.process import WorkerProcess, next_call
from aiocuda._cluster.raised import error_from
from aiocuda._driver import runtime
from aiocuda.errors import ClusterError, WorkerLostError

__all__ = ["Remote", "Worker"]

T = TypeVar("T")

_objects: Final = itertools.count(1)


class Worker:
    """One worker of a `Cluster`: a process with devices of its own. ``cluster[i]`` gives it."""

    def __init__(self, process: WorkerProcess, driver: Facts) -> None:
        self._process = process
        self._driver = driver
        self._renewing = threading.Lock()  # held while the process is replaced, and when it ends with the cluster

    @property
    def number(self) -> int:
        """Its number in the cluster, from 0."""
        return self._process.number

    @property
    def process_id(self) -> int:
        """The number of its process, on the machine that it runs on."""
        return _facts(self._process).process_id

    @property
    def lost(self) -> str:
        """Why the worker is lost, in words; empty where it is not. `Cluster.restart` gives it a fresh process."""
        return self._process.calls.lost

    def __repr__(self) -> str:
        calls = self._process.calls
        state = f"lost: {calls.lost}" if calls.lost else calls.in_words() or "idle"
        return f"<aiocuda.cluster.Worker {self.number}: {state}>"

    @overload
    async def run(self, function: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any) -> T: ...
    @overload
    async def run(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T: ...
    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function on the worker.

        Parameters
        ----------
        function
            An async function runs on the worker's event loop, and may await operations. Any other one runs in a
            thread there. A function that the worker cannot import is sent along.
        *args, **kwargs
            Its arguments; they, and the result, are pickled. A `DeviceArray` in them arrives as one.

        Returns
        -------
        object
            The function's result. The work behind its arrays is done if they come by handle. Else it may be under way,
            and what uses them comes behind it. *On cancel*: the function's task on the worker is cancelled, and this
            does not wait for it; a function in a thread goes on, and its result is dropped.

        Raises
        ------
        Exception
            The function raised it there. Its notes name the worker and the traceback there.
        RemoteError
            The function raised something that cannot be pickled, or that would end the process, or cancelled itself.
        ArgumentTypeError
            The function, an argument or the result cannot be pickled.
        WorkerLostError
            The worker is lost, or was lost before the end.
        ClusterError
            The cluster has ended, or Ray does not take the call, as where it has no room for the arguments.
        ForkedProcessError
            This process was forked from the one that started the cluster.
        """
        return await self._call("run", 0, ray.sent(function), args, kwargs, _name(function))

    async def create(self, cls: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Remote:
        """Make an object that stays on the worker.

        Parameters
        ----------
        cls
            A class, or a function that returns the object. It is called as `run` calls functions.
        *args, **kwargs
            Its arguments.

        Returns
        -------
        Remote
            The object's methods, to be awaited. The object is deleted when nobody has this any more.

        Raises
        ------
        Exception
            As `run`.
        """
        remote = Remote(self, self._process, next(_objects), _name(cls))  # where it is let go of, the object is deleted
        await self._call("create", remote._number, cls, args, kwargs, _name(cls))
        return remote

    async def _call(
        self, kind: Any, target: int, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
    ) -> Any:
        runtime.require_not_forked()  # no thread would bring the answer
        process, call = self._process, next_call()
        if process.calls.lost:
            raise process.calls.error(name)
        facts, leases = _facts(process), process.leases
        words = f"{name}, with its arguments,"
        try:
            parcel = await pack(
                (what, args, kwargs), call, leases, process.links, self._driver, facts, words, _reducer(process)
            )
        except BaseException:
            process.give_up(call)
            raise
        try:
            request = Request(call, kind, target, parcel, leases.take_closed())
            reference, future = process.ask(request, name)
        except BaseException:
            leases.end_call(call)
            process.give_up(call)
            raise
        try:
            reply: Reply = await wait_for(future)
        except (ClusterError, WorkerLostError):
            raise
        except BaseException:
            process.abandon(call, reference, future)
            raise
        if isinstance(reply.result, Raised):
            raise error_from(reply.result, self.number, name)
        what = f"the result of {name}"
        try:
            return await unpack(reply.result, leases, process.links, self._driver, Held("this process"), what)
        except Exception as error:
            error.add_note(f"{what}, which worker {process.number} has sent, cannot be made here.")
            raise


def _facts(process: WorkerProcess) -> Facts:
    if process.facts is None:
        raise ClusterError(f"worker {process.number} has not begun yet; await the restart")
    return process.facts


def _reducer(process: WorkerProcess) -> Callable[[Any], Any]:
    """Return what pickles objects that a process holds."""

    def reduce(each: Any) -> Any:
        if isinstance(each, Remote):
            if each._process is not process:
                raise ClusterError(
                    f"{each!r} was given to worker {process.number}, which does not have it: an object stays on its "
                    "worker, and ends with its process"
                )
            return held_here(each._number)
        if isinstance(each, ClusterGroup):
            return held_here(each._held_by(process))
        return NotImplemented

    return reduce


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__) + "()"


class Remote:
    """An object that lives on a worker. Its methods are awaited; its other attributes are not here.

    ``await remote.method(...)`` calls the method there, as `Worker.run` calls functions. Given as an argument to its
    own worker, it arrives as the object itself.
    """

    def __init__(self, worker: Worker, process: WorkerProcess, number: int, name: str) -> None:
        self._worker = worker
        self._process = process
        self._number = number
        self._name = name
        weakref.finalize(self, process.deleted.append, number).atexit = False

    def __repr__(self) -> str:
        lost = f", lost: {self._process.calls.lost}" if self._process.calls.lost else ""
        return f"<aiocuda.cluster.Remote {self._name.removesuffix('()')} on worker {self._worker.number}{lost}>"

    def __reduce__(self) -> Any:
        raise ClusterError(f"{self!r} can be an argument of calls to its worker alone")

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method.startswith("_"):
            raise AttributeError(f"{self!r} has no {method}: methods whose names begin with _ are not called from here")

        async def call(*args: Any, **kwargs: Any) -> Any:
            name = f"{self._name.removesuffix('()')}.{method}()"
            for process in (self._worker._process, self._process):  # the cluster has ended for the first of them
                if process.calls.lost:
                    raise process.calls.error(name)
            return await self._worker._call("method", self._number, method, args, kwargs, name)

        return call
