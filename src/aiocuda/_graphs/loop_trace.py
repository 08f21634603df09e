"""The trace of a loop or a branch: its functions are called once with placeholders, and what they do becomes one graph.

Always true: the graph reads and writes what its bodies do, so its launch is ordered like any other operation. It writes
to arrays of the launch and to none that was given: what a body writes is a copy, which the launch makes before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from aiocuda import _native
from aiocuda._algorithms.numbers import real
from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import current_ordinal
from aiocuda._engine import held_up, placement
from aiocuda._graphs.loop_state import State
from aiocuda._ops import composing
from aiocuda._ops.operation import CallOp, CreateOp, DeviceOp, GatherOp, ReplayOp
from aiocuda._values import dtypes
from aiocuda._values.given import shown
from aiocuda._verbs.copies import copy, dup
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, DeviceMismatchError

__all__ = ["LoopOp", "LoopTrace", "with_arrays"]

_ALIGNED = 256  # bytes: as new arrays are, so that a copy can stand in the place of what was given


def with_arrays(
    asked: str, names: Sequence[str], given: Sequence[Any], build: Callable[[list[DeviceArray]], DeviceOp[Any]]
) -> DeviceOp[Any]:
    """Build an operation of arrays: now, or at submission if some of them are yet to be made.

    Parameters
    ----------
    asked
        The function that was called, for messages.
    names, given
        Arrays, or operations that yield them, and what messages call each.
    build
        Gets the arrays. Each lies in one piece and is aligned as new arrays are.

    Raises
    ------
    ArgumentTypeError, DeviceMismatchError, OwnershipError
        Something is no array on a device; they lie on several devices; one may not be read.
    """
    ready: list[Any] = []
    for name, leaf in zip(names, given, strict=True):
        x = as_array(leaf, f"{asked}: {name}")
        if not isinstance(x, _native.Op):
            if not isinstance(x, DeviceArray):
                raise ArgumentTypeError(
                    f"{asked}: {name} is an array on a device, or an operation that yields one; {shown(leaf)} was "
                    "given: to_device() data of the host, and make an array of a number with full((), number, dtype)"
                )
            _native.check_usable(x, False, f"{asked}: {name}")
            if not (x.is_contiguous and x._is_aligned(_ALIGNED)):
                x = dup(x)
        ready.append(x)
    if any(isinstance(x, _native.Op) for x in ready):
        known = composing.zip(tuple(ready))
        return cast(
            "DeviceOp[Any]", CallOp("then", lambda found: with_arrays(asked, names, found, build), known, title=asked)
        )
    devices = sorted({x._device for x in ready})
    if len(devices) > 1:
        raise DeviceMismatchError(
            f"{asked} runs on one device, and its arrays are on the devices {', '.join(map(str, devices))}; bring them "
            "together with .to(device)"
        )
    with held_up.Watched(f"tracing {asked}"):
        return cast("DeviceOp[Any]", _native.apart(build, ready))


class LoopOp(CallOp):
    """The result of a loop or a branch: a structure of what its launch leaves.

    Parameters
    ----------
    asked
        The function that was called, for messages.
    filled
        What comes before the launch.
    launch
        What runs it.
    arrays
        Operations and arrays that stand in the result.
    result
        Makes the result of what these yield.
    """

    __slots__ = ("_launch",)

    def __init__(
        self,
        asked: str,
        filled: Sequence[DeviceOp[Any]],
        launch: DeviceOp[Any],
        arrays: Sequence[Any],
        result: Callable[[Sequence[Any]], Any],
    ) -> None:
        first = len(filled) + 1
        super().__init__("then", lambda found: result(found[first:]), GatherOp([*filled, launch, *arrays]), title=asked)
        self._launch = launch

    def on(self, target: Any) -> DeviceOp[Any]:
        """Put the loop itself somewhere; otherwise as `DeviceOp.on`."""
        self._launch.on(target)
        return self


class LoopTrace:
    """The recording of one loop or branch.

    Parameters
    ----------
    asked
        The function that was called, for messages.
    names, arrays
        What the bodies get, as `with_arrays` gives it.

    Attributes
    ----------
    device
        The ordinal of the device that all of it runs on.
    placeholders
        What stands for the arrays in the bodies.
    """

    def __init__(self, asked: str, names: Sequence[str], arrays: Sequence[DeviceArray]) -> None:
        self.asked = asked
        self.device = arrays[0]._device if arrays else current_ordinal()
        self._arrays = arrays
        self._recorder = _native.Recorder("thread_local", asked)
        where = placement.current.get().on_device(self.device)
        self._where = where.recording(f"{asked}, which is traced")
        self.placeholders: list[Any] = [
            self._recorder.add_placeholder(name, array) for name, array in zip(names, arrays, strict=True)
        ]
        self._bound: dict[int, Any] = {}  # by the identity of a number's placeholder

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Record what is built inside; nothing can be executed there."""
        before = placement.current.set(self._where)
        try:
            yield
        finally:
            placement.current.reset(before)

    def record(self, op: Any) -> Any:
        """Record an operation; return what it yields."""
        return self._recorder.record(op, self._where)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the caller's; record what it returns, and return what that yields."""
        self._recorder.begin_function()
        returned = function(*arguments)
        if isinstance(returned, _native.Op):
            return self.record(returned)
        state = State(returned, "")
        if not state.leaves:
            return returned
        items = [as_array(leaf, self.asked) for leaf in state.leaves]
        return self.record(GatherOp(items, state.filled))

    def scalar(self, function: Callable[..., Any], argument: Any, name: str) -> Any:
        """Call a function that says whether to go on; return its array of one number."""
        return self.require_scalar(self.call(function, argument), f"the result of {name}")

    def require_scalar(self, found: Any, name: str) -> Any:
        """Return an array of one real number on the loop's device.

        Raises
        ------
        ArgumentTypeError, ArgumentValueError, DeviceMismatchError
            It is no array, has another number of items, or lies on another device.
        """
        if not isinstance(found, DeviceArray):
            raise ArgumentTypeError(
                f"{self.asked}: {name} is an array of one number on the device, which decides there; {shown(found)} "
                "was found: compute it with a kernel or an operation of aiocuda"
            )
        if found.size != 1:
            raise ArgumentValueError(
                f"{self.asked}: {name} is an array of one number; it has the shape {found.shape}: reduce it first, "
                "as with ac.algorithms.reduce(x, 'max')"
            )
        if found._device != self.device:
            raise DeviceMismatchError(
                f"{self.asked}: {name} is on device {found._device}, and the loop on device {self.device}; bring it "
                f"over with .to({self.device}) before the loop"
            )
        real(found.dtype, f"{self.asked}: {name}")
        return found

    def number(self, given: Any) -> Any:
        """Return what stands for a number that only an operation yields; each launch puts it in."""
        placeholder: Any = composing.value(0)
        self._recorder.add_input("a number", placeholder)
        self._bound[id(placeholder)] = given
        return placeholder

    # --- conditions and bodies

    def add_condition(self) -> int:
        """Return another condition."""
        return self._recorder.add_condition()

    def set_condition(self, condition: int, launch: Any) -> None:
        """Record a launch that sets a condition."""
        self.record(launch)
        self._recorder.note_setter(condition)

    @contextlib.contextmanager
    def body(self, condition: int, *, repeats: bool, bodies: int = 1) -> Iterator[None]:
        """Record what is recorded inside into the first of a conditional node's bodies."""
        self._recorder.open_body(condition, repeats, bodies, self.device)
        yield
        self._recorder.close_body()

    def next_body(self) -> None:
        """Go on with the node's second body."""
        self._recorder.open_next_body()

    def keep(self, targets: Sequence[Any], like: State, returned: Any, function: str) -> None:
        """Copy what a function returned into arrays that are there, all as if at once.

        Raises
        ------
        ArgumentValueError
            It is other than the arrays are: in structure, dtype or shape.
        """
        names, state = like.names, State(returned, like.name)
        by_name = dict(zip(state.names, state.leaves, strict=True))
        if len(state.leaves) != len(targets) or by_name.keys() != set(names):
            found = _counted(state.leaves)
            if len(state.leaves) == len(targets):
                found += f" ({', '.join(state.names)})"
            raise ArgumentValueError(
                f"{self.asked}: {function} returned {found} instead of {_counted(targets)}"
                f"{': ' if names else ''}{', '.join(names)}; return the same structure"
            )
        copies = []
        # A dict may have its keys in another order.
        sources = [by_name[name] for name in names] if len(by_name) == len(names) else state.leaves
        for target, name, source in zip(targets, names, sources, strict=True):
            self._require_like(target, source, f"{function} returned", name)
            if source._place != target._place or source._layout != target._layout:
                copies.append((target, source))
        # A source may be another's target: it is read before that is written.
        theirs = {target._place[0] for target in targets}
        apart = [(to, self.record(dup(x)) if x._place[0] in theirs else x) for to, x in copies]
        for to, x in apart:
            self.record(copy(to, x))

    def _require_like(self, target: Any, source: Any, found: str, name: str) -> None:
        if not isinstance(source, DeviceArray):
            raise ArgumentTypeError(
                f"{self.asked}: {found} {shown(source)} for {name}; an array on the device is expected there"
            )
        here, there = (f"{x.dtype}{x.shape} on device {x._device}" for x in (source, target))
        if (source.dtype, source.shape, source._device) != (target.dtype, target.shape, target._device):
            raise ArgumentValueError(
                f"{self.asked}: {found} {here} for {name}, where {there} is expected; return the same dtype and "
                "shape each time: convert() or reshape() it"
            )

    def finish(self, outputs: Sequence[Any]) -> tuple[list[DeviceOp[Any]], DeviceOp[Any], list[Any], list[Any]]:
        """Make the graph.

        Parameters
        ----------
        outputs
            Arrays that were made in it, and are a part of the result.

        Returns
        -------
        filled, launch, arrays, outputs
            What comes before it; what runs it; what yields the arrays that were given, as it leaves them; and the
            outputs.
        """
        recorder = self._recorder
        numbers = recorder.numbers()
        access = [recorder.input_access(i) for i in range(len(self.placeholders))]
        # A body may write an array of the state by another name, too; the state is a copy then.
        written_too = [recorder.is_written_constant(array) for array in self._arrays]
        native = recorder.finish(list(outputs), None)
        targets: list[int] = []
        values: list[Any] = []
        arrays: list[Any] = []
        filled: list[DeviceOp[Any]] = []
        for i, (array, (is_captured, is_written)) in enumerate(zip(self._arrays, access, strict=True)):
            is_written = is_written or written_too[i]
            if is_captured:  # work of call() has the placeholder's address, so no launch can put an array in its place
                placeholder = self.placeholders[i]
                filled.append(copy(placeholder, array))
                arrays.append(dup(placeholder) if is_written else array)
                continue
            arrays.append(dup(array) if is_written else array)
            if native.input_access(i)[0]:
                targets.append(i)
                values.append(arrays[-1])
        for i, number in numbers:
            targets.append(i)
            values.append(self._bound.get(id(number), number))
        made: list[Any] = []
        for output in outputs:
            made.append(CreateOp(output.shape, dtypes.code_of(output.dtype), self.device))
            slot, _ = cast("tuple[int, int]", native.output_of(output))
            targets.append(~slot)
            values.append(made[-1])
        return filled, ReplayOp(native, tuple(targets), values), arrays, made


def _counted(arrays: Sequence[Any]) -> str:
    return f"{len(arrays)} array{'' if len(arrays) == 1 else 's'}"
