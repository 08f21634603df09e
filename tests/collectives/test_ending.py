"""A process does not end while something of NCCL or of the driver still ends."""

from __future__ import annotations


def test_an_exit_waits_for_what_ends(in_process):
    """Functions of `atexit` run in the opposite order: that of `ending` lies between the other two."""
    done = in_process(
        """
        import atexit, threading
        exits = threading.Event()
        def look():
            print("is under way" if thread.is_alive() else "has ended")
        atexit.register(look)
        from aiocuda._collective import ending
        atexit.register(exits.set)
        def end():
            exits.wait(60)
            sum(range(1_000_000))
        ending.end_later(end, "slow")
        (thread,) = [each for each in threading.enumerate() if each.name == "slow"]
        """
    )
    assert done.stdout == "has ended\n", done.stderr
