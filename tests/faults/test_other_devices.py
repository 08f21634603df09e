"""Work that waits for another device ends with that one's error where it is lost, and never with what is not there."""

from __future__ import annotations

import pytest

LOOPS = ["asyncio", "uvloop", "trio"]
PROGRAM = """
import anyio
async def main():
    with ac.use(1):
        well = ac.full(4, 41, np.int32, device=1)
        await well
    bad = illegal()
    try:  # where the fault is known before all is submitted, the submission itself is refused
        print("read", (await {how}).tolist())
    except ac.DeviceLostError as error:
        print("lost", error.device)
    with ac.use(1):
        print((await ac.to_host(k["increment"](well, grid=1, block=1))).tolist()[0])
options = dict(backend="trio") if "{loop}" == "trio" else dict(
    backend="asyncio", backend_options={{"use_uvloop": "{loop}" == "uvloop"}})
anyio.run(main, **options)
"""


@pytest.mark.emulated_only  # NVIDIA's driver answers for all devices of a process once one has had a fault
@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "how",
    [
        "ac.to_host(bad.to(1))",
        "ac.to_host(k['increment'](bad.to(1), grid=1, block=1))",
        "ac.to_host(bad.to(1)).submit()",
    ],
)
def test_a_read_across_devices_ends_with_the_loss(broken, loop, how):
    out = broken(PROGRAM.format(loop=loop, how=how))
    assert out.splitlines()[-3:-1] == ["lost device 0", "42"]


@pytest.mark.emulated_only
@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("build", ["ac.to_host(bad.to(1))", "ac.copy(well, bad)"])
def test_work_that_the_other_device_s_loss_refuses_names_that_device(broken, build):
    out = broken(
        f"""
        from aiocuda._driver import runtime
        well, bad = ac.zeros(4, np.int32, device=1).sync(), ac.zeros(4, np.int32, device=0).sync()
        stream = ac.Device(0).stream()
        with ac.use(stream):
            latch = Latch()
            faulty = illegal(bad).submit()
            before = ac.dup(bad).on(ac.Device(0).stream()).submit()  # has the stream marked
        latch.release()
        while not runtime.has_failed(0, 700):
            pass  # nobody has heard of it yet
        try:
            with ac.use(1):
                {build}.sync()
        except ac.DeviceLostError as error:
            print(error.device, error.is_earlier)
        with ac.use(1):
            print(ac.to_host(k["increment"](well, grid=1, block=1)).sync().tolist())
        """
    )
    assert out.splitlines()[:-1] == ["device 0 False", "[1, 0, 0, 0]"]
