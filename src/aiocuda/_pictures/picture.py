"""A picture that a notebook shows and that is saved as a file."""

from __future__ import annotations

import os
from pathlib import Path

from aiocuda._naming import name_publicly
from aiocuda.errors import ArgumentValueError

__all__ = ["Picture"]


class Picture:
    """A picture as SVG; made by `DeviceOp.draw` and `CudaGraph.draw`.

    A notebook shows it; ``str()`` gives the text of the SVG.
    """

    __slots__ = ("_svg", "_title")

    def __init__(self, svg: str, title: str) -> None:
        self._svg = svg
        self._title = title

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, which web browsers show.

        Parameters
        ----------
        path
            Its name, which ends in ``.svg``. A file that is there is replaced.

        Raises
        ------
        ArgumentValueError
            The name ends otherwise.
        """
        file = Path(path)
        if file.suffix.lower() != ".svg":
            raise ArgumentValueError(f"save({file.name!r}): the picture is SVG; give a name that ends in .svg")
        file.write_text(self._svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self._svg

    def __str__(self) -> str:
        return self._svg

    def __repr__(self) -> str:
        return f"<Picture of {self._title}; save(path) writes it, and a notebook shows it>"


name_publicly("aiocuda", globals(), __all__)
