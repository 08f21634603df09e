"""A service, as tests start it: it doubles numbers on a device, in batches, behind an HTTP server.

    python service_program.py FILENO [ends-itself]

FILENO is a listening socket. With "ends-itself" it ends when it is not healthy, as the page on services shows. At its
end it prints how many requests for numbers began, and how many were answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import aiocuda as ac

N = 64
SOURCE = r"""
extern "C" __global__ void twice(const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
extern "C" __global__ void illegal(int* x, unsigned long long far) { x[far] = 1; }
"""
twice, illegal = ac.kernel(SOURCE, "twice"), ac.kernel(SOURCE, "illegal")
begun = answered = 0


@ac.batched(max_size=8, max_wait_ms=1, max_waiting=64)
def double(rows: list[Any]) -> ac.DeviceOp[Any]:
    x = np.stack(rows)
    return ac.to_host(twice(ac.to_device(x), ac.empty(x.shape), x.size, threads=x.size))


async def number(request: Request) -> Response:
    global begun, answered
    begun += 1
    try:
        row = await double(np.full(N, float(request.path_params["x"]), np.float32), within_s=30)
    except ac.DeviceLostError as error:
        return JSONResponse({"error": type(error).__name__, "text": str(error)}, 500)
    answered += 1
    return JSONResponse({"result": float(row[-1])})


async def fault(request: Request) -> Response:
    """Make an illegal access."""
    try:
        await illegal(ac.zeros(4, np.int32), 1 << 40, grid=1, block=1)
    except ac.DeviceLostError as error:
        return JSONResponse({"error": type(error).__name__, "text": str(error)}, 500)
    return JSONResponse({})


async def health(request: Request) -> Response:
    found = ac.healthy(stuck_s=60)
    return PlainTextResponse(str(found), 200 if found else 503)


async def end_when_unhealthy() -> None:
    while ac.healthy(stuck_s=60):  # noqa: ASYNC110 - a fault tells nobody
        await asyncio.sleep(0.02)
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with ac.lifespan(drain_s=20):
        await twice.compile_async()
        await illegal.compile_async()
        watch = asyncio.create_task(end_when_unhealthy()) if "ends-itself" in sys.argv else None
        yield
        if watch is not None:
            watch.cancel()
    print("ended", begun, answered, flush=True)


app = Starlette(
    routes=[Route("/number/{x}", number), Route("/fault", fault), Route("/health", health)], lifespan=lifespan
)

if __name__ == "__main__":
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=30))
    server.run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
