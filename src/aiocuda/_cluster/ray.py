"""Ray, as clusters use it; the only importer of that.

Always true: Ray is imported once somebody needs it. Most of Ray's functions start a Ray where there is none. So they
are called only while there is one: else it would come after the end of a cluster, and stay.
"""

from __future__ import annotations

import concurrent.futures
import functools
import inspect
import io
import itertools
import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiocuda._cluster.functions import Functions, Sent
from aiocuda._cluster.reaching import address_of, until_somebody_answers
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, ClusterError, MissingPackageError

__all__ = [
    "Actor", "ask", "cancel", "dumps", "dumps_in_one", "future_of", "gpus_of_this_process", "has_node", "is_cancelled",
    "is_gone", "is_unreached", "kill", "node_address", "node_id", "require", "reserve", "sent", "start", "start_actor",
    "stop", "unreserve", "wait_for_room",
]  # fmt: skip

_INSTALL: Final = 'pip install "aiocuda[ray]"'
_PLAIN: Final = frozenset({type(None), bool, int, float, str, Sent})
_MOST_PLAIN: Final = 16
_MOST_DEEP: Final = 3  # a call, its arguments, and a tuple or dictionary among them

Actor = Any
"""A handle of an actor."""


def require() -> Any:
    """Return the module.

    Raises
    ------
    MissingPackageError
        Ray is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError(f"clusters need Ray ({error}): {_INSTALL}") from error
    return ray


def start(gpus: int | None, options: dict[str, Any], is_given_up: Callable[[], bool]) -> bool:
    """Start Ray, or connect to one, unless this process has done so; return whether it had not.

    Parameters
    ----------
    gpus
        How many Ray is to count on this machine; None: as it finds them.
    options
        For ``ray.init``.
    is_given_up
        Whether nobody wants it any more; asked while nobody answers at the address of the options.

    Raises
    ------
    ArgumentTypeError
        There are options that Ray does not have.
    ArgumentValueError
        There are options for a Ray that this process uses already, or Ray refuses one.
    ClusterError
        Ray does not start, or there is none to connect to.
    """
    ray = require()
    given = sorted(map(str, options))
    known = inspect.signature(ray.init).parameters
    if unknown := [each for each in options if each not in known and not str(each).startswith("_")]:
        raise ArgumentTypeError(f"ray_options are arguments of ray.init; it has none of these: {unknown}")
    if ray.is_initialized():
        if options:
            raise ArgumentValueError(
                f"ray_options {given} were given, and this process uses a Ray already; leave them out, or "
                "call ray.shutdown() first"
            )
        return False
    address = address_of(options)
    if address == "local":  # said to Ray: else it uses one that runs here, which counts its GPUs by itself
        options = {"include_dashboard": False, "logging_level": logging.ERROR, **options, "address": address}
        if gpus is not None:
            options.setdefault("num_gpus", gpus)
    until_somebody_answers(address, is_given_up)
    if is_given_up():
        return False
    try:
        ray.init(**options)
    except (TypeError, ValueError) as error:
        raise ArgumentValueError(f"Ray refuses one of ray_options {given}: {error}; see ray.init") from error
    except (ConnectionError, RuntimeError) as error:
        raise ClusterError(f"Ray does not start, with ray_options {given}: {error}") from error
    return True


def stop() -> None:
    require().shutdown()


def _connected() -> Any:
    """Return the module, while this process uses a Ray.

    Raises
    ------
    ClusterError
        It does not: the cluster that started Ray, or the program, has ended it.
    """
    ray = require()
    if not ray.is_initialized():
        raise ClusterError("Ray has ended in this process, and its clusters with it; start a new one")
    return ray


def reserve(workers: int, gpus: int) -> Any:
    """Ask for the devices of all workers; return the placement group, which may still wait for them."""
    _connected()
    from ray.util.placement_group import placement_group

    return placement_group([{"GPU": gpus}] * workers, strategy="PACK")


def wait_for_room(group: Any, workers: int, gpus: int, timeout_s: float) -> None:
    """Block until the devices were reserved.

    Raises
    ------
    ClusterError
        There are not so many that are free.
    """
    ray = _connected()
    if not group.wait(timeout_s):
        there, free = (found.get("GPU", 0) for found in (ray.cluster_resources(), ray.available_resources()))
        raise ClusterError(
            f"{workers} workers with {gpus} GPUs each were asked for; Ray has {there:g} GPUs, and {free:g} are "
            f"free; it did not find room within {timeout_s:g} s"
        )


def has_node(group: Any, bundle: int) -> bool:
    """Whether there is a node for a place that was reserved. *Blocks*: until Ray's head has answered."""
    ray = _connected()
    from ray.util import placement_group_table

    node = placement_group_table(group)["bundles_to_node_id"].get(bundle)
    return any(each["Alive"] and each["NodeID"] == node for each in ray.nodes())


def unreserve(group: Any) -> None:
    if require().is_initialized():
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(group)


