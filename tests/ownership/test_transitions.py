"""The rights to use an array: shared, moved, partitioned, closed. Each wrong use is an error that tells the array's
story.
"""

from __future__ import annotations

import gc
import re
import sys

import numpy as np
import pytest

import aiocuda as ac

KERNELS = r"""
extern "C" __global__ void write(int* x) { x[0] = -1; }
extern "C" __global__ void total(const int* x, int* out, unsigned n) {
    int sum = 0;
    for (unsigned i = 0; i < n; ++i) sum += x[i];
    *out = sum;
}
"""
write = ac.kernel(KERNELS, "write")
total = ac.kernel(KERNELS, "total")

MAKE = {
    "device": lambda: ac.arange(8, dtype=np.int32).sync(),
    "page-locked": lambda: ac.copy(ac.empty_host(8, np.int32), np.arange(8, dtype=np.int32)).sync(),
}


def here():
    """The place of the line that calls it, as errors tell it."""
    return f"{__file__}:{sys._getframe(1).f_lineno}"


def told(*said):
    """An error's text with these in order."""
    return ".*".join(re.escape(each) for each in said)


def contents(array):
    return ac.to_host(array).sync()


@pytest.fixture(params=list(MAKE))
def array(request):
    return MAKE[request.param]()


@pytest.fixture
def on_device():
    return MAKE["device"]()


def write_by_kernel(array):
    write(array, grid=1, block=1).sync()


def write_by_copy(array):
    ac.copy(array, np.zeros(array.shape, np.int32)).sync()


def read(array):
    contents(array)


# Shared.


def test_all_handles_of_a_shared_array_are_for_reading(array):
    place, shared = here(), array.share()
    assert type(shared) is type(array)
    assert shared is not array
    for handle in (array, shared, shared.share(), shared[2:], array[::2].share()):
        np.testing.assert_array_equal(
            contents(handle), contents(array)[-len(handle) :] if len(handle) > 4 else [0, 2, 4, 6]
        )
        with pytest.raises(ac.OwnershipError, match=told("copy: the destination", "was shared at", "read-only")):
            write_by_copy(handle)
    with pytest.raises(ac.OwnershipError, match=told(f"was shared at {place}", "unwrap() the last")):
        write_by_copy(array)
    assert f"shared at {place}" in repr(shared)
    np.testing.assert_array_equal(contents(array), range(8))


def test_a_kernel_reads_shared_arrays_and_does_not_write_them(on_device):
    shared = on_device.share()
    out = ac.zeros(1, np.int32).sync()
    assert total(shared, out, 8, grid=1, block=1).sync() is out
    assert contents(out)[0] == 28
    with pytest.raises(ac.OwnershipError, match=told("write: argument 1 (x)", "was shared at")):
        write(shared, grid=1, block=1)
    with pytest.raises(ac.OwnershipError, match=told("total: argument 2 (out)", "was shared at")):
        total(out, shared, 1, grid=1, block=1)


def test_an_older_view_does_not_write_what_is_shared(array):
    view, others = array[2:4], array[6:]
    shared = array[:4].share()
    with pytest.raises(ac.OwnershipError, match="was shared"):
        write_by_copy(view)
    with pytest.raises(ac.OwnershipError, match="was shared"):
        write_by_copy(array)
    write_by_copy(others)
    np.testing.assert_array_equal(contents(shared), [0, 1, 2, 3])


def test_unwrap_gives_back_the_last_handle_for_writing(array):
    place, shared = here(), array.share()
    view = shared[1:]
    with pytest.raises(ac.OwnershipError, match=told("unwrap", place, "2 other handles of it are left")):
        array.unwrap()
    view.close()
    with pytest.raises(ac.OwnershipError, match="1 other handle of it is left"):
        array.unwrap()
    del shared
    assert array.unwrap() is array
    write_by_copy(array)
    assert not contents(array).any()


def test_any_of_the_handles_can_be_the_last(array):
    shared = array.share()
    array.close()
    assert shared.unwrap() is shared
    write_by_copy(shared)


