"""Managed memory, and memory that other processes may open, comes in blocks that are used again."""

from __future__ import annotations

import numpy as np
import pytest
from blocks import made_at

import aiocuda as ac

N = 1000


@pytest.mark.parametrize("kind", ["managed", "interprocess"])
def test_memory_is_used_again_only_when_its_users_have_passed(kernels, latch, device, kind):
    of_kind = {kind: True}
    x, spare = (ac.full(N, 7, np.int32, **of_kind).sync() for _ in range(2))
    first = x.address
    spare.close()
    out, stream = ac.zeros(N, np.int32).sync(), device.stream()
    latch.hold(stream)
    future = kernels.accumulate(1, x, out, N, threads=N).on(stream).submit()
    x.close()
    with ac.use(device.stream()):
        other = ac.full(N, 50, np.int32, **of_kind).sync()
    assert other.address != first
    latch.release()
    assert (ac.to_host(future.sync()).sync() == 7).all()
    ac.ones(1).sync()  # what has passed is found when something comes or goes
    assert made_at(first, 4 * N, **of_kind).address != other.address
