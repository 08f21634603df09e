"""Cooperative launches: the blocks of a grid run at once and wait for one another."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac

SOURCE = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void total(const int* x, int* part, int* out, int n) {
    cg::grid_group grid = cg::this_grid();
    int mine = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) mine += x[i];
    atomicAdd(&part[blockIdx.x], mine);
    grid.sync();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (unsigned block = 0; block < gridDim.x; ++block) sum += part[block];
        out[blockIdx.x] = sum;
    }
}
extern "C" __global__ void rotate(int* x, int rounds) {
    cg::grid_group grid = cg::this_grid();
    for (int round = 0; round < rounds; ++round) {
        int next = x[(blockIdx.x + 1) % gridDim.x];
        grid.sync();
        x[blockIdx.x] = next;
        grid.sync();
    }
}
extern "C" __global__ void fails(int* flag, int polls) {
    cg::grid_group grid = cg::this_grid();
    if (blockIdx.x == 1) __trap();
    if (polls) {
        while (atomicAdd(flag, 0) == 0) {
        }
    }
    grid.sync();
}
extern "C" __global__ void valid(int* out) { out[0] = cg::this_grid().is_valid(); }
"""
BLOCKS = 6


@pytest.fixture(scope="module")
def module() -> ac.Module:
    return ac.Module.from_source(SOURCE)


def test_blocks_see_what_others_wrote_before_they_met(module, run):
    total = module.kernel("total")
    x = np.arange(1000, dtype=np.int32)

    async def program():
        out = total(
            *(ac.to_device(x), ac.zeros(BLOCKS, np.int32), ac.zeros(BLOCKS, np.int32), 1000),
            grid=BLOCKS,
            block=32,
            cooperative=True,
        )
        return (await ac.to_host(out.last())).tolist()

    assert run(program) == [x.sum()] * BLOCKS


def test_blocks_meet_as_often_as_they_like(module):
    rotate = module.kernel("rotate")
    op = rotate(ac.arange(BLOCKS, dtype=np.int32), 7, grid=BLOCKS, block=1, cooperative=True)
    assert ac.to_host(op).sync().tolist() == [(i + 7) % BLOCKS for i in range(BLOCKS)]


def test_cooperative_launches_on_several_streams_do_not_mix(module, device):
    rotate = module.kernel("rotate")
    rotate.compile()
    pending = []
    for shift in range(4):
        with ac.use(device.stream()):
            op = rotate(ac.arange(BLOCKS, dtype=np.int32), shift, grid=BLOCKS, block=1, cooperative=True)
            pending.append(ac.to_host(op).submit())
    assert [each.sync().tolist()[0] for each in pending] == [0, 1, 2, 3]


def test_a_cooperative_launch_in_a_graph_meets_too(module):
    rotate = module.kernel("rotate")
    x = ac.arange(BLOCKS, dtype=np.int32).sync()
    graph = rotate(x, 1, grid=BLOCKS, block=1, cooperative=True).graph()
    for _ in range(3):
        graph.launch().sync()
    assert ac.to_host(x).sync().tolist() == [(i + 3) % BLOCKS for i in range(BLOCKS)]


# A GPU's kernels say so in other launches too, of one block at least: seen on an H200.
@pytest.mark.parametrize("cooperative", [True, pytest.param(False, marks=pytest.mark.emulated_only)])
def test_a_kernel_can_ask_whether_its_grid_can_meet(module, cooperative: bool):
    op = module.kernel("valid")(ac.zeros(1, np.int32), grid=1, block=1, cooperative=cooperative)
    assert bool(ac.to_host(op).sync()[0]) is cooperative


def test_as_many_blocks_as_occupancy_says_can_meet(module):
    rotate = module.kernel("rotate")
    most = min(rotate.occupancy(256).grid, 64)
    op = rotate(ac.arange(most, dtype=np.int32), 2, grid=most, block=256, cooperative=True)
    assert ac.to_host(op).sync().tolist() == [(i + 2) % most for i in range(most)]


@pytest.mark.emulated_only
def test_a_grid_that_meets_in_a_launch_that_is_not_cooperative_fails_and_says_so(in_process):
    done = in_process(
        f"""
        import numpy as np
        import aiocuda as ac
        rotate = ac.Module.from_source({SOURCE!r}).kernel("rotate")
        try:
            rotate(ac.zeros(2, np.int32), 1, grid=2, block=1).sync()
        except ac.DeviceLostError:
            print("lost")
        """
    )
    assert done.stdout == "lost\n", done.stderr
    assert "grid-wide synchronisation in a launch that is not cooperative" in done.stderr


@pytest.mark.emulated_only
@pytest.mark.parametrize("block", [1, 32])
@pytest.mark.parametrize("polls", [0, 1])
def test_a_block_that_fails_leaves_no_other_one_waiting(in_process, polls: int, block: int):
    done = in_process(
        f"""
        import numpy as np
        import aiocuda as ac
        fails = ac.Module.from_source({SOURCE!r}).kernel("fails")
        try:
            fails(ac.zeros(1, np.int32), {polls}, grid={BLOCKS}, block={block}, cooperative=True).sync()
        except ac.DeviceLostError as error:
            print(error)
        """
    )
    assert "CUDA_ERROR_LAUNCH_FAILED" in done.stdout, done.stderr
    assert "another block" not in done.stderr
