"""Programs of steps that change slots, run by aiocuda and, where its order is known beforehand, by the interpreter.

Always true: whatever the numbers of a step are, it means something; so programs can be generated, and shrunk.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
from cuda.bindings import driver
from interpreter import Boom, Interpreter, Node, depends_on_a_map
from machine import Machine

import aiocuda as ac

N = 24
TIMEOUT_S = 60
# Views: the last is a column.
KEYS = [slice(1, 9), slice(3, None), slice(None, -5), slice(0, None, 2), 1]


def _touch(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two views overlap, and not item by item."""
    is_same = x.ctypes.data == y.ctypes.data and x.strides == y.strides
    return not is_same and bool(np.shares_memory(x, y))


class Program:
    """One thread's or task's share of a program: its slots, and steps that change them.

    Parameters
    ----------
    watched
        Whether the operations write down when they are submitted.
    predicts
        Whether the interpreter knows the order by itself: nothing else runs, and the order does not depend on time.
    """

    def __init__(
        self, machine: Machine, interpreter: Interpreter, latches: Any, *, watched: bool, predicts: bool
    ) -> None:
        self.machine = machine
        self.interpreter = interpreter
        self.watched = watched
        self.predicts = predicts
        self.slots: list[Node] = []
        self.reads: list[tuple[Any, np.ndarray]] = []  # what came back, or will, and what it should be
        self._latches = latches
        self._held: list[Any] = []
        self._last_map: Node | None = None

    # --- values -------------------------------------------------------------------------------------

    def node(self, real: Any, view: Any, device: int, children: list[Node], effect: Any = None, **more: Any) -> Node:
        """Make a node of an operation that, where it has an effect, has it when it is submitted."""
        kept = children if self.predicts else []  # else who runs what first is written down
        node = self.interpreter.register(Node(real, view, device, kept, effect, **more))
        if effect is not None and self.watched and isinstance(real, ac.DeviceOp):
            node.real = self.watch(real, node.number)
        return node

    def watch(self, op: Any, number: int) -> Any:
        seen = self.interpreter.seen
        return op.inspect(lambda _: seen.append(number)) if self.watched else op

    def placed(self, op: Any, device: int, where: int) -> Any:
        """Put an operation on a stream, or where a policy says; mostly, leave it to the execution."""
        if where in {1, 2}:
            return op.on(self.machine.stream_of(device, where))
        return op.on(self.machine.policy(where)) if where == 3 else op

    def full(self, device: int, value: int) -> Node:
        return self.node(ac.full(N, value, np.int32, device=device), np.full(N, value, np.int32), device, [])

    def upload(self, device: int, value: int) -> Node:
        data = np.arange(N, dtype=np.int32) * value
        return self.node(ac.to_device(data, device), data.copy(), device, [])

    def part(self, x: Node, key: Any) -> Node:
        def take(array: Any) -> Any:
            return array.reshape(-1, 4)[:, key] if isinstance(key, int) else array[key]

        if isinstance(key, int) and (x.view.size % 4 or not x.view.flags.c_contiguous):
            return x
        real = take(x.real) if isinstance(x.real, ac.DeviceArray) else x.real.then(take)
        return self.node(real, take(x.view), x.device, [x])

    def dup(self, x: Node, where: int = 0) -> Node:
        view, source = np.empty_like(x.view), x.view
        op = self.placed(ac.dup(x.real), x.device, where)
        return self.node(op, view, x.device, [x], lambda: np.copyto(view, source))

    def on_device(self, x: Node, device: int, where: int = 0) -> Node:
        if x.device == device:
            return x
        view, source = np.empty_like(x.view), x.view
        op = self.placed(x.real.to(device), device, where) if where == 2 else x.real.to(device)
        return self.node(op, view, device, [x], lambda: np.copyto(view, source))

    def increment(self, real: Any, view: np.ndarray) -> Any:
        """Build the operation alone, of an operation or a handle."""
        name = "increment" if view.flags.c_contiguous else "strided_increment"
        return self.machine.kernels[name](real, view.size, threads=view.size, block=32)

    def incremented(self, x: Node, where: int) -> Node:
        view = x.view

        def effect() -> None:
            view[...] += 1

        return self.node(self.placed(self.increment(x.real, view), x.device, where), view, x.device, [x], effect)

    def accumulated(self, y: Node, x: Node, a: int, where: int) -> Node:
        x = self.on_device(x, y.device)
        if _touch(x.view, y.view):
            x = self.dup(x)
        n = min(x.view.size, y.view.size)
        plain = x.view.flags.c_contiguous and y.view.flags.c_contiguous
        kernel = self.machine.kernels["accumulate" if plain else "strided_accumulate"]
        op = self.placed(kernel(a, x.real, y.real, n, threads=n, block=32), y.device, where)

        source, view = x.view[:n], y.view[:n]

        def effect() -> None:
            view[:] = 3 * view + a * source

        return self.node(op, y.view, y.device, [x, y], effect)

    def mixed(self, x: Node, y: Node, where: int) -> tuple[Node, Node]:
        if not (x.view.flags.c_contiguous and y.view.flags.c_contiguous):
            return x, y
        y = self.on_device(y, x.device)
        if np.shares_memory(x.view, y.view):
            y = self.dup(y)
        n = min(x.view.size, y.view.size)
        op = self.placed(self.machine.kernels["mix"](x.real, y.real, n, threads=n, block=32), x.device, where)

        first, second = x.view[:n], y.view[:n]

        def effect() -> None:
            first[:] = 2 * first + second
            second[:] -= 3 * first

        both = self.node(op, (x.view, y.view), x.device, [x, y], effect)
        one, other = both.real.unzip(2)
        return self.node(one, x.view, x.device, [both]), self.node(other, y.view, x.device, [both])

    def zipped(self, x: Node, y: Node) -> tuple[Node, Node]:
        both = self.node(ac.zip(x.real, y.real), (x.view, y.view), x.device, [x, y])
        return (
            self.node(both.real.first(), x.view, x.device, [both]),
            self.node(both.real.last(), y.view, y.device, [both]),
        )

    def copied(self, to: Node, source: Node, where: int) -> Node:
        n = min(to.view.size, source.view.size)
        if to.view.size != n:
            to = self.part(to, slice(0, n))
        if source.view.size != n:
            source = self.part(source, slice(0, n))
        if _touch(to.view, source.view):
            source = self.dup(source)
        op = self.placed(ac.copy(to.real, source.real), to.device, where)
        view, read = to.view, source.view
        return self.node(op, view, to.device, [to, source], lambda: np.copyto(view, read))

    def filled(self, x: Node, value: int, where: int) -> Node:
        view = x.view
        op = self.placed(ac.fill(x.real, value), x.device, where)
        return self.node(op, view, x.device, [x], lambda: view.fill(value))

    def then(self, x: Node, kind: int) -> Node:
        """Build on in the function of a `then`, on the handle and on views of it."""
        half = x.view.size // 2
        keys = [[slice(None)], [slice(None, half), slice(half, None)], [slice(half, None)], []][kind]
        inner = []
        for key in keys:
            part = x.view[key]

            def effect(part: np.ndarray = part) -> None:
                part[...] += 1

            inner.append(self.interpreter.register(Node(None, part, x.device, [], effect)))

        def function(array: Any) -> Any:
            ops = [
                self.watch(self.increment(array[key], node.view), node.number)
                for key, node in zip(keys, inner, strict=True)
            ]
            if kind == 0:
                return ops[0]
            if kind == 1:
                return ac.zip(*ops).then(lambda _: array)
            return ac.value(1).then(lambda _: {"ops": ops, "array": array}).then(lambda found: found["array"])

        return self.node(x.op.then(function), x.view, x.device, [x, *inner], is_then=True)

    def mapped(self, x: Node) -> Node:
        """Bring it to the host, change it there, and bring it back: what depends on it waits for the host."""
        if self.predicts and self._last_map is not None and not self._last_map.is_done:
            self.run(self._last_map, "sync", 0)  # of two at once, it depends on time which is first
        landed = self.landed(x)
        view = np.empty(x.view.size, np.int32)
        host = self.node(
            landed.real.map(lambda array: array.numpy().copy()), landed.view, x.device, [landed], is_map=True
        )
        function = self.node(host.real.map(lambda data: data * 2 + 1), view, x.device, [host], is_map=True)
        device = x.device
        op = function.real.then(lambda data: ac.to_device(data, device))

        read = landed.view

        def effect() -> None:
            np.copyto(view, read * 2 + 1)

        back = self.node(op, view, x.device, [function], effect)
        self._last_map = back
        return back

    def landed(self, x: Node) -> Node:
        """Copy to page-locked memory."""
        view, source = np.empty(x.view.size, np.int32), x.view
        op = ac.copy(ac.empty_host(x.view.size, np.int32), x.real)
        return self.node(op, view, x.device, [x], lambda: np.copyto(view, source))

    def called(self, to: Node, source: Node, value: int) -> Node:
        """Put a fill or a copy on the stream that a `call` gets."""
        if not (to.view.flags.c_contiguous and source.view.flags.c_contiguous):
            return to
        source = self.on_device(source, to.device)
        if _touch(to.view, source.view):
            source = self.dup(source)
        n = min(to.view.size, source.view.size)
        is_fill = value < 0
        node = self.node(None, to.view, to.device, [to] if is_fill else [to, source])
        number, watched, seen = node.number, self.watched, self.interpreter.seen

        def function(stream: Any, array: Any, *rest: Any) -> None:
            if watched:
                seen.append(number)
            if n == 0:
                return
            if is_fill:
                (result,) = driver.cuMemsetD32Async(array.address, value + 2**32, n, stream.handle)
            else:
                (result,) = driver.cuMemcpyAsync(array.address, rest[0].address, n * 4, stream.handle)
            assert result == driver.CUresult.CUDA_SUCCESS

        view, read = to.view[:n], source.view[:n]

        def effect() -> None:
            view[:] = value if is_fill else read

        if is_fill:
            node.real = ac.call(function, to.real, writes=[to.real])
        else:
            node.real = ac.call(function, to.real, source.real, reads=[source.real], writes=[to.real])
        return self.interpreter.set_effect(node, effect)

    # --- execution ----------------------------------------------------------------------------------

    def hold(self, device: int, number: int) -> None:
        """Hold a stream until the program has to wait for something."""
        if self._latches is not None:
            self._held.append(self._latches())
            self._held[-1].hold(self.machine.stream_of(device, number))

    def release(self) -> None:
        for latch in self._held:
            latch.release()
        for latch in self._held:
            latch.close()
        self._held.clear()

    def read(self, x: Node) -> None:
        landed = self.landed(x)
        future = landed.real.submit()
        if self.predicts and depends_on_a_map(x):  # else when it goes on depends on time
            self.release()
            future.sync(TIMEOUT_S)
        self.interpret(landed)
        self.reads.append((future, landed.view))

    def interpret(self, node: Node) -> None:
        if self.predicts:
            self.interpreter.execute(node)

    def run(self, node: Node, how: str, number: int) -> None:
        stream = self.machine.stream_of(node.device, number)
        is_timed = self.predicts and depends_on_a_map(node)  # then when it goes on depends on time
        if how in {"submit", "task", "cancelled"} and is_timed:
            how = "sync"
        if how not in {"submit", "unstarted", "cancelled"}:
            self.release()
        match how:
            case "submit":
                node.op.submit()
            case "sync":
                node.op.sync(TIMEOUT_S)
            case "sync_on":
                node.op.sync_on(stream, TIMEOUT_S)
            case "schedule":
                future = node.op.schedule([stream, node.device, self.machine.policy(number)][number % 3])
                assert node.is_done or not self.predicts or not future.done() or not node.children
                future.sync(TIMEOUT_S)
            case "await":
                self.machine.await_(lambda: node.op)
            case "task":
                self.machine.await_(lambda: asyncio.gather(node.op.submit(), _awaited(node.op), _awaited(node.op)))
            case "cancelled" if number % 2:
                node.op.submit().cancel()  # of the future, not of what it stands for
            case "cancelled":
                self.machine.await_(lambda: _cancelled(node.op, after=1))
            case "unstarted":
                self.machine.await_(lambda: _cancelled(node.op, after=0))
                future = node.op.schedule(node.device)
                future.cancel()
                return
        self.interpret(node)

    def handle_of(self, x: Node) -> Node:
        """Submit, and go on with the handle in the operation's place."""
        if isinstance(x.real, ac.DeviceArray) or depends_on_a_map(x):
            return x
        handles: list[Any] = []
        x.real.inspect(handles.append).submit()
        self.interpret(x)
        return self.node(handles[0], x.view, x.device, []) if handles else x  # it waits for the host

    def fail(self, x: Node, y: Node) -> None:
        """Execute something that fails in the middle: what came before it is there, what comes after it is not."""

        def boom(_: Any) -> None:
            raise Boom

        def raises() -> None:
            raise Boom

        failing = self.node(ac.value(1).then(boom), None, 0, [])
        failing.effect = raises
        root = self.node(ac.zip(x.real, failing.real, y.real), None, 0, [x, failing, y])
        self.release()
        for _ in range(2):  # it keeps its error
            try:
                root.op.sync(TIMEOUT_S)
            except Boom:
                pass
            else:
                raise AssertionError("it should have failed")
        if self.predicts:
            try:
                self.interpreter.execute(root)
            except Boom:
                return
            raise AssertionError("the interpreter disagrees")

    # --- steps --------------------------------------------------------------------------------------

    def start(self, devices: list[int]) -> None:
        self.slots = [self.full(device % len(self.machine.devices), value) for value, device in enumerate(devices)]

    def step(self, what: str, a: int, b: int, c: int, where: int) -> None:
        """Do one thing to slot `a`, mostly; whatever the numbers are, it means something."""
        a, b = a % len(self.slots), b % len(self.slots)
        x, y = self.slots[a], self.slots[b]
        device = where % len(self.machine.devices)
        match what:
            case "pass":
                pass
            case "full":
                self.slots[a] = self.full(device, c)
                gc.collect(0)
            case "upload":
                self.slots[a] = self.upload(device, c)
            case "increment":
                self.slots[a] = self.incremented(x, where)
            case "accumulate":
                self.slots[a] = self.accumulated(x, y, c, where)
            case "mix":
                self.slots[a], self.slots[b] = self.mixed(x, y, where) if a != b else (x, y)
            case "copy":
                self.slots[a] = self.copied(x, y, where)
            case "fill":
                self.slots[a] = self.filled(x, c, where)
            case "dup":
                self.slots[a] = self.dup(y, where)
            case "to":
                self.slots[a] = self.on_device(y, device, c)
            case "part":
                self.slots[a] = self.part(
                    y, [slice(1, 9), slice(3, None), slice(None, -5), slice(0, None, 2), 1][c % 5]
                )
            case "zip":
                self.slots[a], self.slots[b] = self.zipped(x, y)
            case "then":
                self.slots[a] = self.then(x, c % 4)
            case "map":
                self.slots[a] = self.mapped(x)
            case "call":
                self.slots[a] = self.called(x, y, c)
            case "read":
                self.read(x)
            case "handle":
                self.slots[a] = self.handle_of(x)
            case "hold":
                self.hold(device, c)
            case "fail":
                self.fail(x, y)
            case _:
                self.run(x, what, where)

    def finish(self) -> None:
        """Execute what is left, and read everything."""
        for slot in self.slots:
            self.run(slot, "sync", 0)
            self.read(slot)
        self.release()
        for future, _ in self.reads:
            future.sync(TIMEOUT_S)

    def check(self) -> None:
        for future, expected in self.reads:
            np.testing.assert_array_equal(future.result().numpy(), expected)


async def _awaited(op: Any) -> Any:
    return await op


async def _cancelled(op: Any, after: int) -> None:
    """Cancel a task that awaits, before or after its first step; what was submitted then goes on."""
    task = asyncio.ensure_future(_awaited(op))
    for _ in range(after):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
