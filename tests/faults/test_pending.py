"""A broken context ends what waits for it while all else goes on: in every loop, by flags and without them.

Order is shown by latches: what waits for the lost device has ended, and what waits for another one, which is held, has
not. Each test breaks a context, so each runs in a process of its own.
"""

from __future__ import annotations

import textwrap

import pytest

LOOPS = ["asyncio", "uvloop", "trio"]

PENDING = """
import anyio

ac.set_policy(ac.SingleStream())  # what is behind a latch, or a fault, stays behind it
CALLS = {"illegal": lambda: illegal(), "trap": lambda: k["trap"](ac.zeros(1, np.int32), grid=1, block=1),
         "assertion": lambda: k["assertion"](ac.zeros(1, np.int32), grid=1, block=1)}

def run(loop, main):
    trio, uvloop = loop == "trio", loop == "uvloop"
    options = {} if trio else {"backend_options": {"use_uvloop": uvloop}}
    anyio.run(main, backend="trio" if trio else "asyncio", **options)

errors = []
async def expect(awaitable):
    try:
        await awaitable
    except ac.DeviceLostError as error:
        errors.append(error)

async def settle():
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
"""


@pytest.mark.emulated_only  # NVIDIA's driver answers for all devices of a process once one has had a fault
@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kernel", ["illegal", "trap", "assertion"])
def test_awaits_of_a_lost_device_end_while_another_device_is_held(broken, loop, kernel):
    out = broken(
        PENDING
        + textwrap.dedent(f"""
        async def main():
            before = ac.statistics()
            latch = Latch()
            with ac.use(1):
                other = Latch()
                held = k["increment"](ac.full(1, 41, np.int32), grid=1, block=1).submit()
            bad = CALLS["{kernel}"]()
            behind = ac.to_host(ac.zeros(4, np.int32))
            bad.submit(), behind.submit()  # in this order, whichever task a loop takes first
            async with anyio.create_task_group() as outer:
                done = []
                async def wait_for_held():
                    done.append(await ac.to_host(await held))
                outer.start_soon(wait_for_held)
                async with anyio.create_task_group() as group:
                    for op in (bad, bad, behind, behind):
                        group.start_soon(expect, op)
                    await settle()
                    group.start_soon(expect, ac.Device(0).synchronize())
                    await settle()
                    latch.release()
                print(len(errors), len({{error.error.code for error in errors}}), held.done(), done)
                of_operations = [error for error in errors if error.operation != "synchronizing device 0"]
                print(len(of_operations), sorted({{error.origin.split(":")[0] for error in of_operations}}))
                for new in (lambda: k["increment"](ac.zeros(1, np.int32), grid=1, block=1).submit(),
                            lambda: ac.ones(3).sync()):
                    try:
                        new()
                    except ac.DeviceLostError as error:
                        errors.append(error)
                await expect(ac.to_host(ac.ones(3)))
                print(len(errors), held.done(), done)
                with ac.use(ac.Device(1).stream()):
                    print((await ac.to_host(ac.full(2, 7, np.int32))).tolist(), done)
                other.release()
            print(done[0].tolist(), ac.statistics().without_flag == before.without_flag)
        run("{loop}", main)
        """)
    )
    assert out.splitlines()[-6:-1] == ["5 1 False []", "4 ['<string>']", "8 False []", "[7, 7] []", "[42] True"]


@pytest.mark.parametrize("loop", LOOPS)
def test_awaits_on_more_streams_than_there_are_flags_end(broken, loop):
    """1,024 streams have flags; about the others the driver is asked, whose events do not pass on a lost device."""
    out = broken(
        PENDING
        + textwrap.dedent(f"""
        async def main():
            streams = [ac.Device(0).stream() for _ in range(1_100)]
            latch = Latch()
            illegal().submit()
            point = ac.current_policy().streams(0)[0].record()
            async with anyio.create_task_group() as group:
                for stream in streams:
                    stream.wait(point)
                    group.start_soon(expect, stream.synchronize())
                await settle()
                latch.release()
            print(len(errors), len({{error.error.code for error in errors}}), ac.statistics().without_flag > 0)
        run("{loop}", main)
        """)
    )
    assert out.splitlines()[-2] == "1100 1 True"


