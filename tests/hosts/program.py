"""The program on the near host: it starts a cluster over both hosts, and calls the functions that it is sent.

Always true: a message is a pickle. Whoever asks waits for the answer, so one message is under way at a time.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

import anyio

import aiocuda.cluster


class Ends:
    """This end of the pipes to the other process."""

    def __init__(self, hears: BinaryIO, says: BinaryIO) -> None:
        self._hears, self._says = hears, says

    def say(self, *what: Any) -> None:
        pickle.dump(what, self._says)
        self._says.flush()

    def hear(self) -> Any:
        return pickle.load(self._hears)


class Outside:
    """The network and the hosts, as functions of the tests have them: the process that made them does what is asked."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            self._ends.say("do", name, arguments)
            failed, result = self._ends.hear()
            if failed:
                raise RuntimeError(failed)
            return result

        return ask


async def main(ends: Ends, address: str, answers_within_s: float, begins_within_s: float, longest_s: float) -> None:
    outside = Outside(ends)
    options = {"address": address, "log_to_driver": False}
    async with aiocuda.cluster.start(
        workers=2, answers_within_s=answers_within_s, begins_within_s=begins_within_s, ray_options=options
    ) as cluster:
        ends.say("done", None)
        while True:
            try:
                (function,) = await anyio.to_thread.run_sync(ends.hear)
            except EOFError:
                return
            try:
                with anyio.fail_after(longest_s):
                    result = await function(cluster, outside)
            except Exception:  # noqa: BLE001 - the test gets it
                ends.say("failed", traceback.format_exc())
            else:
                ends.say("done", result)


if __name__ == "__main__":
    says = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print is no message
    anyio.run(main, Ends(sys.stdin.buffer, says), sys.argv[1], *map(float, sys.argv[2:]))
