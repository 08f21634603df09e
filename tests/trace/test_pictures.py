"""The pictures of the documentation: the page of a trace, in a browser. AIOCUDA_WRITE_PICTURES=1 writes them anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


def traced(program: list[str], output: Path) -> Path:
    """Trace a program in a process of its own, however it ends; return the page, whose paths begin in the checkout."""
    subprocess.run(
        [sys.executable, "-m", "aiocuda", "trace", "--output", str(output), *program],
        check=False,  # the demo says that one epoch is too few
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        timeout=240,
    )
    (page,) = output.glob("*.html")
    page.write_text(page.read_text(encoding="utf-8").replace(f"{ROOT}/", ""), encoding="utf-8")
    return page


def picture(browser: Any, page_path: Path, shows: str, name: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 760})
    page.goto(page_path.as_uri())
    page.wait_for_function("canvas.dataset.drawn")
    page.evaluate(shows)
    assert int(page.evaluate("canvas.dataset.drawn")) >= 1
    taken = page.screenshot()
    page.close()
    assert taken.startswith(PNG)
    if os.environ.get("AIOCUDA_WRITE_PICTURES"):
        (ROOT / "docs" / name).write_bytes(taken)
    assert (ROOT / "docs" / name).read_bytes().startswith(PNG)


def test_of_the_tutorial(browser: Any, tmp_path: Path) -> None:
    text = (ROOT / "docs/tutorial/13-traces.md").read_text(encoding="utf-8")
    code, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = tmp_path / "branches.py"
    before = code.partition("with tempfile")[0]
    program.write_text(f"{before}asyncio.run(main())\n", encoding="utf-8")
    shows = """() => {
      const {number, started, ended} = data.operations.map((_, i) => operation(i)).find((each) => each.name === "add");
      select({operation: number});
      view = {begin: started - (ended - started) * 5, end: ended + (ended - started) * 3};
      draw();
    }"""
    picture(browser, traced([str(program)], tmp_path), shows, "tutorial/13-traces.png")


def test_of_the_demo(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("rich")
    pytest.importorskip("nccl.bindings")
    shows = """() => {
      const all = data.operations.map((_, i) => operation(i));
      const {number, started} = all.filter((each) => each.kind === "call" && each.ended).at(-3);
      select({operation: number});
      view = {begin: started - 6e6, end: started + 4e6};
      draw();
    }"""
    picture(browser, traced(["-m", "aiocuda", "demo", "--epochs", "1"], tmp_path), shows, "demo-trace.png")
