"""Loaded images: who shares one, what keeps it loaded, and when it is unloaded."""

from __future__ import annotations

import gc
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._driver.compiler import Image, Source, compile_sources
from aiocuda._driver.image_variables import has_variables

SOURCE = 'extern "C" __global__ void seven(int* x) { x[threadIdx.x] = 7; }'
# Each module of it has an image of its own, and the compiler runs once for all of them.
COUNTING = r"""
__device__ int count;
__constant__ int step;
extern "C" __global__ void tick(int* x) { count += 1; x[0] = count; }
extern "C" __global__ void stepped(int* x) { x[0] += step; }
"""
TEMPLATE = "template <int N> __global__ void fill_with(int* x) { x[threadIdx.x] = N; }"


def loaded() -> int:
    """Return how many images are loaded, once what can be unloaded was."""
    gc.collect()
    _native.collect()
    return _native.image_counts()[0]


@pytest.fixture
def more(latches: Any) -> Callable[[], int]:
    """Return how many images are loaded beside those that there were before the test."""
    latch = latches()
    latch.hold()  # this loads the kernels of other tests, too
    latch.close()
    for device in ac.devices():
        device.synchronize().sync()
    before = loaded()
    return lambda: loaded() - before


@pytest.fixture
def x() -> ac.DeviceArray:
    return ac.zeros(4, np.int32).sync()


def compile_everywhere(kernel: ac.Kernel) -> int:
    """Load a kernel on every device, as a latch does; return how many devices there are."""
    for device in ac.devices():
        kernel.compile(device)
    return len(ac.devices())


def read(array: object) -> list[int]:
    return ac.to_host(array).sync().tolist()


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_dropped_kernels_are_unloaded(more, x):
    def make_and_drop() -> None:
        assert read(ac.kernel(COUNTING, "tick")(x, grid=1, block=1))[0] == 1

    make_and_drop()
    before = mappings()
    for _ in range(400):
        make_and_drop()
        assert _native.image_counts()[1] == 0, "it is unloaded at once, as the device has nothing to do"
    assert more() == 0
    assert mappings() <= before + 40  # an image of the emulated driver has five


def test_kernels_of_one_source_share_an_image(more, x):
    kernels = [ac.kernel(SOURCE) for _ in range(2000)]
    before = mappings()
    for kernel in kernels:
        kernel.compile()
    assert more() == 1
    assert mappings() <= before + 40
    assert read(kernels[-1](x, grid=1, block=4)) == [7] * 4
    kernel = kernels[0]
    del kernels[:]
    assert more() == 1
    assert read(kernel(x, grid=1, block=4)) == [7] * 4
    del kernel
    assert more() == 0


def test_an_array_of_a_variable_keeps_its_image_loaded(more):
    module = ac.Module.from_source(COUNTING)
    count = module.variable("count")
    part = count.reshape(1)
    del module, count
    assert more() == 1
    assert ac.to_host(part).sync().tolist() == [0]
    ac.Device(0).synchronize().sync()
    del part
    assert more() == 0


def test_other_options_are_another_image(more):
    kernels = [ac.kernel(SOURCE, options=options) for options in ((), ("-DX=1",))]
    for kernel in kernels:
        kernel.compile()
    # Images whose code is the same are one, whatever made them.
    codes = {compile_sources([Source("seven.cu", SOURCE)], options, 0) for options in ((), ("-DX=1",))}
    assert more() == len(codes)


@pytest.mark.needs_devices(2)
def test_each_device_has_its_own(more):
    kernel, other = ac.kernel(SOURCE), ac.kernel(SOURCE)
    for device in (0, 1):
        kernel.compile(device)
        other.compile(device)
    assert more() == 2
    there = ac.zeros(1, np.int32, device=1).sync()
    assert read(other(there, grid=1, block=1)) == [7]
    del kernel, other
    assert more() == 0


def test_modules_with_variables_have_each_their_own(more, x):
    first, second = (ac.Module.from_source(COUNTING) for _ in range(2))
    ticks = [first.kernel("tick"), first.kernel("tick"), second.kernel("tick")]
    assert [read(tick(x, grid=1, block=1))[0] for tick in ticks] == [1, 2, 1]
    assert more() == 2


