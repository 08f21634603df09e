"""Small programs, some of which race; run as a script, prints what was reported of each.

Each program starts with a synchronised device and memory of its own, so one does not order or disturb the next.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
from collections.abc import Callable
from typing import Any

from machine import (
    BLOCKING,
    LEGACY,
    SET_FLAG,
    SIZE,
    WORDS,
    Flag,
    Machine,
    Pointer,
    columns,
    compile_source,
    count_and_watch,
    cu,
    event,
    ok,
    sync_all,
    wait,
)

from aiocuda._driver.checking import take_race_reports

# Programs that race.


def write_then_read(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    m.read(b, buffer)


def read_then_write(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.read(a, buffer)
    m.write(b, buffer)


def write_then_write(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    m.write(b, buffer)


def copies_and_memsets(m: Machine, a: Any, b: Any) -> None:
    buffer, other = m.buffer(), m.buffer()
    ok(cu.cuMemsetD8Async(buffer, 1, SIZE, a))
    ok(cu.cuMemcpyDtoDAsync(other, buffer, SIZE, b))


def one_shared_byte_of_structures(m: Machine, a: Any, b: Any) -> None:
    lines, other = m.buffer(), m.buffer()
    m.launch("copy_lines", a, Pointer(lines), Pointer(other), threads=16)
    ok(cu.cuMemsetD8Async(other + 16 * 64 - 1, 1, 1, b))


def rows_of_a_pitched_copy(m: Machine, a: Any, b: Any) -> None:
    pitched, packed = m.buffer(), m.buffer()
    ok(cu.cuMemcpy2DAsync(columns(pitched, packed, 0), a))
    ok(cu.cuMemcpy2DAsync(columns(pitched, m.buffer(), 12), b))


def a_batch_of_copies(m: Machine, a: Any, b: Any) -> None:
    buffer, other = m.buffer(), m.buffer()
    attributes = cu.CUmemcpyAttributes()
    attributes.srcAccessOrder = cu.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    targets = [cu.CUdeviceptr(buffer), cu.CUdeviceptr(buffer + 1024)]
    sources = [cu.CUdeviceptr(other), cu.CUdeviceptr(other + 1024)]
    ok(cu.cuMemcpyBatchAsync(targets, sources, [64, 64], 2, [attributes], [0], 1, a))
    ok(cu.cuMemsetD8Async(buffer + 1024 + 63, 1, 1, b))


def page_locked_memory_read_too_early(m: Machine, a: Any, b: Any) -> None:
    host, buffer = int(ok(cu.cuMemHostAlloc(SIZE, 0))), m.buffer()
    ok(cu.cuMemcpyDtoHAsync(host, buffer, SIZE, a))
    ok(cu.cuMemcpyHtoDAsync(m.buffer(), host, SIZE, b))


def event_recorded_too_early(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    early = event(a)
    m.write(a, buffer)
    wait(b, early)
    m.read(b, buffer)


def event_waited_for_too_late(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    done = event(a)
    m.read(b, buffer)
    wait(b, done)


def only_a_third_stream_waits(m: Machine, a: Any, b: Any) -> None:
    buffer, third = m.buffer(), m.stream()
    m.write(a, buffer)
    wait(third, event(a))
    m.read(b, buffer)


def non_blocking_stream_beside_the_default_stream(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(LEGACY, buffer)
    m.read(b, buffer)


def unsuccessful_query(m: Machine, a: Any, b: Any) -> None:
    buffer, flag = m.buffer(), Flag()
    m.launch("hold", a, Pointer(flag.address), threads=1)
    m.write(a, buffer)
    assert cu.cuStreamQuery(a)[0] == cu.CUresult.CUDA_ERROR_NOT_READY
    m.read(b, buffer)
    flag.set()


def ended_and_the_driver_was_not_asked(m: Machine, a: Any, b: Any) -> None:
    buffer, flag = m.buffer(), Flag()
    m.write(a, buffer)
    count_and_watch(m, a, flag)
    m.read(b, buffer)


def written_again_after_the_host_looked(m: Machine, a: Any, b: Any) -> None:
    buffer, third = m.buffer(), m.stream()
    m.write(a, buffer)
    wait(third, event(a))
    ok(cu.cuStreamSynchronize(third))  # the host has seen this write, and not the next
    m.write(a, buffer)
    m.read(b, buffer)


def used_after_its_free(m: Machine, a: Any, b: Any) -> None:
    buffer = int(ok(cu.cuMemAllocAsync(SIZE, a)))
    wait(b, event(a))
    m.read(b, buffer)
    ok(cu.cuMemFreeAsync(buffer, a))


def used_before_its_allocation(m: Machine, a: Any, b: Any) -> None:
    buffer = int(ok(cu.cuMemAllocAsync(SIZE, a)))
    m.write(b, buffer)
    wait(a, event(b))
    ok(cu.cuMemFreeAsync(buffer, a))


def value_written_elsewhere(m: Machine, a: Any, b: Any) -> None:
    buffer, values = m.buffer(), m.buffer()
    ok(cu.cuMemsetD8(values, 0, SIZE))
    ok(cu.cuCtxSynchronize())
    m.write(a, buffer)
    ok(cu.cuStreamWriteValue32(a, values, 1, 0))
    ok(cu.cuStreamWaitValue32(b, values + 4, 0, cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
    m.read(b, buffer)


def atomic_and_plain(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.launch("count", a, Pointer(buffer))
    m.write(b, buffer, 0, 1)


def peer_copy_too_early(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    OTHER.make_current()
    ok(cu.cuMemcpyPeerAsync(OTHER.buffer(), OTHER.context, buffer, m.context, SIZE, OTHER.stream()))


# The same with the order that was missing, by each means there is, and what needs none.


def waits_for_an_event(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    wait(b, event(a))
    m.read(b, buffer)
    wait(a, event(b))
    m.write(a, buffer)


def waits_for_an_event_that_has_passed(m: Machine, a: Any, b: Any) -> None:
    buffer, flag = m.buffer(), Flag()
    m.write(a, buffer)
    done = event(a)
    count_and_watch(m, a, flag)
    wait(b, done)
    m.read(b, buffer)


def through_a_third_stream_of_another_device(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    done = event(a)
    OTHER.make_current()
    third = OTHER.stream()
    wait(third, done)
    relayed = event(third)
    m.make_current()
    wait(b, relayed)
    m.read(b, buffer)


def host_synchronises_the_stream(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    ok(cu.cuStreamSynchronize(a))
    m.read(b, buffer)


def host_synchronises_the_event(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    ok(cu.cuEventSynchronize(event(a)))
    m.read(b, buffer)


def host_synchronises_the_context(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    ok(cu.cuCtxSynchronize())
    m.read(b, buffer)


def host_queries_the_stream(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    while cu.cuStreamQuery(a)[0].value != 0:
        pass
    m.read(b, buffer)


def host_queries_the_event(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer)
    done = event(a)
    while cu.cuEventQuery(done)[0].value != 0:
        pass
    m.read(b, buffer)


def host_copies_synchronously(m: Machine, a: Any, b: Any) -> None:
    buffer, side = m.buffer(), m.stream(BLOCKING)
    m.write(side, buffer)
    out = (ctypes.c_int * WORDS)()
    ok(cu.cuMemcpyDtoH(ctypes.addressof(out), buffer, SIZE))  # in the default stream, behind the blocking one
    assert out[WORDS - 1] == WORDS - 1
    m.write(b, buffer)


def host_function(m: Machine, a: Any, b: Any) -> None:
    buffer, side, flag = m.buffer(), m.stream(), Flag()
    m.write(a, buffer)
    wait(side, event(a))
    ok(cu.cuLaunchHostFunc(side, SET_FLAG, flag.address))
    while flag.value.value == 0:
        pass
    m.read(b, buffer)


def host_watches_a_value_that_a_stream_writes(m: Machine, a: Any, b: Any) -> None:
    buffer, flag = m.buffer(), Flag()
    m.write(a, buffer)
    ok(cu.cuStreamWriteValue32(a, flag.address, 1, 0))
    while flag.value.value == 0:
        pass
    m.read(b, buffer)


def default_and_blocking_streams(m: Machine, a: Any, b: Any) -> None:
    buffer, one, two = m.buffer(), m.stream(BLOCKING), m.stream(BLOCKING)
    m.write(one, buffer)
    m.read(LEGACY, buffer)
    m.write(two, buffer)
    m.write(LEGACY, buffer)


def value_written_and_waited_for(m: Machine, a: Any, b: Any) -> None:
    buffer, values = m.buffer(), m.buffer()
    ok(cu.cuMemsetD8(values, 0, SIZE))
    ok(cu.cuCtxSynchronize())
    ok(cu.cuStreamWaitValue32(b, values, 1, cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ))
    m.read(b, buffer)
    after = event(b)
    m.write(a, buffer)
    ok(cu.cuStreamWriteValue32(a, values, 1, 0))
    wait(a, after)
    m.write(a, buffer)


def interleaved_columns(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.write(a, buffer, 0, WORDS, 2)
    m.write(b, buffer, 1, WORDS, 2)


def disjoint_columns_of_pitched_copies(m: Machine, a: Any, b: Any) -> None:
    pitched = m.buffer()
    ok(cu.cuMemcpy2DAsync(columns(pitched, m.buffer(), 0), a))
    ok(cu.cuMemcpy2DAsync(columns(pitched, m.buffer(), 16), b))


def readers(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.read(a, buffer)
    m.read(b, buffer)


def atomics(m: Machine, a: Any, b: Any) -> None:
    buffer = m.buffer()
    m.launch("count", a, Pointer(buffer))
    m.launch("count", b, Pointer(buffer))


def polling_page_locked_memory(m: Machine, a: Any, b: Any) -> None:
    flag = Flag()
    m.launch("hold", a, Pointer(flag.address), threads=1)
    m.launch("hold", b, Pointer(flag.address), threads=1)
    third = m.stream()
    ok(cu.cuStreamWriteValue32(third, flag.address, 1, 0))


def freed_memory_given_to_another_stream(m: Machine, a: Any, b: Any) -> None:
    for stream in (a, b, a, b):
        buffer = int(ok(cu.cuMemAllocAsync(SIZE, stream)))
        m.write(stream, buffer)
        ok(cu.cuMemFreeAsync(buffer, stream))


def freed_behind_its_users(m: Machine, a: Any, b: Any) -> None:
    buffer = int(ok(cu.cuMemAllocAsync(SIZE, a)))
    wait(b, event(a))
    m.write(b, buffer)
    wait(a, event(b))
    ok(cu.cuMemFreeAsync(buffer, a))


RACING: tuple[Callable[[Machine, Any, Any], None], ...] = (
    write_then_read,
    read_then_write,
    write_then_write,
    copies_and_memsets,
    one_shared_byte_of_structures,
    rows_of_a_pitched_copy,
    a_batch_of_copies,
    page_locked_memory_read_too_early,
    event_recorded_too_early,
    event_waited_for_too_late,
    only_a_third_stream_waits,
    non_blocking_stream_beside_the_default_stream,
    unsuccessful_query,
    ended_and_the_driver_was_not_asked,
    written_again_after_the_host_looked,
    used_after_its_free,
    used_before_its_allocation,
    value_written_elsewhere,
    atomic_and_plain,
    peer_copy_too_early,
)
ORDERED: tuple[Callable[[Machine, Any, Any], None], ...] = (
    waits_for_an_event,
    waits_for_an_event_that_has_passed,
    through_a_third_stream_of_another_device,
    host_synchronises_the_stream,
    host_synchronises_the_event,
    host_synchronises_the_context,
    host_queries_the_stream,
    host_queries_the_event,
    host_copies_synchronously,
    host_function,
    host_watches_a_value_that_a_stream_writes,
    default_and_blocking_streams,
    value_written_and_waited_for,
    interleaved_columns,
    disjoint_columns_of_pitched_copies,
    readers,
    atomics,
    polling_page_locked_memory,
    freed_memory_given_to_another_stream,
    freed_behind_its_users,
)


IMAGE = compile_source()
OTHER = Machine(1, IMAGE)
DEVICE = Machine(0, IMAGE)


def block_order(blocks: int) -> list[int]:
    """Return for each block of a launch when it had its turn."""
    DEVICE.make_current()
    counter, taken = DEVICE.buffer(), DEVICE.buffer()
    ok(cu.cuMemsetD8(counter, 0, SIZE))
    DEVICE.launch("order", LEGACY, Pointer(counter), Pointer(taken), blocks=blocks, threads=1)
    out = (ctypes.c_int * blocks)()
    ok(cu.cuMemcpyDtoH(ctypes.addressof(out), taken, 4 * blocks))
    return list(out)


def main() -> None:
    found: dict[str, Any] = {}
    for program in (*RACING, *ORDERED):
        sync_all(OTHER, DEVICE)
        stray = take_race_reports()
        assert not stray, stray
        program(DEVICE, DEVICE.stream(), DEVICE.stream())
        sync_all(OTHER, DEVICE)
        found[program.__name__] = [dataclasses.asdict(report) for report in take_race_reports()]
    print(json.dumps({"reports": found, "block_order": block_order(64)}))


if __name__ == "__main__":
    main()
