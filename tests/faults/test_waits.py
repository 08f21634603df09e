"""A device that is lost while `wait` or `as_completed` waits ends all futures that it is to tell of."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("is_submitted", [False, True])
@pytest.mark.parametrize("how", ["wait", "as_completed"])
def test_all_futures_of_a_wait_end_with_the_device(broken, how, is_submitted):
    broken(f"""
        async def main():
            x = ac.zeros(4, np.int32).sync()
            stream = ac.Device(0).stream()
            with ac.use(stream):  # nothing runs, and no submission is refused, before the latch is released
                latch = Latch()
            ops = [k["increment"](x, grid=1, block=1) for _ in range(5)] + [illegal(x)]
            ops += [k["increment"](x, grid=1, block=1) for _ in range(5)]
            futures = [op.on(stream).submit() if {is_submitted} else op.schedule(0) for op in ops]
            asyncio.get_running_loop().call_soon(latch.release)  # once it waits
            if "{how}" == "wait":
                done, pending = await ac.wait(futures)
                assert pending == set()
            else:
                done = {{future async for future in ac.as_completed(futures)}}
            assert done == set(futures)
            assert isinstance(futures[5].exception(), ac.DeviceLostError), futures[5].exception()
            assert all(isinstance(each.exception(), ac.DeviceLostError) for each in futures[6:])

        asyncio.run(main())
    """)
