"""Health checks: red after a fault and in a forked process, red while a device is stuck, and green for all else."""

from __future__ import annotations

import gc
import textwrap

import numpy as np
import pytest

import aiocuda as ac

FAULTS = """
import asyncio, os, sys
import numpy as np
import aiocuda as ac

illegal = ac.kernel('extern "C" __global__ void illegal(int* x, unsigned long long far) { x[far] = 1; }')
"""


def test_all_is_well(device) -> None:
    ac.zeros(4, device=device).sync()
    health = ac.healthy(stuck_s=1e6)
    assert health
    assert (str(health), health.reason) == ("healthy", "")
    (first,) = [each for each in health.devices if each.device == device.ordinal]
    assert first
    assert (first.reason, first.error, first.longest_wait_s) == ("", None, 0)


def test_devices_that_nobody_used_are_not_opened(in_process) -> None:
    done = in_process("""
        import aiocuda as ac
        from aiocuda import _native
        health = ac.healthy()
        assert health and health.devices == (), health
        assert not _native.is_open(0)
    """)
    assert done.returncode == 0, done.stderr


def test_a_fault_turns_it_red_for_good(in_process) -> None:
    """Also where nobody waits for the work that caused it."""
    done = in_process(
        FAULTS
        + textwrap.dedent("""
            x = ac.zeros(4, np.int32).sync()
            assert ac.healthy()
            future = illegal(x, 1 << 40, grid=1, block=1).submit()
            while health := ac.healthy():
                pass
            for _ in range(2):
                health = ac.healthy()
                assert not health
                assert health.reason.startswith("device 0 was lost: CUDA_ERROR_ILLEGAL_ADDRESS"), health
                assert health.reason.endswith("start a new one"), health
                assert health.devices[0].error.code == 700 and not health.devices[0]
            try:
                future.sync()
            except ac.DeviceLostError:
                print("told", flush=True)
            os._exit(0)  # NVIDIA's driver may not end in good order now
        """)
    )
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr


@pytest.mark.emulated_only
@pytest.mark.parametrize(("fault", "name"), [("illegal", "ILLEGAL_ADDRESS"), ("lost", "ECC_UNCORRECTABLE")])
def test_the_device_that_was_lost_is_named(in_process, fault, name) -> None:
    """NVIDIA's driver gives one device's fault as the answer of all."""
    done = in_process(
        FAULTS
        + textwrap.dedent(f"""
            fine = ac.zeros(4, device=0).sync()
            try:
                ac.to_host(illegal(ac.zeros(4, np.int32, device=1), 0, grid=1, block=1)).sync()
                raise SystemExit("no fault")
            except ac.DeviceLostError:
                pass
            health = ac.healthy()
            assert not health and health.reason.startswith("device 1 was lost: CUDA_ERROR_{name}"), health
            assert [bool(each) for each in health.devices] == [True, False]
        """),
        AIOCUDA_EMULATED_DEVICES="2",
        AIOCUDA_EMULATOR_FAULTS=f"{fault}:1@1",
    )
    assert done.returncode == 0, done.stderr


def test_a_device_whose_work_is_awaited_for_too_long_is_stuck(run, latch, device, kernels) -> None:
    stream = device.stream()
    x = ac.zeros(4, np.int32).sync()
    latch.hold(stream)

    async def main() -> None:
        import anyio

        async def wait() -> None:
            with ac.use(stream, spin_us=0):
                await kernels.increment(x, 4, threads=4)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert ac.healthy()  # no wait is too long
            assert ac.healthy(stuck_s=1e6)
            while health := ac.healthy(stuck_s=0.001):
                await anyio.lowlevel.checkpoint()
            assert health.reason.startswith(f"device {device.ordinal} is stuck: a wait for its work began ")
            assert health.reason.endswith("more than stuck_s=0.001")
            (stuck,) = [each for each in health.devices if not each]
            assert stuck.longest_wait_s > 0.001
            assert stuck.error is None
            latch.release()
        assert ac.healthy(stuck_s=0.001)

    run(main)


