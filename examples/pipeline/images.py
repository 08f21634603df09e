"""Images on the host: how they are decoded, made for a trial, and what the kernels should make of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

DRAWN = 20


def decode(path: Path) -> Bytes:
    """Return an image of any format that Pillow knows: rows, columns, and red, green and blue."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def make(folder: Path, count: int, height: int, width: int) -> list[Path]:
    """Write images of circles on a slope, as PNG. Drawing takes long, so the first ones come again and again."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[:height, :width]
    paths = []
    for number in range(count):
        paths.append(folder / f"{number:05}.png")
        if number >= DRAWN:
            shutil.copyfile(paths[number % DRAWN], paths[-1])
            continue
        random = np.random.default_rng(number)
        image = np.stack([rows * 255 // height, columns * 255 // width, (rows + columns) % 256], axis=-1)
        for _ in range(12):
            row, column, radius = random.integers(height), random.integers(width), random.integers(3, height // 4 + 4)
            image[(rows - row) ** 2 + (columns - column) ** 2 < radius**2] = random.integers(0, 256, 3)
        Image.fromarray(image.astype(np.uint8)).save(paths[-1], compress_level=1)
    return paths


def edges_of(image: Bytes) -> Floats:
    """Return what the three kernels compute, by NumPy, in float64 and without the last step to whole numbers."""
    grey = image @ np.array([0.299, 0.587, 0.114])
    weights = np.array([1, 4, 6, 4, 1]) / 16
    padded = np.pad(grey, 2, mode="edge")
    height, width = grey.shape
    blurred = sum(weights[y] * weights[x] * padded[y : y + height, x : x + width] for y in range(5) for x in range(5))
    around = np.pad(np.asarray(blurred), 1, mode="edge")
    across = around[:, 2:] - around[:, :-2]
    down = around[2:] - around[:-2]
    steepness = np.hypot(across[:-2] + 2 * across[1:-1] + across[2:], down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:])
    return np.asarray(np.minimum(steepness, 255))