@pytest.mark.parametrize(
    ("declared", "body", "expected"),
    [
        ("", "x[0] = 1;", False),
        ("", "__shared__ int s; s = x[0]; x[1] = s;", False),
        ("static const int table[] = {1, 2};", "x[0] = 3 * blockDim.x;", False),
        ("__device__ int d;", "x[0] = d++;", True),
        ("static __device__ int d;", "x[0] = d++;", True),
        ("__constant__ int d;", "x[0] = d;", True),
        ("namespace deep { __device__ int d; }", "x[0] = deep::d++;", True),
        ("template <class T> __device__ T d;", "x[0] = d<int>++;", True),
        ("__device__ int next() { static int calls; return ++calls; }", "x[0] = next();", True),
        ("#define VARIABLE(name) __device__ int name;\nVARIABLE(d)", "x[0] = d++;", True),
    ],
)
def test_what_was_compiled_shows_its_variables(declared, body, expected):
    if "table" in declared and not ac.Device(0).is_emulated:
        pytest.skip("NVRTC keeps the table, which nothing uses, so such an image is not shared there")
    source = f'{declared}\nextern "C" __global__ void k(int* x) {{ {body} }}'
    assert has_variables(compile_sources([Source("k.cu", source)], (), 0)) is expected


@pytest.mark.parametrize("kind", ["cubin", "ptx", "fatbin"])
def test_what_cannot_be_read_is_not_shared(kind):
    assert has_variables(Image("k", kind, b"\x7fELF" + bytes(20)))
    assert has_variables(Image("k", kind, b""))


def test_an_image_stays_until_the_device_has_passed_its_launches(more, x, latch):
    kernel = ac.kernel(SOURCE)
    loaded_images = compile_everywhere(kernel)
    stream = ac.Device(0).stream()
    latch.hold(stream)
    with ac.use(stream):
        future = kernel(x, grid=1, block=4).submit()
    del kernel
    del future
    assert more() == loaded_images
    latch.close()
    stream.synchronize().sync()
    assert read(x) == [7] * 4
    assert more() == 0


def test_unloading_waits_for_what_else_the_device_does(more, x, latch):
    """NVIDIA's driver may wait for the device before it unloads, and a kernel may wait for this thread."""
    kernel = ac.kernel(SOURCE)
    loaded_images = compile_everywhere(kernel)
    with ac.use(ac.Device(0).stream()):
        kernel(x, grid=1, block=4).sync()
    latch.hold(ac.Device(0).stream())
    del kernel
    assert more() == loaded_images
    latch.close()
    assert more() == 0


@pytest.mark.needs_devices(2)
def test_unloading_waits_for_every_device_where_images_are_loaded_on_all(more, latch):
    """The tests ask the driver to load eagerly. It then waits for device 0 to unload what device 1 has used."""
    assert os.environ["CUDA_MODULE_LOADING"] == "EAGER"
    kernel = ac.kernel(SOURCE)
    for device in (0, 1):
        kernel.compile(device)
    latch.hold(ac.Device(0).stream())
    del kernel
    assert more() == 2
    latch.close()
    assert more() == 0


WORKING = r"""
__device__ long long now() { long long ns; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns)); return ns; }
extern "C" __global__ void work(long long ns) { for (long long since = now(); now() - since < ns;) {} }
"""


@pytest.fixture
def never_idle() -> Iterator[None]:
    """Keep device 0 busy: two streams have work all the time.

    The work ends by itself and waits for no thread: the driver waits for it before it loads a kernel, and holds all
    launches up meanwhile.
    """
    working = ac.kernel(WORKING, "work")
    working.compile()
    streams = itertools.cycle([ac.Device(0).stream() for _ in range(2)])
    is_over = threading.Event()

    def submit() -> ac.DeviceFuture[Any]:
        with ac.use(next(streams)):
            return working(2_000_000, grid=1, block=1).submit()

    def work() -> None:
        running = deque(submit() for _ in range(8))
        while not is_over.is_set():
            running.append(submit())
            running.popleft().sync()
        for each in running:
            each.sync()

    worker = threading.Thread(target=work)
    worker.start()
    yield
    is_over.set()
    worker.join()


def test_a_device_that_is_never_idle_does_not_collect_them_for_ever(x, never_idle):
    most = 0
    for _ in range(60):
        ac.kernel(COUNTING, "tick").compile()
        most = max(most, _native.image_counts()[1])
    assert 1 < most <= 17


