"""The limits of a device for a kernel: attributes, occupancy, and launches that ask for more than there is."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256) narrow(int* x) { x[threadIdx.x] = 1; }
extern "C" __global__ void plain(int* x) { x[threadIdx.x] = 1; }
extern "C" __global__ void shared(int* x) {
    __shared__ int kept[4096];
    extern __shared__ int more[];
    kept[threadIdx.x] = 3;
    more[threadIdx.x] = 4;
    __syncthreads();
    x[threadIdx.x] = kept[threadIdx.x ^ 1] + more[threadIdx.x ^ 1];
}
"""
STATIC = 4 * 4096


@pytest.fixture(scope="module")
def module() -> ac.Module:
    return ac.Module.from_source(SOURCE)


@pytest.fixture
def x() -> ac.DeviceArray:
    return ac.zeros(1024, np.int32).sync()


def test_attributes_are_the_compilers_and_the_devices(module):
    found = module.kernel("shared").attributes()
    assert found.shared_bytes >= STATIC
    assert found.max_threads_per_block == 1024
    assert found.registers > 0
    assert found.binary_version >= 75
    assert found.max_dynamic_shared_bytes > 0
    assert module.kernel("narrow").attributes(0).max_threads_per_block == 256


def test_static_and_dynamic_shared_memory_together_may_be_more_than_48_kib(module, x):
    op = module.kernel("shared")(x, grid=1, block=64, shared_memory=44 * 1024)
    assert ac.to_host(op).sync()[:64].tolist() == [7] * 64


def test_attributes_that_are_set_are_the_drivers(module):
    kernel = module.kernel("plain")
    kernel.set_attributes(max_dynamic_shared_bytes=100 * 1024, preferred_carveout=50, cache="shared")
    found = kernel.attributes()
    assert (found.max_dynamic_shared_bytes, found.preferred_carveout) == (100 * 1024, 50)
    kernel.set_attributes(preferred_carveout=-1)
    assert kernel.attributes().preferred_carveout == -1
    assert kernel.attributes().max_dynamic_shared_bytes == 100 * 1024


def test_a_launch_raises_the_shared_memory_that_was_set_lower(x):
    kernel = ac.Module.from_source(SOURCE).kernel("plain")
    for size in (1024, 2048):
        kernel.set_attributes(max_dynamic_shared_bytes=size)
        kernel(x, grid=1, block=32, shared_memory=40 * 1024).sync()
        assert kernel.attributes().max_dynamic_shared_bytes == 40 * 1024


def test_kernels_of_one_function_do_not_take_each_others_shared_memory(x):
    module = ac.Module.from_source(SOURCE)
    first, second = module.kernel("plain"), module.kernel("plain")
    for kernel, size in [(first, 1), (second, 1), (first, 100), (second, 60), (first, 100), (second, 80), (first, 90)]:
        kernel(x, grid=1, block=32, shared_memory=size * 1024).sync()
    first.set_attributes(max_dynamic_shared_bytes=1024)
    second(x, grid=1, block=32, shared_memory=60 * 1024).sync()


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"max_dynamic_shared_bytes": 1 << 20}, ac.LaunchError, r"1048576 bytes.*device 0.*0 to \d+"),
        ({"max_dynamic_shared_bytes": -1}, ac.LaunchError, "-1 bytes"),
        ({"preferred_carveout": 101}, ac.ArgumentValueError, "101: a percentage"),
        ({"cache": "L7"}, ac.ArgumentValueError, "'L7': 'shared', 'l1'"),
        ({"max_dynamic_shared_bytes": 1.5}, ac.ArgumentTypeError, "max_dynamic_shared_bytes=1.5: a whole number"),
        ({"preferred_carveout": "50"}, ac.ArgumentTypeError, "preferred_carveout='50': a whole number"),
    ],
)
def test_attributes_that_cannot_be_are_errors(module, wrong, error, message):
    with pytest.raises(error, match=message):
        module.kernel("plain").set_attributes(**wrong)


def test_occupancy_is_of_the_block_that_was_asked_about(module):
    kernel = module.kernel("plain")
    few, many = kernel.occupancy(32), kernel.occupancy((32, 32))
    assert (few.block, many.block) == (32, 1024)
    assert few.active_blocks > many.active_blocks >= 1
    assert many.fraction == many.active_blocks * 1024 / 2048
    assert many.grid % many.active_blocks == 0


def test_shared_memory_leaves_fewer_blocks(module):
    kernel = module.kernel("plain")
    free, full = kernel.occupancy(64), kernel.occupancy(64, shared_memory=100 * 1024)
    assert full.active_blocks == 2 < free.active_blocks
    assert full.available_shared_bytes >= 100 * 1024


