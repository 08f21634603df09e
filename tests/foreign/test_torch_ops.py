"""`aiocuda.interop.torch.op` with PyTorch itself."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from real import QUIET, imported

import aiocuda as ac
from aiocuda.interop.torch import op

torch = imported("torch")

pytestmark = QUIET

N = 1 << 12


def host(x: Any) -> np.ndarray:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60)


def full(value: float, dtype: Any = np.float32) -> ac.DeviceArray:
    return ac.full(N, value, dtype).sync(60)


@pytest.fixture
def model() -> Any:
    torch.manual_seed(7)
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)]
    return torch.nn.Sequential(*layers).cuda()


def test_tensors_share_memory_and_stream(device):
    stream, x = device.stream(), full(3)
    seen = []

    def look(t: Any) -> None:
        seen.append((t.data_ptr(), tuple(t.shape), t.dtype, torch.cuda.current_stream().cuda_stream))

    before = torch.cuda.current_stream()
    assert op(look, x).sync_on(stream, 60) is None
    assert seen == [(x.address, (N,), torch.float32, stream.handle)]
    assert torch.cuda.current_stream() == before


def test_results_are_arrays_that_kernels_use(kernels):
    y = op(lambda t: t * 2, full(3, np.int32))
    assert (host(kernels.increment(y, N, threads=N)) == 7).all()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64", "complex64"])
def test_dtypes_go_in_and_come_out(dtype):
    x = ac.ones(N, dtype).sync(60)
    y = op(lambda t: t.clone(), x).sync(60)
    assert y.dtype == x.dtype
    assert (host(y) == host(x)).all()


def test_views_of_results_and_of_arguments():
    x = ac.asarray(np.arange(12, dtype=np.float32).reshape(3, 4)).sync(60)
    result = op(lambda t: (t.T, t[1:, ::2], t.expand(2, 3, 4), t.conj(), (t * 1j).conj()), x).sync(60)
    expected = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert (host(result[0]) == expected.T).all()
    assert (host(result[1]) == expected[1:, ::2]).all()
    assert (host(result[2]) == np.broadcast_to(expected, (2, 3, 4))).all()
    assert result[3] is x or (host(result[3]) == expected).all()
    assert (host(result[4]) == (expected * 1j).conj()).all()
    assert result[0].address == x.address


def test_a_whole_module_is_one_operation(model, run):
    given = np.random.default_rng(1).random((32, 64), np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(given).cuda()).cpu().numpy()

    async def main() -> None:
        x = await ac.to_device(given)
        y = op(model, x)
        assert np.allclose(await ac.to_host(y), expected, atol=1e-5)

    run(main)


def test_weights_that_were_just_loaded_are_waited_for():
    weight = torch.zeros(1 << 24, device="cuda")
    torch.cuda._sleep(200_000_000)
    weight.fill_(5)
    assert (host(op(lambda: weight[:N].clone())) == 5).all()


def test_in_place_writes_are_named_or_an_error():
    x = full(1)
    assert op(lambda t: t.add_(1), x, writes=[x]).sync(60) is x
    assert (host(x) == 2).all()
    with pytest.raises(ac.ArgumentValueError, match=r"in place.*writes="):
        op(lambda t: t.add_(1), x).sync(60)


def test_training_steps_run_one_after_another(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    target = torch.ones(32, 8, device="cuda")

    def step(x: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    x = ac.randn((32, 64), seed=3, dtype=np.float32).sync(60)
    losses = [op(step, x) for _ in range(30)]
    values = [float(host(loss)) for loss in losses]
    assert values[-1] < values[0]
    assert all(np.isfinite(values))


def test_results_are_kept_while_their_stream_gives_out_memory(latch, device):
    producing, held = device.stream(), device.stream()
    y = op(lambda: torch.full((N,), 5.0, device="cuda")).sync_on(producing, 60)
    latch.hold(held)
    copied = ac.dup(y).on(held)
    copied.submit()
    del y
    gc.collect()
    others = [op(lambda v: torch.full((N,), v, device="cuda"), float(v)).sync_on(producing, 60) for v in range(4)]
    latch.release()
    assert (host(copied) == 5).all()
    assert [host(other)[0] for other in others] == [0, 1, 2, 3]


def test_memory_of_results_comes_back(device):
    stream = device.stream()
    for _ in range(3):
        op(lambda: torch.zeros(1 << 20, device="cuda")).sync_on(stream, 60)
    gc.collect()
    ac.zeros(1).sync()
    before = torch.cuda.memory_reserved()
    for _ in range(50):
        ac.to_host(op(lambda: torch.zeros(1 << 20, device="cuda"))).sync_on(stream, 60)
        gc.collect()
    assert torch.cuda.memory_reserved() <= before + (64 << 20)


def test_a_chain_of_alternating_operations(kernels):
    x: Any = ac.zeros(N, np.int32)
    for _ in range(50):
        x = op(torch.add, kernels.increment(x, N, threads=N), 1)
    assert (host(x) == 100).all()


def test_tensors_of_the_program_are_arguments(device):
    weight = torch.full((N,), 4.0, device="cuda")
    assert (host(op(torch.mul, full(2), weight)) == 8).all()


def test_an_error_keeps_its_traceback():
    def fails(t: Any) -> Any:
        return t @ torch.ones(3, 3, device="cuda")

    before = torch.cuda.current_stream()
    with pytest.raises(RuntimeError, match=r"shape|size") as caught:
        op(fails, full(1)).sync(60)
    assert any(frame.name == "fails" for frame in traceback.extract_tb(caught.value.__traceback__))
    assert any("test_torch_ops.py" in note for note in caught.value.__notes__)
    assert torch.cuda.current_stream() == before


def test_sparse_tensors_are_refused():
    with pytest.raises(ac.ArgumentTypeError, match="to_dense"):
        op(lambda t: torch.eye(4, device="cuda").to_sparse(), full(1)).sync(60)


def test_tensors_on_the_host_are_given_as_they_are():
    result = op(lambda t: t[:4].to("cpu", non_blocking=True), full(3)).sync(60)
    assert isinstance(result, torch.Tensor)
    assert result.tolist() == [3.0] * 4


# --- graphs ---------------------------------------------------------------------------------------------------------


def compiled_of(function: Callable[..., Any]) -> Any:
    return ac.compile(lambda x: op(function, x))


def test_compiled_functions_give_results_of_the_callers_own():
    compiled = compiled_of(lambda t: (t * 2 + 1).relu())
    results = [compiled(full(value)).sync(60) for value in range(6)]
    torch_memory = [torch.full((N,), 77.0, device="cuda") for _ in range(16)]
    assert compiled.cache_info().misses == 1
    assert [host(result)[0] for result in results] == [1, 3, 5, 7, 9, 11]
    again = [compiled(full(value)).sync(60) for value in range(6)]
    assert [host(result)[0] for result in again] == [1, 3, 5, 7, 9, 11]
    assert all(bool((each == 77).all()) for each in torch_memory)


def test_a_compiled_module_multiplies_matrices(model):
    model = model.eval().requires_grad_(False)
    compiled = compiled_of(model)
    rng = np.random.default_rng(2)
    for _ in range(5):
        given = rng.random((32, 64), np.float32)
        expected = model(torch.from_numpy(given).cuda()).cpu().numpy()
        assert np.allclose(ac.to_host(compiled(ac.asarray(given))).sync(60), expected, atol=1e-5)


def test_two_graphs_with_products_of_matrices_at_once(device):
    a = torch.randn(512, 512, device="cuda")
    expected = (a @ a).cpu().numpy()
    graphs = [op(lambda: a @ a, stateless=True).graph() for _ in range(3)]
    streams = [device.stream() for _ in graphs]
    for _ in range(20):
        launched = [graph.launch().on(stream) for graph, stream in zip(graphs, streams, strict=True)]
        for each in launched:
            each.submit()
        for each in launched:
            assert np.allclose(host(each), expected, atol=1e-2)


def test_a_compiled_function_of_kernels_and_modules(kernels):
    @ac.compile
    def compiled(x: Any) -> Any:
        y = op(lambda t: t * 3, kernels.increment(x, N, threads=N))
        return kernels.increment(y, N, threads=N)

    assert [host(compiled(full(value, np.int32)))[0] for value in (0, 1, 2)] == [4, 7, 10]


def test_what_waits_for_the_device_is_refused_in_a_graph():
    with pytest.raises((ac.CaptureError, RuntimeError), match="captur"):
        op(lambda t: t.sum().item(), full(1)).graph()
    assert (host(op(lambda t: t + 1, full(1))) == 2).all()  # and all goes on
