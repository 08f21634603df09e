"""Every dependency that the race oracle knows is in the trace.

Random programs are traced. Then their copies are made again by plain driver calls, ordered by the streams and the needs
of the trace alone: if the trace left one out, two accesses of the copies would race, and the emulated driver, which
looks for races by itself, would report them.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("cuda.bindings.driver")

PROGRAM = """
import random, sys, time
import numpy as np
from cuda.bindings import driver as cu
import aiocuda as ac
from aiocuda import _loops, _native
from aiocuda._driver.checking import take_race_reports
from aiocuda._trace.reading import await_times, read

N, ARRAYS, STREAMS = 256, 4, 3

def done(result, *values):
    assert result == cu.CUresult.CUDA_SUCCESS, result
    return values[0] if values else None

def traced(seed):
    rng = random.Random(seed)
    arrays = [ac.zeros(N, np.int32).sync() for _ in range(ARRAYS)]
    ours = [ac.Device(0).stream() for _ in range(STREAMS)]
    recording = _native.Recording(_loops.current_name)
    assert recording.start()
    pairs = []
    for _ in range(rng.randint(2, 16)):
        read_from, written = rng.sample(range(ARRAYS), 2)
        begin = rng.choice([0, N // 2])
        end = rng.choice([N // 2, N]) if begin == 0 else N
        pairs.append((read_from, written, begin, end))
        ac.copy(arrays[written][begin:end], arrays[read_from][begin:end]).on(rng.choice(ours)).submit()
    for stream in ours:
        stream.synchronize().sync()
    recording.stop()
    assert await_times(recording, 60)
    trace = read(recording, "random", 0, time.monotonic_ns(), is_emulated=True)
    copies = [each for each in trace.operations if each.kind == "copy"]
    assert len(copies) == len(trace.operations) == len(pairs)
    return arrays, pairs, copies

def replay(arrays, pairs, copies, without=None):
    streams, events = {}, {}
    for each, (read_from, written, begin, end) in zip(copies, pairs, strict=True):
        if each.stream not in streams:
            streams[each.stream] = done(*cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
        stream = streams[each.stream]
        for number in each.needs:
            if (number, each.number) != without:
                done(*cu.cuStreamWaitEvent(stream, events[number], 0))
        done(*cu.cuMemcpyDtoDAsync(
            arrays[written].address + 4 * begin, arrays[read_from].address + 4 * begin, 4 * (end - begin), stream
        ))
        events[each.number] = done(*cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        done(*cu.cuEventRecord(events[each.number], stream))
    for stream in streams.values():
        done(*cu.cuStreamSynchronize(stream))
        done(*cu.cuStreamDestroy(stream))
    return take_race_reports()

found = 0
for seed in range(300):
    program = traced(seed)
    assert not take_race_reports(), seed
    reports = replay(*program)
    assert not reports, (seed, reports)
    edges = [(number, each.number) for each in program[2] for number in each.needs
             if program[2][number].stream != each.stream]
    if edges and replay(*program, without=random.Random(seed).choice(edges)):
        found += 1
print(found)
"""


def test_what_the_race_oracle_knows_is_in_the_trace(in_process: Any) -> None:
    done = in_process(PROGRAM, AIOCUDA_DRIVER="emulated", AIOCUDA_EMULATOR_CHECK="races")
    assert int(done.stdout) > 100  # a dependency that is left out is found, unless others imply it