def test_what_is_not_shared_is_not_unwrapped(array):
    with pytest.raises(ac.OwnershipError, match="is not shared; it is owned already"):
        array.unwrap()
    shared = array.share()
    del shared
    array.unwrap()
    with pytest.raises(ac.OwnershipError, match="owned already"):
        array.unwrap()
    older = array[:2]
    kept = array.share()
    with pytest.raises(ac.OwnershipError, match="was shared"):
        older.unwrap()
    del kept


def test_when_all_shared_handles_are_gone_an_older_view_may_write(array):
    view = array[:4]
    shared = array.share()
    array.close()
    with pytest.raises(ac.OwnershipError, match="was shared"):
        write_by_copy(view)
    del shared, array
    gc.collect()
    write_by_copy(view)


def test_sharing_twice_and_unwrapping_the_part_first(array):
    whole, part = array.share(), array[:4].share()
    with pytest.raises(ac.OwnershipError, match="left"):
        part.unwrap()  # of the same group as the array: a view of what was shared
    del part
    whole.close()
    array.unwrap()


def test_numpys_view_of_shared_memory_is_for_reading_and_counts_as_a_handle():
    array = MAKE["page-locked"]()
    shared = array.share()
    shared.close()
    shown = array.numpy()
    with pytest.raises(ValueError, match="read-only"):
        shown[0] = 1
    with pytest.raises(ac.OwnershipError, match="1 other handle"):
        array.unwrap()
    del shown
    array.unwrap().numpy()[0] = 1


# Moved.


def test_a_move_ends_the_use_of_the_old_handle(array):
    place, moved = here(), ac.move(array)
    assert type(moved) is type(array)
    for use in (
        read,
        write_by_copy,
        ac.move,
        *TRANSITIONS,
        lambda a: a[0],
        lambda a: a.address,
        lambda a: a.reshape(8),
    ):
        with pytest.raises(ac.OwnershipError, match=told(f"was moved at {place}")) as caught:
            use(array)
        assert not isinstance(caught.value, ac.ClosedError)
    assert array.is_closed
    assert f"was moved at {place}" in repr(array)
    array.close()  # there is nothing left to close, and its story stays
    assert f"was moved at {place}" in repr(array)
    write_by_copy(moved)
    assert not contents(moved).any()


TRANSITIONS = [lambda a: a.share(), lambda a: a.unwrap(), lambda a: a.partition(2)]


def test_views_made_before_a_move_end_with_it(array):
    view, strided = array[2:4], array[::2]
    place, moved = here(), ac.move(array)
    for each in (view, strided):
        for use in (read, write_by_copy, ac.move, *TRANSITIONS, lambda a: a[:1]):
            with pytest.raises(ac.OwnershipError, match=told(f"was moved at {place}", "use what it was moved to")):
                use(each)
    moved.close()
    with pytest.raises(ac.OwnershipError, match="was moved"):
        read(view)


def test_a_moved_view_takes_its_part_and_leaves_the_rest(array):
    moved = ac.move(array[1::2])
    write_by_copy(moved)
    with pytest.raises(ac.OwnershipError, match="was moved"):
        read(array)
    with pytest.raises(ac.OwnershipError, match="was moved"):
        array[:2]
    write_by_copy(array[::2])
    np.testing.assert_array_equal(contents(moved), [0] * 4)
    np.testing.assert_array_equal(contents(array[::2]), [0] * 4)


def test_what_was_moved_is_owned(array):
    moved = ac.move(ac.move(array))
    view = moved[:4]
    shared = moved.share()
    assert contents(view).tolist() == [0, 1, 2, 3]
    shared.close()
    moved.unwrap()
    again = ac.move(moved)
    with pytest.raises(ac.OwnershipError, match="was moved"):
        read(view)
    write_by_copy(again)


def test_a_shared_array_is_not_moved(array):
    place, shared = here(), array.share()
    for handle in (array, shared, shared[:2]):
        with pytest.raises(ac.OwnershipError, match=told("move", f"was shared at {place}")):
            ac.move(handle)
    read(array)


