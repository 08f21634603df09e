"""A service that prices options, in batches of whoever asks, each within the time that its caller gives it.

Run: uvicorn --app-dir examples/pricing service:app
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from fastapi import FastAPI, HTTPException
from numpy.typing import NDArray
from options import Option, price_kernel, prices_of

import aiocuda as ac

STEPS = int(os.environ.get("PRICING_STEPS", "1024"))


@ac.batched(max_size=256, max_wait_ms=2, max_waiting=2048, overflow="raise")
def price(options: list[Option]) -> ac.DeviceOp[NDArray[np.float32]]:
    """Return the prices of a batch."""
    return prices_of(options, STEPS)


@asynccontextmanager
async def started(_: FastAPI) -> AsyncIterator[None]:
    """Have the kernel compiled and loaded, and all else that only the first batch needs."""
    await price_kernel.compile_async()
    await price(Option(spot=100, strike=100))
    yield


app = FastAPI(title="Options", lifespan=started)


@app.post("/price")
async def priced(option: Option) -> dict[str, float]:
    """Return an option's price; 503 if it cannot be there in time."""
    try:
        return {"price": float(await price(option, within_s=option.within_s))}
    except (ac.DeadlineError, ac.QueueFullError) as error:
        raise HTTPException(503, str(error)) from error


@app.get("/batches")
async def batches() -> dict[str, float]:
    """Return how large the batches were."""
    counts = price.statistics()
    return {"items": counts.items, "batches": counts.batches, "refused": counts.refused}
