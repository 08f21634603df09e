"""all_reduce awaited beside NCCL's own calls and PyTorch's, and a network whose gradients are added up meanwhile.

Run: python benchmarks/bench_collectives.py [--quick] [--json PATH]     (AIOCUDA_DRIVER=nvidia for GPUs, two or more)

A process for each of two ranks, with a device each; then one process with a local group of both. The ways of a size
take turns. Times are microseconds of a call, the median of the rounds:

- awaited: ``await group.all_reduce(x, out=x)``, one after the other; of nccl4py: a call, then the stream is waited for.
- in a row: all calls are submitted, and the last one is awaited; of nccl4py: all calls, then one wait.

The network has square layers, and trains on as many rows for each rank. `alone` is without a group, `reduced` only adds
up, `both` is a step of training, in which each layer's gradients are added up while the layer before it computes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

import aiocuda as ac
from aiocuda.collective import Group, unique_id

RANKS = 2
Way = Callable[[int], Awaitable[None]]  # so many calls


def shared(folder: Path, name: str, rank: int, make: Callable[[], bytes]) -> bytes:
    """Return bytes that rank 0 makes."""
    path = folder / name
    if rank == 0:
        path.with_suffix(".part").write_bytes(make())
        path.with_suffix(".part").rename(path)
    while not path.exists():
        time.sleep(0.01)
    return path.read_bytes()


def wait_for(streams: list[Any]) -> None:
    for stream in streams:
        (status,) = driver.cuStreamSynchronize(stream.handle)
        assert status == driver.CUresult.CUDA_SUCCESS, status


def ways_of_ours(group: Group, xs: list[Any]) -> dict[str, Way]:
    def reduced() -> Any:
        return ac.zip(*group.all_reduce(xs, out=xs)) if group.is_local else group.all_reduce(xs[0], out=xs[0])

    async def awaited(calls: int) -> None:
        for _ in range(calls):
            await reduced()

    async def in_a_row(calls: int) -> None:
        for future in [reduced().submit() for _ in range(calls)]:
            await future

    return {"aiocuda, awaited": awaited, "aiocuda, in a row": in_a_row}


def ways_of_nccl(communicators: list[Any], xs: list[Any]) -> dict[str, Way]:
    import nccl.core as nc

    streams = [x.device.stream() for x in xs]

    def call() -> None:
        with nc.group() if len(xs) > 1 else contextlib.nullcontext():
            for communicator, x, stream in zip(communicators, xs, streams, strict=True):
                communicator.allreduce(x, x, nc.SUM, stream=stream)

    async def awaited(calls: int) -> None:
        for _ in range(calls):
            call()
            wait_for(streams)

    async def in_a_row(calls: int) -> None:
        for _ in range(calls):
            call()
        wait_for(streams)

    return {"nccl4py, awaited": awaited, "nccl4py, in a row": in_a_row}


def ways_of_torch(count: int) -> dict[str, Way]:
    import torch
    from torch import distributed

    x = torch.zeros(count, device="cuda")

    async def awaited(calls: int) -> None:
        for _ in range(calls):
            distributed.all_reduce(x)
            torch.cuda.synchronize()

    async def in_a_row(calls: int) -> None:
        for _ in range(calls):
            distributed.all_reduce(x)
        torch.cuda.synchronize()

    return {"PyTorch, awaited": awaited, "PyTorch, in a row": in_a_row}


def has_torch(folder: Path, rank: int) -> bool:
    """Join PyTorch's own group, where PyTorch has a GPU."""
    if ac.Device(0).is_emulated:
        return False
    try:
        import torch
        from torch import distributed
    except ImportError:
        return False
    torch.cuda.set_device(0)
    distributed.init_process_group("nccl", init_method=f"file://{folder}/torch", rank=rank, world_size=RANKS)
    return True


def sizes(quick: bool) -> Iterator[tuple[int, int]]:
    """Yield bytes, and how many calls are timed at once."""
    for exponent in (12, 16, 20, 22) if quick else (12, 16, 20, 22, 24, 26, 28, 30):
        yield 1 << exponent, 3 if quick else max(5, min(300, (4 << 30) >> exponent))


