"""Files that are read to devices and written from them: every size and dtype, in order, and never in the way."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda._verbs import files

# In one piece of a thread's, in one chunk, in several, and in more than a ring holds at once.
SIZES = [1, 100, 100_003, 1_000_003, 6 << 20]
LARGE = 6 << 20  # items of 4 bytes: some chunks wait until others have passed
DTYPES = [
    np.uint8, np.int16, np.float32, np.complex128, np.bool_,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.dtype([("a", np.int16), ("b", np.float64)]),
]  # fmt: skip


def numbers(size: int = LARGE, dtype: Any = np.int32) -> np.ndarray:
    return (np.arange(size) % 30_011).astype(dtype)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


def contents(x: Any) -> np.ndarray:
    return ac.to_host(x).sync(60)


@pytest.mark.parametrize("size", SIZES)
def test_there_and_back_is_the_same_whatever_the_size(path, size):
    data = numbers(size)
    assert ac.write(path, ac.to_device(data)).sync(60) == data.nbytes
    assert path.read_bytes() == data.tobytes()
    np.testing.assert_array_equal(contents(ac.read(path, size, np.int32)), data)


@given(data=st.data())
def test_any_part_of_a_file_is_read_as_numpy_reads_it(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any"
    stored = np.random.default_rng(1).integers(0, 256, 300_000, np.uint8)
    stored.tofile(path)
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    shape = tuple(data.draw(st.lists(st.integers(0, 50), max_size=3)))
    size_bytes = int(np.prod(shape)) * dtype.itemsize
    offset = data.draw(st.integers(0, max(0, stored.nbytes - size_bytes)))
    expected = stored[offset : offset + size_bytes]
    if size_bytes + offset > stored.nbytes:
        with pytest.raises(ac.FileError, match=f"has {len(expected)} bytes from offset {offset} on"):
            ac.read(path, shape, dtype, offset).sync(60)
        return
    array = ac.read(path, shape, dtype, offset).sync(60)
    assert (array.shape, array.dtype) == (shape, dtype)
    assert contents(array).tobytes() == expected.tobytes()


@given(data=st.data())
def test_parts_that_are_written_leave_all_else_as_it_was(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "parts"
    expected = bytearray(os.urandom(data.draw(st.integers(0, 3000))))
    path.write_bytes(expected)
    for fill in range(data.draw(st.integers(1, 4))):
        offset, size = data.draw(st.integers(0, 4000)), data.draw(st.integers(0, 2000))
        assert ac.write(path, ac.full(size, fill, np.uint8), offset).sync(60) == size
        if size:
            expected.extend(bytes(max(0, offset + size - len(expected))))
            expected[offset : offset + size] = bytes([fill]) * size
    assert path.read_bytes() == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_items_of_every_kind(path, dtype):
    data = np.random.default_rng(2).integers(0, 2, (300, 7)).astype(dtype)
    ac.write(path, ac.to_device(data)).sync(60)
    assert path.read_bytes() == data.tobytes()
    assert contents(ac.read(path, data.shape, dtype)).tobytes() == data.tobytes()


@pytest.mark.parametrize(
    "given_as", [Path, str, os.fsencode, os.path.relpath], ids=["Path", "str", "bytes", "relative"]
)
def test_a_path_is_given_as_to_open(path, given_as):
    path.write_bytes(b"abcd")
    assert contents(ac.read(given_as(path), 4, np.uint8)).tobytes() == b"abcd"
    ac.write(given_as(path), ac.zeros(2, np.uint8)).sync(60)
    assert path.read_bytes() == bytes(2)


def test_a_relative_path_is_one_of_the_directory_that_was_current_when_the_operation_was_built(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    (tmp_path / "data").write_bytes(b"here")
    monkeypatch.chdir(tmp_path)
    op = ac.read("data", 4, np.uint8)
    monkeypatch.chdir(tmp_path / "other")
    assert contents(op).tobytes() == b"here"


def test_two_dots_behind_a_link_lead_where_the_system_says(tmp_path):
    (tmp_path / "far" / "below").mkdir(parents=True)
    (tmp_path / "far" / "data").write_bytes(b"far")
    (tmp_path / "data").write_bytes(b"not")
    (tmp_path / "link").symlink_to(tmp_path / "far" / "below")
    assert contents(ac.read(f"{tmp_path}/link/../data", 3, np.uint8)).tobytes() == b"far"


def test_a_path_is_the_same_with_more_slashes_and_dots(tmp_path, latch):
    stream = ac.Device(0).stream()
    x = ac.ones(3, np.uint8).sync(60)
    latch.hold(stream)
    write = ac.write(tmp_path / "data", x).on(stream).submit()
    read = ac.read(f"{tmp_path}//./data", 3, np.uint8).submit()
    latch.release()
    assert contents(read.sync(60)).tolist() == [1, 1, 1]
    write.sync(60)
    with pytest.raises(NotADirectoryError, match="could not be opened"):
        ac.read(f"{tmp_path}/data/", 3, np.uint8).sync(60)


def test_a_current_directory_that_is_gone_has_no_files(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError, match="data could not be opened"):
        ac.read("data", 3, np.uint8).sync(60)


def test_a_name_that_is_no_unicode_text(tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff\xfe"
    ac.write(name, ac.ones(3, np.uint8)).sync(60)
    assert contents(ac.read(os.fsdecode(name), 3, np.uint8)).tolist() == [1, 1, 1]


def test_a_write_replaces_a_longer_file(path):
    path.write_bytes(bytes(1000))
    ac.write(path, ac.ones(10, np.uint8)).sync(60)
    assert path.read_bytes() == b"\1" * 10


@pytest.mark.parametrize("make", ["device", "host"])
def test_an_array_of_no_items_makes_a_file_and_asks_for_one(path, make):
    empty = ac.zeros((3, 0)) if make == "device" else ac.empty_host((3, 0))
    with pytest.raises(FileNotFoundError, match="could not be opened"):
        ac.read(path, (3, 0), np.float32).sync(60)
    path.write_bytes(b"before")
    assert ac.write(path, empty, 3).sync(60) == 0
    assert path.read_bytes() == b"before"
    assert ac.write(path, empty).sync(60) == 0
    assert path.read_bytes() == b""
    assert ac.read(path, (3, 0), np.float32).sync(60).shape == (3, 0)


@pytest.mark.parametrize(
    "view", [lambda x: x[:, 100:200], lambda x: x.T, lambda x: x[::3]], ids=["columns", "T", "rows"]
)
def test_arrays_that_do_not_lie_in_one_piece(path, view):
    data = numbers(900_000).reshape(900, 1000)
    ac.write(path, view(ac.to_device(data))).sync(60)
    assert path.read_bytes() == view(data).tobytes()


@pytest.mark.parametrize("size", SIZES)
def test_page_locked_memory_is_written(path, size):
    host = ac.empty_host(size, np.int32).sync(60)
    host.numpy()[:] = numbers(size)
    ac.write(path, host).sync(60)
    assert path.read_bytes() == numbers(size).tobytes()


def test_managed_and_shared_arrays_are_written(path):
    managed = ac.full(1000, 3, np.uint8, managed=True).sync(60)
    ac.write(path, managed).sync(60)
    assert path.read_bytes() == b"\3" * 1000
    x = ac.full(1000, 4, np.uint8).sync(60)
    shared = x.share()
    ac.write(path, shared).sync(60)
    assert path.read_bytes() == b"\4" * 1000


def test_what_is_too_large_for_one_copy_is_several(path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_BYTES", 100_000)
    data = numbers(300_000).reshape(3, 100, 1000)
    ac.write(path, ac.to_device(data)).sync(60)
    assert path.read_bytes() == data.tobytes()
    with path.open("ab") as file:
        file.write(b"behind")
    np.testing.assert_array_equal(contents(ac.read(path, data.shape, np.int32)), data)
    with pytest.raises(ac.FileError, match="has 1199982 bytes from offset 24 on, and 1200000 were asked for"):
        ac.read(path, data.shape, np.int32, 24).sync(60)
    ac.write(path, ac.full(data.shape, -1, np.int32), 6).sync(60)
    assert path.read_bytes() == data.tobytes()[:6] + b"\xff" * data.nbytes


@pytest.mark.needs_devices(2)
def test_a_file_is_read_to_the_device_that_is_named(path):
    path.write_bytes(bytes(100))
    assert ac.read(path, 100, np.uint8, device=1).sync(60).device == ac.Device(1)
    with ac.use(1):
        assert ac.read(path, 100, np.uint8).sync(60).device == ac.Device(1)
    assert ac.read(path, 100, np.uint8).on(1).sync(60).device == ac.Device(1)
    x = ac.ones(100, np.uint8, device=1).sync(60)
    assert ac.write(path, x).sync(60) == 100


@pytest.mark.needs_devices(2)
def test_a_file_is_read_to_the_device_that_needs_it(path, kernels):
    numbers(10, np.int32).tofile(path)
    y = ac.zeros(10, np.int32, device=1).sync(60)
    kernels.accumulate(1, ac.read(path, 10, np.int32), y, 10, threads=10).sync(60)
    np.testing.assert_array_equal(contents(y), numbers(10))
    launch = kernels.accumulate(1, ac.read(path, 10, np.int32), ac.zeros(10, np.int32), 10, threads=10).on(1)
    assert launch.sync(60).device == ac.Device(1)


def test_reads_and_writes_are_composed_and_explained(path, kernels):
    data = numbers(1000, np.float32)
    data.tofile(path)
    read = ac.read(path, 1000, np.float32)
    scaled = kernels.scale(2.0, read, ac.zeros(1000), 1000, threads=1000)
    steps = read.explain()
    assert f"copy 4000 bytes from file {path} to device 0" in steps
    assert "map FileRead.checked" in steps
    write = ac.write(path, scaled)
    assert repr(write).startswith(f"<DeviceOp: a write of {path}, pending")
    assert write.sync(60) == 4000
    np.testing.assert_array_equal(np.fromfile(path, np.float32), 2 * data)
    x = ac.ones(10).sync(60)
    assert f"copy 40 bytes from device 0 to file {path}" in ac.write(path, x).explain()


def test_misuse_is_refused_before_anything_is_opened(path):
    for wrong, error, message in [
        (lambda: ac.read(3, 4, np.uint8), ac.ArgumentTypeError, "path is a str, bytes"),
        (lambda: ac.read("", 4, np.uint8), ac.ArgumentValueError, "not empty"),
        (lambda: ac.read("a\0b", 4, np.uint8), ac.ArgumentValueError, "NUL"),
        (lambda: ac.read("\ud800", 4, np.uint8), ac.ArgumentValueError, "no name that the system takes"),
        (lambda: ac.read(path, -1, np.uint8), ac.ArgumentValueError, "-1"),
        (lambda: ac.read(path, 4, object), ac.ArgumentTypeError, "Python objects"),
        (lambda: ac.read(path, 4, ">f4"), ac.ArgumentTypeError, "foreign byte order"),
        (lambda: ac.read(path, 4, np.uint8, -1), ac.ArgumentValueError, "offset is a whole number from 0"),
        (lambda: ac.read(path, 4, np.uint8, 2**63 - 2), ac.ArgumentValueError, "no file is larger"),
        (lambda: ac.read(path, 4, np.uint8, 1.5), ac.ArgumentTypeError, "offset is a whole number"),
        (lambda: ac.write(path, np.ones(3)), ac.ArgumentTypeError, "tofile"),
        (lambda: ac.write(path, 3), ac.ArgumentTypeError, "int 3 was given"),
        (lambda: ac.write(path, ac.ones(3), -1), ac.ArgumentValueError, "offset is a whole number from 0"),
        (lambda: ac.write(path, ac.ones(8).sync(60).partition(4)), ac.ArgumentTypeError, "unpartition"),
    ]:
        with pytest.raises(error, match=message):
            wrong()
    closed = ac.ones(3).sync(60)
    closed.close()
    with pytest.raises(ac.ClosedError, match="closed"):
        ac.write(path, closed)
    assert not path.exists()


# --- what goes wrong with files


def refused(op: Any, kind: type[OSError], message: str) -> ac.FileError:
    with pytest.raises(ac.FileError, match=message) as caught:
        op.sync(60)
    assert isinstance(caught.value, kind)
    return caught.value


def test_a_file_that_is_not_there(path):
    error = refused(ac.read(path, 4, np.int32, 8), FileNotFoundError, "16 bytes from offset 8 on: No such file")
    assert (error.path, error.filename, error.step) == (str(path), str(path), "open")
    assert (error.errno, error.offset, error.asked_bytes, error.found_bytes) == (errno.ENOENT, 8, 16, 0)
    refused(ac.write(path / "below", ac.ones(3)), FileNotFoundError, "No such file")


def test_a_file_that_is_too_short(path):
    path.write_bytes(bytes(100))
    error = refused(
        ac.read(path, 25, np.float32, 40), OSError, "has 60 bytes from offset 40 on, and 100 were asked for"
    )
    assert (error.errno, error.asked_bytes, error.found_bytes) == (None, 100, 60)
    assert refused(ac.read(path, 1, np.uint8, 1000), OSError, "has 0 bytes from offset 1000 on").found_bytes == 0
    path.write_bytes(b"")
    refused(ac.read(path, 1, np.uint8), OSError, "has 0 bytes from offset 0 on, and 1 were asked for")


def test_directories_pipes_and_sockets_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for op in (lambda where: ac.read(where, 4, np.uint8), lambda where: ac.write(where, ac.ones(3))):
            refused(op(tmp_path), IsADirectoryError, "EISDIR.*name a file in it")
            for name in ("pipe", "socket"):
                error = refused(op(tmp_path / name), OSError, "has no places")
                assert error.errno == errno.ESPIPE


def test_a_writer_of_a_pipe_never_hears_of_a_read_of_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(ac.read(tmp_path / "pipe", 4, np.uint8), OSError, "ESPIPE")
    with pytest.raises(OSError, match="No such device or address"):  # nobody has it open for reading
        os.close(os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK))


def test_a_disk_that_is_full():
    error = refused(ac.write("/dev/full", ac.ones(LARGE)), OSError, "No space left on device .ENOSPC")
    assert (error.errno, error.step, error.asked_bytes, error.found_bytes) == (errno.ENOSPC, "write", 4 * LARGE, 0)


def test_an_error_of_the_disk():
    """Nobody maps the first pages of memory."""
    error = refused(ac.read("/proc/self/mem", 4, np.uint8), OSError, "0 bytes were read of 4 bytes.*EIO")
    assert (error.errno, error.step) == (errno.EIO, "read")


def test_what_may_not_be_opened_and_what_may_not_grow(in_process, tmp_path):
    done = in_process(
        f"""
        import os, resource
        import aiocuda as ac
        ac.ones(1).sync()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        try:
            ac.write({str(tmp_path / "large")!r}, ac.ones(1 << 20)).sync(60)
        except ac.FileError as error:
            print(error.errno, 0 <= error.found_bytes <= 1_000_000, error.asked_bytes)  # some systems write no part
        os.chmod({str(tmp_path)!r}, 0)
        if os.geteuid() == 0:
            os.seteuid(65534)
        for op in (ac.read({str(tmp_path / "secret")!r}, 4, "uint8"), ac.write({str(tmp_path / "new")!r}, ac.ones(3))):
            try:
                op.sync(60)
            except PermissionError as error:
                print(type(error).__name__, error.errno)
        """
    )
    assert done.stdout.splitlines() == [
        f"{errno.EFBIG} True {4 << 20}",
        *[f"FileError {errno.EACCES}"] * 2,
    ]


def test_files_of_the_system_that_have_no_size_are_read():
    assert contents(ac.read("/proc/self/status", 5, np.uint8)).tobytes() == b"Name:"


def test_what_needs_an_array_that_could_not_be_read_ends_with_the_error_and_all_else_goes_on(path, kernels):
    read = ac.read(path, 10, np.int32)
    y = ac.zeros(10, np.int32).sync(60)
    launch = kernels.accumulate(1, read, y, 10, threads=10)
    other = ac.write(path, ac.ones(4, np.uint8))
    both = ac.zip(launch, ac.ones(4))
    for op in (both, launch, read, read):
        with pytest.raises(FileNotFoundError, match="could not be opened"):
            op.sync(60)
    assert not contents(y).any()
    assert other.sync(60) == 4


def test_a_future_and_the_operation_tell_the_same_error(path, latch):
    stream = ac.Device(0).stream()
    latch.hold(stream)  # else submit() may find the error already
    op = ac.read(path, 10, np.int32).on(stream)
    future = op.submit()
    latch.release()
    with pytest.raises(FileNotFoundError, match="could not be opened"):
        future.sync(60)
    assert isinstance(future.exception(), ac.FileError)
    with pytest.raises(FileNotFoundError, match="could not be opened"):
        op.sync(60)


@pytest.mark.parametrize("make", [lambda p: ac.read(p, 10, np.int32), lambda p: ac.write(p, ac.ones(3))])
def test_graphs_and_compiled_functions_refuse_files(path, make):
    with pytest.raises(ac.CaptureError, match="a graph cannot read or write a file"):
        make(path).graph()
    with pytest.raises(ac.CaptureError, match="a graph cannot read or write a file"):
        ac.compile(lambda x: (make(path), ac.dup(x)))(ac.ones(3).sync(60)).sync(60)
    assert not path.exists()


def test_files_are_closed_whatever_became_of_them(path, open_files):
    data = numbers()
    ac.write(path, ac.to_device(data)).sync(60)
    assert open_files(path) == []
    ac.read(path, LARGE, np.int32).sync(60)
    assert open_files(path) == []
    with pytest.raises(ac.FileError, match="asked for"):
        ac.read(path, LARGE + 1, np.int32).sync(60)
    assert open_files(path) == []


# --- order


def test_a_read_behind_a_write_reads_what_that_wrote(path, latch):
    """The write is held in its stream, and threads read ahead of streams."""
    path.write_bytes(bytes(4 * LARGE))
    x = ac.to_device(numbers()).sync(60)
    stream = ac.Device(0).stream()
    latch.hold(stream)
    write = ac.write(path, x).on(stream).submit()
    read = ac.read(path, LARGE, np.int32).submit()
    part = ac.read(path, 5, np.int32, 400).submit()
    assert path.read_bytes() == bytes(4 * LARGE)
    assert not part.done()
    latch.release()
    np.testing.assert_array_equal(contents(read.sync(60)), numbers())
    np.testing.assert_array_equal(contents(part.sync(60)), numbers()[100:105])
    assert write.sync(60) == 4 * LARGE


def test_all_parts_of_what_is_put_on_a_stream_go_there(path, latch, settle, monkeypatch):
    monkeypatch.setattr(files, "_MOST_BYTES", 100_000)
    path.write_bytes(bytes(400_000))
    x = ac.ones(100_000).sync(60)
    stream = ac.Device(0).stream()
    latch.hold(stream)
    held = [
        ac.write(path.with_name("other"), x).on(stream).submit(),
        ac.save(path.with_name("tensors"), {"x": x, "y": x}).on(stream).submit(),
        ac.read(path, 100_000, np.float32).on(stream).submit(),
    ]
    settle()
    assert [each.done() for each in held] == [False] * 3
    assert [each.name for each in path.parent.iterdir()] == ["data"]
    latch.release()
    assert [each.sync(60) for each in held[:2]] == [400_000, 800_000]
    assert not contents(held[2].sync(60)).any()


@pytest.mark.parametrize("offset", [None, 0])
def test_a_write_behind_a_read_leaves_it_what_was_there(path, latch, settle, offset):
    numbers().tofile(path)
    stream = ac.Device(0).stream()
    latch.hold(stream)
    read = ac.read(path, LARGE, np.int32).on(stream).submit()
    write = ac.write(path, ac.full(LARGE, 7, np.int32), offset).submit()
    settle()
    assert path.read_bytes() == numbers().tobytes()
    latch.release()
    np.testing.assert_array_equal(contents(read.sync(60)), numbers())
    write.sync(60)
    assert (np.fromfile(path, np.int32) == 7).all()


def test_reads_of_one_file_and_writes_of_its_parts_wait_for_nobody(path, latch):
    numbers().tofile(path)
    x = ac.full(100, 9, np.int32).sync(60)
    stream = ac.Device(0).stream()
    latch.hold(stream)
    held = [ac.read(path, 1000, np.int32).on(stream).submit(), ac.write(path, x, 40_000).on(stream).submit()]
    np.testing.assert_array_equal(contents(ac.read(path, 1000, np.int32)), numbers()[:1000])
    assert ac.write(path, x, 80_000).sync(60) == 400
    ac.write(path.with_name("other"), x).sync(60)
    assert latch.is_holding
    latch.release()
    for each in held:
        each.sync(60)
    expected = numbers()
    expected[10_000:10_100] = expected[20_000:20_100] = 9
    np.testing.assert_array_equal(np.fromfile(path, np.int32), expected)


def test_one_dag_writes_and_reads_in_the_order_of_submission(path):
    x, y = ac.full(LARGE, 1, np.int32), ac.full(LARGE, 2, np.int32)
    _, first, _, second = ac.zip(
        ac.write(path, x), ac.read(path, LARGE, np.int32), ac.write(path, y), ac.read(path, LARGE, np.int32)
    ).sync(60)
    assert (contents(first) == 1).all()
    assert (contents(second) == 2).all()


def test_a_file_that_is_shortened_while_it_is_read(path, latch, settle):
    """Its first chunks are read ahead of the stream, and no more than a ring holds."""
    items = 40 << 20
    with path.open("wb") as file:
        file.truncate(4 * items)
    stream = ac.Device(0).stream()
    latch.hold(stream)
    read = ac.read(path, items, np.int32).on(stream).submit()
    settle()
    os.truncate(path, 1000)
    latch.release()
    error = refused(read, OSError, "were asked for")
    assert error.errno is None
    assert 1000 <= error.found_bytes < error.asked_bytes == 4 * items


# --- loops


def test_a_file_that_nobody_can_open_yet_holds_nobody_up(run, path, hold_file):
    """Neither the loop, nor other work, nor copies of NumPy's memory, nor other files."""
    path.write_bytes(bytes(100))
    other = path.with_name("other")
    other.write_bytes(b"\5" * 100)
    held = hold_file(path)
    data = numbers()
    back = np.zeros_like(data)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            results = []

            async def read() -> None:
                with ac.use(ac.Device(0).stream()):
                    results.append(await ac.read(path, 100, np.uint8))

            group.start_soon(read)
            while not held.is_wanted:
                await anyio.lowlevel.checkpoint()
            stream = ac.Device(0).stream()
            with ac.use(stream):
                await ac.to_host(ac.to_device(data), back)
            assert results == []
            held.let_go()
        assert not (await ac.to_host(results[0])).any()

    run(main)
    np.testing.assert_array_equal(back, data)


