"""Two hosts on one machine: Linux namespaces, each with its own network, processes and host name, and a switch between.

Always true: all of it ends with the process that made it, however that ends: the kernel ends what runs in a host with
the host's first process, and that one with its parent. The hosts share files and /dev/shm, by which the emulated NCCL
goes, and nothing else: neither sees the other's processes, so no memory that is found by a process' number is shared.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ADDRESSES: Final = ("10.231.0.1", "10.231.0.2")
_UNTIL_THE_END: Final = ("sh", "-c", "echo there; cat; :")  # ends with its stdin; reaps what has lost its parent
_OWN: Final = ("--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
_START_S: Final = 60


def why_not() -> str:
    """Return why there can be no hosts here; empty where there can be."""
    if lacking := [each for each in ("ip", "nsenter", "unshare") if shutil.which(each) is None]:
        return f"{', '.join(lacking)}: no such program; hosts are made with iproute2 and util-linux"
    steps = "ip link add name switch type bridge && ip link add name port type veth && exec unshare {} true"
    tried = subprocess.run(
        ["unshare", *_privileges(), "--net", "sh", "-c", steps.format(" ".join(_OWN))],
        capture_output=True, text=True, timeout=_START_S, check=False,
    )  # fmt: skip
    return f"no namespaces can be made: {tried.stderr.strip()}" if tried.returncode else ""


def _privileges() -> Sequence[str]:
    """Return what makes this user the root of what is made."""
    return () if os.geteuid() == 0 else ("--user", "--map-root-user")


class Namespaces:
    """A process that keeps some, and is ended with them."""

    _kinds: tuple[str, ...] = ("--net",)

    def __init__(self, command: Sequence[str], settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._kept = subprocess.Popen(
            [*command, *_UNTIL_THE_END], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._kept.stdout is not None
        assert self._kept.stdout.readline() == "there\n", "it ended at once"
        self._inside = self._kept.pid

    def enter_child(self) -> None:
        """From now on commands join the process' child: the first one of a namespace of processes."""
        pid = self._kept.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
        (self._inside,) = map(int, children.split())

    def command(self, *arguments: str) -> list[str]:
        """Return a command that runs one there."""
        user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        return ["nsenter", "--target", str(self._inside), *user, *self._kinds, *arguments]

    def run(self, *arguments: str) -> str:
        """Run a command there; return what it says."""
        done = subprocess.run(
            self.command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=_START_S, env={**os.environ, **self._settings},
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def open(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Begin a command there, whose input and output are pipes."""
        return subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **self._settings},
        )

    def end(self) -> None:
        self._kept.kill()
        self._kept.communicate()


class Host(Namespaces):
    """One host. Its address is ``10.231.0.n``, and its name ``host-n``."""

    _kinds = ("--net", "--uts", "--pid", "--mount")

    def __init__(self, switch: Namespaces, number: int, settings: Mapping[str, str]) -> None:
        super().__init__(switch.command("unshare", *_OWN), settings)
        self.enter_child()
        self.number, self.address, self.port = number, ADDRESSES[number - 1], f"port{number}"
        switch.run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", str(self._inside))
        for command in (
            "ip link set lo up",
            f"ip address add {self.address}/24 dev eth0",
            "ip link set eth0 up",
        ):
            self.run(*command.split())
        self.run(sys.executable, "-c", f"import socket; socket.sethostname('host-{number}')")

    def processes(self, name: str) -> list[int]:
        """Return the numbers of the processes of a name."""
        found = self.run("sh", "-c", f"grep -lx {name} /proc/[0-9]*/comm || true")
        return [int(path.split("/")[2]) for path in found.split()]


class TwoHosts:
    """The hosts, the nodes of Ray on them, and the network between them, which can be cut.

    Parameters
    ----------
    temporary
        A folder for Ray.
    settings
        Variables of all that runs on the hosts.
    """

    ray_address: Final = f"{ADDRESSES[0]}:6379"

    def __init__(self, temporary: str, settings: Mapping[str, str]) -> None:
        self._ends = contextlib.ExitStack()
        self._temporary, self._settings = temporary, settings

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as ends:
            self._switch = Namespaces(["unshare", *_privileges(), "--net"], {})
            ends.callback(self._switch.end)
            self._switch.run("ip", "link", "add", "name", "switch", "type", "bridge")
            self._switch.run("ip", "link", "set", "switch", "up")
            made = []
            for number in (1, 2):
                made.append(Host(self._switch, number, self._settings))
                ends.callback(made[-1].end)
                self._switch.run("ip", "link", "set", made[-1].port, "master", "switch", "up")
            self.near, self.far = made
            self._ends = ends.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends.close()

    def cut(self) -> None:
        """Let nothing through any more. Neither end of a connection is told."""
        self._switch.run("ip", "link", "set", self.far.port, "nomaster")

    def mend(self) -> None:
        """Let everything through again."""
        self._switch.run("ip", "link", "set", self.far.port, "master", "switch")

    def kill(self, process: int) -> None:
        """Kill a process of the far host, by its number there."""
        self.far.run("kill", "-KILL", str(process))

    def has(self, process: int) -> bool:
        """Whether the far host has a process of a number."""
        return "there" in self.far.run("sh", "-c", f"kill -0 {process} 2> /dev/null && echo there || true")

    def kill_ray(self) -> None:
        """Kill the node of Ray on the far host."""
        (raylet,) = self.far.processes("raylet")
        self.kill(raylet)

    def start_ray(self, which: str) -> None:
        """Start a node of Ray on the host, ``"near"`` or ``"far"``. The near one has the head."""
        host: Host = getattr(self, which)
        head = ("--head", "--port=6379", "--include-dashboard=False", f"--temp-dir={self._temporary}")
        host.run(
            str(Path(sys.executable).with_name("ray")), "start",
            *(head if host is self.near else [f"--address={self.ray_address}"]),
            f"--node-ip-address={host.address}", "--disable-usage-stats", "--include-log-monitor=False",
            "--object-store-memory=80000000", "--num-cpus=0", "--num-gpus=1",
        )  # fmt: skip
