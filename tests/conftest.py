"""Fixtures that all tests share: the driver's settings, kernels, a latch that controls time, event loops.

Always true: nothing here sleeps, and nothing depends on the emulated driver but what is marked so.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Before the driver is started: two emulated devices where there is no GPU, and kernels that are
# loaded when they are made, for loading one waits for the latches of others.
os.environ.setdefault("AIOCUDA_EMULATED_DEVICES", "2")
os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
# A GPU's driver spreads streams over 8 queues. Work that waits in one of them holds what other streams have put
# behind it. The tests hold streams and rely on others, so they ask for as many queues as there can be.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
# JAX would take three quarters of a GPU's memory, which the tests of other processes need.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Tests run side by side, and start many programs. NumPy's threads would take processor time in each, also for nothing.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Where a container has Python keep no compiled modules, each of those programs would compile all of aiocuda.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import aiocuda as ac
from aiocuda import _driver, _native
from aiocuda._driver.checking import raise_races, take_race_reports
from aiocuda._loops import asyncio as asyncio_port
from aiocuda._loops import trio as trio_port

ROOT = Path(__file__).parents[1]
QUEUES = 32  # of a device, as was asked above
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PLACES = 256  # for branches of graphs: more than a file's streams and graphs of other libraries take

# AIOCUDA_HYPOTHESIS=long for a night's run.
settings.register_profile(
    "quick",
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("long", settings.get_profile("quick"), max_examples=10_000, derandomize=False)
settings.load_profile(os.environ.get("AIOCUDA_HYPOTHESIS", "quick"))

KERNELS = r"""
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
extern "C" __global__ void scale(float a, const float* x, float* y, unsigned n) {
    if (INDEX < n) y[INDEX] = a * x[INDEX];
}
extern "C" __global__ void add(const float* x, const float* y, float* z, unsigned n) {
    if (INDEX < n) z[INDEX] = x[INDEX] + y[INDEX];
}
extern "C" __global__ void increment(int* x, unsigned n) {
    if (INDEX < n) x[INDEX] += 1;
}
extern "C" __global__ void accumulate(int a, const int* x, int* y, unsigned n) {
    if (INDEX < n) y[INDEX] = 3 * y[INDEX] + a * x[INDEX];
}
extern "C" __global__ void divmod(const int* x, int d, int* quotient, int* remainder, unsigned n) {
    if (INDEX < n) { quotient[INDEX] = x[INDEX] / d; remainder[INDEX] = x[INDEX] % d; }
}
extern "C" __global__ void look(const int* x) {}
extern "C" __global__ void hold(unsigned long long flag) {
    while (*(volatile int*)flag == 0) {}
}
"""


class Kernels:
    """The kernels that many tests use, compiled and loaded on every device."""

    def __init__(self) -> None:
        for name in ("scale", "add", "increment", "accumulate", "divmod", "look", "hold"):
            kernel = ac.kernel(KERNELS, name)
            for device in ac.devices():
                kernel.compile(device)
            setattr(self, name, kernel)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no kernel {name}")


# Kernels cannot be referred to weakly, and a list of them would keep them: they are counted where they are made.
_make_kernel = _native.make_kernel
_kernels_made = 0  # by the tests so far
_kernels_loaded = 0  # of them, the last time that all were loaded


def _count_kernel(*args: Any) -> Any:
    global _kernels_made
    _kernels_made += 1
    return _make_kernel(*args)


_native.make_kernel = _count_kernel


def _kernels_among_objects() -> list[_native.Kernel]:
    return [thing for thing in gc.get_objects() if issubclass(type(thing), _native.Kernel)]


_kernels_imported: list[_native.Kernel] = []  # those that modules of tests have made
MANY_OBJECTS = 50_000  # of Python's, that a collection looks at


def leave_to_no_collection() -> None:
    """Leave what there is to no later collection: many tests collect, and there are a million objects."""
    gc.collect()
    _kernels_imported.extend(_kernels_among_objects())
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    leave_to_no_collection()


_file_begun: Path | None = None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Before each file: tests of earlier files may have imported a framework, whose objects stay."""
    global _file_begun
    if item.path == _file_begun:
        return
    _file_begun = item.path
    make_places.cache_clear()
    if len(gc.get_objects()) > MANY_OBJECTS:
        leave_to_no_collection()


def load_kernels() -> None:
    """Load all kernels that tests have made, on every device: a GPU loads none while a latch holds it."""
    global _kernels_loaded
    if _kernels_loaded == _kernels_made:
        return
    _kernels_loaded = _kernels_made
    for kernel in [*_kernels_imported, *_kernels_among_objects()]:
        for device in ac.devices():
            with contextlib.suppress(ac.AiocudaError):
                kernel.compile(device)


@functools.cache
def make_streams() -> None:
    """Make many streams, which go again.

    In a process with some hundred streams, `cuStreamCreate` did not return on an H200 while a latch held another one.
    """
    _ = [device.stream() for device in ac.devices() for _ in range(8 * QUEUES)]