def test_only_arrays_are_moved(on_device):
    for wrong in (3, np.ones(3), ac.ones(3), None):
        with pytest.raises(ac.ArgumentTypeError, match="move takes an array"):
            ac.move(wrong)
    op = ac.value(on_device).then(ac.move)
    assert op.sync() is not on_device
    assert on_device.is_closed


def test_many_moves_cost_as_much_as_one(array):
    view = array[:2]
    for _ in range(50_000):
        array = ac.move(array)
    with pytest.raises(ac.OwnershipError, match="was moved"):
        read(view)
    read(array)


# Closed.


def test_a_closed_array_tells_where(array):
    place, _ = here(), array.close()
    for use in (
        read,
        write_by_copy,
        ac.move,
        *TRANSITIONS,
        lambda a: a[0],
        lambda a: a.view(np.uint8),
        lambda a: a.address,
    ):
        with pytest.raises(ac.ClosedError, match=told(f"was closed at {place}")):
            use(array)
    assert issubclass(ac.ClosedError, ac.OwnershipError)


def test_closing_ends_one_handle(array):
    view, shared = array[:4], array.share()
    expected = contents(view).tolist()
    array.close()
    assert contents(view).tolist() == expected
    assert contents(shared).tolist()[:4] == expected
    with pytest.raises(ac.ClosedError, match="was closed at"):
        read(array)
    assert "closed" in repr(array)


# Partitioned.


def test_an_array_rests_while_it_is_partitioned(on_device):
    view = on_device[2:4]
    place, partition = here(), on_device.partition(2)
    for handle in (on_device, view):
        uses = (read, write_by_copy, write_by_kernel, ac.move, *TRANSITIONS, lambda a: a.address, lambda a: a[:1])
        for use in uses:
            with pytest.raises(ac.OwnershipError, match=told(f"was partitioned at {place}", "unpartition()")):
                use(handle)
    assert f"partitioned at {place}" in repr(on_device)
    assert partition.unpartition() is on_device
    write_by_kernel(view)
    assert contents(on_device).tolist() == [0, 1, -1, 3, 4, 5, 6, 7]


def test_a_partition_has_no_other_owner(on_device):
    partition = on_device.partition(2)
    for use in (ac.move, lambda p: p.share(), lambda p: p.partition(2)):
        with pytest.raises(ac.OwnershipError, match="was partitioned"):
            use(partition)
    with pytest.raises(ac.OwnershipError, match="not shared"):
        partition.unwrap()


@pytest.mark.parametrize("gone", ["dropped", "closed"])
def test_a_partition_that_is_gone_gives_the_array_back(on_device, gone):
    partition = on_device.partition(2)
    if gone == "closed":
        partition.close()
        partition.close()
        with pytest.raises(ac.ClosedError, match="was closed"):
            partition.unpartition()
    del partition
    write_by_kernel(on_device)


def test_unpartition_is_done_once(on_device):
    partition = on_device.partition(2)
    partition.unpartition()
    for use in (lambda p: p.unpartition(), lambda p: p[0], lambda p: p.share(), lambda p: p.partition(2), ac.move):
        with pytest.raises(ac.OwnershipError, match=told("was unpartitioned at", __file__)):
            use(partition)
    assert "was unpartitioned at" in repr(partition)


def test_shared_arrays_are_not_partitioned(on_device):
    place, shared = here(), on_device.share()
    for handle in (on_device, shared, shared[:4]):
        with pytest.raises(ac.OwnershipError, match=told("partition", f"was shared at {place}")):
            handle.partition(2)


@pytest.mark.parametrize(
    ("one", "other"), [(np.s_[:40], np.s_[40:]), (np.s_[:, :3], np.s_[:, 3:]), (np.s_[::2], np.s_[1::2])], ids=str
)
def test_disjoint_parts_are_partitioned_at_once(one, other):
    array = ac.zeros((80, 6), np.int32).sync()
    first = array[one].partition((1, 1))
    second = array[other].partition((1, 1))
    with pytest.raises(ac.OwnershipError, match="was partitioned"):
        array[79:, 5:].partition((1, 1))
    first.unpartition()
    read(array[one])
    with pytest.raises(ac.OwnershipError, match="was partitioned"):
        read(array)
    second.unpartition()
    read(array)


