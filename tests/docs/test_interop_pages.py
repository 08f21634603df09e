"""The examples of the pages on other frameworks: imported where the framework is installed, and run on a GPU."""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiocuda as ac

PAGES = Path(__file__).parents[2] / "docs" / "interop"
EXAMPLE = re.compile(r"^```py\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
NEEDED = {
    "cupy": "cupy",
    "cutile": "cuda.tile",
    "numba": "numba_cuda",
    "triton": "triton",
    "warp": "warp",
}


def page(name: str, folder: Path) -> Any:
    """Import the examples of a page as one module. A file is needed, as compilers read the source of kernels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(NEEDED[name])
        path = folder / f"page_{name}.py"
        path.write_text("\n".join(EXAMPLE.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def test_every_page_with_code_is_tested():
    with_code = {path.stem for path in PAGES.glob("*.md") if "```py\n" in path.read_text(encoding="utf-8")}
    assert {name for name, *_ in CALLS} == with_code - {"pytorch"}  # which leaves a kernel to the reader


def test_the_table_of_waits_has_what_the_pages_say():
    whole = (PAGES / "waits.md").read_text(encoding="utf-8")
    for path in PAGES.glob("*.md"):
        _, _, after = path.read_text(encoding="utf-8").partition("## Calls that block\n")
        rows = re.findall(r"^(\| .* \|)$", after.partition("\n## ")[0], re.MULTILINE)[1:]
        assert rows or path.stem in ("index", "waits")
        assert [row for row in rows if row not in whole] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({*NEEDED} - {"cupy"}))
def test_the_kernels_of_a_page_are_kernels(name, tmp_path):
    """Also without a GPU: `kernel` takes them, and sees what they write."""
    module = page(name, tmp_path)
    assert [value for value in vars(module).values() if type(value).__name__ == "Kernel" and is_ours(value)]


def is_ours(value: Any) -> bool:
    return type(value).__module__.startswith("aiocuda")


X, Y = np.arange(1000, dtype=np.float32), np.full(1000, 3, np.float32)
CALLS = [
    ("cupy", "spectrum", (X,), np.abs(np.fft.rfft(X))),
    ("cupy", "squared_total", "xy", (X + Y) ** 2),
    ("cutile", "total", "xy", X + Y),
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
        taken = arguments if isinstance(arguments, tuple) else tuple(given[each] for each in arguments)
        assert np.allclose(await getattr(module, function)(*taken), expected, rtol=1e-4)

    run(main)
