"""Clusters under all checks of the emulated driver: correct kernels are silent, and bugs are found at their lines.

What breaks a context is here, too.
Each program has a process of its own, because the checks are chosen when the driver starts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.emulated_only

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "kernels.cu"
PRELUDE = f"""
    import numpy as np
    import aiocuda as ac
    module = ac.Module.from_source(open({str(SOURCE)!r}).read(), name="kernels.cu")
"""
CHECKS = {"AIOCUDA_EMULATOR_CHECK": "memory,races,init,sync"}


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line)


def test_correct_kernels_are_not_reported(in_process):
    done = in_process(
        PRELUDE
        + """
    x = np.random.default_rng(0).integers(0, 96, 2000).astype(np.int32)
    bins = ac.zeros(96, np.int32).sync()
    for cluster in (1, 2, 3):
        module.kernel("histogram")(ac.to_device(x), x.size, bins, 96 // cluster, grid=2 * cluster, block=64,
                                   cluster=cluster, shared_memory=4 * 96 // cluster).sync()
    assert np.array_equal(ac.to_host(bins).sync(), 3 * np.bincount(x, minlength=96))
    module.kernel("total")(ac.ones(24 * 32, np.float64), ac.zeros(6, np.float64), grid=(6, 4), block=32).sync()
    ints = lambda n: ac.zeros(n, np.int32)
    module.kernel("ring")(ac.ones(8, np.int32), ints(8), ac.zeros(8, np.uint32), grid=8, block=32, cluster=4).sync()
    module.kernel("stores")(ac.ones(6, np.int32), ints(12), grid=6, block=32, cluster=3).sync()
    module.kernel("ping_pong")(ints(1), 5, grid=2, block=32, cluster=2).sync()
    module.kernel("split")(ints(6), 5, grid=6, block=64, cluster=3).sync()
    module.kernel("through_global")(ac.ones(16, np.int32), ints(16), ints(16), grid=16, block=64, cluster=4).sync()
    module.kernel("grid_of_clusters")(ints(4), ints(4), grid=4, block=32, cluster=2, cooperative=True).sync()
    print("done")
    """,
        **CHECKS,
    )
    assert done.stdout == "done\n"
    assert done.stderr == ""


def test_bugs_between_the_blocks_of_a_cluster_are_found_at_their_lines(in_process):
    done = in_process(
        PRELUDE
        + """
    module.kernel("race")(ac.zeros(2, np.int32), grid=2, block=32, cluster=2).sync()
    module.kernel("outside")(ac.zeros(2, np.int32), grid=2, block=32, cluster=2).sync()
    """,
        **CHECKS,
    )
    written, read = line_of("map_shared_rank(&value, 1) = 7"), line_of("out[0] = value")
    races = [line for line in done.stderr.splitlines() if "check of races" in line]
    assert len(races) == 1, done.stderr
    assert f"kernels.cu:{written}" in races[0]
    assert f"kernels.cu:{read}" in races[0]
    assert f"kernels.cu:{line_of('= theirs[7]')}" in next(
        line for line in done.stderr.splitlines() if "which nobody has written" in line
    )
    overrun = next(line for line in done.stderr.splitlines() if "outside of shared memory" in line)
    assert f"kernels.cu:{line_of('theirs[8] = 1')}" in overrun
    assert "offset 32 of the shared variable" in overrun


@pytest.mark.parametrize("polls", [0, 1])
def test_a_block_that_fails_leaves_no_other_one_waiting(in_process, polls):
    done = in_process(
        PRELUDE
        + f"""
    try:
        module.kernel("fails")(ac.zeros(1, np.int32), {polls}, grid=8, block=32, cluster=4).sync()
    except ac.errors.DeviceLostError as error:
        print(error)
    """
    )
    assert "CUDA_ERROR_ASSERT" in done.stdout
    assert "is lost with CUDA_ERROR_ASSERT" in done.stderr


def test_a_block_that_the_cluster_does_not_have_is_an_illegal_address(in_process):
    done = in_process(
        PRELUDE
        + """
    try:
        module.kernel("no_such_block")(ac.zeros(2, np.int32), grid=2, block=32, cluster=2).sync()
    except ac.errors.DeviceLostError as error:
        print(error)
    """
    )
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout
    assert "a block that the cluster does not have" in done.stderr
