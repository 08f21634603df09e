"""Clusters: blocks that run at once, use each other's shared memory, and wait for one another."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import aiocuda as ac

BINS = 96


def zeros(n: int) -> ac.DeviceArray:
    return ac.zeros(n, np.int32).sync()


def on_host(array: ac.DeviceArray) -> np.ndarray:
    return ac.to_host(array).sync()


@pytest.mark.parametrize("cluster", [1, 2, 3, 8])
def test_a_histogram_over_distributed_shared_memory_is_numpys(module, run, cluster):
    x = np.random.default_rng(cluster).integers(0, BINS, 5000).astype(np.int32)

    async def program():
        bins = module.kernel("histogram")(
            *(ac.to_device(x), x.size, ac.zeros(BINS, np.int32), BINS // cluster),
            grid=3 * cluster,
            block=64,
            cluster=cluster,
            shared_memory=4 * BINS // cluster,
        )
        return np.array(await ac.to_host(bins))

    assert np.array_equal(run(program), np.bincount(x, minlength=BINS))


def test_blocks_of_a_square_cluster_add_up_their_shared_variables(module):
    x = np.random.default_rng(1).standard_normal((4, 6, 32))
    out = module.kernel("total")(ac.to_device(x.ravel()), ac.zeros(6, np.float64), grid=(6, 4), block=32)
    sums = x.sum(axis=2).reshape(2, 2, 3, 2).sum(axis=(1, 3))
    assert np.allclose(ac.to_host(out).sync(), sums.ravel(), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_extents_of_clusters_may_be_a_templates(module, size):
    out = module.kernel(f"sizes<{size}>")(ac.zeros(8, np.uint32), grid=8, block=32)
    assert on_host(out.sync()).tolist() == [size] * 8


@pytest.mark.parametrize("cluster", [(2, 1, 1), (1, 2, 2), (3, 1, 2)])
def test_a_block_knows_its_place_in_the_cluster_and_that_of_the_cluster(module, cluster):
    grid = (6, 4, 2)
    out = module.kernel("places")(ac.zeros(28 * 48, np.uint32), grid=grid, block=32, cluster=cluster)
    found = on_host(out.sync()).reshape(48, 28)
    expected = []
    for z, y, x in itertools.product(*map(range, reversed(grid))):
        block = (x, y, z)
        inside = [at % of for at, of in zip(block, cluster, strict=True)]
        cluster_index = [at // of for at, of in zip(block, cluster, strict=True)]
        clusters = [n // of for n, of in zip(grid, cluster, strict=True)]
        rank = inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2])
        expected.append([*inside, *cluster, *cluster_index, *clusters, rank, int(np.prod(cluster))])
    assert np.array_equal(found[:, :14], expected)
    assert np.array_equal(found[:, 14:], expected)


@pytest.mark.parametrize("cluster", [2, 4])
def test_inline_ptx_reaches_the_shared_memory_and_the_mbarrier_of_another_block(module, cluster):
    x = np.arange(2 * cluster, dtype=np.int32) + 100
    out, ranks = zeros(x.size), ac.zeros(x.size, np.uint32).sync()
    module.kernel("ring")(ac.to_device(x), out, ranks, grid=x.size, block=32, cluster=cluster).sync()
    assert on_host(out).tolist() == np.roll(x.reshape(2, cluster), 1, axis=1).ravel().tolist()
    assert on_host(ranks).tolist() == [(i + 1) % cluster for i in range(cluster)] * 2


def test_asynchronous_stores_into_another_block_tell_its_mbarrier(module):
    x = np.arange(6, dtype=np.int32) + 50
    out = zeros(12)
    module.kernel("stores")(ac.to_device(x), out, grid=6, block=32, cluster=3).sync()
    from_before = np.roll(x.reshape(2, 3), 1, axis=1).ravel()
    assert on_host(out).reshape(6, 2).tolist() == np.stack([from_before, from_before + 1000], axis=1).tolist()


def test_the_blocks_of_a_cluster_run_at_the_same_time(module, run):
    async def program():
        turns = module.kernel("ping_pong")(ac.zeros(1, np.int32), 20, grid=2, block=32, cluster=2)
        return (await ac.to_host(turns)).tolist()

    assert run(program) == [40]


def test_threads_arrive_and_wait_by_themselves_and_those_that_return_are_not_waited_for(module):
    rounds = 5
    out = module.kernel("split")(ac.zeros(6, np.int32), rounds, grid=6, block=64, cluster=3)
    sums = [sum(i + block // 3 * 3 + (block + 1) % 3 for i in range(rounds)) for block in range(6)]
    assert on_host(out.sync()).tolist() == sums


def test_blocks_see_what_others_of_the_cluster_wrote_into_global_memory(module):
    x = np.arange(16, dtype=np.int32)
    out = zeros(16)
    module.kernel("through_global")(ac.to_device(x), ac.zeros(16, np.int32), out, grid=16, block=64, cluster=4).sync()
    assert on_host(out).tolist() == [i ^ 1 for i in range(16)]


def test_a_cooperative_grid_may_be_in_clusters(module):
    out = zeros(4)
    module.kernel("grid_of_clusters")(ac.zeros(4, np.int32), out, grid=4, block=32, cluster=2, cooperative=True).sync()
    assert on_host(out).tolist() == [10] * 4


def test_a_graph_replays_a_launch_in_clusters(module):
    x = np.array([1, 3, 3, 95], np.int32)
    bins = zeros(BINS)
    launch = module.kernel("histogram")(
        *(ac.to_device(x).sync(), 4, bins, BINS // 2), grid=2, block=32, cluster=2, shared_memory=2 * BINS
    )
    with launch.graph() as graph:
        for _ in range(3):
            graph.launch().sync()
    assert np.array_equal(on_host(bins), 3 * np.bincount(x, minlength=BINS))
