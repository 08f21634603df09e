"""If devices do not reach each other's memory, copies between them go through page-locked memory."""

from __future__ import annotations

import pytest

PROGRAM = """
import aiocuda as ac, numpy as np
x = np.arange(24, dtype=np.float32).reshape(4, 6)
here = ac.to_device(x, 0).sync()
text = here.to(1).explain()
copies = [line for line in text.splitlines() if "copy" in line]
print(len(copies), "page-locked" in copies[0], "page-locked" in copies[-1])
there = here.to(1)
np.testing.assert_array_equal(ac.to_host(there).sync(), x)
np.testing.assert_array_equal(ac.to_host(here[1:3, ::2].to(1)).sync(), x[1:3, ::2])
double = ac.kernel('extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }')
with ac.use(ac.Dataflow(4)):
    chained = double(double(here.to(1), grid=1, block=24).to(0), grid=1, block=24)
    np.testing.assert_array_equal(ac.to_host(chained).sync(), 4 * x)
np.testing.assert_array_equal(ac.to_host(ac.gather(ac.shard(x, [0, 1]), 1)).sync(), x)
from aiocuda._driver.checking import take_race_reports
for device in ac.devices(): device.synchronize().sync()
print(take_race_reports())
"""


@pytest.mark.emulated_only
@pytest.mark.parametrize("peer_access", ["0", "1"])
def test_copies_between_devices(in_process, peer_access):
    done = in_process(
        PROGRAM,
        AIOCUDA_EMULATED_DEVICES="2",
        AIOCUDA_EMULATED_PEER_ACCESS=peer_access,
        AIOCUDA_EMULATOR_CHECK="races",
        AIOCUDA_EMULATOR_SHUFFLE="5",
    )
    assert done.returncode == 0, done.stderr
    expected = "2 True True" if peer_access == "0" else "1 False False"
    assert done.stdout.splitlines() == [expected, "[]"]
