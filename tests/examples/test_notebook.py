"""The notebook runs in Jupyter's kernel, and shows what its file shows."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def shown(notebook: nbformat.NotebookNode) -> list[str]:
    """The text of what each cell of code shows."""
    return [
        "".join(output.get("text") or output.get("data", {}).get("text/plain", repr(output)) for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_notebook_shows_what_its_file_says():
    written = nbformat.read(NOTEBOOK, as_version=4)
    said = shown(written)
    assert sum(map(bool, said)) >= 5
    NotebookClient(written, timeout=240, kernel_name="python3").execute()
    assert shown(written) == said
