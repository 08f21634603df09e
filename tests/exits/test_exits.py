"""A process ends with its own exit status, whatever its other threads do with aiocuda at that moment.

Each program is run several times side by side, for what goes wrong here does so by chance: twice, or as
often as AIOCUDA_EXIT_RUNS says.
"""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

RUNS = int(os.environ.get("AIOCUDA_EXIT_RUNS", "2"))
STATUS = 7

# Daemon threads do this while the main thread ends the process.
ENDLESS = {
    "submits": """
        x = ac.zeros(100).sync()
        endlessly(lambda: ac.fill(x, 1).submit())
    """,
    "waits for work that ends": """
        x = ac.zeros(100).sync()
        endlessly(lambda: ac.fill(x, 1).sync(), threads=3)
    """,
    "waits for work that never ends": """
        waits = threading.Event()
        def wait():
            endless = hung()
            endless.submit()
            waits.set()
            endless.sync()
        thread(wait)
        waits.wait()
    """,
    "stands in line": """
        come = threading.Semaphore(0)
        def fill_the_stream():
            with ac.use(ac.Device(0).stream(), max_in_flight=4):
                hung().submit()
                x = ac.zeros(100)
                while True:
                    come.release()
                    ac.fill(x, 1).submit()
        thread(fill_the_stream)
        for _ in range(3): come.acquire()
    """,
    "awaits work that ends": """
        come = threading.Semaphore(0)
        async def main():
            x = await ac.zeros(100)
            while True:
                await ac.fill(x, 1)
                come.release()
        for _ in range(2): thread(lambda: asyncio.run(main()))
        for _ in range(40): come.acquire()
    """,
    "awaits work that never ends": """
        waits = threading.Event()
        async def main():
            endless = hung()
            endless.submit()
            asyncio.get_running_loop().call_soon(waits.set)
            await endless
        thread(lambda: asyncio.run(main()))
        waits.wait()
    """,
    "is in functions of the program's": """
        x = ac.zeros(100).sync()
        def look(y):
            time.sleep(0)  # gives up the GIL
            return y
        endlessly(lambda: ac.fill(x, 1).then(look).map(look).sync(), threads=3)
    """,
    "submits behind one who stays in a function": """
        x = ac.zeros(100).sync()
        inside, comes_next, never = threading.Event(), threading.Event(), threading.Event()
        def stay(y):
            inside.set()
            never.wait()
        thread(lambda: ac.fill(x, 1).then(stay).sync())
        inside.wait()
        def follow():
            comes_next.set()
            ac.fill(x, 2).sync()
        thread(follow)
        comes_next.wait()
    """,
    "runs finalizers": """
        class Dropped:
            def __del__(self): sum(range(200))
        def turn():
            ac.value(Dropped()).then(lambda _: Dropped()).map(lambda _: Dropped()).sync()
            ring = [Dropped()]
            ring.append(ring)
        endlessly(turn, threads=3, turns=100)
    """,
    "copies": """
        x = np.ones(1 << 20, np.float32)
        endlessly(lambda: ac.to_host(ac.to_device(x)).sync(), turns=5)
    """,
    "replays a graph": """
        x = ac.zeros(100).sync()
        graph = ac.fill(x, 1).graph()
        endlessly(lambda: graph.launch().sync())
    """,
    "calls back": """
        come = threading.Semaphore(0)
        x = ac.zeros(100).sync()
        def again(_=None):
            come.release()
            ac.fill(x, 1).submit().add_done_callback(again)
        again()
        for _ in range(20): come.acquire()
    """,
}


def end_of(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=240)
    return process.returncode, output, errors


@pytest.mark.parametrize("program", ENDLESS.values(), ids=ENDLESS.keys())
def test_daemon_threads_do_not_disturb_the_end(begin, program):
    begun = [begin(f"{program}\n        sys.exit({STATUS})") for _ in range(RUNS)]
    assert [end_of(each) for each in begun] == [(STATUS, "", "")] * RUNS


# Waits in a thread that the interpreter waits for, until they are interrupted.
WORKERS = {
    "to_thread": """
        async def main():
            endless = hung()
            endless.submit()
            await asyncio.to_thread(lambda: (print("ready", flush=True), endless.sync()))
        asyncio.run(main())
    """,
    "executor": """
        def work():
            endless = hung()
            endless.submit()
            print("ready", flush=True)
            endless.sync()
        executor = concurrent.futures.ThreadPoolExecutor(1)
        executor.submit(work)
        executor.shutdown()
    """,
}


@pytest.mark.parametrize("program", WORKERS.values(), ids=WORKERS.keys())
def test_an_executor_s_worker_does_not_disturb_the_end(begin, program):
    begun = [begin(program) for _ in range(RUNS)]
    for each in begun:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
        _interrupt_until_it_ends(each)
    assert [end_of(each)[0] for each in begun] == [-signal.SIGINT] * RUNS


def _interrupt_until_it_ends(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C: asyncio and the interpreter wait for the worker in turn, until they are interrupted as well."""
    for _ in range(300):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        return
    raise AssertionError("it does not end")


def test_functions_of_atexit_may_wait_for_threads_that_wait_for_the_device(begin):
    """Also one that was registered before aiocuda was imported, and so is called last."""
    first = """
        import atexit
        def stop():
            stopping.set()
            waiting.join()
            print(ac.to_host(ac.ones(3)).sync().tolist())
        atexit.register(stop)
    """
    program = f"""
        stopping = threading.Event()
        async def main():
            x = await ac.zeros(100)
            while not stopping.is_set():
                await ac.fill(x, 1)
        waiting = thread(lambda: asyncio.run(main()))
        sys.exit({STATUS})
    """
    assert end_of(begin(program, first)) == (STATUS, "[1.0, 1.0, 1.0]\n", "")


def test_who_executes_something_at_the_very_end_is_told(begin):
    """A thread that never goes on has the right to submit: nobody may wait for it."""
    program = f"""
        x = ac.zeros(100).sync()
        inside, never = threading.Event(), threading.Event()
        def stay(y):
            inside.set()
            never.wait()
        thread(lambda: ac.fill(x, 1).then(stay).sync())
        inside.wait()
        class Late:
            def __init__(self):
                self.operation, self.error = ac.fill(x, 2), ac.ClosedError
            def __del__(self, write=os.write):
                try: self.operation.sync()
                except self.error as error: write(1, str(error).partition(",")[0].encode())
        # In a module of its own: what the thread has on its stack keeps this one.
        sys.modules["late"] = type(sys)("late")
        sys.modules["late"].late = Late()
        sys.exit({STATUS})
    """
    assert end_of(begin(program)) == (STATUS, "the interpreter is ending", "")