@functools.cache
def make_places() -> None:
    """Make room for graphs, once for each file, before the first latch holds a device: graphs would wait for that.

    aiocuda does so by itself, for its own streams and graphs. Those of other libraries take places, too.
    """
    for device in ac.devices():
        items = ac.zeros(PLACES, np.int32, device=device).sync()
        ac.zip(*(ac.fill(items[i : i + 1], 0) for i in range(PLACES))).graph().close()


class Latch:
    """Holds streams: what is submitted to them later does not run before `release`."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernel = kernels.hold
        self._flag = ac.empty_host(1, np.int32).sync()
        self._flag.numpy()[0] = 0
        self._view = self._flag.numpy()
        self._held: list[ac.DeviceFuture[Any]] = []

    def hold(self, where: ac.Device | ac.Stream | int = 0) -> None:
        """Hold a stream, or all those of a device that the policy in force chooses from."""
        stream = where if isinstance(where, ac.Stream) else ac.Device(int(where)).stream()
        make_streams()
        make_places()
        load_kernels()
        with ac.use(stream):
            self._held.append(self._kernel(self._flag.address, grid=1, block=1).submit())
        if stream is not where:
            for held in ac.current_policy().streams(where):
                held.wait(stream)

    @property
    def is_holding(self) -> bool:
        return not all(held.done() for held in self._held)

    def release(self) -> None:
        self._view[0] = 1

    def close(self) -> None:
        self.release()
        for held in self._held:
            held.sync()


@pytest.fixture(autouse=os.environ.get("AIOCUDA_EMULATOR_CHECK") == "races")
def no_races() -> Iterator[None]:
    """If the emulated driver looks for races, a race that it finds fails the test."""
    take_race_reports()
    yield
    for device in ac.devices():
        device.synchronize().sync()
    raise_races()


@pytest.fixture(scope="session", autouse=True)
def started() -> None:
    """Open all devices, and leave the programs that tests start the usual number of queues.

    24 contexts of 32 queues each do not fit on an H100: the driver has no memory for the next one.
    """
    for each in ac.devices():
        each.synchronize().sync()
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    return Kernels()


@pytest.fixture
def latches(kernels: Kernels) -> Iterator[Callable[[], Latch]]:
    """Make latches; they are released at the end, whatever happened."""
    made: list[Latch] = []

    def make() -> Latch:
        made.append(Latch(kernels))
        return made[-1]

    yield make
    for latch in made:
        latch.close()


@pytest.fixture
def latch(latches: Callable[[], Latch]) -> Latch:
    return latches()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt, as Ctrl-C does: what a shell runs in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


BACKENDS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}
Run = functools.partial[Any]  # with the name of the loop, and then the function


def run_on(loop: str, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    return anyio.run(function, *arguments, **BACKENDS[loop])


@pytest.fixture(scope="module")  # while it lives, an event loop of its own runs in this thread
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        own = Path(running.chromium.executable_path)
        system = next(filter(None, map(shutil.which, BROWSERS)), None)
        if not own.exists() and system is None:
            pytest.skip("there is no Chromium here, and make .venv/.stamps/browser could not install one")
        opened = running.chromium.launch(
            executable_path=None if own.exists() else system,
            args=["--no-sandbox"],  # a container has no namespaces of users
        )
        yield opened
        opened.close()


@pytest.fixture(params=list(BACKENDS))
def run(request: pytest.FixtureRequest) -> Run:
    """Run an async function on a loop of its own, once for each kind of loop."""
    return functools.partial(run_on, request.param)


@pytest.fixture(params=["asyncio", "uvloop"])
def run_asyncio(request: pytest.FixtureRequest) -> Run:
    """The same, where the test is written with asyncio itself."""
    return functools.partial(run_on, request.param)


@pytest.fixture
def turn_us(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Say how long awaits may hold a turn of the loops that are made from now on."""

    def choose(time_us: int) -> None:
        for module in (asyncio_port, trio_port):
            monkeypatch.setattr(module, "TURN_US", time_us)

    return choose


@pytest.fixture(autouse=True)
def unhurried(turn_us: Callable[[int], None]) -> None:
    """Let all awaits that begin in one turn of a loop go on in it, however slow the machine is.

    Tests that count who has come by a turn would depend on time. Tests of loops, and long runs, have what users have:
    they have a fixture of this name that changes nothing.
    """
    turn_us(10**9)


@pytest.fixture
def device() -> ac.Device:
    return ac.Device(0)


@pytest.fixture
def settle() -> Callable[[], None]:
    """Give what may run the time to run: other work comes and goes on a stream of its own.

    Tests ask afterwards about work that must not have run by then; they measure no time.
    """
    stream = ac.Device(0).stream()

    def run_other_work() -> None:
        for _ in range(30):
            ac.to_host(ac.ones(8)).sync_on(stream, timeout=60)

    return run_other_work


@pytest.fixture
def used_bytes() -> Callable[[], int]:
    """Return what arrays hold on all devices, once what can be freed was."""

    def total() -> int:
        gc.collect()
        for each in ac.devices():
            each.synchronize().sync()
        return sum(each.memory_info().used_bytes for each in ac.devices())

    return total


