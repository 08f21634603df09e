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
    across = {how}
    try:
        print("read", (await across).tolist())
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
