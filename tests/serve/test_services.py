"""A service behind uvicorn, in processes of its own: SIGTERM under load, a fault, a restart, several workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

PROGRAM = Path(__file__).with_name("service_program.py")
CLIENTS = 16
PATIENCE_S = 120


class Service:
    """The program, at a port that stays the same when it is started again."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        self._running: list[subprocess.Popen[str]] = []

    def start(self, *options: str) -> subprocess.Popen[str]:
        begun = subprocess.Popen(
            [sys.executable, PROGRAM, str(self.socket.fileno()), *options],
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            pass_fds=[self.socket.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.append(begun)
        return begun

    def close(self) -> None:
        for each in self._running:
            if each.poll() is None:
                each.kill()
            each.communicate()
        self.socket.close()

    async def ask(self, path: str) -> tuple[int, str]:
        """Return the status and the text of an answer.

        Raises
        ------
        OSError, EOFError
            There was no answer.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
        finally:
            writer.close()
        if not answer:
            raise EOFError(path)
        head, _, text = answer.decode().partition("\r\n\r\n")
        return int(head.split()[1]), text


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


def ended(process: subprocess.Popen[str], lost: bool = False) -> tuple[int, int]:
    """Wait until a service has ended, whose device may be lost; return how many requests began, and were answered."""
    said, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (0, -signal.SIGTERM), errors  # uvicorn raises the signal again when all is done
    assert errors == "" or (lost and "device 0 is lost with CUDA_ERROR_ILLEGAL_ADDRESS" in errors)
    word, begun, answered = said.split()
    assert word == "ended"
    return int(begun), int(answered)


def run(function: Callable[[], object]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await function()  # type: ignore[misc]

    asyncio.run(main())


def test_sigterm_under_load_loses_no_accepted_request(service) -> None:
    process = service.start()
    right = wrong = after_signal = 0
    is_told = False

    async def client(number: int) -> None:
        nonlocal right, wrong, after_signal
        while True:
            try:
                status, text = await service.ask(f"/number/{number}")
            except (OSError, EOFError):
                assert is_told, "it was not up"
                return
            if status == 200 and json.loads(text) == {"result": 2.0 * number}:
                right += 1
                after_signal += is_told
            else:
                wrong += 1

    async def main() -> None:
        nonlocal is_told
        assert await service.ask("/health") == (200, "healthy")
        service.socket.close()  # the service's is the last one: when it closes that, nobody can connect
        clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
        while right < 10 * CLIENTS:  # noqa: ASYNC110 - the clients go on meanwhile
            await asyncio.sleep(0.001)
        is_told = True
        process.send_signal(signal.SIGTERM)
        await asyncio.gather(*clients)

    run(main)
    begun, answered = ended(process)
    assert wrong == 0
    assert begun == answered == right
    assert after_signal > 0, "nothing was under way"


def test_a_fault_fails_requests_turns_the_health_check_red_and_a_restart_brings_it_back(service) -> None:
    async def main() -> None:
        process = service.start()
        assert await service.ask("/health") == (200, "healthy")
        assert await service.ask("/number/4") == (200, '{"result":8.0}')

        async def client(number: int) -> tuple[int, str]:
            while True:
                status, text = await service.ask(f"/number/{number}")
                if status != 200:
                    return status, text

        clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
        status, text = await service.ask("/fault")
        assert status == 500
        assert "the launch of illegal" in json.loads(text)["text"]
        for status, text in await asyncio.gather(*clients):  # each is told, and none waits for ever
            error = json.loads(text)
            assert (status, error["error"]) == (500, "DeviceLostError")
            assert "device 0 was lost" in error["text"]
        status, text = await service.ask("/health")
        assert status == 503
        assert text.startswith("device 0 was lost: CUDA_ERROR_ILLEGAL_ADDRESS")

        # What a supervisor does. The device is lost, so there is nothing to drain, and it ends at once.
        process.send_signal(signal.SIGTERM)
        begun, answered = await asyncio.to_thread(ended, process, lost=True)
        assert begun - answered == CLIENTS
        process = service.start()
        assert await service.ask("/health") == (200, "healthy")
        assert await service.ask("/number/4") == (200, '{"result":8.0}')
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(ended, process) == (1, 1)

    run(main)


def test_a_service_that_watches_its_health_ends_itself_and_is_started_again(service) -> None:
    async def main() -> None:
        process = service.start("ends-itself")
        assert await service.ask("/number/3") == (200, '{"result":6.0}')
        assert (await service.ask("/fault"))[0] == 500
        assert await asyncio.to_thread(ended, process, lost=True) == (1, 1)
        process = service.start("ends-itself")
        assert await service.ask("/number/3") == (200, '{"result":6.0}')
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(ended, process) == (1, 1)

    run(main)


def test_several_workers_share_a_device(service) -> None:
    """They have a process each, and one port; each answers, and each ends in good order."""
    workers = [service.start() for _ in range(2)]

    async def main() -> None:
        async def client(number: int) -> None:
            for _ in range(20):
                assert await service.ask(f"/number/{number}") == (
                    200,
                    json.dumps({"result": 2.0 * number}).replace(" ", ""),
                )

        await asyncio.gather(*map(client, range(CLIENTS)))

    run(main)
    counts = []
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        counts.append(ended(worker))
    assert sum(begun for begun, _ in counts) == 20 * CLIENTS
    assert all(begun == answered for begun, answered in counts)


def test_workers_are_spawned_and_a_forked_one_says_so(in_process, tmp_path) -> None:
    program = tmp_path / "pool.py"
    program.write_text(
        """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import aiocuda as ac


def work(number):
    health = ac.healthy()
    if not health:
        return health.reason
    return float(ac.to_host(ac.full(4, number)).sync()[0])


if __name__ == "__main__":
    assert work(1) == 1  # the parent has used the driver
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as spawned:
        assert list(spawned.map(work, range(6))) == [0, 1, 2, 3, 4, 5]
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as forked:
        assert "forked after aiocuda was used" in forked.submit(work, 1).result()
    print("end")
"""
    )
    done = in_process(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "end\n"