@pytest.fixture
def let_go() -> Callable[[Callable[[], bool]], bool]:
    """Say whether something is let go of once all work has passed.

    The library drops it when somebody next submits. It is asked again, because a driver may tell late what has passed,
    as under a sanitizer, and because other threads may be about to drop what they hold.
    """

    def comes_true(is_gone: Callable[[], bool]) -> bool:
        for _ in range(100):
            for each in ac.devices():
                each.synchronize().sync(60)
            ac.zeros(1).sync(60)
            gc.collect()
            if is_gone():
                return True
        return False

    return comes_true


_SAID_BY_DRIVER = re.compile(r"emulated CUDA driver: |.*: block: \[\d+,\d+,\d+\], thread: .* Assertion ")


class HeldCompiler:
    """Counts compilations, and holds them until it is told to let them go."""

    def __init__(self, compile_sources: Any) -> None:
        self._compile = compile_sources
        self._begun = threading.Semaphore(0)
        self.released = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, *arguments: Any) -> Any:
        self.threads.append(threading.current_thread())
        self._begun.release()
        assert self.released.wait(60)
        return self._compile(*arguments)

    async def until_begun(self) -> None:
        """Wait until one more compilation has begun; the loop comes round meanwhile."""
        while not self._begun.acquire(blocking=False):
            await anyio.lowlevel.checkpoint()

    def wait_until_begun(self) -> None:
        """Block until one more compilation has begun."""
        assert self._begun.acquire(timeout=60)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldCompiler]:
    held = HeldCompiler(_driver.compile_sources)
    monkeypatch.setattr(_driver, "compile_sources", held)
    yield held
    held.released.set()  # where the test failed


class Ended:
    """A process that has ended, and what of it a test has looked at."""

    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self._process = process
        self._seen: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self._seen.add(name)
        return getattr(self._process, name)

    def overlooked(self) -> str:
        """Say what went wrong that nobody has looked at; empty where nothing did."""
        found = ""
        if self._process.returncode and "returncode" not in self._seen:
            found += f"it ended with {self._process.returncode}; "
        # The emulated driver says there why a device is lost, and a device what an assert found.
        said = [line for line in self._process.stderr.splitlines() if not _SAID_BY_DRIVER.match(line)]
        if said and "stderr" not in self._seen:
            found += "it wrote to stderr:\n" + "\n".join(said)
        return found


@pytest.fixture
def in_process() -> Iterator[Callable[..., Ended]]:
    """Run a program in a process of its own, with this one's driver; it must end by itself.

    A program that failed, or that wrote to stderr, fails the test, except where the test looks at its `returncode`
    or its `stderr`.
    """
    ended: list[Ended] = []

    def run_program(program: str, **environment: str) -> Ended:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={**os.environ, "PYTHONWARNINGS": "ignore", **environment},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        ended.append(Ended(done))
        return ended[-1]

    yield run_program
    overlooked = [found for each in ended if (found := each.overlooked())]
    assert not overlooked, "a program did what its test did not look at: " + "; ".join(overlooked)


@pytest.fixture
def lines_of(in_process) -> Callable[..., list[str]]:
    """Run pieces of a program, one behind the other, to the end; return the lines that it prints."""

    def run_program(*pieces: str, **environment: str) -> list[str]:
        done = in_process("\n".join(map(textwrap.dedent, pieces)) + "\nprint('end', flush=True)", **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert lines[-1] == "end", done.stdout + done.stderr
        return lines[:-1]

    return run_program


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_devices(n): skipped where there are fewer devices")
    config.addinivalue_line("markers", "emulated_only: depends on the emulated driver's settings")
    config.addinivalue_line("markers", "driver_refuses(*functions): provokes refusals of these; see sanitizer/run.py")
    config.addinivalue_line("markers", "soak: runs for minutes; only with -m soak")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    sys.path.insert(0, str(Path(__file__).parent))
    from xdist_files import Files

    return Files(config, log)


refused: dict[str, set[str]] = {}  # by test: which functions of the driver refuse what it asks on purpose


def pytest_runtest_setup(item: pytest.Item) -> None:
    refused[item.nodeid] = {name for mark in item.iter_markers("driver_refuses") for name in mark.args}
    if "AIOCUDA_SANITIZER_LOG" in os.environ and "latches" in item.fixturenames:  # type: ignore[attr-defined]
        pytest.skip("a sanitizer's launch waits for its kernel, so a kernel that waits for the host never ends")
    for mark in item.iter_markers("needs_devices"):
        if len(ac.devices()) < mark.args[0]:
            pytest.skip(f"needs {mark.args[0]} devices")
    if item.get_closest_marker("emulated_only") and not ac.Device(0).is_emulated:
        pytest.skip("is about the emulated driver")


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Under a sanitizer, note where its log has come to, so that what it reports is told by test."""
    log = os.environ.get("AIOCUDA_SANITIZER_LOG")
    if log is not None:
        with Path(log).with_suffix(".tests").open("a") as spans:
            size_bytes = Path(log).stat().st_size if Path(log).exists() else 0
            spans.write(f"{size_bytes}\t{nodeid}\t{','.join(refused.get(nodeid, ()))}\n")