async def timed(
    group: Group, communicators: list[Any], quick: bool, more: Callable[[int], dict[str, Way]]
) -> dict[str, dict[str, float]]:
    """Return microseconds of a call, by the array's size and the way."""
    found: dict[str, dict[str, float]] = {}
    for size_bytes, calls in sizes(quick):
        xs = [ac.zeros(size_bytes // 4, device=each).sync() for each in group.devices]
        ways = ways_of_ours(group, xs) | ways_of_nccl(communicators, xs) | more(size_bytes // 4)
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(3 if quick else 6):
            for name, way in ways.items():
                await way(1)  # ranks begin together
                before = time.perf_counter()
                await way(calls)
                if number:  # the first round is for caches
                    taken[name].append((time.perf_counter() - before) / calls * 1e6)
        found[str(size_bytes)] = {name: round(float(np.median(each)), 2) for name, each in taken.items()}
    return found


class Network:
    """Layers of one width, of a rank."""

    def __init__(self, layers: int, width: int, rows: int, dtype: str) -> None:
        self.weights = [ac.full((width, width), 1 / width, dtype).sync() for _ in range(layers)]
        self.gradients = [ac.zeros((width, width), dtype).sync() for _ in range(layers)]
        self.values = [ac.ones((rows, width), dtype).sync() for _ in range(layers + 1)]
        self.errors = [ac.ones((rows, width), dtype).sync() for _ in range(2)]

    def step(self, group: Group | None) -> list[Any]:
        """Describe a step: forward, backward, and the gradients' sums; its results are the gradients."""
        values, made = [self.values[0]], []
        for weights, out in zip(self.weights, self.values[1:], strict=True):
            values.append(ac.linalg.matmul(values[-1], weights, out=out))
        error: Any = self.errors[0]
        for layer in reversed(range(len(self.weights))):
            gradients = ac.linalg.matmul(values[layer].T, error, out=self.gradients[layer])
            made.append(gradients if group is None else group.all_reduce(gradients, out=gradients))
            error = ac.linalg.matmul(error, self.weights[layer].T, out=self.errors[(len(made)) % 2])
        return [*made, error]

    def reduced(self, group: Group) -> list[Any]:
        """Describe the sums of all gradients, without computing any."""
        return [group.all_reduce(each, out=each) for each in self.gradients]


async def trained(group: Group, quick: bool) -> dict[str, float]:
    """Return milliseconds of a step: computed alone, reduced alone, and both."""
    network = Network(4, 256, 64, "float32") if quick else Network(6, 8192, 8192, "bfloat16")
    parts: dict[str, Callable[[], list[Any]]] = {
        "alone": lambda: network.step(None),
        "reduced": lambda: network.reduced(group),
        "both": lambda: network.step(group),
    }
    steps = 2 if quick else 8
    taken: dict[str, list[float]] = {name: [] for name in parts}
    for number in range(2 if quick else 6):
        for name, part in parts.items():
            await group.barrier()
            before = time.perf_counter()
            ahead = None
            for _ in range(steps):  # one step is submitted ahead
                future = ac.zip(*part()).submit()
                if ahead is not None:
                    await ahead
                ahead = future
            assert ahead is not None
            await ahead
            if number:
                taken[name].append((time.perf_counter() - before) / steps * 1e3)
    times = {name: float(np.median(each)) for name, each in taken.items()}
    last = times["reduced"] / len(network.weights)  # that of the first layer has nothing to overlap with
    ideal = max(times["alone"], times["reduced"]) + last
    hidden = (times["alone"] + times["reduced"] - times["both"]) / (times["alone"] + times["reduced"] - ideal)
    return {name: round(each, 3) for name, each in times.items()} | {
        "overlap of ideal": round(hidden, 3),
        "weak scaling": round(RANKS * times["alone"] / times["both"], 3),
    }


async def rank_main(rank: int, folder: Path, quick: bool) -> dict[str, Any]:
    import nccl.core as nc

    group = Group.init(rank, RANKS, shared(folder, "id", rank, unique_id))
    uid = nc.UniqueId.from_bytes(shared(folder, "uid", rank, lambda: bytes(nc.get_unique_id())))
    communicator = nc.Communicator.init(RANKS, rank, uid)
    torch_too = has_torch(folder, rank)
    found = {
        "all_reduce": await timed(group, [communicator], quick, lambda n: ways_of_torch(n) if torch_too else {}),
        "network": await trained(group, quick),
    }
    group.close()
    communicator.destroy()
    return found


async def local_main(quick: bool) -> dict[str, Any]:
    import nccl.core as nc

    with Group.local(range(RANKS)) as group:
        communicators = nc.Communicator.init_all(RANKS)
        found = {"all_reduce": await timed(group, communicators, quick, lambda _: {})}
        for each in communicators:
            each.destroy()
    return found


def run(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})


def answers(processes: list[subprocess.Popen[str]]) -> list[Any]:
    texts = [each.communicate()[0] for each in processes]
    for each in processes:
        if each.returncode:
            raise SystemExit(f"a rank ended with status {each.returncode}")
    return [json.loads(text.splitlines()[-1]) for text in texts]


def show(title: str, found: dict[str, dict[str, float]]) -> None:
    ways = list(next(iter(found.values())))
    print(f"\n{title}: microseconds of a call\n{'bytes':>12} " + " ".join(f"{way:>18}" for way in ways))
    for size_bytes, times in found.items():
        print(f"{int(size_bytes):>12,} " + " ".join(f"{times[way]:>18,.1f}" for way in ways))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="to see that it runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    quick = ["--quick"] if given.quick else []
    if given.folder is not None:
        rank = given.rank
        found = asyncio.run(local_main(given.quick) if rank is None else rank_main(rank, given.folder, given.quick))
        print(json.dumps(found))
        return
    emulated = ac.select_driver().is_emulated
    if not emulated and len(ac.devices()) < RANKS:
        raise SystemExit(f"{RANKS} GPUs are needed, and there are {len(ac.devices())}")
    visible = (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(RANKS)))).split(",")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            run(
                ["--folder", folder, "--rank", str(rank), *quick],
                {"AIOCUDA_EMULATED_DEVICES": "1"} if emulated else {"CUDA_VISIBLE_DEVICES": visible[rank]},
            )
            for rank in range(RANKS)
        ]
        of_ranks = answers(ranks)[0]
        of_one = answers([run(["--folder", folder, *quick], {"AIOCUDA_EMULATED_DEVICES": str(RANKS)})])[0]
    show(f"{RANKS} processes", of_ranks["all_reduce"])
    show(f"one process, {RANKS} devices", of_one["all_reduce"])
    print("\nnetwork, milliseconds of a step: " + ", ".join(f"{k} {v}" for k, v in of_ranks["network"].items()))
    if given.json:
        given.json.write_text(json.dumps({"ranks": of_ranks, "local": of_one}, indent=1))


if __name__ == "__main__":
    main()
