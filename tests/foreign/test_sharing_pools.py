"""When frameworks can be given aiocuda's memory pools: before they have memory, on open devices, and by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pool_like import Torch, caller, imported

import aiocuda as ac
from aiocuda._interop import cupy_memory, torch_memory

catches_refusals = pytest.mark.skipif(caller() is None, reason="no compiler: exceptions of C++ cannot be caught")


@pytest.fixture
def torch() -> Iterator[Torch]:
    with imported(Torch()) as made:
        torch_memory.share_memory_pool()
        yield made


def test_pytorch_is_asked_once(torch):
    allocator = torch.allocator
    torch_memory.share_memory_pool(0)
    assert torch.allocator is allocator


@pytest.mark.parametrize("is_known", [True, False])
def test_pytorch_that_has_memory_already_keeps_it(is_known):
    with imported(Torch()) as torch:
        torch.is_initialized = True
        if not is_known:  # it says so when its allocator is to be changed
            torch.module.cuda.is_initialized = lambda: False
        with pytest.raises(ac.errors.ExchangeError, match=r"PyTorch (has used a GPU|does not change)"):
            torch_memory.share_memory_pool()
        assert not torch_memory.is_pool_shared()


def test_an_old_pytorch_is_told_so(monkeypatch):
    with imported(Torch()) as torch:
        monkeypatch.delattr("pool_like.PluggableAllocator.set_record_stream_fn")
        with pytest.raises(ac.errors.ExchangeError, match=r"PyTorch 2\.11\.0 does not tell"):
            torch_memory.share_memory_pool()
        assert torch.allocator is None


def test_without_the_framework_that_is_an_error(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for share in (torch_memory.share_memory_pool, cupy_memory.share_memory_pool):
        with pytest.raises(ac.MissingPackageError, match="which is not installed"):
            share()


START = """
import ctypes, os, sys
import aiocuda as ac
sys.path.insert(0, {folder!r})
from pool_like import Torch, caller, imported
from aiocuda._interop import torch_memory
stands_in = imported(Torch())
torch = stands_in.__enter__()
torch_memory.share_memory_pool()
malloc = torch.allocator.malloc
"""


@pytest.fixture
def start() -> str:
    return START.format(folder=str(Path(__file__).parent))


@catches_refusals
@pytest.mark.emulated_only
def test_devices_that_are_not_open_give_no_memory(in_process, start):
    done = in_process(
        start
        + """
try:
    malloc(100, 1, 1)
except RuntimeError as error:
    print(error)
torch_memory.share_memory_pool("cuda:1")
print(malloc(100, 1, 1) != 0, ac.Device(1).memory_info().frameworks_bytes)
"""
    )
    assert done.stdout == "device 1 is not open in aiocuda: name it in share_memory_pool()\nTrue 100\n"


@catches_refusals
def test_a_fork_gets_no_memory_and_frees_none(in_process, start):
    done = in_process(
        start
        + """
address = malloc(100, 0, 1)
if os.fork() == 0:
    torch.allocator.raw_delete(address)
    try:
        malloc(100, 0, 1)
    except RuntimeError as error:
        print(error)
    try:
        torch_memory.share_memory_pool()
    except ac.ForkedProcessError:
        print("forked", flush=True)
    os._exit(0)
os.wait()
print(ac.Device(0).memory_info().frameworks_bytes)
"""
    )
    refusal = "aiocuda gives no memory any more: the program is ending, or this process is a fork"
    assert done.stdout == f"{refusal}\nforked\n100\n"


@catches_refusals
def test_after_the_end_of_the_interpreter_nothing_happens(in_process, start):
    done = in_process(
        start
        + """
address = malloc(4096, 0, 1)
caller().use_at_exit(*map(ctypes.c_void_p, (torch.allocator.allocate_at, torch.allocator.free_at, address)))
"""
    )
    refusal = "aiocuda gives no memory any more: the program is ending, or this process is a fork"
    assert (done.returncode, done.stdout) == (0, refusal + "\n")


# --- frameworks themselves ------------------------------------------------------------------------------------------


def need(name: str) -> None:
    pytest.importorskip(name)
    if ac.Device(0).is_emulated:
        pytest.skip("needs a GPU")


def test_pytorch_itself(in_process):
    need("torch")
    done = in_process("""
        import numpy as np, aiocuda as ac
        from aiocuda.interop.torch import op, share_memory_pool
        share_memory_pool()
        import torch
        device = ac.Device(0)
        x = torch.full((1 << 20,), 3.0, device="cuda")
        assert device.memory_info().frameworks_bytes >= 1 << 22
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        x.record_stream(side)
        del x
        torch.cuda.synchronize()
        w = torch.nn.Linear(64, 64, device="cuda")
        w(torch.ones(8, 64, device="cuda")).sum().backward()
        z = op(lambda t: t + 1, ac.full(100, 4, np.float32)).sync(60)
        assert (ac.to_host(z).sync(60) == 5).all() and (y == 6).all().item()
        total = device.memory_info().total_bytes
        try:
            torch.empty(2 * total, dtype=torch.uint8, device="cuda")
        except RuntimeError as error:
            print(str(error)[:19])
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                y + 1
        except RuntimeError as error:
            print(any("captured into a graph" in str(each) for each in (error, error.__context__)))
        del y, z, w
        print((torch.zeros(5, device="cuda") + 1).tolist())
        """)
    assert done.stdout == "CUDA out of memory.\nTrue\n[1.0, 1.0, 1.0, 1.0, 1.0]\n", done.stderr


def test_cupy_itself(in_process):
    need("cupy")
    done = in_process("""
        import numpy as np, aiocuda as ac
        from aiocuda.interop.cupy import op, share_memory_pool
        share_memory_pool()
        import cupy
        device = ac.Device(0)
        before = device.memory_info().frameworks_bytes
        x = cupy.full(1 << 20, 3, cupy.float32)
        assert device.memory_info().frameworks_bytes >= before + (1 << 22)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            y = cupy.ones(1 << 20, cupy.float32) * 2
            stream.synchronize()
        del stream
        z = op(lambda a: a + 1, ac.full(100, 4, np.float32)).sync(60)
        assert (ac.to_host(z).sync(60) == 5).all() and float((x + y).sum()) == 5 * 2**20
        try:
            cupy.empty(2 * device.memory_info().total_bytes, cupy.uint8)
        except MemoryError:
            print("no memory")
        del x, y, z
        print((cupy.zeros(5) + 1).tolist())
        """)
    assert done.stdout == "no memory\n[1.0, 1.0, 1.0, 1.0, 1.0]\n", done.stderr
