"""The examples of the page on NCCL: with a strict stand-in, with nccl4py's own buffers, and with NCCL on two GPUs."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core.utils import StridedMemoryView

import aiocuda as ac

sys.path.insert(0, str(Path(__file__).parent))
from test_interop_pages import page

N = 64


class Communicator:
    """One rank of one: it takes arrays by DLPack on the stream of the call, and only puts work there."""

    made: list[Communicator]

    def __init__(self) -> None:
        self.streams: list[int] = []
        self.is_destroyed = False

    @classmethod
    def init(cls, ranks: int, rank: int, unique_id: bytes) -> Communicator:
        assert (ranks, rank, unique_id) == (1, 0, b"id")
        cls.made.append(cls())
        return cls.made[-1]

    def allreduce(self, sendbuf: Any, recvbuf: Any, op: str, *, stream: Any) -> None:
        assert op == "sum"
        assert not self.is_destroyed
        _, handle = stream.__cuda_stream__()
        source, to = (StridedMemoryView.from_dlpack(each, handle) for each in (sendbuf, recvbuf))
        assert (source.shape, source.dtype) == (to.shape, to.dtype)
        size_bytes = source.shape[0] * source.dtype.itemsize
        assert driver.cuMemcpyAsync(to.ptr, source.ptr, size_bytes, handle) == (driver.CUresult.CUDA_SUCCESS,)
        self.streams.append(handle)

    def destroy(self) -> None:
        self.is_destroyed = True


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    Communicator.made = []
    core: Any = types.ModuleType("nccl.core")
    core.SUM, core.Communicator = "sum", Communicator
    monkeypatch.setitem(sys.modules, "nccl", types.ModuleType("nccl"))
    monkeypatch.setitem(sys.modules, "nccl.core", core)
    return page("nccl", tmp_path)


def test_the_examples_give_what_they_mean_on_one_stream(nccl, run):
    x = ac.full(N, 3, np.float32).sync()
    assert (run(nccl.mean, 0, 1, b"id", x) == 3).all()
    (communicator,) = Communicator.made
    assert communicator.is_destroyed
    assert len(communicator.streams) == 1


def test_a_collective_stands_between_what_comes_before_and_after(nccl, kernels, latch, device, settle):
    x = ac.zeros(N, np.int32).sync()
    communicator = Communicator()
    held, other = device.stream(), device.stream()
    latch.hold(held)
    kernels.increment(x, N, threads=N).on(held).submit()
    total = nccl.summed(communicator, x).on(other)
    after = kernels.increment(total, N, threads=N).on(device.stream()).submit()
    settle()
    assert communicator.streams == [other.handle]  # submitted at once, behind the first increment
    assert not after.done()
    latch.release()
    assert ac.to_host(after.sync(60)).sync(60).tolist() == [2] * N
    assert ac.to_host(x).sync(60).tolist() == [1] * N


def test_nccl4py_takes_arrays_and_streams_as_they_are():
    """NCCL itself is not needed for that, nor a GPU."""
    buffers = pytest.importorskip("nccl.core.buffer")
    found = []

    def look(stream: ac.Stream, x: ac.DeviceArray) -> None:
        buffer = buffers.NcclBuffer(x, stream)
        found.append((buffer.ptr == x.address, buffer.count, buffer.device_id, buffer.stream_ptr == stream.handle))

    x = ac.ones(N).sync()
    ac.call(look, x, writes=[x]).sync(60)
    shared = x.share()
    ac.call(look, shared, reads=[shared]).sync(60)
    assert found == [(True, N, 0, True)] * 2


RANK = """
import asyncio, importlib.util, os, pathlib, sys, time
rank, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[rank]
import numpy as np
import aiocuda as ac
ac.select_driver()
spec = importlib.util.spec_from_file_location("page_nccl", folder / "page_nccl.py")
page = importlib.util.module_from_spec(spec)
spec.loader.exec_module(page)
import nccl.core
if rank == 0:
    (folder / "id.part").write_bytes(bytes(nccl.core.get_unique_id()))
    (folder / "id.part").rename(folder / "id")
while not (folder / "id").exists():
    time.sleep(0.01)
unique_id = nccl.core.UniqueId.from_bytes((folder / "id").read_bytes())

async def main():
    x = await ac.full(1000, 1.0 + 2 * rank, np.float32)
    print((await page.mean(rank, 2, unique_id, x)).tolist() == [2.0] * 1000)

asyncio.run(main())
"""


@pytest.mark.needs_devices(2)
@pytest.mark.skipif(ac.Device(0).is_emulated, reason="NCCL runs on GPUs alone")
def test_two_processes_have_the_mean(tmp_path: Path):
    pytest.importorskip("nccl.core")
    page("nccl", tmp_path)
    (tmp_path / "rank.py").write_text(RANK, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "rank.py")]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        said = [each.communicate(timeout=120) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    assert [out for out, _ in said] == ["True\n"] * 2, said
