"""A fault on a device ends everything that waits for it, with an error that says what was going on.

Each test breaks a context, so each runs in a process of its own.
"""

from __future__ import annotations

import pytest


def test_sync_raises_device_lost_with_operation_error_and_line(broken):
    out = broken(
        """
        op = illegal()
        try:
            op.sync()
        except ac.DeviceLostError as error:
            print(error.operation, "|", error.origin, "|", error.error.name, error.error.code, "|", error.device)
            print(error)
            assert error.__cause__ is error.error
        """
    )
    what = out.splitlines()[0].split(" | ")
    assert what[0] == "the launch of illegal"
    assert what[1].startswith("<string>:")
    assert what[2] == "CUDA_ERROR_ILLEGAL_ADDRESS 700"
    assert what[3] == "device 0"
    assert "illegal" in out
    assert "<string>:" in out


def test_the_message_says_how_threads_became_blocks(broken):
    out = broken(
        """
        try:
            k["illegal"](ac.zeros(4, np.int32), FAR, threads=(4, 1)).sync()
        except ac.DeviceLostError as error:
            print(error.blocks)
            assert error.blocks in str(error)
        """
    )
    assert out.splitlines()[0] == (
        "threads=(4, 1) was launched as a grid of (1, 1, 1) blocks of (32, 1, 1) threads, 28 threads more than asked "
        "for: the kernel must check its index before it uses it"
    )


@pytest.mark.parametrize(
    "waiting",
    [
        "ac.to_host(faulty)",
        "ac.to_host(ac.fill(ac.dup(faulty)[1:], 3))",
        "ac.to_host(faulty.then(lambda x: ac.dup(x)))",
        "ac.zip(*[harmless() for _ in range(9)], faulty).last()",
        "faulty.inspect(lambda x: None)",
        "faulty.graph().launch()",
        "ac.to_host(faulty).graph().launch()",
        "ac.to_host(faulty.graph().launch())",
        "ac.zip(faulty.graph().launch(), 1).graph().launch()",
        "ac.compile(lambda: ac.to_host(launch()))()",
    ],
)
def test_what_waits_for_a_launch_says_how_its_threads_became_blocks(broken, waiting):
    # A walk that is held submits all of it before the fault is known.
    out = broken(
        f"""
        there = ac.zeros(4, np.int32).sync()
        def harmless():
            return k["increment"](ac.zeros(4, np.int32), threads=3)
        def launch():
            return k["illegal"](there, FAR, threads=4)
        faulty = launch()
        line = launch.__code__.co_firstlineno + 1
        waiting = {waiting}
        with ac.use(ac.Device(0).stream()):  # all of it behind the latch
            latch = Latch()
            future = waiting.submit()
        latch.release()
        try:
            future.sync()
        except ac.DeviceLostError as error:
            assert error.blocks in str(error), error
            print(error.blocks.replace(f":{{line}}", ":line"))
        """
    )
    assert (
        "in the launch of illegal (built at <string>:line), threads=4 was launched as a grid of (1, 1, 1) blocks of "
        "(32, 1, 1) threads, 28 threads more than asked for: the kernel must check its index before it uses it"
    ) in out
    assert out.count("in the launch of illegal") == 1


def test_at_most_four_launches_are_explained_those_with_threads_to_spare_first(broken):
    out = broken(
        """
        far = ac.zeros(32, np.int32).sync()
        launches = [k["increment"](ac.zeros(n, np.int32), threads=n) for n in (32, 64, 33, 96, 34, 128)]
        graph = ac.zip(*launches, k["illegal"](far, FAR, threads=35)).graph()
        try:
            graph.launch().sync()
        except ac.DeviceLostError as error:
            *told, others = error.blocks.split("; ")
            print([part.split("threads=")[1].split()[0] for part in told], others)
        """
    )
    assert out.splitlines()[0] == (
        "['33', '34', '35', '32'] threads= was given to 3 more of the launches that it waited for"
    )


def test_a_grid_that_was_given_is_not_explained(broken):
    out = broken(
        """
        try:
            ac.to_host(illegal()).sync()
        except ac.DeviceLostError as error:
            print(repr(error.blocks))
        """
    )
    assert out.splitlines()[0] == "''"


