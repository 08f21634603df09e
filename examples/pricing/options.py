"""Options, their prices on the device, and what these should be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

import aiocuda as ac

price_kernel = ac.kernel((Path(__file__).parent / "kernel.cu").read_text(), "price")
THREADS = 256


class Option(BaseModel):
    """An American put option, and how long its price may take."""

    spot: float = Field(gt=0)
    strike: float = Field(gt=0)
    rate: float = 0.03
    volatility: float = Field(default=0.2, gt=0)
    years: float = Field(default=1.0, gt=0)
    within_s: float = Field(default=0.1, gt=0)


def prices_of(options: Sequence[Option], steps: int) -> ac.DeviceOp[NDArray[np.float32]]:
    """Return an operation that yields the prices of options: an upload, a launch and a download."""
    rows = np.array([[o.spot, o.strike, o.rate, o.volatility, o.years] for o in options], np.float32)
    prices = price_kernel(
        ac.to_device(rows),
        ac.empty(len(rows)),
        steps,
        grid=len(rows),
        block=min(THREADS, (steps + 32) // 32 * 32),
        shared_memory=4 * (steps + 1),
    )
    return ac.to_host(prices)


def expected(option: Option, steps: int) -> float:
    """Return the same price by NumPy, in float64."""
    step = option.years / steps
    up = np.exp(option.volatility * np.sqrt(step))
    likely = (np.exp(option.rate * step) - 1 / up) / (up - 1 / up)

    def exercised(level: int) -> NDArray[np.float64]:
        return np.asarray(option.strike - option.spot * up ** (2.0 * np.arange(level + 1) - level))

    values = np.maximum(exercised(steps), 0)
    for level in range(steps - 1, -1, -1):
        waiting = np.exp(-option.rate * step) * (likely * values[1:] + (1 - likely) * values[:-1])
        values = np.maximum(waiting, exercised(level))
    return float(values[0])
