"""A DAG's calls are held back to be made branch by branch; but what Python may see in between has been made.

Else a wait of another thread, or a policy's own question, would take for submitted what is only counted, and find
complete what has not begun.
"""

import threading

import numpy as np
import pytest

import aiocuda as ac

SET = r"""extern "C" __global__ void set(int* x) { x[0] = 7; }"""


@pytest.fixture
def branches():
    """Copies to page-locked memory, for the first of two branches, and an array for the second."""
    locked = ac.empty_host(4, np.int32).sync()
    locked.numpy()[...] = 0
    source = ac.to_device(np.arange(1, 5, dtype=np.int32)).sync()
    ac.current_device().synchronize().sync()
    return locked, source, ac.zeros(4, np.int32).sync()


def seen_by_another_thread(locked):
    """Return what another thread finds in page-locked memory when the device has done all that it was given."""
    found = []

    def look():
        ac.current_device().synchronize().sync()
        found.append(locked.numpy().copy())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


def test_before_a_kernel_is_compiled(branches, monkeypatch):
    locked, source, other = branches
    kernel = ac.kernel(SET)
    seen = []
    is_loaded = ac.Kernel._is_loaded

    def look(self, *given):
        seen.append(seen_by_another_thread(locked))
        return is_loaded(self, *given)

    monkeypatch.setattr(ac.Kernel, "_is_loaded", look)
    ac.zip(ac.copy(locked, source), kernel(other, threads=1)).sync()
    assert seen
    np.testing.assert_array_equal(seen, [[1, 2, 3, 4]] * len(seen))


def test_before_a_policy_is_asked(branches):
    locked, source, other = branches
    seen = []

    class Looks(ac.SchedulingPolicy):
        def choose(self, op, producers, candidates):
            seen.append(seen_by_another_thread(locked))
            return candidates[len(seen) % len(candidates)]

    kernel = ac.kernel(SET)
    kernel.compile()
    with ac.use(Looks()):
        ac.zip(ac.copy(locked, source), kernel(other, threads=1)).sync()
    np.testing.assert_array_equal(seen, [[0, 0, 0, 0], [1, 2, 3, 4]])


@pytest.mark.parametrize("method", ["then", "inspect"])
def test_before_a_function_is_called(branches, method):
    locked, source, other = branches
    seen = []

    def look(array):
        seen.append(seen_by_another_thread(locked))
        return array

    ac.zip(ac.copy(locked, source), getattr(ac.dup(other), method)(look)).sync()
    np.testing.assert_array_equal(seen, [[1, 2, 3, 4]])
