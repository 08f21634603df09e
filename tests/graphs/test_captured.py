"""Functions of `call` in graphs: captured on a private stream, as one node."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from cuda.bindings import driver

import aiocuda as ac

N = 64


def done(result):
    error, *values = result
    assert error == driver.CUresult.CUDA_SUCCESS, error
    return values[0] if values else None


def fill(stream, x, value):
    """Put a fill of an array on a stream, as another library would."""
    done(driver.cuMemsetD32Async(x.address, value, x.size, stream.handle))


def copy(stream, to, source):
    done(driver.cuMemcpyAsync(to.address, source.address, source.nbytes, stream.handle))


def host(op):
    return ac.to_host(op).sync()


def full(value, n=N):
    return ac.full(n, value, np.int32).sync()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_captured_work_is_a_node_between_those_it_touches(kernels, mode):
    x, calls = full(0), []

    def fill_noted(stream, array, value):
        calls.append(stream)
        fill(stream, array, value)

    op = ac.call(fill_noted, kernels.increment(x, N, threads=N), 5, writes=[x])
    graph = kernels.increment(op, N, threads=N).graph(capture_mode=mode)
    assert graph.statistics().nodes == 3
    assert host(x).tolist() == [0] * N
    for _ in range(3):
        graph.launch().sync()
        assert host(x).tolist() == [6] * N
    assert len(calls) == 1


def test_memory_of_the_graphs_own_has_its_address_in_the_function(kernels):
    made = kernels.increment(ac.zeros(N, np.int32), N, threads=N)
    to = ac.empty(N, np.int32)
    op = ac.call(copy, to, made, writes=[to], reads=[made])
    graph = kernels.increment(op, N, threads=N).graph()
    for _ in range(2):
        assert host(graph.launch()).tolist() == [2] * N


def test_several_streams_of_the_function_are_joined(kernels, device):
    """Work forked to another stream by events comes along."""
    x, y = full(1), full(2)

    def both(stream, x, y):
        other = done(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        event = done(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        done(driver.cuEventRecord(event, stream.handle))
        done(driver.cuStreamWaitEvent(other, event, 0))
        fill(stream, x, 7)
        done(driver.cuMemsetD32Async(y.address, 8, y.size, other))
        done(driver.cuEventRecord(event, other))
        done(driver.cuStreamWaitEvent(stream.handle, event, 0))
        done(driver.cuEventDestroy(event))
        done(driver.cuStreamDestroy(other))

    graph = ac.call(both, x, y, writes=[x, y]).graph()
    graph.launch().sync()
    assert (host(x).tolist(), host(y).tolist()) == ([7] * N, [8] * N)


def test_what_the_function_returns(kernels):
    x = full(0)
    graph = ac.call(lambda stream, x: {"filled": x, "stream": stream is not None}, x, writes=[x]).graph()
    assert graph.result == {"filled": x, "stream": True}
    assert graph.launch().sync() == {"filled": x, "stream": True}


def test_a_function_that_puts_nothing_on_the_stream(kernels):
    x = full(3)
    graph = kernels.increment(ac.call(lambda stream, x: None, x, writes=[x]), N, threads=N).graph()
    graph.launch().sync()
    assert host(x).tolist() == [4] * N


def test_objects_of_the_function_live_as_long_as_the_graph(let_go):
    class Thing:
        pass

    thing, x = Thing(), full(0)
    seen = weakref.ref(thing)
    graph = ac.call(lambda stream, x, thing: fill(stream, x, 1), x, thing, writes=[x]).graph()
    del thing
    gc.collect()
    assert seen() is not None
    graph.launch().sync()
    graph.close()
    del graph
    assert let_go(lambda: seen() is None)


def test_an_input_that_was_captured_is_not_replaced():
    x = full(0)
    graph = ac.call(fill, x, 5, writes=[x]).graph(x=x)
    with pytest.raises(ac.CaptureError, match=r"x is used by a function of call\(\)"):
        graph.launch(x=full(1))
    graph.launch().sync()
    assert host(x).tolist() == [5] * N


def test_late_values_of_captured_memory_are_each_launchs_own():
    def land(stream, to, source):
        copy(stream, to, source)

    x = full(0)
    landed = ac.empty_host(N, np.int32)
    op = ac.call(land, landed, x, writes=[landed], reads=[x]).map(lambda array: array.numpy())
    graph = op.graph()
    results = []
    for value in (1, 2):
        ac.copy(x, np.full(N, value, np.int32)).sync()
        results.append(graph.launch().sync())
    assert [result.tolist() for result in results] == [[1] * N, [2] * N]


def test_a_number_that_was_captured_is_no_input():
    x, n = full(0), ac.value(5)
    with pytest.raises(ac.CaptureError, match="something other than a kernel's parameter"):
        ac.call(fill, x, n, writes=[x]).graph(n=n)


def test_an_error_in_the_function_leaves_everything_usable(kernels):
    x = full(0)

    def broken(stream, x):
        fill(stream, x, 5)
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        ac.call(broken, x, writes=[x]).graph()
    assert host(kernels.increment(x, N, threads=N)).tolist() == [1] * N


@pytest.mark.driver_refuses("cuStreamSynchronize", "cuStreamEndCapture")
def test_what_cannot_be_captured_is_an_error(kernels):
    x = full(0)

    def waits(stream, x):
        driver.cuStreamSynchronize(stream.handle)

    with pytest.raises(ac.CaptureError, match=r"capture.*CUDA_ERROR_STREAM_CAPTURE"):
        ac.call(waits, x, writes=[x]).graph()
    assert host(kernels.increment(x, N, threads=N)).tolist() == [1] * N


def test_executing_in_the_function_is_an_error(kernels):
    x = full(0)
    with pytest.raises(ac.CaptureError, match="recorded"):
        ac.call(lambda stream, x: ac.zeros(3).sync(), x, writes=[x]).graph()
    assert host(kernels.increment(x, N, threads=N)).tolist() == [1] * N


def test_a_compiled_function_copies_what_is_captured(kernels, caplog):
    """The captured work has one address: arguments are copied to it, and back where they are written."""
    calls = []

    def add(stream, to, source):
        calls.append(1)
        copy(stream, to, source)

    @ac.compile
    def function(to, source):
        copied = ac.call(add, to, kernels.increment(source, N, threads=N), writes=[to], reads=[source])
        return kernels.increment(copied, N, threads=N)

    for i in range(4):
        to, source = full(0), full(i)
        result = function(to, source).sync()
        assert result is to
        assert (host(to).tolist(), host(source).tolist()) == ([i + 2] * N, [i + 1] * N)
    assert len(calls) == 2  # traced twice, and never again
    assert function.cache_info().misses == 1


def test_an_address_that_a_function_looks_at(kernels):
    """It counts as captured: the graph keeps the array there."""
    addresses = []

    @ac.compile
    def function(x):
        addresses.append(x.address)
        return kernels.increment(x, N, threads=N)

    for i in range(3):
        x = full(i)
        function(x).sync()
        assert host(x).tolist() == [i + 1] * N
    kept = []
    graph = kernels.increment(ac.zeros(N, np.int32).inspect(lambda x: kept.append(x.address)), N, threads=N).graph()
    assert kept[0] != 0
    assert host(graph.launch()).tolist() == [1] * N


def test_copies_of_the_executable_are_not_made_of_captured_work():
    @ac.compile(executables=3)
    def function(x):
        copied = ac.dup(x)
        return ac.call(fill, copied, 5, writes=[copied])

    futures = [function(full(0)).submit() for _ in range(5)]
    assert [host(future.sync()).tolist() for future in futures] == [[5] * N] * 5


@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_other_threads_and_the_collector_do_not_disturb(kernels, mode):
    """While captures go on: threads that allocate, run and drop; and a collector that ends arrays and streams."""
    stop, errors = threading.Event(), []

    def churn():
        try:
            while not stop.is_set():
                x = kernels.increment(ac.zeros(N, np.int32), N, threads=N).sync()
                cycle = [x, ac.Device(0).stream()]
                cycle.append(cycle)
                del x, cycle
                gc.collect()
        except Exception as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for i in range(30):
            x = full(0)

            def collecting(stream, x, value):
                garbage = [ac.Device(0).stream()]
                garbage.append(garbage)
                del garbage
                gc.collect()
                fill(stream, x, value)
                gc.collect()

            graph = kernels.increment(ac.call(collecting, x, i, writes=[x]), N, threads=N).graph(capture_mode=mode)
            graph.launch().sync()
            assert host(x).tolist() == [i + 1] * N
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


@pytest.mark.parametrize("results", ["buffers", "copy"])
def test_results_that_share_memory_still_do(kernels, results):
    outside = full(3)

    @ac.compile(results=results)
    def function(x):
        made = ac.call(fill, x, 5, writes=[x]) if results == "buffers" else x
        whole = ac.dup(made).then(lambda y: ac.call(fill, y, 7, writes=[y]))
        return whole.then(lambda y: (y, y[2:7], outside, ac.call(copy, y, outside, writes=[y], reads=[outside])))

    for _ in range(3):
        whole, part, constant, same = function(full(1)).sync()
        assert constant is outside
        kernels.increment(part, 5, threads=5).sync()
        assert host(whole).tolist() == [3, 3, 4, 4, 4, 4, 4] + [3] * (N - 7)
        assert host(same).tolist() == host(whole).tolist()
