"""The examples of the pages on other frameworks: imported where the framework is installed, and run on a GPU."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiocuda as ac

sys.path.insert(0, str(Path(__file__).parents[1] / "foreign"))
from framework import Framework, Tensor
from torch_like import close

PAGES = Path(__file__).parents[2] / "docs" / "interop"
EXAMPLE = re.compile(r"^```py\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
NEEDED = {
    "cupy": "cupy",
    "cutile": "cuda.tile",
    "jax": "jax",
    "nccl": "nccl.core",
    "numba": "numba_cuda",
    "pytorch": "torch",
    "rmm": "rmm",
    "triton": "triton",
    "warp": "warp",
}


def page(name: str, folder: Path, examples: slice = slice(None)) -> Any:
    """Import examples of a page as one module. A file is needed, as compilers read the source of kernels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(NEEDED[name])
        path = folder / f"page_{name}.py"
        path.write_text("\n".join(EXAMPLE.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))[examples]))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def test_every_page_with_code_is_tested():
    with_code = {path.stem for path in PAGES.glob("*.md") if "```py\n" in path.read_text(encoding="utf-8")}
    # Those with tests of their own: PyTorch's weights are random, RMM needs no GPU, and NCCL needs two.
    assert {name for name, *_ in CALLS} == with_code - {"pytorch", "rmm", "nccl"}


def test_the_table_of_waits_has_what_the_pages_say():
    whole = (PAGES / "waits.md").read_text(encoding="utf-8")
    for path in PAGES.glob("*.md"):
        _, _, after = path.read_text(encoding="utf-8").partition("## Calls that block\n")
        rows = re.findall(r"^(\| .* \|)$", after.partition("\n## ")[0], re.MULTILINE)[1:]
        assert rows or path.stem in ("index", "waits")
        assert [row for row in rows if row not in whole] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({*NEEDED} - {"cupy", "jax", "nccl", "pytorch", "rmm"}))
def test_the_kernels_of_a_page_are_kernels(name, tmp_path):
    """Also without a GPU: `kernel` takes them, and sees what they write."""
    module = page(name, tmp_path)
    assert [value for value in vars(module).values() if type(value).__name__ == "Kernel" and is_ours(value)]


def is_ours(value: Any) -> bool:
    return type(value).__module__.startswith("aiocuda")


X, Y, N = np.arange(1000, dtype=np.float32), np.full(1000, 3, np.float32), np.arange(1000, dtype=np.int32)
CALLS = [
    ("cupy", "spectrum", (X,), np.abs(np.fft.rfft(X))),
    ("cupy", "squared_total", "xy", (X + Y) ** 2),
    ("cutile", "total", "xy", X + Y),
    ("jax", "twice", (N,), 2 * N),
    ("jax", "one_more", "j", N + 1),
    ("numba", "added", "x2", X + 2),
    ("numba", "added_twice", "x2", X + 4),
    ("triton", "total", "xy", X + Y),
    ("warp", "added", "x2", X + 2),
    ("warp", "added_twice", "x2", X + 4),
]


@pytest.mark.skipif(ac.Device(0).is_emulated, reason="its kernels run on a GPU alone")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "function", "arguments", "expected"), CALLS)
def test_an_example_gives_what_it_means(name, function, arguments, expected, tmp_path, run):
    module = page(name, tmp_path)

    async def main() -> None:
        given = {"x": await ac.to_device(X), "y": await ac.to_device(Y), "2": 2.0}
        if name == "jax":
            given["j"] = sys.modules["jax"].numpy.asarray(N)
        taken = arguments if isinstance(arguments, tuple) else tuple(given[each] for each in arguments)
        assert np.allclose(await getattr(module, function)(*taken), expected, rtol=1e-4)

    run(main)


NORMALIZE = ac.kernel("""
extern "C" __global__ void normalize(const float* x, float* out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] / 255;
}""")  # the kernel that the page leaves to the reader


@pytest.mark.skipif(ac.Device(0).is_emulated, reason="its kernels run on a GPU alone")
@pytest.mark.filterwarnings("ignore")
def test_the_example_of_pytorch_gives_what_it_means(tmp_path, run):
    module = page("pytorch", tmp_path, slice(1))  # the memory pool of the next one is for before PyTorch's first use
    batch = np.random.default_rng(5).integers(0, 256, (4, 64)).astype(np.float32)
    module.normalized = lambda x: NORMALIZE(x, ac.empty(batch.shape, batch.dtype), batch.size, threads=batch.size)
    expected = module.forward(module.torch.from_numpy(batch / 255).cuda()).cpu().numpy()
    assert np.allclose(run(module.infer, batch), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_the_example_of_rmm_gives_what_it_means(tmp_path, run):
    mr = pytest.importorskip("rmm.mr")
    before = mr.get_per_device_resource(0)
    try:
        module = page("rmm", tmp_path)
        assert (run(main_of(module.filled(1000, 4))) == np.full(1000, 4, np.uint8)).all()
    finally:
        mr.set_per_device_resource(0, before)


def main_of(op: Any) -> Callable[[], Any]:
    async def main() -> Any:
        return await op

    return main


class ArrayOfJax(Tensor):
    """An array on the one stream of a framework that tells nobody of it."""

    @property
    def size(self) -> int:
        return self.items

    def __rmul__(self, factor: int) -> ArrayOfJax:
        return array_of_jax(self.framework, [factor * each for each in self.tolist()])


ArrayOfJax.__module__ = "jax"


def array_of_jax(framework: Framework, items: list[int]) -> ArrayOfJax:
    made = ArrayOfJax(framework, framework.allocate(len(items)), len(items))
    made.stream, made.free = framework.current, framework._free
    for at, item in enumerate(items):
        made.part(at, 1).fill_(item)
    return made


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[int]], ArrayOfJax]]:
    """Give a stand-in for JAX, imported: what makes an array of its."""
    framework = Framework()
    module: Any = types.ModuleType("jax")
    module.jit = lambda function: function

    def from_dlpack(x: Any) -> ArrayOfJax:
        with framework.device_current():
            capsule = x.__dlpack__(max_version=(1, 0), stream=framework.current)
        taken = ArrayOfJax.taken(framework, capsule)
        assert isinstance(taken, ArrayOfJax)
        return taken

    module.dlpack = types.SimpleNamespace(from_dlpack=from_dlpack)
    monkeypatch.setitem(sys.modules, "jax", module)
    yield lambda items: array_of_jax(framework, items)
    close(framework)


def test_the_examples_of_jax_give_what_they_mean_where_a_framework_stands_in(jax, tmp_path, run):
    module, signal = page("jax", tmp_path), N[:20]
    assert run(module.twice, signal).tolist() == (2 * signal).tolist()
    y = jax(signal.tolist())
    assert run(module.one_more, y).tolist() == (signal + 1).tolist()
    assert y.tolist() == signal.tolist()
    with pytest.raises(ac.OwnershipError, match="read-only"):
        module.increment(y, y.size, threads=y.size)

    async def wait() -> Any:
        return await ac.done(y)

    assert run(wait) is y