def test_a_graph_keeps_the_images_of_its_kernels(more, x):
    kernel = ac.kernel(SOURCE)
    graph = kernel(x, grid=1, block=4).graph()
    del kernel
    assert more() == 1
    graph.launch().sync()
    assert read(x) == [7] * 4
    graph.close()
    assert more() == 0


def test_a_closed_graph_keeps_them_until_its_last_launch_has_passed(more, x, latch):
    kernel = ac.kernel(SOURCE)
    loaded_images = compile_everywhere(kernel)
    graph = kernel(x, grid=1, block=4).graph()
    stream = ac.Device(0).stream()
    latch.hold(stream)
    with ac.use(stream):
        future = graph.launch().submit()
    graph.close()
    del kernel, graph, future
    assert more() == loaded_images
    latch.close()
    stream.synchronize().sync()
    assert read(x) == [7] * 4
    assert more() == 0


def test_a_graph_that_is_updated_lets_go_of_what_it_does_not_need(more, x):
    def launch() -> ac.DeviceOp[ac.DeviceArray]:
        return ac.kernel(COUNTING, "tick")(x, grid=1, block=1)

    graph = launch().graph()
    for _ in range(20):
        graph.update(launch())
        graph.launch().sync()
        assert read(x)[0] == 1
    assert more() <= 2  # of the graph as it was made, and of the executable
    del graph
    assert more() == 0


def test_a_compiled_function_keeps_them_until_its_graphs_go(more, x):
    def seven() -> ac.Compiled[[ac.DeviceArray], ac.DeviceArray]:
        kernel = ac.kernel(SOURCE)
        return ac.compile(lambda array: kernel(array, grid=1, block=4))

    compiled = seven()
    assert read(compiled(x)) == [7] * 4
    assert more() == 1
    del compiled
    assert more() == 0


def test_a_constant_keeps_the_image(more, x):
    module = ac.Module.from_source(COUNTING)
    stepped, step = module.kernel("stepped"), module.constant("step")
    del module
    ac.copy(step, np.int32(5)).sync()
    assert read(stepped(x, grid=1, block=1))[0] == 5
    del stepped
    assert more() == 1
    assert read(step) == 5
    view = step.reshape((1,))
    del step
    assert more() == 1
    del view
    assert more() == 0


def test_a_copy_to_a_constant_that_was_dropped_keeps_the_image(more, latch):
    step = ac.Module.from_source(COUNTING).constant("step")
    stream = ac.Device(0).stream()
    latch.hold(stream)
    with ac.use(stream):
        ac.fill(step, 5).submit()
    del step
    assert more() == 1
    latch.close()
    stream.synchronize().sync()
    assert more() == 0


def test_attributes_stay_with_the_kernels_of_their_module(x):
    first, second = ac.kernel(SOURCE), ac.kernel(SOURCE)
    graph = first(x, grid=1, block=4).graph()
    before = second.attributes()
    first.set_attributes(max_dynamic_shared_bytes=60 << 10, preferred_carveout=50, cache="l1")
    found = first.attributes()
    assert (found.max_dynamic_shared_bytes, found.preferred_carveout) == (60 << 10, 50)
    assert second.attributes() == before
    assert ac.kernel(SOURCE).attributes() == before
    for each in (first, second):
        ac.fill(x, 0).sync()
        assert read(each(x, grid=1, block=4, shared_memory=50 << 10)) == [7] * 4
    assert second.attributes().max_dynamic_shared_bytes == 50 << 10
    assert first.attributes() == found
    first.set_attributes(max_dynamic_shared_bytes=1024)
    assert read(second(x, grid=1, block=4, shared_memory=50 << 10)) == [7] * 4
    ac.fill(x, 0).sync()
    graph.launch().sync()
    assert read(x) == [7] * 4


def test_attributes_are_those_of_all_kernels_of_one_function_of_a_module(more):
    module = ac.Module.from_source(SOURCE)
    first, second = module.kernel(), module.kernel()
    second.compile()
    first.set_attributes(preferred_carveout=50)
    assert second.attributes().preferred_carveout == 50
    assert module.kernel().attributes().preferred_carveout == 50
    assert more() == 1  # who has an image alone needs no other


