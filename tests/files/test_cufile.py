"""Files that cuFile moves between a disk and a device: `AIOCUDA_FILES=cufile`.

On the emulated driver that is the emulated cuFile. On a GPU it is NVIDIA's, which copies through the host's memory if
the system has no GPUDirect Storage.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._driver import cufile
from aiocuda._verbs import files

SIZE = (3 << 20) + 17  # neither a page's multiple nor a sector's


def numbers(size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


def contents(x: Any) -> np.ndarray:
    return ac.to_host(x).sync(60)


@pytest.fixture(autouse=True)
def chosen(monkeypatch):
    monkeypatch.setenv(cufile.VARIABLE, "cufile")


@pytest.fixture
def made(monkeypatch) -> list[_native.FileCopy]:
    """The uses of files that operations have made, in order."""
    found: list[_native.FileCopy] = []
    real = _native.FileCopy

    def make(*given: Any) -> _native.FileCopy:
        found.append(real(*given))
        return found[-1]

    monkeypatch.setattr(files._native, "FileCopy", make)
    return found


def takes_direct(file: Path) -> bool:
    """Say whether the file system lets anybody go without its page cache."""
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


@pytest.fixture
def path(tmp_path: Path, made) -> Path:
    """A path in a folder whose files cuFile takes."""
    probe = tmp_path / "probe"
    numbers(cufile.LEAST_BYTES).tofile(probe)
    ac.read(probe, cufile.LEAST_BYTES, "uint8").sync(60)
    if not made.pop().is_direct:
        assert not ac.Device(0).is_emulated or not takes_direct(probe)  # the emulated cuFile takes all others
        pytest.skip(f"{tmp_path} is on a disk that nobody reads without the page cache, or that udev does not know")
    return tmp_path / "data"


@pytest.mark.parametrize("size", [cufile.LEAST_BYTES, cufile.LEAST_BYTES + 1, SIZE])
@pytest.mark.parametrize("offset", [0, 1, 4096])
def test_there_and_back_is_the_same_and_goes_through_cufile(path, made, size, offset):
    data, before = numbers(size), numbers(offset)
    before.tofile(path)
    assert ac.write(path, ac.to_device(data), offset).sync(60) == size
    assert path.read_bytes() == before.tobytes() + data.tobytes()
    np.testing.assert_array_equal(contents(ac.read(path, size, "uint8", offset)), data)
    assert [each.is_direct for each in made] == [True, True]


def test_parts_of_a_large_file_go_through_cufile(path, made, monkeypatch):
    monkeypatch.setattr(files, "_MOST_BYTES", 500_000)
    data = numbers()
    assert ac.write(path, ac.to_device(data)).sync(60) == SIZE
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), data)
    np.testing.assert_array_equal(contents(ac.read(path, SIZE, "uint8")), data)
    assert [each.is_direct for each in made] == [True, True]


def test_saved_tensors_are_loaded_again(path, made):
    tensors = {str(i): ac.to_device(numbers(700_000 + i)).sync(60) for i in range(4)}
    tensors["host"] = ac.empty_host(300_000, "uint8").sync(60)
    tensors["host"].numpy()[:] = 7
    ac.save(path, tensors).sync(60)
    assert made[0].is_direct
    loaded = ac.load(path).sync(60)
    for name, each in tensors.items():
        expected = each.numpy() if name == "host" else contents(each)
        np.testing.assert_array_equal(contents(loaded[name]), expected)
    ac.save(path, tensors["0"]).sync(60)
    np.testing.assert_array_equal(np.load(path), contents(tensors["0"]))


def test_small_files_and_arrays_that_are_not_on_a_device_alone_stay_with_threads(path, made):
    data = numbers(cufile.LEAST_BYTES - 1)
    ac.write(path, ac.to_device(data)).sync(60)
    np.testing.assert_array_equal(contents(ac.read(path, data.size, "uint8")), data)
    host = ac.to_host(ac.to_device(numbers()), out=ac.empty_host(SIZE, "uint8").sync(60)).sync(60)
    ac.write(path, host).sync(60)
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), numbers())
    managed = ac.copy(ac.empty(SIZE, "uint8", managed=True), numbers()).sync(60)
    ac.write(path, managed).sync(60)
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), numbers())
    assert [each.is_direct for each in made] == [False] * 4


@pytest.mark.parametrize("asked", ["auto", "threads", ""])
def test_without_the_kernel_module_threads_carry_every_file(path, made, monkeypatch, asked):
    monkeypatch.setenv(cufile.VARIABLE, asked)
    monkeypatch.setattr(cufile, "_has_module", lambda: False)
    numbers().tofile(path)
    np.testing.assert_array_equal(contents(ac.read(path, SIZE, "uint8")), numbers())
    assert [each.is_direct for each in made] == [False]


@pytest.mark.emulated_only
def test_the_emulated_driver_has_cufile_only_for_who_asks(path, made, monkeypatch):
    monkeypatch.setenv(cufile.VARIABLE, "auto")
    monkeypatch.setattr(cufile, "_has_module", lambda: True)
    numbers().tofile(path)
    np.testing.assert_array_equal(contents(ac.read(path, SIZE, "uint8")), numbers())
    assert [each.is_direct for each in made] == [False]


def test_another_word_in_the_variable_is_refused(path, monkeypatch):
    monkeypatch.setenv(cufile.VARIABLE, "gds")
    with pytest.raises(ac.DriverSelectionError, match="AIOCUDA_FILES is 'gds'; it must be auto, cufile or threads"):
        ac.read(path, SIZE, "uint8")


def test_without_the_library_every_operation_says_what_to_install(run, path, monkeypatch):
    def find() -> str:
        raise RuntimeError("no libcufile.so.0 was found")

    monkeypatch.setattr(cufile, "_path", find)
    cufile._library.cache_clear()
    numbers().tofile(path)

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(ac.MissingPackageError, match=r"aiocuda\[cufile\]"):
                await ac.to_host(ac.read(path, SIZE, "uint8"))

    try:
        run(main)
        monkeypatch.setenv(cufile.VARIABLE, "threads")
        np.testing.assert_array_equal(contents(ac.read(path, SIZE, "uint8")), numbers())
    finally:
        cufile._library.cache_clear()


def test_with_the_module_and_without_the_library_threads_carry_the_file_and_a_warning_says_so(path, made, monkeypatch):
    def find() -> str:
        raise RuntimeError("no libcufile.so.0 was found")

    monkeypatch.setenv(cufile.VARIABLE, "auto")
    monkeypatch.setattr(cufile, "_has_module", lambda: True)
    monkeypatch.setattr(cufile, "_is_emulated", lambda: False)
    monkeypatch.setattr(cufile, "_path", find)
    cufile._library.cache_clear()
    numbers().tofile(path)
    try:
        with pytest.warns(RuntimeWarning, match="nvidia-fs is loaded, and cuFile cannot be used"):
            np.testing.assert_array_equal(contents(ac.read(path, SIZE, "uint8")), numbers())
    finally:
        cufile._library.cache_clear()
    assert [each.is_direct for each in made] == [False]


def test_a_file_that_is_not_there_or_too_short_is_an_error(run, path):
    numbers(2 << 20).tofile(path)

    async def main() -> None:
        with pytest.raises(FileNotFoundError) as none:
            await ac.read(path.with_name("none"), SIZE, "uint8")
        assert none.value.step == "open"
        with pytest.raises(ac.FileError) as short:
            await ac.to_host(ac.read(path, SIZE, "uint8", 5))
        assert (short.value.found_bytes, short.value.asked_bytes, short.value.errno) == ((2 << 20) - 5, SIZE, None)
        with pytest.raises(IsADirectoryError):
            await ac.write(path.parent, ac.zeros(SIZE, "uint8"))

    run(main)


def test_a_file_that_is_shortened_meanwhile_says_how_much_there_was(path, latch):
    numbers().tofile(path)
    stream = ac.Device(0).stream()
    latch.hold(stream)
    read = ac.read(path, SIZE, "uint8").on(stream).submit()
    os.truncate(path, 2 << 20)
    latch.release()
    with pytest.raises(ac.FileError) as short:
        read.sync(60)
    assert short.value.found_bytes == 2 << 20


def test_a_write_changes_the_file_when_its_stream_comes_there(path, latch, made):
    before = numbers(2 * SIZE)
    before.tofile(path)
    x = ac.to_device(numbers()).sync(60)
    stream = ac.Device(0).stream()
    latch.hold(stream)
    write = ac.write(path, x).on(stream).submit()
    assert path.read_bytes() == before.tobytes()
    later = ac.fill(x, 1).submit()  # behind the write
    latch.release()
    assert write.sync(60) == SIZE
    assert path.read_bytes() == numbers().tobytes()
    assert (contents(later.sync(60)) == 1).all()
    assert made[-1].is_direct


def test_a_read_behind_a_write_reads_what_that_wrote_and_a_write_behind_a_read_leaves_it(path, latch):
    np.zeros(SIZE, np.uint8).tofile(path)
    x = ac.to_device(numbers()).sync(60)
    stream = ac.Device(0).stream()
    latch.hold(stream)
    write = ac.write(path, x).on(stream).submit()
    read = ac.read(path, SIZE, "uint8").submit()
    part = ac.read(path, 5, "uint8", 400).submit()
    again = ac.write(path, ac.full(SIZE, 9, "uint8")).submit()
    latch.release()
    np.testing.assert_array_equal(contents(read.sync(60)), numbers())
    np.testing.assert_array_equal(contents(part.sync(60)), numbers()[400:405])
    assert write.sync(60) == again.sync(60) == SIZE
    assert (np.fromfile(path, np.uint8) == 9).all()


def test_nobody_comes_between_the_opening_of_a_file_and_its_first_part(run, path):
    """The opening makes the file, and whoever sees it there would find it empty."""
    x = ac.to_device(numbers()).sync(60)

    async def main() -> None:
        for _ in range(20):
            path.unlink(missing_ok=True)
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.lowlevel.checkpoint)
                write = ac.write(path, x)

                async def run_write(op: Any = write) -> None:
                    await op

                group.start_soon(run_write)
                while not path.exists():
                    await anyio.lowlevel.checkpoint()
                found = await ac.to_host(ac.read(path, 7, "uint8"))
            np.testing.assert_array_equal(found, numbers()[:7])

    run(main)


def test_many_files_at_once_and_none_stays_open(tmp_path, path, made, there_and_back, open_files):
    there_and_back(12, cufile.LEAST_BYTES, np.uint8)
    assert all(each.is_direct for each in made)
    made.clear()
    ac.ones(3).sync(60)  # what has passed is dropped with the next operation
    assert [each for i in range(12) for each in open_files(tmp_path / str(i))] == []


def test_a_read_that_is_given_up_before_its_file_is_open_gives_its_memory_back(run, path, hold_file, used_bytes):
    numbers().tofile(path)
    before = used_bytes()
    held = hold_file(path)

    async def main() -> None:
        async with anyio.create_task_group() as group:

            async def read() -> None:
                await ac.read(path, SIZE, "uint8")

            group.start_soon(read)
            while not held.is_wanted:
                await anyio.lowlevel.checkpoint()
            assert await ac.to_host(ac.ones(3)) == pytest.approx(1)  # others go on
            group.cancel_scope.cancel()
        held.let_go()
        np.testing.assert_array_equal(await ac.to_host(ac.read(path, SIZE, "uint8")), numbers())

    run(main)
    assert used_bytes() == before


def test_what_the_system_refuses_is_an_error_of_input_and_output(lines_of, path):
    """cuFile does not say which error of the system's it was."""
    lines = lines_of(
        f"""
        import resource, signal
        import aiocuda as ac

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
        try:
            ac.write({str(path)!r}, ac.ones(3 << 20, dtype="uint8")).sync(60)
        except ac.FileError as error:
            print(error.step, error.errno, error.found_bytes <= 2 << 20)
        """,
        AIOCUDA_FILES="cufile",
    )
    assert lines == [f"write {errno.EIO} True"]


def test_a_graph_takes_no_file(path):
    numbers().tofile(path)
    with pytest.raises(ac.CaptureError, match="a graph cannot read or write a file"):
        ac.read(path, SIZE, "uint8").graph()
