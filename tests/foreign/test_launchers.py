"""Kernels of languages as operations, beside launchers that find their stream as the real ones do."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from framework import Framework
from launchers import LANGUAGES, adds, installed, run_program
from torch_like import close

import aiocuda as ac
from aiocuda._interop.pointers import Written

N = 64


@pytest.fixture
def framework() -> Iterator[Framework]:
    made = Framework()
    yield made
    close(made)


@pytest.fixture(params=LANGUAGES)
def language(request, framework) -> Iterator[Any]:
    with installed(framework, request.param) as made:
        yield made[request.param]


@pytest.fixture
def triton(framework) -> Iterator[Any]:
    with installed(framework, "triton") as made:
        yield made["triton"]


def full(value: int) -> ac.DeviceArray:
    return ac.full(N, value, np.int32).sync(60)


def host(x: Any) -> list[int]:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60).tolist()


def test_a_launch_goes_to_the_operations_stream_and_yields_what_it_writes(language, device):
    x, y, stream = full(1), full(2), device.stream()
    assert language.kernel()(x, y, N).sync_on(stream, 60) is x
    assert host(x) == [3] * N
    assert language.launched.streams == [stream.handle]


def test_a_launch_is_awaited(language, run):
    async def main() -> None:
        x: Any = full(0)
        launch = language.kernel()
        for _ in range(5):
            x = launch(x, full(2), N)
        assert (await ac.to_host(x)).tolist() == [10] * N

    run(main)


def test_a_launch_is_ordered_by_what_it_reads_and_writes(language, latch, device, settle):
    held, x, y = device.stream(), full(1), full(2)
    latch.hold(held)
    ac.fill(y, 7).on(held).submit()
    added = language.kernel()(x, y, N).on(device.stream())
    read = ac.dup(x).on(device.stream())
    pending = [added.submit(), read.submit(), ac.fill(y, 50).on(device.stream()).submit()]
    settle()
    assert [each.done() for each in pending] == [False] * 3
    latch.release()
    assert host(read) == [8] * N
    assert host(y) == [50] * N


def test_launches_that_read_the_same_overlap(language, latch, device):
    held, x, y, z = device.stream(), full(1), full(2), full(3)
    launch = language.kernel()
    launch(x, y, N).sync(60)
    latch.hold(held)
    first = launch(x, y, N).on(held)
    first.submit()
    assert host(launch(z, y, N).on(device.stream())) == [5] * N
    latch.release()
    assert host(first) == [5] * N


def test_a_compiled_function_holds_launches(language):
    launch = language.kernel()

    @ac.compile
    def compiled(x: Any) -> Any:
        y = ac.full(N, 10, np.int32)
        return launch(y, x, N)

    assert [host(compiled(full(value))) for value in (0, 5, 7)] == [[10] * N, [15] * N, [17] * N]
    assert compiled.cache_info().misses == 1


def test_a_launch_comes_after_what_the_languages_stream_holds(language, framework, latch, device, settle):
    if "cuda.tile" in language.modules:
        pytest.skip("cuTile has no stream of its own")
    gate = device.stream()
    latch.hold(gate)
    framework.order(framework.default_stream, gate.handle)
    future = language.kernel()(full(1), full(2), N).submit()
    settle()
    assert not future.done()
    latch.release()
    future.sync(60)


def test_the_launch_options_of_the_languages_arrive(framework):
    expected = {
        "triton": ((1,), {"num_warps": 4}),
        "cupy": ((1,), (N,), 16),
        "cutile": (1,),
        "warp": (64, False),
        "numba": (2, 32, 0),
    }
    with installed(framework) as languages:
        for name, each in languages.items():
            each.kernel()(full(1), full(2), N).sync(60)
            assert each.launched.options == [expected[name]]


def test_memory_of_the_host_is_an_error(language):
    with pytest.raises(ac.ArgumentTypeError, match=r"'y' is memory of the host, .* give to_device\("):
        language.kernel()(full(1), np.zeros(N, np.int32), N)
    pinned = ac.empty_host(N, np.int32).sync(60)
    with pytest.raises(ac.ArgumentTypeError, match=r"gets arrays on a device; .* is none"):
        language.kernel()(full(1), pinned, N).sync(60)
    assert language.launched.streams == []


@pytest.mark.needs_devices(2)
def test_an_array_of_another_device_is_an_error(language):
    there = ac.full(N, 2, np.int32, device=1).sync(60)
    with pytest.raises(ac.DeviceMismatchError, match="device 1"):
        language.kernel()(full(1), there, N).sync(60)
    assert language.launched.streams == []


# --- tensors as arguments --------------------------------------------------------------------------------------------


def test_tensors_are_arguments_ordered_both_ways(language, torch, latch, device):
    gate = device.stream()
    x, y = torch.tensor(1, N), torch.tensor(2, N)
    launch = language.kernel()
    launch(x, y, N).sync(60)
    latch.hold(gate)
    torch.order(torch.current, gate.handle)
    y.fill_(7)
    launch(x, y, N).submit()
    y.fill_(50)
    y.copy_(x)
    latch.release()
    assert y.tolist() == [10] * N
    assert (x._version, y._version) == (2, 0)  # as autograd counts what aiocuda wrote


def test_a_tensor_that_needs_a_gradient_is_an_error(language, torch):
    x = torch.tensor(1, N)
    x.requires_grad = True
    with pytest.raises(ac.ArgumentTypeError, match="requires a gradient"):
        language.kernel()(full(1), x, N)


# --- Triton's driver, decorators and representation ------------------------------------------------------------------


def test_tritons_own_launches_go_where_they_went(triton, framework, device):
    stream = device.stream()
    seen = []

    def grid(given: Any) -> Any:
        seen.append(triton.driver.get_current_stream(0))
        return (1,)

    from aiocuda.interop.triton import kernel

    made = triton.JITFunction(adds)
    x = full(1)
    kernel(made, writes=["x"])[grid](x, full(2)).sync_on(stream, 60)
    assert seen == [stream.handle]
    assert triton.driver.get_current_stream(0) == framework.default_stream


def test_another_driver_of_tritons_is_asked_too(triton, framework, device):
    import sys

    other = type(triton.driver)()
    x, stream = full(1), device.stream()
    launch = triton.kernel()
    launch(x, full(2), N).sync_on(stream, 60)
    sys.modules["triton.runtime"].driver.active = other
    launch(x, full(2), N).sync_on(stream, 60)
    assert triton.launched.streams == [stream.handle] * 2


def test_the_device_of_tritons_comes_back(triton, device):
    triton.driver.device = 1
    triton.kernel()(full(1), full(2), N).sync(60)
    assert triton.driver.device == 1


def test_what_triton_has_compiled_is_compared_with_what_was_named(triton, monkeypatch):
    from aiocuda._interop import triton_ir
    from aiocuda.interop.triton import kernel

    looked: list[Any] = []

    def both(compiled: Any) -> Written:
        looked.append(compiled)
        return Written(frozenset({0, 1}), frozenset())

    made = triton.JITFunction(adds)
    with monkeypatch.context() as patched:  # `triton` has its own in this place, and takes it away afterwards
        patched.setattr(triton_ir, "written_by_compiled", both)
        with pytest.raises(ac.ArgumentValueError, match="adds has written y, which stands not in writes="):
            kernel(made, writes=["x"])[1,](full(1), full(2)).sync(60)
        launch = kernel(made, writes=["x", "y"])[1,]
        for _ in range(3):
            launch(full(1), full(2)).sync(60)
    assert len(looked) == 2  # once for each kernel


def test_a_kernel_is_not_tuned_in_an_operation(triton):
    from aiocuda.interop.triton import kernel

    tuned = triton.Autotuner(triton.JITFunction(adds), [types.SimpleNamespace(kwargs={"n": n}) for n in (1, 2)])
    for made in (tuned, triton.Heuristics(tuned, {})):
        launch = kernel(made, writes=["x"])[1,]
        with pytest.raises(ac.ArgumentValueError, match=r"has not tuned this kernel .* launch it by itself once"):
            launch(full(1), full(2)).sync(60)
    tuned.cache["int32"] = tuned.configs[0]
    assert host(launch(full(1), full(2))) == [3] * N


def test_a_version_of_tritons_without_a_driver_is_an_error(triton):
    import sys

    class Nothing:
        @property
        def active(self) -> Any:
            raise RuntimeError("0 active drivers")

    launch = triton.kernel()
    sys.modules["triton.runtime"].driver = Nothing()
    with pytest.raises(ac.errors.MissingPackageError, match=r"3\.9\.0 finds no GPU \(0 active drivers\); .* PyTorch"):
        launch(full(1), full(2), N).sync(60)


# --- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_random_program_gives_what_it_means(seed):
    run_program(seed)


@pytest.mark.emulated_only
@pytest.mark.parametrize("shuffle", [1, 2, 3])
def test_random_programs_race_nowhere(run_random_programs, shuffle):
    assert run_random_programs("from launchers import run_program", "run_program(seed)", shuffle) == (0, "", "")