@pytest.mark.parametrize(("kernel", "code"), [("trap", {715, 719}), ("assertion", {710})])
def test_trap_and_assert_lose_the_device(broken, kernel, code):
    out = broken(
        f"""
        try:
            k["{kernel}"](ac.zeros(1, np.int32), grid=1, block=1).sync()
        except ac.DeviceLostError as error:
            print(error.error.code)
        """
    )
    assert int(out.splitlines()[-2]) in code


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_every_pending_await_ends(broken, loop):
    """Other tasks wait for work behind the fault, for other streams, for the stream, for an event."""
    out = broken(
        f"""
        import anyio
        ac.set_policy(ac.SingleStream())  # so that the work behind the fault is behind it
        results = []
        async def expect(name, awaitable):
            try:
                await awaitable
            except ac.DeviceLostError as error:
                results.append((name, error.error.code))
        async def main():
            latch = Latch()
            bad = illegal()
            behind = ac.to_host(ac.zeros(4, np.int32))
            other = ac.Device(0).stream()
            elsewhere = ac.copy(ac.zeros(4, np.int32), bad).on(other)
            async with anyio.create_task_group() as group:
                for i in range(3):
                    group.start_soon(expect, f"bad {{i}}", bad)
                    group.start_soon(expect, f"behind {{i}}", behind)
                group.start_soon(expect, "elsewhere", elsewhere)
                for _ in range(3):
                    await anyio.lowlevel.checkpoint()
                group.start_soon(expect, "stream", ac.Device(0).synchronize())
                for _ in range(3):
                    await anyio.lowlevel.checkpoint()
                latch.release()
            print(len(results), len([r for r in results if r[1] == 700]))
        options = dict(backend="trio") if "{loop}" == "trio" else dict(
            backend="asyncio", backend_options={{"use_uvloop": "{loop}" == "uvloop"}})
        anyio.run(main, **options)
        """
    )
    assert out.splitlines()[-2] == "8 8"


def test_every_waiting_thread_ends(broken):
    out = broken(
        """
        ac.set_policy(ac.SingleStream())  # so that the work behind the fault is behind it
        latch = Latch()
        bad, behind = illegal(), ac.to_host(ac.zeros(4, np.int32))
        bad.submit(); behind.submit()
        results = []
        def wait(op):
            try:
                op.sync()
            except ac.DeviceLostError as error:
                results.append(error.error.code)
        threads = [threading.Thread(target=wait, args=(op,)) for op in (bad, bad, behind, behind)]
        for thread in threads: thread.start()
        latch.release()
        for thread in threads: thread.join()
        print(results)
        """
    )
    assert out.splitlines()[-2] == "[700, 700, 700, 700]"


def test_host_functions_do_not_run_after_a_fault(broken):
    out = broken(
        """
        calls = []
        latch = Latch()
        op = ac.to_host(illegal()).map(calls.append)
        future = op.submit()
        latch.release()
        for ask in (future.sync, op.sync, op.sync):
            try:
                ask()
            except ac.DeviceLostError as error:
                print(error.error.code)
        print(calls)
        """
    )
    assert out.splitlines()[-5:-1] == ["700", "700", "700", "[]"]


def test_what_comes_after_a_fault_is_refused_with_the_same_error(broken):
    out = broken(
        """
        x = ac.zeros(1, np.int32).sync()
        host = ac.to_host(x).sync()
        refused(illegal().sync)
        for again in (lambda: k["increment"](x, grid=1, block=1).sync(),
                      lambda: ac.to_host(x).sync(),
                      lambda: ac.ones(3).sync(),
                      lambda: asyncio.run(wait(ac.to_host(ac.ones(3)))),
                      lambda: ac.Device(0).synchronize().sync()):
            async def wait(op):
                return await op
            try:
                again()
            except ac.DeviceLostError as error:
                print(error.error.code)
        print(host[0])
        """
    )
    assert out.splitlines()[:-1] == ["700"] * 5 + ["0"]


def test_results_from_before_the_fault_stay(broken):
    out = broken(
        """
        early = ac.to_host(ac.full(3, 7, np.int32))
        early.sync()
        refused(illegal().sync)
        async def again():
            return await early
        print(early.sync().tolist(), asyncio.run(again()).tolist())
        """
    )
    assert out.splitlines()[-2] == "[7, 7, 7] [7, 7, 7]"


def test_dropping_everything_after_a_fault_is_quiet(broken):
    broken(
        """
        arrays = [ac.ones(1000).sync() for _ in range(20)]
        hosts = [ac.empty_host(1000).sync() for _ in range(20)]
        stream = ac.Device(0).stream()
        event = stream.record()
        refused(illegal().sync)
        del arrays, hosts, stream, event
        gc.collect()
        refused(ac.ones(3).sync)
        """
    )


@pytest.mark.emulated_only  # NVIDIA's driver answers for all devices of a process once one has had a fault
@pytest.mark.needs_devices(2)
def test_another_device_is_not_affected(broken):
    out = broken(
        """
        async def main():
            latch = Latch()
            bad = illegal()
            good = k["increment"](ac.full(1, 41, np.int32, device=1), grid=1, block=1)
            async def expect():
                try:
                    await bad
                except ac.DeviceLostError as error:
                    return error.device
            task = asyncio.ensure_future(expect())
            await asyncio.sleep(0)
            with ac.use(1):
                before = (await ac.to_host(good))[0]
            latch.release()
            lost = await task
            with ac.use(1):
                after = (await ac.to_host(k["increment"](good, grid=1, block=1)))[0]
            print(before, lost, after)
        asyncio.run(main())
        """
    )
    assert out.splitlines()[-2] == "42 device 0 43"


@pytest.mark.needs_devices(2)
def test_an_await_of_both_devices_ends(broken):
    out = broken(
        """
        async def main():
            x = ac.full(4, 1, np.int32, device=1)
            both = ac.zip(ac.to_host(x), illegal())
            try:
                await both
            except ac.DeviceLostError as error:
                print(error.error.code)
        asyncio.run(main())
        """
    )
    assert out.splitlines()[-2] == "700"
