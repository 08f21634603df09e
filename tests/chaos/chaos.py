"""One process under injected faults: random programs of the dataflow engine, whatever goes wrong in them.

Run as a script, with the plan in `AIOCUDA_EMULATOR_FAULTS`. It ends with status 0 and a line of counts, or with what
was wrong. Always true: nothing waits for longer than the watchdog, which ends the process with all stacks.

A program is *hit* when an error of the device reaches it. All that it read before that must be right. All that comes
after it must end, well or with an error of the right type, and is not checked. A program that was not hit has its
sequential meaning, also where a device was lost that another one's work waited for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import gc
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "ordering")]

import conftest  # noqa: E402 - found by the path above
import numpy as np  # noqa: E402
import uvloop  # noqa: E402
from interpreter import Boom, Interpreter, Node  # noqa: E402
from machine import Machine  # noqa: E402
from programs import Program  # noqa: E402

import aiocuda as ac  # noqa: E402

MAKE = ["full", "upload"]
CHANGE = ["increment", "accumulate", "accumulate", "mix", "copy", "fill", "dup", "to", "part", "zip", "then", "call"]
RUN = ["submit", "sync", "sync_on", "schedule", "await", "task", "cancelled", "unstarted", "read", "handle"]
ALONE = [*MAKE, *CHANGE, *CHANGE, *RUN, "map", "hold", "fail"]
TOGETHER = [*CHANGE, "submit", "submit", "sync", "handle", "handle", "read", "map"]
ILLEGAL, LOST = 700, 214  # as the driver answers after `illegal` and `lost`
Step = tuple[str, int, int, int, int]


class Wrong(Exception):
    """An error that no fault excuses."""


class Survivor(Program):
    """A program on the devices that are left, which goes on after it was hit."""

    alive: tuple[int, ...] = (0, 1)  # those that it uses

    def home(self, device: int) -> int:
        return device if device in self.alive else self.alive[0]

    def full(self, device: int, value: int) -> Node:
        return super().full(self.home(device), value)

    def upload(self, device: int, value: int) -> Node:
        return super().upload(self.home(device), value)

    def on_device(self, x: Node, device: int, where: int = 0) -> Node:
        return super().on_device(x, self.home(device), where)

    def hold(self, device: int, number: int) -> None:
        super().hold(self.home(device), number)


class Chaos:
    """Everything that goes on in the process: the machine, what is alive, what has been seen."""

    def __init__(self) -> None:
        self.counts = {"programs": 0, "hit": 0, "reads": 0, "errors": 0}
        self.lost: dict[int, int] = {}  # ordinal: the driver's error
        self.machine: Machine = self.insist(Machine)
        self.kernels: conftest.Kernels = self.insist(conftest.Kernels)
        self.runners = (asyncio.Runner(), asyncio.Runner(loop_factory=uvloop.new_event_loop))

    @property
    def alive(self) -> tuple[int, ...]:
        return tuple(device.ordinal for device in ac.devices() if device.ordinal not in self.lost)

    def insist(self, make: Callable[[], Any]) -> Any:
        """Make what is needed, however often a fault comes in between."""
        for _ in range(20):
            with self.tolerated():
                return make()
        raise Wrong(f"{make} fails again and again")

    @contextlib.contextmanager
    def tolerated(self) -> Iterator[None]:
        try:
            yield
        except ac.AiocudaError as error:
            self.note(error)

    def note(self, error: Exception) -> None:
        """Count an error; raise, if it is not what a fault has to become."""
        self.counts["errors"] += 1
        where = f"{TESTS}/" in str(error)
        match error:
            case ac.OutOfMemoryError():
                is_right = error.asked_bytes > 0 and (
                    error.device.startswith("device ") or "page-locked" in error.device
                )
            case ac.LaunchError():
                cause = error.__cause__
                is_right = (
                    isinstance(cause, ac.DriverError) and cause.code == 701 and "the launch of " in str(error) and where
                )
            case ac.DeviceLostError():
                is_right = error.error.code in {ILLEGAL, LOST} and error.__cause__ is error.error
                is_right = is_right and (where or is_of_a_latch(error))
                if error.device:
                    self.lost.setdefault(int(error.device.removeprefix("device ")), error.error.code)
            case AssertionError():
                is_right = self.is_of_a_call(error)
            case _:
                is_right = False
        if not is_right:
            raise Wrong(f"not the error of a fault: {error!r}: {error}") from error

    def look_for_losses(self) -> None:
        """Ask each device whether it is well."""
        for device in ac.devices():
            try:
                device.synchronize().sync()
            except ac.DeviceLostError as error:
                self.lost.setdefault(device.ordinal, error.error.code)

    def used_bytes(self) -> list[int]:
        gc.collect()
        self.look_for_losses()
        return [0 if n in self.lost else ac.Device(n).memory_info().used_bytes for n in range(len(ac.devices()))]

    async def end_tasks(self) -> None:
        """Await the tasks that are left over where the first of several raised."""
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for error in await asyncio.gather(*left, return_exceptions=True):
            if isinstance(error, Exception):
                self.note(error)

    def check_nothing_is_left(self, before: list[int]) -> None:
        """All memory of a program is free again, on the devices that are left, and nothing is waited for."""
        after = self.used_bytes()
        held = {n: (before[n], after[n]) for n in self.alive if before[n] != after[n]}
        if held:
            raise Wrong(f"bytes in use before and after, by device: {held}")
        # The reactor learns of a loss in its own time; that it does, the watchdog sees to.
        while ac.statistics().pending:
            time.sleep(0)

    def is_of_a_call(self, error: AssertionError) -> bool:
        """Whether a function that a `call` runs was refused by a device that is lost, and said so."""
        frames = traceback.extract_tb(error.__traceback__)
        self.look_for_losses()
        return bool(self.lost) and frames[-1].name == "function" and frames[-1].filename.endswith("programs.py")

    # --- programs -----------------------------------------------------------------------------------

    def program(self, interpreter: Interpreter, alive: tuple[int, ...], *, watched: bool, predicts: bool) -> Survivor:
        latches = (lambda: conftest.Latch(self.kernels)) if predicts else None
        made = Survivor(self.machine, interpreter, latches, watched=watched, predicts=predicts)
        made.alive = alive
        return made

    def devices(self, choose: random.Random) -> tuple[int, ...]:
        """Choose what a program uses: one device, or all that are left."""
        return self.alive if choose.random() < 0.5 else (choose.choice(self.alive),)

    def run_alone(self, choose: random.Random) -> None:
        """Run one program, step by step, beside its interpreter."""
        alive = self.devices(choose)
        running = self.program(Interpreter(), alive, watched=choose.random() < 0.5, predicts=True)
        policy = self.machine.policy(choose.randrange(10))
        is_hit = False

        def attempt(step: Callable[..., None], *arguments: Any) -> None:
            nonlocal is_hit
            try:
                step(*arguments)
            except (ac.AiocudaError, AssertionError) as error:
                self.note(error)
                if not is_hit:  # from here on nobody knows what the arrays hold
                    is_hit = True
                    with self.tolerated():
                        running.release()  # else a device that is well is held, and waited for
                    self.check_reads(running, may_fail=True)
                    running.predicts = False
            except Boom:
                if not is_hit:
                    raise

        with ac.use(ac.Device(alive[0])), ac.use(policy):
            attempt(running.start, [choose.randrange(2) for _ in range(4)])
            for step in random_steps(choose, ALONE, 30):
                if not running.slots:  # not even the first arrays came about
                    break
                attempt(running.step, *step)
            attempt(running.finish)
            for _ in range(20):  # a latch is released whatever happens, and told so
                with self.tolerated():
                    running.release()
                    break
        self.counts["hit"] += is_hit
        if not is_hit:
            self.check_reads(running, may_fail=False)

    def check_reads(self, running: Survivor, *, may_fail: bool) -> None:
        for future, expected in running.reads:
            try:
                found = future.sync(60).numpy()
            except (ac.AiocudaError, AssertionError) as error:
                self.note(error)
                if not may_fail:
                    raise Wrong("a read failed of a program that was not hit") from error
                continue
            self.look_for_losses()
            self.counts["reads"] += 1
            np.testing.assert_array_equal(found, expected)
        running.reads.clear()

    def run_together(self, choose: random.Random) -> None:
        """Run a program in several threads that share arrays."""
        interpreter = Interpreter()
        shares = [random_steps(choose, TOGETHER, 10) for _ in range(choose.randint(2, 3))]
        alive = self.devices(choose)
        programs = [self.program(interpreter, alive, watched=True, predicts=False) for _ in shares]
        policy = self.machine.policy(choose.randrange(10))
        wrong: list[BaseException] = []
        hit = threading.Event()

        def attempt(step: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return step(*arguments)
            except (ac.AiocudaError, AssertionError) as error:
                hit.set()
                self.note(error)

        def work(program: Program, share: list[Step]) -> None:
            try:
                with ac.use(ac.Device(alive[0])), ac.use(policy):
                    for step in share:
                        attempt(program.step, *step)
            except BaseException as error:  # noqa: BLE001 - raised below, in the main thread
                wrong.append(error)

        first = programs[0]
        with ac.use(ac.Device(alive[0])):
            slots = attempt(lambda: [first.handle_of(first.full(0, value)) for value in (1, 2)])
            if slots is not None:
                slots += [first.part(slots[0], slice(4, 20)), first.accumulated(slots[0], slots[1], 3, 0)]
                for program in programs:
                    program.slots = list(slots)
                threads = [threading.Thread(target=work, args=pair) for pair in zip(programs, shares, strict=True)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                for program in programs:
                    attempt(program.finish)
        if wrong:
            raise wrong[0]
        self.counts["hit"] += hit.is_set()
        if not hit.is_set():
            interpreter.replay()
            for program in programs:
                self.check_reads(program, may_fail=False)
        elif slots is not None:
            for program in programs:
                for future, _ in program.reads:
                    attempt(future.sync, 60)

    def run(self, seed: int) -> None:
        choose = random.Random(seed)
        self.machine.runner = choose.choice(self.runners)
        before = self.used_bytes()
        if not self.alive:
            return
        self.counts["programs"] += 1
        (self.run_together if seed % 4 == 3 else self.run_alone)(choose)
        self.machine.runner.run(self.end_tasks())
        self.check_nothing_is_left(before)


def is_of_a_latch(error: Exception) -> bool:
    """Whether a latch's own stream was refused, or its place before others: nothing else is asked but by operations."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.name == "hold" and frame.filename == conftest.__file__ for frame in frames)


def random_steps(choose: random.Random, kinds: list[str], most: int) -> list[Step]:
    return [
        (choose.choice(kinds), choose.randint(0, 3), choose.randint(0, 3), choose.randint(-5, 5), choose.randint(0, 5))
        for _ in range(choose.randint(most // 3, most))
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int, help="the first program's seed")
    parser.add_argument("count", type=int, help="how many programs")
    parser.add_argument("watchdog_s", type=float, help="how long it may take altogether")
    given = parser.parse_args()
    faulthandler.dump_traceback_later(given.watchdog_s, exit=True)
    chaos = Chaos()
    for seed in range(given.first, given.first + given.count):
        try:
            chaos.run(seed)
        except BaseException as error:
            error.add_note(f"in the program of seed {seed}; lost: {chaos.lost}; counts: {chaos.counts}")
            raise
    lost = ",".join(map(str, sorted(chaos.lost))) or "none"
    print(" ".join(f"{name}={count}" for name, count in chaos.counts.items()), f"lost={lost}", flush=True)


if __name__ == "__main__":
    main()
