"""PyTorch, CuPy, JAX and Numba as they are installed: their work is awaited, and memory goes both ways. On a GPU."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import aiocuda as ac

N = 1 << 16


def need(name: str) -> Any:
    found = pytest.importorskip(name)
    if ac.Device(0).is_emulated:
        pytest.skip("needs a GPU")
    return found


@pytest.fixture
def torch() -> Any:
    found = need("torch")
    if not found.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    found.cuda.synchronize()
    return found


@pytest.fixture
def cupy() -> Any:
    found = need("cupy")
    x = found.zeros(N, found.int32)  # its kernels are compiled and loaded now: that waits for what is held
    x += 1
    x *= 2
    assert (found.asnumpy(x * 2) == 4).all()
    return found


@pytest.fixture
def stream() -> ac.Stream:
    """A stream to be held once what takes memory, or waits for the device, is over."""
    return ac.Device(0).stream()


def incremented(kernels: Any, x: Any) -> Any:
    return kernels.increment(x, N, threads=N)


class TestPyTorch:
    def test_work_on_a_stream_is_awaited(self, torch, stream, latch, run):
        theirs = torch.cuda.ExternalStream(stream.handle)
        x = torch.zeros(N, device="cuda", dtype=torch.int32)
        torch.cuda.synchronize()
        latch.hold(stream)
        with torch.cuda.stream(theirs):
            x += 1

        async def main() -> None:
            done = ac.done(theirs)
            with pytest.raises(ac.DeviceTimeoutError):
                await done.within(0.01)
            latch.release()
            assert await ac.done(theirs) is theirs
            assert theirs.query()

        run(main)
        assert (x == 1).all().item()

    def test_an_event_and_a_tensor_are_awaited(self, torch, stream, latch, run):
        theirs = torch.cuda.ExternalStream(stream.handle)
        x = torch.zeros(N, device="cuda", dtype=torch.int32)
        torch.cuda.synchronize()
        latch.hold(stream)
        with torch.cuda.stream(theirs):
            x += 1
            event = torch.cuda.Event()
            event.record()
            tensor = ac.done(x)

        async def main() -> None:
            point = ac.done(event)
            for each in (point, tensor):
                with pytest.raises(ac.DeviceTimeoutError):
                    await each.within(0.01)
            latch.release()
            assert await ac.done(event) is event
            assert event.query()

        run(main)

    def test_a_tensor_is_taken_after_what_its_stream_holds(self, torch, kernels, stream, latch):
        theirs = torch.cuda.ExternalStream(stream.handle)
        x = torch.zeros(N, device="cuda", dtype=torch.int32)
        torch.cuda.synchronize()
        latch.hold(stream)
        with torch.cuda.stream(theirs):
            x += 1
            future = incremented(kernels, ac.external(x)).submit()
        assert not future.done()
        latch.release()
        assert (ac.to_host(future.sync()).sync() == 2).all()

    def test_an_array_is_taken_after_what_writes_it(self, torch, kernels, stream, latch):
        x = ac.zeros(N, np.int32).sync()
        latch.hold(stream)
        with ac.use(stream):
            written = incremented(kernels, x).submit()
        t = torch.from_dlpack(x)
        twice = t * 2
        assert not torch.cuda.current_stream().query()
        latch.release()
        assert (twice == 2).all().item()
        assert t.data_ptr() == x.address
        written.sync()

    def test_later_work_here_comes_after_the_borrowers(self, torch, kernels, stream, latch):
        theirs = torch.cuda.ExternalStream(stream.handle)
        x = ac.zeros(N, np.int32).sync()
        latch.hold(stream)
        with torch.cuda.stream(theirs):
            t = torch.from_dlpack(x)
            t += 5
        future = incremented(kernels, x).submit()
        assert not future.done()
        latch.release()
        assert (ac.to_host(future.sync()).sync() == 6).all()
        del t

    def test_the_memory_outlives_the_array(self, torch):
        t = torch.from_dlpack(ac.full(N, 7, np.int32).sync())
        gc.collect()
        others = [ac.full(N, 9, np.int32).sync() for _ in range(20)]
        assert (t == 7).all().item()
        del others

    def test_what_was_given_back_is_written_after_the_borrowers_work(self, torch, stream, latch):
        theirs = torch.cuda.ExternalStream(stream.handle)
        x = ac.full(N, 3, np.int32).sync()
        latch.hold(stream)
        with torch.cuda.stream(theirs):
            t = torch.from_dlpack(x)
            doubled = t * 2
            del t
        filled = ac.fill(x, 0).submit()
        assert not filled.done()
        latch.release()
        filled.sync()
        theirs.synchronize()
        assert (doubled == 6).all().item()

    def test_expandable_segments(self, in_process):
        need("torch")
        program = """
            import torch, numpy as np, aiocuda as ac
            x = torch.arange(1000, device="cuda", dtype=torch.int32)
            y = ac.to_host(ac.external(x)).sync()
            assert (y == np.arange(1000)).all()
        """
        done = in_process(program, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        assert done.returncode == 0, done.stderr

    def test_page_locked_memory_is_numpys_and_pytorchs(self, torch):
        x = ac.empty_host(100, np.int32).sync()
        x.numpy()[:] = 4
        t = torch.from_numpy(x.numpy())
        assert t.data_ptr() == x.address
        assert t.is_pinned()
        assert (t == 4).all()
        with pytest.raises(BufferError, match="device_type"):  # PyTorch does not know DLPack's kDLCUDAHost
            torch.from_dlpack(x)

    def test_a_capture_is_refused(self, torch):
        side = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        x = torch.zeros(16, device="cuda")
        with torch.cuda.stream(side):
            graph.capture_begin()
            try:
                x += 1
                with pytest.raises(ac.CaptureError, match="captured"):
                    ac.done(side)
            finally:
                graph.capture_end()


class TestTensorsOfPyTorch:
    """Tensors as plain arguments."""

    def test_an_operation_is_between_what_comes_before_and_after(self, torch, kernels, stream, latch):
        theirs = torch.cuda.ExternalStream(stream.handle)
        x = torch.zeros(N, device="cuda", dtype=torch.int32)
        y = torch.empty_like(x)
        torch.cuda.synchronize()
        latch.hold(stream)
        with torch.cuda.stream(theirs):
            x += 1
            future = incremented(kernels, x).submit()
            torch.mul(x, 10, out=y)
        assert not future.done()
        latch.release()
        future.sync()
        theirs.synchronize()
        assert (y == 20).all().item()

    def test_what_comes_next_waits(self, torch, kernels, stream, latch):
        x = torch.zeros(N, device="cuda", dtype=torch.int32)
        latch.hold(stream)
        with ac.use(stream):
            future = incremented(kernels, x).submit()
        twice = x * 2
        assert not torch.cuda.current_stream().query()
        latch.release()
        assert (twice == 2).all().item()
        future.sync()

    def test_a_chain_of_both(self, torch, kernels, run):
        x = torch.zeros(N, device="cuda", dtype=torch.int32)

        async def main() -> None:
            for _ in range(20):
                await incremented(kernels, x)
                x.mul_(2)

        run(main)
        assert (x == 2 * (2**20 - 1)).all().item()

    def test_submissions_without_an_await(self, torch, kernels):
        x = torch.zeros(N, device="cuda", dtype=torch.int32)
        for _ in range(20):
            incremented(kernels, x).submit()
            x.add_(1)
        assert (x == 40).all().item()

    def test_autograd_knows_of_writes(self, torch, kernels):
        scale = torch.ones(N, device="cuda", requires_grad=True)
        x = torch.ones(N, device="cuda")
        loss = (scale * x).sum()
        ac.fill(x, 7).sync()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_a_constant_holds_up_nobody(self, torch, stream, latch):
        weight = torch.full((N,), 3, device="cuda", dtype=torch.int32)
        constant = ac.constant(weight)
        latch.hold(stream)
        with ac.use(stream):
            copied = ac.dup(constant).submit()
        torch.cuda.current_stream().synchronize()
        latch.release()
        assert (ac.to_host(copied.sync()).sync() == 3).all()

    @pytest.mark.parametrize(
        ("make", "match"),
        [
            (lambda torch: torch.zeros(N, dtype=torch.int32), "host memory"),
            (lambda torch: torch.zeros(N, device="cuda", requires_grad=True), "gradient"),
            (lambda torch: torch.zeros(N, device="cuda", dtype=torch.complex64).conj(), "resolve_conj"),
            (lambda torch: torch.zeros(N, device="cuda"), "float32"),
            (lambda torch: torch.zeros(2 * N, device="cuda", dtype=torch.int32)[::2], "strided"),
            (lambda torch: torch.zeros(N, N, device="cuda").to_sparse(), "Tensor: "),
        ],
    )
    def test_what_cannot_be_used(self, torch, kernels, make, match):
        with pytest.raises(ac.ArgumentTypeError, match=match):
            incremented(kernels, make(torch))

    @pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "uint8", "bool", "complex64", "float8_e4m3fn"])
    def test_dtypes(self, torch, name):
        x = torch.zeros(16, device="cuda", dtype=getattr(torch, name))
        assert ac.dup(x).sync().dtype.name == name

    def test_inference_mode_and_parameters(self, torch, kernels):
        with torch.inference_mode():
            x = torch.zeros(N, device="cuda", dtype=torch.int32)
            incremented(kernels, x).sync()
            assert (x == 1).all().item()
        weight = torch.nn.Parameter(torch.zeros(N, device="cuda"))
        with pytest.raises(ac.ArgumentTypeError, match="detach"):
            ac.dup(weight)
        ac.dup(weight.detach()).sync()

    def test_cupys_view_of_a_tensor(self, torch, cupy, kernels):
        x = torch.zeros(N, device="cuda", dtype=torch.int32)
        y = cupy.from_dlpack(x)
        ac.zip(incremented(kernels, x), incremented(kernels, y)).submit()
        assert (x == 2).all().item()

    def test_in_a_capture(self, torch, kernels):
        x = torch.zeros(N, device="cuda", dtype=torch.int32)
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            graph.capture_begin(capture_error_mode="relaxed")
            try:
                x += 1
                operation = incremented(kernels, x)
                with pytest.raises(ac.CaptureError, match="captured"):
                    operation.submit()
            finally:
                graph.capture_end()
        operation.sync()


class TestCuPy:
    def test_arrays_as_arguments(self, cupy, kernels, stream, latch):
        x = cupy.zeros(N, cupy.int32)
        latch.hold(stream)
        with ac.use(stream):
            incremented(kernels, x).submit()
        twice = x * 2
        assert not cupy.cuda.get_current_stream().done
        latch.release()
        assert (cupy.asnumpy(twice) == 2).all()
        with pytest.raises(ac.ArgumentTypeError, match="strides"):
            ac.dup(x[::-1])

    def test_a_stream_and_an_event_are_awaited(self, cupy, stream, latch, run):
        theirs = cupy.cuda.Stream.from_external(stream)
        latch.hold(stream)
        with theirs:
            x = cupy.zeros(N, cupy.int32)
            x += 1
            event = cupy.cuda.Event(disable_timing=True)
            event.record()

        async def main() -> None:
            for each in (ac.done(theirs), ac.done(event)):
                with pytest.raises(ac.DeviceTimeoutError):
                    await each.within(0.01)
            latch.release()
            await ac.done(theirs)
            await ac.done(event)
            assert theirs.done
            assert event.done

        run(main)

    @pytest.mark.parametrize("protocol", ["dlpack", "array interface"])
    def test_arrays_go_both_ways(self, cupy, kernels, protocol):
        x = cupy.arange(N, dtype=cupy.int32)
        x *= 2
        y = incremented(kernels, ac.external(x)).sync()
        back = cupy.from_dlpack(y) if protocol == "dlpack" else cupy.asarray(y)
        assert back.data.ptr == y.address == x.data.ptr
        assert (cupy.asnumpy(back) == 2 * np.arange(N) + 1).all()

    def test_an_array_is_taken_after_what_writes_it(self, cupy, kernels, stream, latch):
        x = ac.zeros(N, np.int32).sync()
        latch.hold(stream)
        with ac.use(stream):
            incremented(kernels, x).submit()
        twice = cupy.from_dlpack(x) * 2
        assert not cupy.cuda.get_current_stream().done
        latch.release()
        assert (cupy.asnumpy(twice) == 2).all()


def test_arrays_of_jax():
    jax = need("jax")
    x = ac.arange(N, dtype=np.float32).sync()
    y = jax.dlpack.from_dlpack(x) * 2
    assert (np.asarray(y) == 2 * np.arange(N, dtype=np.float32)).all()
    assert (ac.to_host(ac.external(y)).sync() == np.asarray(y)).all()


def test_arrays_of_jax_as_arguments(kernels):
    jax = need("jax")
    x = jax.numpy.arange(N, dtype="int32")
    assert (ac.to_host(x).sync() == np.arange(N)).all()
    with pytest.raises(ac.OwnershipError, match="read-only"):
        incremented(kernels, x)


def test_arrays_of_numba_as_arguments(kernels):
    cuda = pytest.importorskip("numba.cuda")
    need("numba")
    theirs = cuda.to_device(np.arange(N, dtype=np.int32))
    incremented(kernels, theirs).submit()
    assert (theirs.copy_to_host() == np.arange(N) + 1).all()


def test_arrays_of_warp_as_arguments(kernels):
    warp = need("warp")
    theirs = warp.zeros(N, dtype=warp.int32, device="cuda:0")
    incremented(kernels, theirs).submit()
    assert (theirs.numpy() == 1).all()


def test_arrays_of_numba(kernels):
    cuda = pytest.importorskip("numba.cuda")
    need("numba")
    x = ac.full(N, 3, np.int32).sync()
    view = cuda.as_cuda_array(x)
    assert (view.copy_to_host() == 3).all()
    theirs = cuda.to_device(np.arange(N, dtype=np.int32))
    y = incremented(kernels, ac.external(theirs)).sync()
    assert (ac.to_host(y).sync() == np.arange(N) + 1).all()
    stream = cuda.stream()
    assert ac.done(stream).sync() is stream
