"""The server: a transformer behind HTTP, which streams tokens as server-sent events.

Run: uvicorn --app-dir examples/server app:app
SERVER_SIZE is one of sizes.py (tiny), SERVER_WAY one of ways.py (d: aiocuda). SERVER_WAITING says how many texts may
wait (256).
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import ways
from batching import LateError, RefusedError, Text
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from metering import LoopLag, report
from pydantic import BaseModel, Field
from sizes import SIZES

import aiocuda as ac

SIZE, WAY = os.environ.get("SERVER_SIZE", "tiny"), os.environ.get("SERVER_WAY", "d")
WAITING = int(os.environ.get("SERVER_WAITING", "256"))


class Asked(BaseModel):
    """A client's request: an answer to a prompt of tokens; `within_s` is how long it waits for its first token."""

    prompt: list[int] = Field(min_length=1)
    limit: int = Field(default=64, ge=1)
    temperature: float = Field(default=0, ge=0)
    seed: int = Field(default=0, ge=0, lt=1 << 31)
    stop: int | None = None
    within_s: float = Field(default=60, gt=0)


class Answer(Response):
    """Streams a text's tokens: an event for all that have come since the last one."""

    media_type = "text/event-stream"

    def __init__(self, text: Text, outbox: asyncio.Queue[Any]) -> None:
        super().__init__()
        self._text, self._outbox = text, outbox

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send all, until the text ends or the client has gone."""
        watch = asyncio.create_task(self._until_gone(receive))
        try:
            came = await self._first()
            if isinstance(came[0], Exception):
                await JSONResponse({"detail": str(came[0])}, 503)(scope, receive, send)
                return
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while True:
                await send({"type": "http.response.body", "body": events_of(came), "more_body": True})
                if came[-1] is None or isinstance(came[-1], Exception):
                    break
                came = await self._came()
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._text.is_over = True  # its pages come back with the next step
            watch.cancel()

    async def _first(self) -> list[Any]:
        """Wait no longer than the text may: also if a step hangs, so that no plan follows which could say so."""
        try:
            async with asyncio.timeout_at(self._text.due):
                return await self._came()
        except TimeoutError:
            return [LateError("the first token did not come in time")]

    async def _came(self) -> list[Any]:
        came = [await self._outbox.get()]
        while not self._outbox.empty():
            came.append(self._outbox.get_nowait())
        return came

    async def _until_gone(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._text.is_over = True
        self._outbox.put_nowait(None)


def events_of(came: list[Any]) -> bytes:
    """Return server-sent events: tokens, the end, or an error."""
    tokens = [token for token in came if isinstance(token, int)]
    events = [f"data: {json.dumps(tokens)}\n\n"] if tokens else []
    if came[-1] is None:
        events.append("event: end\ndata:\n\n")
    elif isinstance(came[-1], Exception):
        events.append(f"event: error\ndata: {json.dumps(str(came[-1]))}\n\n")
    return "".join(events).encode()


@asynccontextmanager
async def started(app: FastAPI) -> AsyncIterator[None]:
    """Load the model, answer while the server runs, and end in good order."""
    sys.setswitchinterval(0.0005)  # for all ways: a thread that has waited for a device gets Python's lock back soon
    async with ac.lifespan(drain_s=20):
        app.state.way = way = await ways.WAYS[WAY](SIZES[SIZE], WAITING)
        app.state.lag = LoopLag()
        await way.warm_up()
        gc.collect()  # what is there now stays, and Python's collector need not look through it again
        gc.freeze()
        app.state.running = running = asyncio.create_task(way.run())
        running.add_done_callback(log_error)
        yield  # the server has ended all requests behind this
        running.cancel()
        await asyncio.wait([running])
        app.state.lag.close()
        del app.state.way, app.state.running  # memory on the device is given back with them


def log_error(running: asyncio.Task[None]) -> None:
    """Log the error that has ended the answering. Nothing begins it again in this process."""
    if not running.cancelled() and (error := running.exception()) is not None:
        logging.getLogger("uvicorn.error").error("no text is answered any more", exc_info=error)


app = FastAPI(title="A transformer", lifespan=started)


@app.post("/generate")
async def generate(asked: Asked) -> Response:
    """Stream an answer; 503 if too many wait, or if it cannot begin in time."""
    outbox: asyncio.Queue[Any] = asyncio.Queue()
    due = asyncio.get_running_loop().time() + asked.within_s
    text = Text(give=outbox.put_nowait, due=due, **asked.model_dump(exclude={"within_s"}))
    try:
        app.state.way.add(text)
    except RefusedError as error:
        raise HTTPException(503, str(error)) from error
    except ValueError as error:
        raise HTTPException(422, str(error)) from error
    return Answer(text, outbox)


@app.get("/health")
async def health() -> Response:
    """Say whether this process can still answer; if not, it has to be started again."""
    running: asyncio.Task[None] = app.state.running
    if running.done():
        error = None if running.cancelled() else running.exception()
        return PlainTextResponse(f"no text is answered any more: {error!r}", 503)
    found = ac.healthy(stuck_s=30)
    return PlainTextResponse(str(found), 200 if found else 503)


@app.get("/metrics")
async def metrics(request: Request) -> dict[str, Any]:
    """Return numbers; lags of the event loop are those since the last call."""
    state = request.app.state
    return {"way": WAY, "size": SIZE, **state.way.batch.counts, **report(state.way.meter, state.lag)}