def start_actor(cls: type, group: Any, bundle: int, gpus: int, arguments: Sequence[Any]) -> Actor:
    """Have a process started with an object of a class, in a place that was reserved."""
    ray = _connected()
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    placed = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
    options = {"num_cpus": 0, "num_gpus": gpus, "max_concurrency": 10_000, "scheduling_strategy": placed}
    return ray.remote(cls).options(**options).remote(*arguments)


def kill(actor: Actor) -> None:
    """Have an actor's process ended, if Ray has not ended it. Asks for it, and does not wait."""
    if (ray := require()).is_initialized():
        ray.kill(actor)


def ask(actor: Actor, method: str, *given: Any) -> Any:
    """Have a method of an actor called; return Ray's reference to the result.

    Raises
    ------
    ClusterError
        Ray has ended, or does not take the call, as where it has no room for what is given.
    """
    _connected()
    try:
        return getattr(actor, method).remote(*given)
    except Exception as error:
        raise ClusterError(f"Ray does not take the call: {type(error).__name__}: {error}") from error


def future_of(reference: Any) -> concurrent.futures.Future[Any]:
    """Return the future of a call's result, which a thread of Ray's sets."""
    future: concurrent.futures.Future[Any] = reference.future()
    return future


def cancel(reference: Any) -> None:
    """Have the task of a call cancelled, if it has not ended, nor Ray."""
    if (ray := require()).is_initialized():
        ray.cancel(reference)


def is_gone(error: BaseException) -> bool:
    """Whether an error says that the process of an actor is gone, or cannot be reached."""
    return isinstance(error, require().exceptions.RayActorError)


def is_unreached(error: BaseException) -> bool:
    """Whether an error says that Ray does not reach an actor, whose process may be there."""
    return isinstance(error, require().exceptions.ActorUnavailableError)


def is_cancelled(error: BaseException) -> bool:
    """Whether an error says that the task was cancelled."""
    return isinstance(error, require().exceptions.TaskCancelledError)


def gpus_of_this_process() -> list[int]:
    """Return which of the node's GPUs Ray gave to this process."""
    return [int(each) for each in require().get_gpu_ids()]


def node_id() -> str:
    """Return which of Ray's nodes this process runs on."""
    return str(_connected().get_runtime_context().get_node_id())


def node_address() -> str:
    """Return the address of this node, at which the others reach it."""
    return str(require().util.get_node_ip_address())


def dumps(value: Any, reduce: Callable[[Any], Any], what: str) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle a value, functions by value where they cannot be imported; large data apart.

    Parameters
    ----------
    value
        Anything.
    reduce
        Is asked for each object that is no built-in one; NotImplemented: it is pickled as usual.
    what
        The value, in words.

    Raises
    ------
    ArgumentTypeError
        It cannot be pickled.
    """
    if _is_plain(value):
        return pickle.dumps(value, 5), []
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    try:
        _pickler()(file, reduce, buffers.append).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise ArgumentTypeError(f"{what} cannot be sent to another process: {error}") from error
    return file.getvalue(), buffers


def dumps_in_one(value: Any) -> bytes:
    """Pickle a value, functions and classes by value where they cannot be imported, with all of its data."""
    require()
    from ray import cloudpickle

    return bytes(cloudpickle.dumps(value))


def sent(function: Any) -> Any:
    """Return a function as it is sent, if it can be pickled once for all calls; else the function."""
    return _functions().sent(function) or function


def _is_plain(value: Any, depth: int = _MOST_DEEP) -> bool:
    """Whether a value is small and of built-in types, so that the reducer need not see it.

    What holds itself, or the same thing often, has no end here, or a late one. So this looks so deep at most.
    """
    kind = type(value)
    if kind in _PLAIN:
        return True
    if depth == 0 or (kind is not tuple and kind is not dict) or len(value) > _MOST_PLAIN:
        return False
    deeper = itertools.repeat(depth - 1)
    return all(map(_is_plain, value, deeper)) and (kind is tuple or all(map(_is_plain, value.values(), deeper)))


@functools.cache
def _functions() -> Any:
    """Return the functions that this process sends."""
    require()
    from ray import cloudpickle

    return Functions(dumps_in_one, cloudpickle.list_registry_pickle_by_value)


@functools.cache
def _pickler() -> Any:
    """Return the class of what pickles; it is made when Ray is needed, and once."""
    require()
    from ray import cloudpickle

    base: Any = cloudpickle.CloudPickler

    class Pickler(base):  # type: ignore[misc]
        def __init__(self, file: io.BytesIO, reduce: Callable[[Any], Any], keep: Callable[[Any], object]) -> None:
            super().__init__(file, protocol=5, buffer_callback=keep)
            self._reduce = reduce

        def reducer_override(self, each: Any) -> Any:
            reduced = self._reduce(each)
            return super().reducer_override(each) if reduced is NotImplemented else reduced

    return Pickler