def test_setting_attributes_does_not_lose_a_modules_variables(x):
    tick = ac.kernel(COUNTING, "tick")
    assert read(tick(x, grid=1, block=1))[0] == 1
    tick.set_attributes(preferred_carveout=50)
    assert read(tick(x, grid=1, block=1))[0] == 2


def test_launches_that_are_in_flight_while_attributes_move_them_to_another_image(more, x, latch):
    kernel, other = ac.kernel(SOURCE), ac.kernel(SOURCE)
    loaded_images = compile_everywhere(kernel)
    compile_everywhere(other)
    if not x.device.is_emulated:
        pytest.skip("loading waits for the latch")
    stream = ac.Device(0).stream()
    latch.hold(stream)
    with ac.use(stream):
        kernel(x, grid=1, block=4).submit()
    kernel.set_attributes(cache="shared")
    del other
    assert more() == loaded_images + 1
    del kernel
    assert more() == loaded_images + 1
    latch.close()
    stream.synchronize().sync()
    assert read(x) == [7] * 4
    assert more() == 0


def test_instances_of_a_template_are_unloaded(more, x):
    kernels = [ac.kernel(TEMPLATE, f"fill_with<{n}>") for n in (1, 2)]
    assert [read(kernel(x, grid=1, block=4))[0] for kernel in kernels] == [1, 2]
    del kernels
    assert more() == 0


def test_threads_drop_the_last_kernels_while_others_submit(more):
    ac.kernel(COUNTING, "tick").compile()
    failures: list[BaseException] = []

    def make_and_drop() -> None:
        try:
            own = ac.zeros(1, np.int32).sync()
            for _ in range(40):
                assert read(ac.kernel(COUNTING, "tick")(own, grid=1, block=1))[0] == 1
                assert read(ac.kernel(SOURCE)(own, grid=1, block=1))[0] == 7
        except BaseException as error:  # noqa: BLE001 - shown below, where pytest sees it
            failures.append(error)

    threads = [threading.Thread(target=make_and_drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert more() == 0


def test_kernels_are_dropped_in_the_middle_of_a_submission(more, x, run):
    """A function of `then` runs within a submission: what it drops is unloaded behind that."""

    async def program() -> list[int]:
        held = [ac.kernel(SOURCE)]
        await held[0](x, grid=1, block=4)

        def drop(array: ac.DeviceArray) -> ac.DeviceArray:
            held.clear()
            gc.collect()
            assert _native.image_counts()[1] == 1
            return array

        return (await ac.to_host(ac.value(x).then(drop))).tolist()

    assert run(program) == [7] * 4
    assert more() == 0


def test_memory_of_a_lost_devices_images_is_let_go_of_quietly(in_process):
    done = in_process(
        f"""
        import gc
        import numpy as np
        import aiocuda as ac
        from aiocuda import _native
        kernel = ac.kernel({SOURCE!r})
        kernel.compile()
        broken = ac.kernel('extern "C" __global__ void broken(int* x) {{ __trap(); }}')
        try:
            broken(ac.zeros(1, np.int32), threads=1).sync()
        except ac.DeviceLostError:
            print("lost")
        del kernel
        gc.collect()
        _native.collect()
        print(_native.image_counts())
        """
    )
    assert (done.returncode, done.stdout.split("\n")[0]) == (0, "lost"), done.stderr
    assert done.stdout.splitlines()[1].endswith(", 0)"), done.stdout


@pytest.mark.emulated_only
def test_the_process_ends_with_work_of_a_dropped_kernel_in_flight(in_process):
    done = in_process(
        f"""
        import numpy as np
        import aiocuda as ac
        hold = ac.kernel('extern "C" __global__ void hold(unsigned long long f) {{ while (!*(volatile int*)f) {{}} }}')
        flag = ac.empty_host(1, np.int32).sync()
        flag.numpy()[0] = 0
        kernel = ac.kernel({SOURCE!r})
        kernel.compile()
        with ac.use(ac.Device(0).stream()):
            hold(flag.address, grid=1, block=1).submit()
            kernel(ac.zeros(4, np.int32), grid=1, block=4).submit()
        del kernel, hold
        """
    )
    assert done.returncode == 0, done.stderr