@pytest.mark.parametrize("loop", LOOPS)
def test_those_who_wait_for_room_on_a_lost_device_are_told(broken, loop):
    """Tasks, a future with callbacks and a thread stand in line when the fault comes."""
    out = broken(
        PENDING
        + textwrap.dedent(f"""
        x = ac.zeros(1, np.int32).sync()
        async def main():
            latch = Latch()
            bad = illegal()
            bad.submit()
            told = anyio.Event()
            with ac.use(max_in_flight=2):
                in_line = ac.statistics().waits_for_room
                futures = [k["increment"](x, grid=1, block=1).schedule(0) for _ in range(10)]
                for future in futures:
                    future.add_done_callback(lambda _: told.set() if all(f.done() for f in futures) else None)
                threads = [threading.Thread(target=in_thread) for _ in range(5)]
                for thread in threads:
                    thread.start()
                async with anyio.create_task_group() as group:
                    for _ in range(20):
                        group.start_soon(expect, k["increment"](x, grid=1, block=1))
                    while ac.statistics().waits_for_room < in_line + 35:
                        await settle()
                    latch.release()
                await told.wait()
                for thread in threads:
                    thread.join()
            errors.extend(future.exception() for future in futures)
            print(len(errors), {{type(error).__name__ for error in errors}}, {{error.device for error in errors}},
                  {{error.operation for error in errors}})
        def in_thread():
            with ac.use(max_in_flight=2):
                try:
                    k["increment"](x, grid=1, block=1).sync()
                except ac.DeviceLostError as error:
                    errors.append(error)
        run("{loop}", main)
        """)
    )
    assert out.splitlines()[-2] == "35 {'DeviceLostError'} {'device 0'} {'the launch of increment'}"


@pytest.mark.emulated_only
@pytest.mark.parametrize("loop", LOOPS)
def test_a_device_that_cannot_write_flags_is_asked(broken, loop):
    """Waits for a stream's end, for a point in its middle, and for a device that is lost."""
    out = broken(
        PENDING
        + textwrap.dedent(f"""
        async def main():
            x = ac.zeros(1, np.int32).sync()
            latch = Latch()
            early = ac.to_host(ac.full(2, 7, np.int32)).submit()
            late = k["increment"](x, grid=1, block=1).submit()
            second = Latch()
            behind = k["increment"](x, grid=1, block=1).submit()
            async with anyio.create_task_group() as group:
                ended = []
                async def wait(name, future):
                    await future
                    ended.append(name)
                for name, future in (("behind", behind), ("late", late), ("early", early)):
                    group.start_soon(wait, name, future)
                await settle()
                print(ended)
                latch.release()
                while "late" not in ended or "early" not in ended:
                    await anyio.lowlevel.checkpoint()
                print("behind" in ended)
                second.release()
            print(ended[-1], (await ac.to_host(x)).tolist(), ac.statistics().without_flag >= 3)
            third = Latch()
            bad = illegal()
            bad.submit()
            async with anyio.create_task_group() as group:
                group.start_soon(expect, bad)
                group.start_soon(expect, ac.Device(0).synchronize())
                await settle()
                third.release()
            print(len(errors))
        run("{loop}", main)
        """),
        AIOCUDA_EMULATOR_FAULTS="no_memory_op:1",
    )
    assert out.splitlines()[-5:-1] == ["[]", "False", "behind [2] True", "2"]


@pytest.mark.emulated_only  # NVIDIA's driver answers for all devices of a process once one has had a fault
@pytest.mark.needs_devices(2)
def test_a_time_out_names_what_runs_and_not_what_a_lost_device_has_ended(broken):
    """A device may be lost after the time has passed and before the error is made: nobody has heard of it then."""
    out = broken("""
        from aiocuda import _native
        from aiocuda._driver import runtime
        from aiocuda._engine import overdue
        with ac.use(ac.Device(1).stream()):
            latch = Latch()
            held = k["increment"](ac.zeros(1, np.int32), grid=1, block=1)
            held.submit()
        with ac.use(ac.Device(0).stream()):
            behind = Latch()
            lost, beside = illegal(), illegal()
            lost.submit(), beside.submit()
        behind.release()
        while not runtime.has_failed(0, 700):
            pass  # nobody has heard of it yet
        error = overdue.overdue(ac.zip(lost, held), 1.0)
        print(type(error).__name__, [each.partition(" (")[0] for each in error.running])
        error = overdue.overdue(beside, 1.0)
        print(type(error).__name__, error.operation, error.__traceback__)
        def asked(op):
            raise RuntimeError("no answer")
        _native.has_passed = asked
        try:
            overdue.overdue(held, 1.0)
        except RuntimeError as error:
            print(error)
        latch.release()
        """)
    assert out.splitlines()[-4:-1] == [
        "DeviceTimeoutError ['the launch of increment']",
        "DeviceLostError the launch of illegal None",
        "no answer",
    ]


@pytest.mark.parametrize(
    "ask",
    [
        "asyncio.run(wait_for(operation))",
        "operation.sync()",
        "operation.submit().result()",
        "ac.zip(operation, ac.value(1)).sync()",
    ],
)
def test_work_at_the_end_of_a_lost_stream_fails_when_nobody_holds_the_stream(broken, ask):
    """The engine destroys the stream when its work has ended. The work is no success for that."""
    out = broken(f"""
        async def wait_for(operation):
            return await operation
        spare = ac.Device(0).stream()
        with ac.use(ac.Device(0).stream()):
            behind = Latch()
            first, operation = illegal(), illegal()
            first.submit(), operation.submit()
        behind.release()
        refused(first.sync)
        del spare  # which has the engine destroy the streams that are no longer held
        refused(lambda: {ask})
        refused(operation.sync)
        print("told")
        """)
    assert "told" in out.splitlines()
