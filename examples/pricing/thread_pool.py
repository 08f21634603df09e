"""The same service without batches, to compare with: a pool of threads prices each option alone.

Run: uvicorn --app-dir examples/pricing thread_pool:app
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from options import Option, price_kernel, prices_of

STEPS = int(os.environ.get("PRICING_STEPS", "1024"))
threads = ThreadPoolExecutor(40, "price")


def price(option: Option) -> float:
    """Return an option's price, and block until it is there."""
    return float(prices_of([option], STEPS).sync()[0])


@asynccontextmanager
async def started(_: FastAPI) -> AsyncIterator[None]:
    """Have the kernel compiled and loaded."""
    await price_kernel.compile_async()
    await asyncio.get_running_loop().run_in_executor(threads, price, Option(spot=100, strike=100))
    yield


app = FastAPI(title="Options, one by one", lifespan=started)


@app.post("/price")
async def priced(option: Option) -> dict[str, float]:
    """Return an option's price; 503 if it is not there in time."""
    work = asyncio.get_running_loop().run_in_executor(threads, price, option)
    try:
        return {"price": await asyncio.wait_for(work, option.within_s)}
    except TimeoutError as error:
        raise HTTPException(503, f"the price was not there within {option.within_s:g} s") from error