def test_the_array_of_a_partition_lives_with_it(used_bytes):
    before = used_bytes()
    array = MAKE["device"]()
    address = array.address
    partition = array.partition(2)
    del array
    gc.collect()
    assert used_bytes() > before
    whole = partition.unpartition()
    assert whole.address == address
    del whole
    gc.collect()
    assert used_bytes() == before  # the ended partition holds nothing


# An operation built before, submitted after.


def built_before(on_device):
    """Operations that use an array, each built while that is allowed."""
    other = ac.zeros(8, np.int32).sync()
    return {
        "kernel reads": total(on_device, ac.zeros(1, np.int32), 8, grid=1, block=1),
        "kernel writes": write(on_device, grid=1, block=1),
        "copy reads": ac.copy(other, on_device),
        "copy writes": ac.copy(on_device, other),
        "to_host": ac.to_host(on_device),
        "dup": ac.dup(on_device),
    }


@pytest.mark.parametrize(
    ("change", "story", "forbidden"),
    [
        (lambda a: a.share(), "was shared", {"kernel writes", "copy writes"}),
        (lambda a: a.partition(2), "was partitioned", None),
        (ac.move, "was moved", None),
        (lambda a: a.close(), "was closed", None),
        (lambda a: ac.move(a[3:4]), "was moved", None),
    ],
    ids=["shared", "partitioned", "moved", "closed", "a part moved"],
)
def test_what_was_built_before_is_checked_again_when_it_is_submitted(on_device, change, story, forbidden):
    ops = built_before(on_device)
    kept = change(on_device)
    for name, op in ops.items():
        if forbidden is None or name in forbidden:
            with pytest.raises(ac.OwnershipError, match=told(f"{story} at {__file__}")):
                op.sync()
        else:
            op.sync()
    del kept


def test_copies_are_checked_when_they_are_built(on_device):
    source = ac.zeros(8, np.int32).sync()
    place, shared = here(), on_device.share()
    with pytest.raises(ac.OwnershipError, match=told("destination", f"was shared at {place}")):
        ac.copy(on_device, source)
    shared.close()
    partition = on_device.unwrap().partition(2)
    for build in (ac.to_host, ac.dup, lambda a: ac.copy(source, a), lambda a: a.to(0)):
        with pytest.raises(ac.OwnershipError, match="was partitioned"):
            build(on_device)
    partition.unpartition()


def test_an_operation_that_waits_keeps_an_array_shared(on_device):
    shared = on_device.share()
    op = total(shared, ac.zeros(1, np.int32), 8, grid=1, block=1)
    with pytest.raises(ac.OwnershipError, match="1 other handle"):
        on_device.unwrap()
    del shared
    with pytest.raises(ac.OwnershipError, match="1 other handle"):
        on_device.unwrap()  # the operation holds it
    op.sync()
    on_device.unwrap()


def test_work_under_way_does_not_hold_up_a_transition(latch, on_device):
    latch.hold()
    shared = on_device.share()
    reading = ac.to_host(shared).submit()
    del shared
    moved = ac.move(on_device.unwrap())
    write(moved, grid=1, block=1).submit()
    assert latch.is_holding
    latch.release()
    np.testing.assert_array_equal(reading.sync(), range(8))
    assert contents(moved)[0] == -1


def test_arrays_without_items_change_hands_too():
    array = ac.zeros((0, 3), np.int32).sync()
    shared = array.share()
    with pytest.raises(ac.OwnershipError, match="1 other handle"):
        array.unwrap()
    for use in (ac.move, lambda a: a.partition((1, 1)), write_by_copy):
        with pytest.raises(ac.OwnershipError, match="was shared"):
            use(array)
    del shared
    moved = ac.move(array.unwrap())
    with pytest.raises(ac.OwnershipError, match="was moved"):
        array.share()
    with pytest.raises(ac.OwnershipError, match="was partitioned"):
        ac.move(moved.partition((1, 1)))
    assert moved.partition((1, 1)).unpartition() is moved
