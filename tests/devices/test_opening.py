"""A device that nobody has used yet is opened by another thread, while the event loop goes on.

A process opens a device once. So each test has a process of its own, where the opening of device 1 is held: in the
driver's own calls if it is the emulated one, else before them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PRELUDE = """
import errno, faulthandler, os, signal, threading
faulthandler.dump_traceback_later(100, exit=True)  # where the lock of the interpreter is kept, nothing else would
import anyio
import numpy as np
import aiocuda as ac
from aiocuda import _native
from aiocuda._driver import runtime

opened = []
open_now = runtime._open_now


def counted(ordinal):
    opened.append((ordinal, threading.current_thread()))
    if ordinal == 1 and held is not None and not held.is_of_driver:
        held.hold()
    open_now(ordinal)


runtime._open_now = counted


class HeldCall:
    # The emulated driver reads a pipe; it has begun when somebody can write to that.
    is_of_driver = True

    def __init__(self, function):
        self._path = os.environ["AIOCUDA_EMULATOR_HOLD"] + f"/{function}.1"
        os.mkfifo(self._path)
        self._pipe = None

    def has_begun(self):
        try:
            self._pipe = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            assert error.errno == errno.ENXIO, error
            return False
        return True

    def release(self, answer=""):
        os.write(self._pipe, answer.encode())
        os.close(self._pipe)


class HeldOpening:
    is_of_driver = False

    def __init__(self, function):
        self._begun, self._released = threading.Event(), threading.Event()

    def hold(self):
        self._begun.set()
        assert self._released.wait(60)

    def has_begun(self):
        return self._begun.is_set()

    def release(self):
        self._released.set()


def hold(function="cuDevicePrimaryCtxRetain"):
    return (HeldCall if ac.Device(0).is_emulated else HeldOpening)(function)


held = None
STEP = ac.kernel('extern "C" __global__ void step(int* x) { x[0] = 3 * x[0] + 2; }')
"""

ASYNC = """
async def until_begun():
    while not held.has_begun():
        await anyio.lowlevel.checkpoint()


async def turns():
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


async def starts(group, name, awaited, ended):
    async def wait():
        try:
            await awaited
        except ac.AiocudaError as error:
            ended.append((name, error))
        else:
            ended.append((name, None))

    group.start_soon(wait)
    await turns()


def run(program):
    loop = os.environ["LOOP"]
    options = {"use_uvloop": True} if loop == "uvloop" else {}
    anyio.run(program, backend="trio" if loop == "trio" else "asyncio", backend_options=options)
