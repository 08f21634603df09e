"""What is counted: launches and awaits on a driver that does nothing, and the bare loops below them.

Always true: each measure runs once before it counts; the garbage collector is off meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from instructions.callgrind import Marks
from submission.stub import Stub, without_code

NUMBER = 300  # of each, except the chain
CHAIN = 1000
WAITED = 1024  # operations of one `wait`, in several turns of the loop
STREAMS = 16
LONG_US = 1_000_000


def main(stub_directory: Path, marks_library: Path) -> None:
    """Count everything; this process runs under callgrind."""
    from aiocuda._loops import asyncio as port

    # Under valgrind time is slow: how often awaits would have to let the loop come round says nothing of one of them.
    vars(port)["TURN_US"] = 1000 * LONG_US
    measures = Measures(Stub(stub_directory), stub_directory)
    marks = Marks(marks_library)
    gc.collect()
    gc.disable()
    marks.count("the marks themselves, once", lambda: None)
    for name, measure in measures.all().items():
        measure()
        gc.collect()
        marks.count(name, measure)


def _do_nothing(stream: Any, x: Any) -> None:
    pass


class Measures:
    """Functions that do one thing `NUMBER` times.

    Parameters
    ----------
    stub
        The driver of this process.
    directory
        Where what stands in for PyTorch is built.
    """

    def __init__(self, stub: Stub, directory: Path) -> None:
        from instructions.framework import Framework
        from instructions.tensors import PyTorch
        from submission.floor import SCALE, THREADS

        import aiocuda as ac

        self._ac = ac
        self._stub = stub
        self._threads = THREADS
        self._scale = scale = without_code(ac.kernel(SCALE))
        self._y, self._x, self._g = (ac.empty(1024).sync() for _ in range(3))
        self._torch = PyTorch(directory)
        self._tensor = self._torch.tensor
        self._other = self._torch.other
        self._framework = Framework(self._g.address)
        self._loop = asyncio.new_event_loop()

        def scaled(y: Any, x: Any, g: Any) -> Any:
            return scale(y, x, g, THREADS, threads=THREADS)

        self._compiled = ac.compile(scaled)
        self._graph = self._launch().graph()
        self._waited: list[list[Any]] = []

    def all(self) -> dict[str, Callable[[], None]]:
        """Return the measures, by name."""
        from instructions.framework import Tensor

        made, theirs = Tensor(), self._other
        return {
            "bare": self._bare,
            "built": self._built,
            "built tensor": self._built_with_a_tensor,
            "alone": self._alone,
            "alone tensor": self._alone_with_a_tensor,
            "future": self._future,
            "chain": self._chain,
            "sync": self._sync,
            "await bare": self._on_loop(self._await_bare),
            "await spun": self._on_loop(self._await_spun),
            "await done": self._on_loop(self._await_done),
            "wait bare": self._on_loop(self._wait_bare),
            "wait": self._on_loop(self._wait),
            "graph": self._on_loop(self._await_graph),
            "compiled": self._on_loop(self._await_compiled),
            "call": self._call,
            "torch": lambda: self._operate(self._torch, lambda tensor: None),
            "torch made": lambda: self._operate(self._torch, lambda tensor: theirs),
            "framework": lambda: self._operate(self._framework, lambda tensor: None),
            "framework made": lambda: self._operate(self._framework, lambda tensor: made),
            "waited": self._on_loop(self._wait_for_many),  # the last: its streams would change what the others take
        }

    def _launch(self, y: Any = None) -> Any:
        return self._scale(self._y if y is None else y, self._x, self._g, self._threads, threads=self._threads)

    def _on_streams(self, number: int) -> list[Any]:
        """Return launches on some streams in turn, each stream's with an array of its own."""
        device = self._ac.Device(0)
        places = [(device.stream(), self._ac.empty(1024).sync()) for _ in range(STREAMS)]
        each = itertools.islice(itertools.cycle(places), number)
        return [self._launch(array).on(stream) for stream, array in each]

    def _on_loop(self, measure: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def run() -> None:
            with self._ac.use(spin_us=LONG_US):  # under valgrind time is slow: an await may give up spinning
                self._loop.run_until_complete(measure())

        return run

    # The launches are written out in each loop: a function of ours in between would be counted too.

    def _bare(self) -> None:
        for _ in range(NUMBER):
            pass

    def _built(self) -> None:
        scale, y, x, g, threads = self._scale, self._y, self._x, self._g, self._threads
        for _ in range(NUMBER):
            scale(y, x, g, threads, threads=threads)

    def _alone(self) -> None:
        from aiocuda import _native
        from aiocuda._engine import placement

        scale, y, x, g, threads = self._scale, self._y, self._x, self._g, self._threads
        where = placement.current.get()
        for _ in range(NUMBER):
            _native.submit(scale(y, x, g, threads, threads=threads), where)

    def _built_with_a_tensor(self) -> None:
        scale, y, x, g, threads = self._scale, self._y, self._tensor, self._g, self._threads
        for _ in range(NUMBER):
            scale(y, x, g, threads, threads=threads)

    def _alone_with_a_tensor(self) -> None:
        from aiocuda import _native
        from aiocuda._engine import placement

        scale, y, x, g, threads = self._scale, self._y, self._tensor, self._g, self._threads
        where = placement.current.get()
        for _ in range(NUMBER):
            _native.submit(scale(y, x, g, threads, threads=threads), where)

    def _future(self) -> None:
        scale, y, x, g, threads = self._scale, self._y, self._x, self._g, self._threads
        for _ in range(NUMBER):
            scale(y, x, g, threads, threads=threads).submit()

    def _chain(self) -> None:
        scale, x, g, threads = self._scale, self._x, self._g, self._threads
        op = self._y
        for _ in range(CHAIN):
            op = scale(op, x, g, threads, threads=threads)
        op.submit()

    def _sync(self) -> None:
        scale, y, x, g, threads = self._scale, self._y, self._x, self._g, self._threads
        for _ in range(NUMBER):
            scale(y, x, g, threads, threads=threads).sync()

    def _call(self) -> None:
        from aiocuda import _native
        from aiocuda._engine import placement

        call, x = self._ac.call, self._x
        where = placement.current.get()
        for _ in range(NUMBER):
            _native.submit(call(_do_nothing, x, reads=[x]), where)

    def _operate(self, framework: Any, function: Callable[[Any], Any]) -> None:
        from aiocuda import _native
        from aiocuda._engine import placement

        op, x = framework.op, self._x
        where = placement.current.get()
        for _ in range(NUMBER):
            _native.submit(op(function, x), where)

    async def _await_bare(self) -> None:
        for _ in range(NUMBER):
            pass

    async def _await_spun(self) -> None:
        scale, y, x, g, threads = self._scale, self._y, self._x, self._g, self._threads
        for _ in range(NUMBER):
            await scale(y, x, g, threads, threads=threads)

    async def _await_done(self) -> None:
        future = self._launch().submit()
        await future
        for _ in range(NUMBER):
            await future

    async def _wait_bare(self) -> None:
        """Wait as little as a loop can: a future that the reader of an eventfd sets."""
        loop, release, call_soon = self._loop, self._stub.release, self._loop.call_soon
        waiting: list[asyncio.Future[None]] = []

        def take() -> None:
            os.eventfd_read(eventfd)
            waiting.pop().set_result(None)

        eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(eventfd, take)
        self._stub.hold_flags(True, eventfd)
        for _ in range(NUMBER):
            call_soon(release)
            waiting.append(loop.create_future())
            await waiting[-1]
        self._stub.hold_flags(False)
        loop.remove_reader(eventfd)
        os.close(eventfd)

    async def _wait(self) -> None:
        scale, y, x, g, threads = self._scale, self._y, self._x, self._g, self._threads
        release, call_soon = self._stub.release, self._loop.call_soon
        self._stub.hold_flags(True)
        with self._ac.use(spin_us=0):
            for _ in range(NUMBER):
                call_soon(release)  # the device comes that far when the loop has nothing else to do
                await scale(y, x, g, threads, threads=threads)
        self._stub.hold_flags(False)

    async def _wait_for_many(self) -> None:
        """Wait for operations that complete when all have been submitted."""
        if not self._waited:  # in the run that is not counted
            self._waited = [self._on_streams(WAITED) for _ in range(2)]
        ops, stub, call_soon = self._waited.pop(), self._stub, self._loop.call_soon
        all_launches = stub.counts()[0] + len(ops)

        def look() -> None:
            if stub.counts()[0] < all_launches:
                call_soon(look)
            else:
                stub.hold_flags(False)
                stub.release()

        stub.hold_flags(True)
        call_soon(look)
        await self._ac.wait(ops)

    async def _await_graph(self) -> None:
        launch = self._graph.launch
        for _ in range(NUMBER):
            await launch()

    async def _await_compiled(self) -> None:
        compiled, y, x, g = self._compiled, self._y, self._x, self._g
        for _ in range(NUMBER):
            await compiled(y, x, g)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
