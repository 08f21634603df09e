"""Every exception keeps what it knows, says it, and survives pickling."""

from __future__ import annotations

import errno
import inspect
import os
import pickle

import pytest

from aiocuda import errors
from aiocuda._errors.copies import copy_for_one

DRIVER_ERROR = errors.DriverError("CUDA_ERROR_ILLEGAL_ADDRESS", 700, "an illegal memory access", "cuStreamSynchronize")

EXAMPLES = {
    errors.DriverError: (
        DRIVER_ERROR,
        "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access",
    ),
    errors.DriverNotFoundError: (
        errors.DriverNotFoundError("asked for it", ("saw this", "and that"), "Do so."),
        "asked for it: saw this; and that. Do so.",
    ),
    errors.OutOfMemoryError: (
        errors.OutOfMemoryError(3 << 30, 512, 4 << 30, "device 1", (("2 arrays made at a.py:3", 3 << 20),)),
        "device 1 has no room for 3.00 GiB (3221225472 B): 512 B free of 4.00 GiB (4294967296 B); "
        "the most is held: 3.00 MiB (3145728 B) by 2 arrays made at a.py:3",
    ),
    errors.CancelledError: (
        errors.CancelledError("the launch of saxpy", "train.py:12"),
        "the future of the launch of saxpy (built at train.py:12) was cancelled before the result was there; "
        "the operation itself can still be executed, or awaited",
    ),
    errors.CollectiveError: (
        errors.CollectiveError("rank 1 is gone", "call 3, barrier: rank 1 has not called it"),
        "rank 1 is gone (call 3, barrier: rank 1 has not called it); make a new group",
    ),
    errors.FileError: (
        errors.FileError("/data/x", "write", 8, 4096, 512, 28),
        "/data/x: 512 bytes were written of 4096 bytes from offset 8 on: No space left on device (ENOSPC)",
    ),
    errors.ForkedProcessError: (
        errors.ForkedProcessError(4321),
        "this process was forked after aiocuda was used in process 4321, and CUDA does not work in a forked process; "
        'start it with multiprocessing.get_context("spawn"), or fork before the first use',
    ),
    errors.CompilationError: (
        errors.CompilationError("saxpy.cu", "saxpy.cu(3): error: no\n"),
        "saxpy.cu does not compile:\nsaxpy.cu(3): error: no",
    ),
    errors.DeviceTimeoutError: (
        errors.DeviceTimeoutError("a zip", "train.py:12", 0.2512, ("this", "that", "a", "b", "c", "d"), 9),
        "a zip (built at train.py:12) was not complete after 0.251 s; still running: this, that, a, b and 2 more; "
        "submissions in flight on all streams: 9; what was submitted goes on, and it can be awaited again",
    ),
    errors.DeviceLostError: (
        errors.DeviceLostError("saxpy(2.0, x, y)", "train.py:12", DRIVER_ERROR, "device 0"),
        f"saxpy(2.0, x, y) (built at train.py:12) did not complete: device 0 was lost: {DRIVER_ERROR}",
    ),
    errors.OperationInterruptedError: (
        errors.OperationInterruptedError("a map() callback", "train.py:12", "KeyboardInterrupt"),
        "a map() callback (built at train.py:12) was interrupted: KeyboardInterrupt came out of a function that was "
        "called for it, and went on to whoever ran that function. An operation runs once: build it again",
    ),
    errors.SignatureError: (errors.SignatureError("what happened", 3), "line 3: what happened"),
    errors.ItemError: (errors.ItemError(3, "no number"), "item 3 of the batch failed: no number"),
    errors.QueueFullError: (
        errors.QueueFullError("embed", 64),
        "embed: 64 items wait already, and overflow='raise' refuses more (max_waiting); try again later, or let "
        "callers wait with overflow='wait'",
    ),
    errors.DeadlineError: (
        errors.DeadlineError("embed", 0.05, 1.25),
        "embed: the item was refused: it has 0.05 s, and would take about 1.25 s behind those that wait",
    ),
    errors.StoppingError: (
        errors.StoppingError("embed"),
        "embed takes no more items: the lifespan of its service has come to its end; send the request to another "
        "process, and have the server end its requests before the block of lifespan() ends",
    ),
    errors.DrainTimeoutError: (
        errors.DrainTimeoutError(2.5, ("embed: 3 items wait, and 2 are in batches under way", "device 0: stream 4")),
        "the service ended before all accepted work was done; after 2.5 s this was left: embed: 3 items wait, and 2 "
        "are in batches under way; device 0: stream 4. Give lifespan() a longer drain_s, or items less time",
    ),
    errors.WorkerLostError: (
        errors.WorkerLostError(2, "step()", "it has not answered for 30.1 s"),
        "worker 2 is lost (it has not answered for 30.1 s), and step() did not end; `await cluster.restart(2)` gives "
        "it a fresh process",
    ),
    errors.RemoteError: (
        errors.RemoteError(2, "step()", "SystemExit: 3", "Traceback (most recent call last): ..."),
        "step() failed on worker 2: SystemExit: 3",
    ),
    errors.RaceError: (errors.RaceError(["one and another"]), "1 race on the device:\n- one and another"),
    errors.KernelCheckError: (
        errors.KernelCheckError(["a line"]),
        "1 finding of the checks of kernels:\n- a line",
    ),
}

ALL = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.AiocudaError)]


def example(kind: type[errors.AiocudaError]) -> tuple[errors.AiocudaError, str]:
    return EXAMPLES[kind] if kind in EXAMPLES else (kind("what happened"), "what happened")


@pytest.mark.parametrize("kind", ALL)
def test_message_says_what_the_exception_knows(kind):
    error, message = example(kind)
    assert str(error) == message


@pytest.mark.parametrize("kind", ALL)
def test_exception_survives_pickling(kind):
    error, message = example(kind)
    error.add_note("seen twice")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == message
    assert copy.__notes__ == ["seen twice"]
    # repr where equality of the attributes is not defined: exceptions compare by identity.
    assert {name: repr(value) for name, value in vars(copy).items()} == {
        name: repr(value) for name, value in vars(error).items()
    }


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.ArgumentTypeError, TypeError),
        (errors.ArgumentValueError, ValueError),
        (errors.ArgumentRangeError, OverflowError),
        (errors.LaunchError, ValueError),
        (errors.DeviceMismatchError, ValueError),
        (errors.OutOfMemoryError, MemoryError),
    ],
)
def test_misuse_is_caught_as_the_builtin_too(kind, builtin):
    error = example(kind)[0]
    assert isinstance(error, builtin)
    assert isinstance(error, errors.AiocudaError)


def test_device_lost_is_caused_by_the_drivers_error():
    error, _ = EXAMPLES[errors.DeviceLostError]
    assert error.__cause__ is DRIVER_ERROR
    assert pickle.loads(pickle.dumps(error)).__cause__.code == 700


def test_every_class_is_exported():
    classes = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert sorted(classes) == errors.__all__


def test_a_file_error_is_also_the_systems_and_stays_so():
    missing = errors.FileError("/data/x", "open", 0, 4, 0, errno.ENOENT)
    for error in (missing, pickle.loads(pickle.dumps(missing)), copy_for_one(missing)):
        assert isinstance(error, FileNotFoundError)
        assert type(error).__name__ == "FileError"
        assert (error.errno, error.filename, error.strerror) == (errno.ENOENT, "/data/x", os.strerror(errno.ENOENT))
    short = errors.FileError("/data/x", "read", 0, 4, 3)
    assert type(short) is errors.FileError
    assert short.errno is None