"""

Program = Callable[[str], Any]

pytestmark = pytest.mark.needs_devices(2)


@pytest.fixture
def program(in_process: Callable[..., Any], tmp_path: Path) -> Program:
    """Run a program whose opening of device 1 can be held; it fails the test, or ends well."""

    def run(text: str, **environment: str) -> Any:
        said = in_process(PRELUDE + ASYNC + textwrap.dedent(text), AIOCUDA_EMULATOR_HOLD=str(tmp_path), **environment)
        assert said.returncode == 0, said.stderr
        return said

    return run


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def on_loop(request: pytest.FixtureRequest, program: Any) -> Program:
    """Run an async program on each kind of loop."""
    return lambda text: program(text, LOOP=request.param)


@pytest.fixture(params=["asyncio", "uvloop"])
def on_asyncio(request: pytest.FixtureRequest, program: Any) -> Program:
    """The same for loops that run tasks in the order in which they are woken."""
    return lambda text: program(text, LOOP=request.param)


def test_the_loop_and_other_devices_go_on_and_all_who_wait_share_one_opening(on_loop):
    on_loop("""
        held = hold()

        async def main():
            x = await ac.ones(1, np.int32, device=0)
            ended = []
            host = np.arange(100_000, dtype=np.int32)
            async with anyio.create_task_group() as group:
                awaited = {
                    "creates": ac.ones(4, device=1),
                    "launches": STEP(ac.ones(1, np.int32, device=1), grid=1, block=1),
                    "copies here": ac.to_device(host, device=1),
                    "copies a little": ac.to_device(host[:4], device=1),
                    "moves": ac.ones(3, device=0).to(1),
                    "calls": ac.call(lambda stream: None).on(1),
                    "in page-locked memory": ac.empty_host(8).on(1),
                    "managed": ac.zeros(4, managed=True, device=1),
                    "in a function": ac.value(3).then(lambda n: ac.zeros(n, device=1)),
                    "within": ac.zeros(5, device=1).within(60),
                    "a future": ac.zeros(6).schedule(1),
                    "synchronizes": ac.Device(1).synchronize(),
                    "synchronizes in time": ac.Device(1).synchronize().within(60),
                    "compiles": STEP.compile_async(1),
                    "waits": ac.wait([ac.zeros(7, device=1)]),
                }
                for name, each in awaited.items():
                    await starts(group, name, each, ended)
                await until_begun()
                for _ in range(3):
                    await STEP(x, grid=1, block=1)
                await turns()
                assert ended == [], ended
                assert not _native.is_open(1)
                assert _native.is_open(0)
                held.release()
            assert (await ac.to_host(x))[0] == 53
            assert sorted(ended) == sorted((name, None) for name in awaited), ended
            assert [ordinal for ordinal, _ in opened] == [0, 1]
            assert all(thread is not threading.current_thread() for _, thread in opened)

        run(main)
    """)


@pytest.mark.emulated_only
@pytest.mark.parametrize("function", ["cuMemPoolCreate", "cuMemHostAlloc", "cuStreamCreateWithPriority"])
def test_the_loop_goes_on_in_each_call_that_opens_a_device(program, function):
    program(
        f"""
        held = hold("{function}")

        async def main():
            async with anyio.create_task_group() as group:
                ended = []
                await starts(group, "first", ac.zeros(4, device=1), ended)
                await until_begun()
                await ac.zeros(3, device=0)
                await starts(group, "second", ac.zeros(4, device=1), ended)
                assert ended == []
                assert not _native.is_open(1)
                held.release()
            assert (await ac.to_host(ac.ones(4, device=1))).sum() == 4

        run(main)
        """,
        LOOP="asyncio",
    )


def test_a_time_out_and_a_cancellation_leave_the_opening_for_the_next(on_loop):
    on_loop("""
        held = hold()

        async def main():
            late, device = ac.ones(4, device=1), ac.Device(1)
            for wait in (late.within(0.01), device.synchronize().within(0.01)):
                try:
                    await wait
                except ac.DeviceTimeoutError as error:
                    assert "device" in str(error), error
                else:
                    raise AssertionError
            for wait in (late.sync, device.synchronize().sync):
                try:
                    wait(timeout=0.01)
                except ac.DeviceTimeoutError:
                    pass
                else:
                    raise AssertionError
            async with anyio.create_task_group() as group:
                await starts(group, "cancelled", ac.ones(4, device=1), [])
                await starts(group, "cancelled", device.synchronize(), [])
                await until_begun()
                group.cancel_scope.cancel()
            future = ac.zeros(3).schedule(1)
            async with anyio.create_task_group() as group:
                ended = []
                await starts(group, "cancelled", future, ended)
                future.cancel()
            assert isinstance(ended[0][1], ac.CancelledError), ended
            held.release()
            assert (await ac.to_host(late)).sum() == 4
            assert [ordinal for ordinal, _ in opened if ordinal == 1] == [1]

        run(main)
    """)


@pytest.mark.emulated_only
def test_a_refused_opening_is_the_error_of_each_who_waits_and_the_next_opens_anew(on_loop):
    on_loop("""
        held = hold()

        async def main():
            ended = []
            first, second = ac.ones(4, device=1), ac.ones(5, device=1)
            async with anyio.create_task_group() as group:
                await starts(group, "first", first, ended)
                await starts(group, "second", ac.dup(second), ended)
                await starts(group, "synchronizes", ac.Device(1).synchronize(), ended)
                await starts(group, "in time", ac.Device(1).synchronize().within(60), ended)
                await until_begun()
                held.release("2")
            errors = dict(ended)
            assert len({id(error) for error in errors.values()}) == 4, ended
            for name, error in errors.items():
                assert isinstance(error, ac.DriverError), (name, error)
                assert error.code == 2 and "cuDevicePrimaryCtxRetain" in str(error), (name, error)
            assert str(errors["first"]).startswith("the creation of an array (built at "), errors["first"]
            assert (first._state, second._state) == ("failed", "failed")
            assert not _native.is_open(1)
            assert (await ac.to_host(ac.ones(4, device=1))).sum() == 4

        run(main)
    """)


def test_what_touches_the_same_memory_comes_behind(on_asyncio):
    on_asyncio("""
        held = hold()

        async def main():
            shared, other = await ac.empty_host(4, np.int32).on(0), await ac.ones(1, np.int32, device=0)
            ended = []
            async with anyio.create_task_group() as group:
                await starts(group, "first", ac.copy(shared, ac.full(4, 5, np.int32, device=1)), ended)
                await until_begun()
                await starts(group, "second", ac.fill(shared, 7).on(0), ended)
                await ac.fill(other, 3)
                assert ended == []
                held.release()
            assert [name for name, _ in ended] == ["first", "second"], ended
            await ac.Device(0).synchronize()
            assert (shared.numpy() == 7).all(), shared.numpy()

        run(main)
    """)


def test_threads_that_block_let_others_go_on(program):
    program("""
        held = hold()
        x = ac.ones(1, np.int32, device=0).sync()
        made = []
        ways = (
            lambda: ac.ones(4, device=1).sync(),
            lambda: ac.ones(4, device=1).submit(),
            lambda: ac.Device(1).synchronize().sync(),
            lambda: ac.Device(1).default_stream,
            lambda: ac.ones(4, device=1).graph(),
        )
        threads = [threading.Thread(target=lambda way=way: made.append(way())) for way in ways]
        for thread in threads:
            thread.start()
        while not held.has_begun():
            pass
        for _ in range(3):
            STEP(x, grid=1, block=1).sync()
        assert not made
        held.release()
        for thread in threads:
            thread.join()
        assert len(made) == len(ways)
        assert [ordinal for ordinal, _ in opened] == [0, 1]
        assert ac.to_host(x).sync()[0] == 53
    """)


@pytest.mark.parametrize(
    "waits", ["ac.ones(4, device=1).sync()", "ac.ones(4, device=1).submit()", "ac.Device(1).synchronize().sync()"]
)
def test_ctrl_c_ends_a_wait_at_once(program, waits):
    program(f"""
        held = hold()
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def interrupt():
            while not held.has_begun():
                pass
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            {waits}
        except KeyboardInterrupt:
            assert not _native.is_open(1)
        else:
            raise AssertionError
        held.release()
        assert ac.to_host(ac.ones(4, device=1)).sync().sum() == 4
        assert len(opened) == 1
    """)


def test_ctrl_c_ends_an_await_at_once(program):
    program("""
        import asyncio
        signal.signal(signal.SIGINT, signal.default_int_handler)
        held = hold()

        async def main():
            async def interrupt():
                await until_begun()
                os.kill(os.getpid(), signal.SIGINT)

            task = asyncio.create_task(interrupt())
            await ac.ones(4, device=1)

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            assert not _native.is_open(1)
        else:
            raise AssertionError
        held.release()
    """)


@pytest.mark.parametrize("blocks", [True, False])
def test_what_opens_a_device_in_the_thread_of_a_loop_is_told_who_debugs(program, blocks):
    said = program(
        f"""
        from aiocuda._engine import held_up

        async def main():
            held_up.watch(0.0)
            if {blocks}:
                ac.Device(1).default_stream
            else:
                await ac.Device(1).synchronize()

        run(main)
        """,
        LOOP="asyncio",
    )
    assert "aiocuda: starting the driver, at <string>:" in said.stderr
    assert ("aiocuda: opening device 1, at <string>:" in said.stderr) == blocks


def test_naming_a_device_opens_none(program):
    program("""
        names = [each.name for each in ac.devices()]
        device = ac.Device(1)
        assert repr(device) == f"<Device 1: {names[1]}>"
        assert device.compute_capability and device.multiprocessor_count
        with ac.use(device):
            assert ac.current_device() == device
            op = ac.zeros(3)
        before = ac.set_device(1)
        ac.set_device(before)
        assert opened == []
        op.sync()
        assert [ordinal for ordinal, _ in opened] == [1]
    """)


def test_a_process_that_is_forked_while_a_device_is_opened(program):
    program("""
        held = hold()
        waiting = threading.Thread(target=lambda: ac.ones(4, device=1).sync())
        waiting.start()
        while not held.has_begun():
            pass
        child = os.fork()
        if child == 0:
            for refused in (
                lambda: ac.ones(4, device=1).sync(),
                lambda: ac.Device(1).synchronize().sync(),
                lambda: ac.Device(1).default_stream,
            ):
                try:
                    refused()
                except ac.ForkedProcessError:
                    pass
                else:
                    os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        held.release()
        waiting.join()
    """)


def test_the_process_ends_when_the_opening_has_ended(program):
    said = program("""
        held = hold()
        threading.Thread(target=lambda: ac.ones(4, device=1).sync(), daemon=True).start()
        while not held.has_begun():
            pass
        threading.Thread(target=lambda: (threading.main_thread().join(), held.release())).start()
    """)
    assert said.stderr == ""


def test_cuda_core_is_not_imported_for_it(in_process):
    """Its import takes several times as long as all else that opens a device."""
    done = in_process("""
        import sys
        import aiocuda as ac
        print(ac.to_host(ac.ones(3)).sync(), "cuda.core" in sys.modules)
    """)
    assert done.stdout == "[1. 1. 1.] False\n"


def test_a_device_that_cannot_be_opened_leaves_no_pool(in_process):
    done = in_process("""
        from cuda.bindings import driver
        import aiocuda as ac
        from aiocuda import _native

        pools, make, end, open_device = set(), driver.cuMemPoolCreate, driver.cuMemPoolDestroy, _native.open_device

        def made(wanted):
            result, pool = make(wanted)
            pools.add(int(pool))
            return result, pool

        def ended(pool):
            pools.remove(int(pool))
            return end(pool)

        def refuse(*_):
            raise MemoryError("there is no room")

        driver.cuMemPoolCreate, driver.cuMemPoolDestroy, _native.open_device = made, ended, refuse
        try:
            ac.ones(3).sync()
        except MemoryError as error:
            print(error, len(pools))
        _native.open_device = open_device
        print(ac.to_host(ac.ones(3)).sync(), len(pools))
    """)
    assert done.stdout == "there is no room 0\n[1. 1. 1.] 1\n"
