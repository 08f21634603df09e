"""The items of the next batch: full buckets, waiting times, priorities, deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiocuda._serve.queue import NEVER, BatchQueue, Item, Times


def item(
    value: object, *, key: object = None, priority: int = 0, arrived: float = 0.0, leave_by: float = NEVER
) -> Item:
    return Item(value, key, priority, arrived, leave_by=leave_by)


def queue_of(*items: Item, max_size: int = 3, max_wait_s: float = 1.0) -> BatchQueue:
    queue = BatchQueue(max_size, max_wait_s)
    for each in items:
        queue.add(each)
    return queue


def values(items: list[Item]) -> list[object]:
    return [each.value for each in items]


def test_a_full_batch_is_due_at_once_and_others_when_the_first_has_waited() -> None:
    queue = queue_of(item("a", arrived=5.0), item("b", arrived=5.5))
    assert queue.due() == 6.0
    assert queue.take(5.9) == []
    queue.add(item("c", arrived=5.9))
    assert queue.due() == -NEVER
    assert values(queue.take(5.9)) == ["a", "b", "c"]
    assert (len(queue), queue.due(), queue.take(100.0)) == (0, NEVER, [])


def test_items_of_one_key_go_together() -> None:
    queue = queue_of(item("a", key=1), item("b", key=2), item("c", key=1), item("d", key=2))
    assert values(queue.take(1.0)) == ["a", "c"]
    assert values(queue.take(1.0)) == ["b", "d"]


def test_higher_priorities_go_first_and_equal_ones_in_their_order() -> None:
    queue = queue_of(item("a"), item("b", priority=1), item("c"), item("d", priority=1), item("e", priority=-1))
    assert values(queue.take(0.0)) == ["b", "d", "a"]
    assert values(queue.take(1.0)) == ["c", "e"]


def test_of_two_batches_that_of_the_highest_priority_goes_first() -> None:
    queue = queue_of(item("a", key=1), item("b", key=2), item("c", key=2, priority=5))
    assert values(queue.take(1.0)) == ["c", "b"]


def test_a_deadline_has_a_batch_leave_early() -> None:
    hurried = item("b", leave_by=0.25)
    queue = queue_of(item("a"), hurried)
    assert queue.due() == 0.25
    assert queue.drop(hurried)
    assert queue.due() == 1.0
    assert not queue.drop(hurried)


def test_batches_before_a_new_item_are_counted() -> None:
    queue = queue_of(*(item(i) for i in range(7)), item("other", key=1), item("high", key=2, priority=9))
    assert queue.batches_before(None, 0) == 2 + 1 + 1
    assert queue.batches_before(None, 5) == 1
    assert queue.batches_before("new", 0) == 3 + 1 + 1


@given(st.data())
def test_each_item_comes_out_once_in_the_order_of_priorities(data: st.DataObject) -> None:
    queue = BatchQueue(data.draw(st.integers(1, 4)), 1.0)
    waiting: list[Item] = []
    gone: list[Item] = []
    for now in range(data.draw(st.integers(1, 40))):
        what = data.draw(st.sampled_from(["add", "add", "add", "take", "drop"]))
        if what == "add":
            waiting.append(
                item(now, key=data.draw(st.integers(0, 2)), priority=data.draw(st.integers(0, 2)), arrived=now)
            )
            queue.add(waiting[-1])
        elif what == "drop" and waiting:
            dropped = data.draw(st.sampled_from(waiting))
            assert queue.drop(dropped)
            waiting.remove(dropped)
            gone.append(dropped)
        elif what == "take":
            due = queue.due()
            taken = queue.take(float(now))
            assert bool(taken) == (due <= now)
            if taken:
                key = taken[0].key
                ranked = sorted(
                    (each for each in waiting if each.key == key), key=lambda each: (-each.priority, each.value)
                )
                assert taken == ranked[: queue.max_size]
                gone += taken
                waiting = [each for each in waiting if each not in taken]
        assert len(queue) == len(waiting)
    while waiting:
        taken = queue.take(1000.0)
        gone += taken
        waiting = [each for each in waiting if each not in taken]
    assert len(set(map(id, gone))) == len(gone)
    assert queue.due() == NEVER


def test_where_no_more_may_wait_no_batch_waits_for_others() -> None:
    queue = BatchQueue(3, 1.0, max_waiting=2)
    queue.add(item("a", key=1))
    assert (queue.is_full, queue.due()) == (False, 1.0)
    queue.add(item("b", key=2))
    assert (queue.is_full, queue.due()) == (True, -NEVER)
    assert values(queue.take(0.0)) == ["a"]
    assert queue.due() == 1.0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=200))
def test_the_earliest_time_is_that_of_the_items_that_are_there(steps: list[tuple[bool, int]]) -> None:
    times, there = Times(), dict[Item, int]()
    for is_added, number in steps:
        if is_added or not there:
            added = item(number)
            times.add(number, added)
            there[added] = number
        else:
            gone = list(there)[number % len(there)]
            times.discard(gone)
            times.discard(gone)
            del there[gone]
        assert times.earliest() == min(there.values(), default=NEVER)
    while there:
        assert there.pop(times.pop()) <= min(there.values(), default=9)
    assert times.earliest() == NEVER


def test_items_that_were_taken_out_are_not_held_behind_one_that_stays() -> None:
    times = Times()
    times.add(0.0, item("stays"))
    for number in range(1000):
        gone = item(number)
        times.add(1.0, gone)
        times.discard(gone)
    assert len(times._heap) < 100
