"""How the cost of one operation grows with how much there is of something, on a driver that does nothing.

Always true: a measure makes all there is of its thing first, and counts what is done then. So what it counts for each
is what one more costs a program that has so many. A process measures one thing, once before it counts: what other
measures leave behind, such as streams, is in no figure. Only a quick look, whose figures nobody keeps, measures all
things in one process. The garbage collector is off meanwhile.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instructions.callgrind import Marks
from submission.stub import Stub, without_code

NUMBER = 200  # operations that are counted, where there are many beside them
IN_A_STREAM = 200  # fewer than a stream holds
LONG_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Dimension:
    """Something of which there can be much.

    Attributes
    ----------
    name
        In figures and files.
    title
        What there is much of, and what is counted.
    sizes
        How much of it.
    counts_all
        Whether all of it is what is counted, and not something that is done beside it.
    """

    name: str
    title: str
    sizes: tuple[int, ...]
    counts_all: bool = False

    def mark(self, size: int) -> str:
        """Return the name of what is counted there."""
        return f"{self.name} {size}"

    def runs_of(self, size: int) -> int:
        """Return how many operations are counted there."""
        return size if self.counts_all else max(NUMBER, size if self.name == "streams" else 0)


DIMENSIONS = (
    Dimension("loans", "launches with tensors in flight; one more", (10, 1_000, 10_000)),
    Dimension("results", "PyTorch's operations in flight, whose tensors nobody keeps; one more", (10, 1_000, 10_000)),
    Dimension(
        "returned",
        "page-locked arrays that nobody holds, and that streams have not passed; one more launch",
        (10, 1_000, 10_000),
    ),
    Dimension("tensors", "streams with work; a launch with a tensor on one of them", (1, 32, 1_024)),
    Dimension("in flight", "launches in flight; one more launch", (10, 1_000, 100_000)),
    Dimension("streams", "streams with work; one launch on each in turn", (1, 32, 1_024)),
    Dimension("slices", "slices of one array in flight; a launch on one more slice", (1, 1_000, 100_000)),
    Dimension("alive", "arrays alive; an array created and dropped", (10, 10_000, 1_000_000)),
    Dimension("waiters", "tasks that await a launch each; all of that, each", (10, 1_000, 10_000), counts_all=True),
    Dimension("nodes", "nodes of a graph that is made; each", (1_000, 10_000, 30_000), counts_all=True),
    Dimension(
        "fresh nodes",
        "nodes of a graph whose chain takes a fresh array at each step; each",
        (1_000, 10_000, 30_000),
        counts_all=True,
    ),
    Dimension("maps", "pending maps; one is submitted and resolved, each", (10, 1_000, 10_000), counts_all=True),
    Dimension("parts", "arrays that one collective writes; each", (100, 1_000, 4_000), counts_all=True),
    Dimension("devices", "devices in use; one launch on each in turn", (1, 2, 8)),
)


def main(stub_directory: Path, marks_library: Path, names: list[str]) -> None:
    """Count one thing at each size, or several at their smallest alone; this process runs under callgrind."""
    from aiocuda._loops import asyncio as port

    vars(port)["TURN_US"] = 1000 * LONG_US  # under valgrind time is slow
    growth = Growth(Stub(stub_directory, devices=8), Marks(marks_library, is_warm=False), stub_directory)
    gc.disable()
    is_quick = len(names) > 1
    for dimension in (each for each in DIMENSIONS if each.name in names):
        measure = getattr(growth, dimension.name.replace(" ", "_"))
        measure("before", dimension.sizes[0])
        for size in dimension.sizes[: 1 if is_quick else None]:
            gc.collect()
            measure(dimension.mark(size), size)
        gc.collect()
    (stub_directory / "bytes.json").write_text(json.dumps(growth.bytes_each), encoding="utf-8")


class Growth:
    """A measure for each dimension; each writes down its instructions and, where memory is what grows, its bytes.

    Parameters
    ----------
    stub
        The driver of this process.
    marks
        Where the instructions are counted.
    directory
        Where what stands in for PyTorch is built.
    """

    def __init__(self, stub: Stub, marks: Marks, directory: Path) -> None:
        from instructions.tensors import PyTorch
        from submission.floor import SCALE, THREADS

        import aiocuda as ac

        self.bytes_each: dict[str, float] = {}  # that malloc gave out and that were left, by mark
        self._ac = ac
        self._stub = stub
        self._marks = marks
        self._threads = THREADS
        self._scale = without_code(ac.kernel(SCALE), devices=8)
        self._x, self._g = (ac.empty(1024).sync() for _ in range(2))
        self._torch = PyTorch(directory)
        self._tensor = self._torch.tensor
        for _ in range(3):
            self._launch(self._x).sync()

    def _launch(self, y: Any) -> Any:
        return self._scale(y, self._x, self._g, self._threads, threads=self._threads)

    def _count(self, mark: str, number: int, run: Callable[[], object]) -> None:
        """Write down what a function costs, which does something so many times."""
        before = held_bytes()
        self._marks.count(mark, run)
        self.bytes_each[mark] = (held_bytes() - before) / number

    @contextmanager
    def _held(self) -> Iterator[None]:
        self._stub.hold_flags(True)
        try:
            yield
        finally:
            self._stub.hold_flags(False)
            self._stub.release()

    def _streams(self, number: int, device: int = 0) -> list[Any]:
        with self._ac.use(device):
            return [self._ac.Device(device).stream() for _ in range(number)]

    def in_flight(self, mark: str, size: int) -> None:
        """Fill streams, and launch on one more."""
        ac = self._ac
        streams = self._streams(size // IN_A_STREAM + 2)
        arrays = [ac.empty(16).sync() for _ in streams]
        with self._held():
            kept = [self._launch(arrays[i // IN_A_STREAM]).on(streams[i // IN_A_STREAM]).submit() for i in range(size)]
            more = []  # a list that is as long as the other would be copied when it grows

            def run() -> None:
                for _ in range(NUMBER):
                    more.append(self._launch(arrays[-1]).on(streams[-1]).submit())

            self._count(mark, NUMBER, run)
        for each in kept + more:
            each.sync()

    def streams(self, mark: str, size: int) -> None:
        """Launch on streams in turn, each of which has work."""
        streams = self._streams(size)
        arrays = [self._ac.empty(16).sync() for _ in streams]
        number = max(size, NUMBER)
        with self._held():
            kept = [self._launch(y).on(stream).submit() for y, stream in zip(arrays, streams, strict=True)]

            def run() -> None:
                for i in range(number):
                    kept.append(self._launch(arrays[i % size]).on(streams[i % size]).submit())

            self._count(mark, number, run)
        for each in kept:
            each.sync()

    def tensors(self, mark: str, size: int) -> None:
        """Launch with a tensor on one of the streams, each of which has work."""
        streams = self._streams(size)
        arrays = [self._ac.empty(16).sync() for _ in streams]
        with self._held():
            kept = [self._launch(y).on(stream).submit() for y, stream in zip(arrays, streams, strict=True)]

            def run() -> None:
                for _ in range(NUMBER):
                    kept.append(self._launch(self._tensor).on(streams[0]).submit())

            self._count(mark, NUMBER, run)
        for each in kept:
            each.sync()

    def _let_go(self) -> None:
        """Have the streams pass all, and drop what was kept until then: later measures would count that."""
        from aiocuda import _native

        self._stub.hold_streams(False)
        self._launch(self._x).sync()
        _native.collect()

    def loans(self, mark: str, size: int) -> None:
        """Fill streams with launches that each have a tensor of which nobody keeps anything, and launch on one more."""
        streams = self._streams(size // IN_A_STREAM + 2)

        def launch(number: int, at: int | None = None) -> None:
            for i in range(number):
                self._launch(self._tensor).on(streams[i // IN_A_STREAM if at is None else at]).submit()

        self._stub.hold_streams(True)
        launch(size)
        self._count(mark, NUMBER, lambda: launch(NUMBER, -1))
        self._let_go()

    def returned(self, mark: str, size: int) -> None:
        """Copy from page-locked arrays that nobody keeps, and launch on one more stream."""
        ac = self._ac
        streams = self._streams(size // IN_A_STREAM + 2)
        arrays = [ac.empty(16).sync() for _ in streams]
        hosts = [ac.empty_host(16).sync() for _ in range(size)]
        self._stub.hold_streams(True)
        for i in range(size):
            ac.copy(arrays[i // IN_A_STREAM], hosts.pop()).on(streams[i // IN_A_STREAM]).submit()

        def run() -> None:
            for _ in range(NUMBER):
                self._launch(arrays[-1]).on(streams[-1]).submit()

        self._count(mark, NUMBER, run)
        self._let_go()

    def results(self, mark: str, size: int) -> None:
        """Fill streams with operations of PyTorch's, of whose tensors nobody keeps anything, and run one more."""
        streams = self._streams(size // IN_A_STREAM + 2)
        theirs = self._torch.other

        def operate(number: int, at: int | None = None) -> None:
            for i in range(number):
                op = self._torch.op(lambda _: theirs, self._x)
                op.on(streams[i // IN_A_STREAM if at is None else at]).submit()

        self._stub.hold_streams(True)
        operate(size)
        self._count(mark, NUMBER, lambda: operate(NUMBER, -1))
        self._let_go()

    def slices(self, mark: str, size: int) -> None:
        """Launch on slices of one array, of which many are in use."""
        whole = self._ac.empty(2 * (size + NUMBER)).sync()
        streams = self._streams(size // IN_A_STREAM + 2)
        count = size + NUMBER
        order = (i * 7919 % count for i in range(count))  # anywhere in the array; each once: 7919 is prime
        views = [whole[2 * i : 2 * i + 1] for i in order]
        with self._held():
            kept = [self._launch(view).on(streams[i // IN_A_STREAM]).submit() for i, view in enumerate(views[:size])]

            def run() -> None:
                for view in views[size:]:
                    kept.append(self._launch(view).on(streams[-1]).submit())

            self._count(mark, NUMBER, run)
        for each in kept:
            each.sync()

    def alive(self, mark: str, size: int) -> None:
        """Create an array and drop it, beside many others."""
        kept = [self._ac.empty(16).sync() for _ in range(size)]

        def run() -> None:
            for _ in range(NUMBER):
                self._ac.empty(16).sync()

        self._count(mark, NUMBER, run)
        assert len(kept) == size

    def waiters(self, mark: str, size: int) -> None:
        """Let tasks wait, all at once, and be told."""
        streams = self._streams(size // IN_A_STREAM + 1)
        arrays = [self._ac.empty(16).sync() for _ in streams]

        async def one(i: int) -> None:
            await self._launch(arrays[i]).on(streams[i])

        async def main() -> None:
            self._stub.hold_flags(True)
            before = self._stub.counts()[0]
            tasks = [asyncio.ensure_future(one(i // IN_A_STREAM)) for i in range(size)]
            while self._stub.counts()[0] - before < size:  # noqa: ASYNC110  it is a count of the driver's
                await asyncio.sleep(0)
            self._stub.hold_flags(False)
            self._stub.release()
            await asyncio.gather(*tasks)

        with self._ac.use(spin_us=0):
            self._count(mark, size, lambda: asyncio.run(main()))

    def nodes(self, mark: str, size: int) -> None:
        """Make a graph of a chain of launches."""
        op = self._x
        for _ in range(size):
            op = self._launch(op)
        made = []
        self._count(mark, size, lambda: made.append(op.graph()))

    def fresh_nodes(self, mark: str, size: int) -> None:
        """Make a graph of a chain of launches that each read an array filled for it."""
        op = self._x
        for _ in range(size // 2):
            op = self._scale(op, self._ac.ones(1024), self._g, self._threads, threads=self._threads)
        made = []
        self._count(mark, size, lambda: made.append(op.graph()))

    def parts(self, mark: str, size: int) -> None:
        """Submit a collective that writes many arrays, as a group of ranks has it but for NCCL."""
        from aiocuda import _native
        from aiocuda._collective.calls import Call, Part
        from aiocuda._collective.overlaps import check_overlaps

        device = self._ac.Device(0)
        arrays = [self._ac.empty(16).sync() for _ in range(size)]
        parts = [Part(each._address, (16,), "float32", 4) for each in arrays]
        doubt = _native.Doubt()

        def perform(*_: object) -> None:
            check_overlaps(Call("all_reduce", 1, "sum"), [0], [parts], [parts])

        op = _native.collective_op(perform, tuple(arrays), arrays, arrays, doubt).on(device.stream())
        self._count(mark, size, op.submit)
        doubt.end()
        op.sync()

    def maps(self, mark: str, size: int) -> None:
        """Submit maps that wait for the device, and ask for each."""
        streams = self._streams(size // IN_A_STREAM + 1)
        arrays = [self._ac.empty(16).sync() for _ in streams]

        def run() -> None:
            with self._held():
                kept = [
                    self._launch(arrays[i // IN_A_STREAM]).on(streams[i // IN_A_STREAM]).map(id).submit()
                    for i in range(size)
                ]
            for each in kept:
                each.sync()

        self._count(mark, size, run)

    def devices(self, mark: str, size: int) -> None:
        """Launch on devices in turn."""
        ac = self._ac
        arrays = [[ac.empty(16, device=device).sync() for _ in range(3)] for device in range(size)]
        for y, x, g in arrays:  # the kernel's first use of a device is no launch like the others
            self._scale(y, x, g, self._threads, threads=self._threads).sync()
        kept = []

        def run() -> None:
            for i in range(NUMBER):
                y, x, g = arrays[i % size]
                kept.append(self._scale(y, x, g, self._threads, threads=self._threads).submit())

        self._count(mark, NUMBER, run)


class _MallocInfo(ctypes.Structure):
    """What glibc's mallinfo2 tells; see its manual page."""

    _fields_ = [
        ("arena", ctypes.c_size_t), ("ordblks", ctypes.c_size_t), ("smblks", ctypes.c_size_t),
        ("hblks", ctypes.c_size_t), ("hblkhd", ctypes.c_size_t), ("usmblks", ctypes.c_size_t),
        ("fsmblks", ctypes.c_size_t), ("uordblks", ctypes.c_size_t), ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    ]  # fmt: skip


def held_bytes() -> int:
    """Return the bytes that glibc's malloc has given out. Python's own small objects are not among them."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallocInfo
    found = mallinfo2()
    return int(found.uordblks + found.hblkhd)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