def test_a_file_that_nobody_can_open_yet_takes_no_page_locked_memory_of_others(path, hold_file, latch):
    """Three streams have copies of memory under way, and a fourth one has a place for its own."""
    path.write_bytes(bytes(100))
    data = numbers()
    streams = [ac.Device(0).stream() for _ in range(3)]
    for stream in streams:
        latch.hold(stream)
    held = hold_file(path)
    read = ac.read(path, 100, np.uint8).on(ac.Device(0).stream()).submit()
    under_way = [ac.to_device(data).on(stream).submit() for stream in streams]
    back = ac.to_host(ac.to_device(data)).on(ac.Device(0).stream())
    np.testing.assert_array_equal(back.sync(20), data)
    assert not any(each.done() for each in [read, *under_way])
    latch.release()
    held.let_go()
    for each in [read, *under_way]:
        each.sync(60)


def test_many_files_that_nobody_can_open_yet_leave_room_in_the_drivers_queues(run, path, hold_file):
    path.write_bytes(bytes(100))
    held = hold_file(path)
    data = numbers()
    back = np.zeros_like(data)

    async def main() -> None:
        stream = ac.Device(0).stream()
        async with anyio.create_task_group() as group:

            async def read() -> None:
                await ac.read(path, 100, np.uint8).on(stream)

            for _ in range(200):
                group.start_soon(read)
            while not held.is_wanted:
                await anyio.lowlevel.checkpoint()
            with anyio.fail_after(20):
                await ac.to_host(ac.to_device(data), back).on(ac.Device(0).stream())
            held.let_go()

    run(main)
    np.testing.assert_array_equal(back, data)


