"""``aiocuda top``: another process in numbers, also where it stands still; and plain words where there are none."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._live import answering, command, page, report
from aiocuda._live.page import CannotLookError, LookedAt, listed

OPENS = "import aiocuda as ac, numpy as np, os, sys\nx = ac.zeros(1 << 20, np.uint8).sync()\n"
WAITS = "print('ready', flush=True)\nsys.stdin.readline()\n"


class Program:
    """A process that runs a program, and has come to its first line of output."""

    def __init__(self, text: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(text)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        self.said = self.process.stdout.readline().strip()
        self.number = self.process.pid

    def end(self) -> int:
        """Have it go on, and wait for its end."""
        self.process.communicate("\n", timeout=60)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def program() -> Iterator[Callable[[str], Program]]:
    made: list[Program] = []

    def begin(text: str) -> Program:
        made.append(Program(text))
        return made[-1]

    yield begin
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Program]:
    """A process that uses a device, and waits."""
    made = Program(OPENS + WAITS)
    yield made
    made.close()


def top(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aiocuda", "top", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_processes_that_use_a_device_are_listed(service):
    done = top()
    assert done.returncode == 0, done.stderr
    # A process is a line. (How many there are changes from one look to the next.)
    assert all(line.split()[0].isdecimal() for line in done.stdout.splitlines()[1:])
    (line,) = [line for line in done.stdout.splitlines() if line.split()[:1] == [str(service.number)]]
    assert line.split()[1] == ac.__version__
    assert {"process": service.number, "version": ac.__version__} == {
        key: value
        for each in json.loads(top("--json").stdout)
        if each["process"] == service.number
        for key, value in each.items()
        if key != "program"
    }


def test_a_process_is_shown_once(service):
    done = top(str(service.number), "--once")
    assert done.returncode == 0, done.stderr
    lines = {line.strip() for line in done.stdout.splitlines()}
    assert f"process {service.number}" in lines
    assert "arrays              1.0 MiB, 1.0 MiB at most" in lines
    assert "1.0 MiB           <string>:2 (1)" in lines


def test_json_has_all_of_it(service):
    done = top(str(service.number), "--once", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["state"] == ""
    statistics = said["report"]["statistics"]
    assert statistics["memory"][0]["arrays_bytes"] == 1 << 20
    assert set(statistics) == set(ac.Statistics.__slots__)


def test_what_is_written_is_read():
    said = report.of_this_process(largest=3)
    assert report.read(said.as_json()) == said


def test_two_may_look_at_once(service):
    with LookedAt(service.number) as one, LookedAt(service.number) as other:
        first, second = one.ask().report, other.ask().report
        assert first
        assert second
        assert second.taken_ns > first.taken_ns
        again = one.ask().report
        assert again
        assert again.taken_ns > second.taken_ns


def test_a_process_in_which_something_keeps_the_lock_says_what_it_can(program):
    stuck = program(OPENS + "import ctypes\nprint('ready', flush=True)\nctypes.PyDLL(None).pause()\n")
    with LookedAt(stuck.number) as looked_at:
        while (answer := looked_at.ask(0.5)).report:  # it has not come so far yet
            pass
    assert answer.state == "it does not answer: something there holds Python's lock (the GIL), or the driver"
    assert answer.counts
    assert answer.counts.completed + answer.counts.spins_that_paid >= 1
    done = top(str(stuck.number), "--once")
    assert done.returncode == 1
    assert "holds Python's lock" in done.stdout
    assert "waiting             0 waits" in done.stdout
    stuck.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, stuck.number, os.WSTOPPED | os.WNOWAIT)
    with LookedAt(stuck.number) as looked_at:
        assert looked_at.ask(0.1).state == "it does not answer: it is stopped"


def test_a_process_that_is_stopped_is_told_from_others_and_answers_later(program):
    stopped = program(OPENS + WAITS)
    with LookedAt(stopped.number) as looked_at:
        assert looked_at.ask().report
        stopped.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.number, os.WSTOPPED | os.WNOWAIT)
        assert looked_at.ask(0.1).state == "it does not answer: it is stopped"
        stopped.process.send_signal(signal.SIGCONT)
        assert looked_at.ask(60).report


def test_the_view_ends_with_the_process(program):
    watched = program(OPENS + WAITS)
    command = subprocess.Popen(
        [sys.executable, "-m", "aiocuda", "top", str(watched.number), "--interval", "0.05"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert command.stdout
    while "a second" not in command.stdout.readline():
        assert command.poll() is None
    assert watched.end() == 0
    _, said = command.communicate(timeout=60)
    assert command.returncode == 0
    assert said == f"process {watched.number} has ended\n"


def test_a_terminal_shows_changes_in_place(service):
    pytest.importorskip("rich")
    ours, its = pty.openpty()
    command = subprocess.Popen(
        [sys.executable, "-m", "aiocuda", "top", str(service.number), "--interval", "0.05"],
        stdout=its, stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "60"},
    )  # fmt: skip
    os.close(its)
    said = b""
    try:
        while said.count(b"memory of device 0") < 3:
            said += os.read(ours, 1 << 16)
        command.send_signal(signal.SIGINT)
        while True:  # what it still writes, to the end
            try:
                if not os.read(ours, 1 << 16):
                    break
            except OSError:
                break
        _, errors = command.communicate(timeout=60)
    finally:
        command.kill()
        command.communicate()
        os.close(ours)
    assert command.returncode == 0, errors
    assert b"\x1b[1A" in said  # up a line
    assert b"a second" in said


def refusal(process: int) -> str:
    with pytest.raises(CannotLookError) as error:
        LookedAt(process)
    assert error.value.process == process
    return str(error.value)


def test_a_process_that_is_not_there():
    done = top("999999999")
    assert done.returncode == 1
    assert done.stderr == "aiocuda top: there is no process 999999999\n"


def test_a_process_without_aiocuda(program):
    other = program("import sys\n" + WAITS)
    assert refusal(other.number) == f"process {other.number} does not use aiocuda"


def test_a_process_that_has_opened_no_device(program):
    early = program("import aiocuda, sys\n" + WAITS)
    assert refusal(early.number) == f"process {early.number} uses aiocuda, and has not opened a device yet"
    assert early.number not in [each.process for each in listed()]


def test_a_fork_of_a_process_is_none_of_it(program):
    parent = program(
        OPENS
        + textwrap.dedent("""
        child = os.fork()
        if child == 0:
            os.read(0, 1)
            os._exit(0)
        print(child, flush=True)
        sys.stdin.readline()
        """)
    )
    child = int(parent.said)
    assert refusal(child).startswith(f"process {child} was forked from process {parent.number}")
    assert parent.number in [each.process for each in listed()]
    assert child not in [each.process for each in listed()]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_process_of_another_user(service):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(f"""
            import os
            from aiocuda._live.page import LookedAt, listed
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            print([each.process for each in listed() if each.process == {service.number}])
            LookedAt({service.number})
        """)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "[]\n"
    assert f"process {service.number} may be looked at by its own user and by root alone" in done.stderr


def test_a_program_with_a_long_command_line_answers(program):
    long = program(OPENS + WAITS + f"# {'x' * 70_000}")
    with LookedAt(long.number) as looked_at:
        said = looked_at.ask(60).report
    assert said
    assert len(said.program) == 1000


def test_a_thread_that_met_an_error_answers_the_next_one(program):
    troubled = program(
        OPENS
        + textwrap.dedent("""
        from aiocuda._live import report
        def fail(*, largest):
            report.of_this_process = own
            raise MemoryError("none left")
        own, report.of_this_process = report.of_this_process, fail
        import threading
        threading.excepthook = lambda arguments: print(arguments.exc_value, flush=True)
        """)
        + WAITS
    )
    with LookedAt(troubled.number) as looked_at:
        assert not looked_at.ask(0.1).report
        assert troubled.process.stdout
        assert troubled.process.stdout.readline() == "none left\n"
        assert looked_at.ask(60).report


PRETENDS = """
import fcntl, os, struct, sys
file = os.memfd_create("aiocuda-live", os.MFD_ALLOW_SEALING)
head = struct.pack("=8sII32s", b"aiocuda\\0", 1, os.getpid(), {version!r})
"""


def pretends(version: bytes = ac.__version__.encode()) -> str:
    return PRETENDS.replace("\\\\", "\\").format(version=version)


def test_a_page_that_could_be_shortened_is_none(program):
    hostile = program(pretends() + "os.pwrite(file, head.ljust(1 << 16), 0)\n" + WAITS)
    assert refusal(hostile.number) == f"process {hostile.number} does not use aiocuda"
    assert hostile.number not in [each.process for each in listed()]


def test_a_page_that_is_too_short_is_none(program):
    hostile = program(
        pretends() + "os.pwrite(file, head.ljust(200), 0)\nfcntl.fcntl(file, fcntl.F_ADD_SEALS, 2)\n" + WAITS
    )
    assert refusal(hostile.number) == f"process {hostile.number} does not use aiocuda"


def test_what_is_no_file_in_memory_is_not_opened(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    other = tmp_path / "file"
    other.write_bytes(bytes(1 << 16))
    assert page._open_in_memory(pipe) is None
    assert page._open_in_memory(other) is None


def test_a_terminal_gets_no_commands_of_a_process_that_is_listed(program):
    hostile = program(
        pretends(b"\x1b[2J")
        + "os.pwrite(file, head.ljust(1 << 16), 0)\nfcntl.fcntl(file, fcntl.F_ADD_SEALS, 2)\n"
        + WAITS
        + "# \x1b]0;owned\x07"
    )
    (line,) = [line for line in top().stdout.splitlines() if line.split()[:1] == [str(hostile.number)]]
    assert line.isprintable()
    assert r"\x1b[2J" in line
    assert r"\x1b]0;owned\x07" in line


@pytest.mark.parametrize("wrong", ['"1"', "-1", "true", "1.5", "null", "1e400", str(1 << 64), "[" * 50_000])
def test_numbers_that_are_none_are_an_error(service, monkeypatch, wrong):
    said = report.of_this_process(largest=1).as_json()
    submitted = report.read(said).statistics.submitted
    text = said.replace(f'"submitted": {submitted},', f'"submitted": {wrong},')
    assert text != said
    really_told = _native.told_by_page
    monkeypatch.setattr(
        _native, "told_by_page", lambda memory: (told := really_told(memory)) and (*told[:4], text.encode())
    )
    with LookedAt(service.number) as looked_at, pytest.raises(CannotLookError, match="tells other numbers"):
        looked_at.ask()


def test_what_proc_does_not_show_is_not_allowed(monkeypatch):
    def refuse(_: int) -> Any:
        raise PermissionError

    monkeypatch.setattr(page, "_beginning", refuse)
    assert "may be looked at by its own user and by root alone" in refusal(os.getpid())


def test_a_process_that_ends_while_it_is_opened(service, monkeypatch):
    def end(_: int) -> Any:
        raise ProcessLookupError

    monkeypatch.setattr(page, "_own_number", end)
    assert refusal(service.number) == f"process {service.number} has ended"


def test_another_version_is_named(service, monkeypatch):
    monkeypatch.setattr(page, "__version__", "99.0")
    assert refusal(service.number) == (
        f"process {service.number} uses aiocuda {ac.__version__}, and this is aiocuda 99.0: use the aiocuda of its "
        "environment"
    )


def test_other_numbers_of_the_same_version_are_an_error(service, monkeypatch):
    def read(_: bytes) -> Any:
        raise TypeError("an unexpected keyword argument")

    monkeypatch.setattr(report, "read", read)
    with LookedAt(service.number) as looked_at, pytest.raises(CannotLookError, match="tells other numbers"):
        looked_at.ask()


def test_a_process_that_is_asked_all_the_time_ends(program):
    asked = program(OPENS + WAITS)
    assert asked.process.stdin
    asked.process.stdin.write("\n")
    asked.process.stdin.flush()
    with LookedAt(asked.number) as looked_at:
        while not looked_at.has_ended():
            looked_at.ask(0.01)
    assert asked.end() == 0


def test_a_process_that_gets_no_page_goes_on_and_says_so(monkeypatch):
    def refuse(_: str) -> Any:
        raise ac.AiocudaError("making a file in memory: too many open files")

    monkeypatch.setattr(answering, "_page", None)
    monkeypatch.setattr(_native, "LivePage", refuse)
    with pytest.warns(RuntimeWarning, match="aiocuda top cannot look at this process: making a file in memory"):
        answering.begin()


@pytest.mark.parametrize(
    "arguments", [["--interval", "0", "1"], ["--interval", "x", "1"], ["nobody"]], ids=["zero", "no number", "no PID"]
)
def test_a_wrong_command_line(arguments):
    done = top(*arguments)
    assert done.returncode == 2
    assert "usage: aiocuda top" in done.stderr


def test_an_interrupt_that_is_dropped_is_raised_by_the_next_pause():
    """Such as one that comes while a finaliser runs."""
    before = signal.getsignal(signal.SIGINT)
    with command._Pause(0.0) as pause:
        pause()
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            pause()
    assert signal.getsignal(signal.SIGINT) is before