def test_a_wait_that_was_given_up_counts_until_the_device_has_answered(run, latch, device, kernels) -> None:
    stream = device.stream()
    x = ac.zeros(4, np.int32).sync()
    latch.hold(stream)

    async def main() -> None:
        with ac.use(stream, spin_us=0):
            future = kernels.increment(x, 4, threads=4).submit()
            assert [each.longest_wait_s for each in ac.healthy().devices if each.device == device.ordinal] == [0]
            with pytest.raises(ac.errors.DeviceTimeoutError, match="stream"):
                await future.within(0.001)
        while ac.healthy(stuck_s=0.001):  # the loop's clock and the wait's begin apart
            pass
        assert not ac.healthy(stuck_s=0.001)
        latch.release()
        await future
        assert ac.healthy(stuck_s=0.001)

    run(main)


def test_a_place_in_a_line_is_no_stuck_device(latch, device, kernels, run) -> None:
    """Memory under a limit is freed by the program: a device has nothing to do with how long that takes."""
    import anyio

    async def main() -> None:
        gc.collect()
        await ac.Device(0).synchronize()  # what earlier tests left is freed now, and not under the limit
        with ac.memory_limit(ac.Device(0).memory_info().used_bytes + 4096, wait=True):
            held = await ac.zeros(4096, np.uint8)
            done = False

            async def wait() -> None:
                nonlocal done
                await ac.zeros(4096, np.uint8)
                done = True

            async with anyio.create_task_group() as group:
                waits = ac.statistics().waits_for_room
                group.start_soon(wait)
                while ac.statistics().waits_for_room == waits and not done:
                    await anyio.lowlevel.checkpoint()
                assert not done
                assert ac.healthy(stuck_s=0)
                held.close()
                del held

    run(main)


def test_memory_that_ran_out_is_no_fault(in_process) -> None:
    done = in_process("""
        import aiocuda as ac
        try:
            ac.empty(1 << 46).sync()
            raise SystemExit("there is so much memory")
        except ac.OutOfMemoryError:
            pass
        health = ac.healthy(stuck_s=60)
        assert health and health.devices[0], health
        assert (ac.to_host(ac.ones(3)).sync() == 1).all()
    """)
    assert done.returncode == 0, done.stderr


def test_an_operation_that_failed_is_no_fault() -> None:
    with pytest.raises(ZeroDivisionError):
        ac.zeros(4).map(lambda _: 1 / 0).sync()
    assert ac.healthy(stuck_s=1e6)


def test_a_forked_process_is_told_and_raises_nothing(in_process) -> None:
    done = in_process("""
        import os
        import aiocuda as ac
        ac.zeros(4).sync()
        child = os.fork()
        if child == 0:
            health = ac.healthy()
            is_told = not health and "forked after aiocuda was used" in health.reason and "spawn" in health.reason
            os._exit(0 if is_told else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ac.healthy()
    """)
    assert done.returncode == 0, done.stderr


def test_it_disturbs_no_capture_and_no_current_context(device) -> None:
    from cuda.bindings import driver

    ac.zeros(4).sync()
    before = driver.cuCtxGetCurrent()
    stream = device.stream()
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    assert driver.cuStreamBeginCapture(stream.handle, mode) == (driver.CUresult.CUDA_SUCCESS,)
    try:
        assert ac.healthy(stuck_s=1e6)
    finally:
        error, _ = driver.cuStreamEndCapture(stream.handle)
    assert error == driver.CUresult.CUDA_SUCCESS
    assert driver.cuCtxGetCurrent() == before


@pytest.mark.parametrize("wrong", [-1, "soon", float("nan")])
def test_what_is_no_time_is_an_error(wrong) -> None:
    with pytest.raises(ac.ArgumentValueError, match="seconds"):
        ac.healthy(stuck_s=wrong)