def test_a_cancelled_write_goes_on_and_a_cancelled_read_gives_its_memory_back(run, path, latch, used_bytes):
    x = ac.to_device(numbers()).sync(60)
    source = path.with_name("source")
    numbers().tofile(source)
    before = used_bytes()
    stream = ac.Device(0).stream()
    latch.hold(stream)

    async def give_up(op: Any) -> None:
        ended = []

        async def wait() -> None:
            await op
            ended.append(op)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert not ended

    async def main() -> None:
        await give_up(ac.write(path, x).on(stream))
        await give_up(ac.read(source, LARGE, np.int32).on(stream))

    run(main)
    latch.release()
    assert used_bytes() == before
    stream.synchronize().sync(60)
    np.testing.assert_array_equal(np.fromfile(path, np.int32), numbers())


def test_many_files_are_read_and_written_at_once(there_and_back):
    there_and_back(60, 10_000, np.int32)


def test_every_await_of_a_file_that_fails_ends(run, tmp_path):
    ended = []

    async def fail(op: Any) -> None:
        with pytest.raises(ac.FileError, match="could not be opened"):
            await op
        ended.append(op)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for i in range(20):
                group.start_soon(fail, ac.read(tmp_path / str(i), 10, np.int32))
                group.start_soon(fail, ac.write(tmp_path, ac.ones(10)))

    run(main)
    assert len(ended) == 40