def test_the_suggested_block_is_one_that_a_launch_takes(module, x):
    kernel = module.kernel("narrow")
    found = kernel.occupancy()
    assert 32 <= found.block <= 256
    kernel(x, grid=1, block=found.block).sync()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"block": 512}, "512 threads; on device 0 this kernel takes 1 to 256"),
        ({"block": 0}, "0 threads"),
        ({"block": (-8, -8)}, "0 threads"),
        ({"block": 32, "shared_memory": 1 << 20}, "1048576 bytes of dynamic shared memory"),
        ({"block": 32, "shared_memory": -1}, "-1 bytes of dynamic shared memory"),
    ],
)
def test_occupancy_of_what_cannot_be_launched_is_an_error(module, asked, message):
    with pytest.raises(ac.LaunchError, match=message):
        module.kernel("narrow").occupancy(**asked)


@pytest.mark.parametrize("asked", [{"block": 8.5}, {"block": (8, "8")}, {"block": 8, "shared_memory": 1.5}])
def test_occupancy_is_of_whole_numbers(module, asked):
    with pytest.raises(ac.ArgumentTypeError, match="a whole number is wanted"):
        module.kernel("narrow").occupancy(**asked)


def test_more_shared_memory_than_the_device_has_is_an_error_that_says_how_much(module, x, run):
    kernel = module.kernel("shared")
    most = kernel.occupancy(64).available_shared_bytes

    async def program():
        with pytest.raises(ac.LaunchError, match=rf"shared: shared_memory={1 << 20} bytes; on device 0 .* at most \d+"):
            await kernel(x, grid=1, block=64, shared_memory=1 << 20)
        await kernel(x, grid=1, block=64, shared_memory=256)
        return True

    assert most > 0
    assert run(program)


def test_the_most_shared_memory_is_what_the_error_says(module, x):
    kernel = module.kernel("shared")
    with pytest.raises(ac.LaunchError, match="at most") as caught:
        kernel(x, grid=1, block=64, shared_memory=1 << 20).sync()
    most = int(str(caught.value).partition("at most ")[2].split()[0])
    kernel(x, grid=1, block=64, shared_memory=most).sync()
    with pytest.raises(ac.LaunchError, match=f"shared_memory={most + 1} bytes"):
        kernel(x, grid=1, block=64, shared_memory=most + 1).sync()


def test_a_block_larger_than_the_kernel_was_compiled_for_is_an_error_before_the_launch(x):
    """The source does not show the bound: a macro gives it."""
    source = SOURCE.replace("__launch_bounds__(256)", "BOUND")
    kernel = ac.Module.from_source(f"#define BOUND __launch_bounds__(128)\n{source}").kernel("narrow")
    with pytest.raises(ac.LaunchError, match=r"256 threads; on device 0 this kernel takes at most 128 in a block"):
        kernel(x, grid=1, block=256).sync()
    kernel(x, grid=1, block=128).sync()


def test_a_cooperative_launch_of_more_blocks_than_fit_is_an_error_that_says_how_many(module, x):
    kernel = module.kernel("plain")
    most = kernel.occupancy(1024).grid
    with pytest.raises(ac.LaunchError, match=rf"needs all {most + 1} blocks at once; on device 0 {most} of them fit"):
        kernel(x, grid=most + 1, block=1024, cooperative=True).sync()
    kernel(x, grid=1, block=1024, cooperative=True).sync()


def test_a_cooperative_launch_in_a_graph_is_checked_too(module, x):
    kernel = module.kernel("plain")
    with pytest.raises(ac.LaunchError, match="cooperative=True needs all"):
        kernel(x, grid=1 << 20, block=1024, cooperative=True).graph()


def test_a_cluster_of_more_than_eight_blocks_is_an_error(module, x):
    with pytest.raises(ac.LaunchError, match=r"cluster=\(16, 1, 1\)"):
        module.kernel("plain")(x, grid=16, block=32, cluster=16).sync()


def test_a_kernel_without_a_thought_of_clusters_runs_in_them(module, x):
    op = module.kernel("plain")(x, grid=4, block=32, cluster=2)
    assert ac.to_host(op).sync()[:32].tolist() == [1] * 32


def test_other_work_goes_on_after_a_launch_that_was_too_large(module, x):
    kernel = module.kernel("plain")
    with pytest.raises(
        ac.LaunchError, match=r"shared_memory=1048576 bytes; on device \d a block of this kernel can have at most"
    ):
        kernel(x, grid=1, block=32, shared_memory=1 << 20).sync()
    assert ac.to_host(kernel(x, grid=1, block=32)).sync()[0] == 1
