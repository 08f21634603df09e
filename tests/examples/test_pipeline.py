"""The example of a stream of images: its kernels against NumPy, its order and its back-pressure."""

from __future__ import annotations

import asyncio
import sys

import images
import numpy as np
import pipeline as example
import pytest

import aiocuda as ac


@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 5), (33, 70)])
def test_edges_are_numpys(height, width):
    image = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    found = ac.to_host(example.edges_of(image)).sync(60)
    # The device computes in float32, and ends with whole numbers.
    np.testing.assert_allclose(found, np.floor(images.edges_of(image)), atol=1)


def test_each_image_comes_to_its_file(tmp_path):
    sources = images.make(tmp_path / "images", 7, 40, 60)
    targets = asyncio.run(example.run(sources, tmp_path, 3))
    assert [target.stem for target in targets] == [source.stem for source in sources]
    for source, target in zip(sources, targets, strict=True):
        np.testing.assert_allclose(np.load(target), np.floor(images.edges_of(images.decode(source))), atol=1)


@pytest.mark.parametrize("ahead", [1, 3, 100])
def test_no_more_than_so_many_are_begun_and_all_come_in_order(ahead):
    begun, most = 0, 0

    async def work(i: int) -> int:
        nonlocal begun, most
        begun += 1
        most = max(most, begun)
        for _ in range(20 - i):  # later ones are done sooner
            await asyncio.sleep(0)
        return i

    async def main() -> list[int]:
        nonlocal begun
        done = []
        async for i in example.in_order(map(work, range(20)), ahead):
            done.append(i)
            begun -= 1
        return done

    assert asyncio.run(main()) == list(range(20))
    assert most == min(ahead, 20)


def test_an_image_that_cannot_be_read_ends_all_and_leaves_nothing_begun(tmp_path):
    sources = images.make(tmp_path / "images", 5, 20, 20)
    sources[2].write_text("no image")

    async def main() -> None:
        with pytest.raises(OSError, match="cannot identify image file"):
            await example.run(sources, tmp_path, 2)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert (tmp_path / f"{sources[0].stem}.npy").exists()
    assert not (tmp_path / f"{sources[4].stem}.npy").exists()


def test_the_program_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["pipeline.py", "--images", "3", "--height", "20", "--width", "30"])
    example.main()
    printed = capsys.readouterr().out
    assert printed.startswith("3 images in")
    apart = float(printed.split("within ")[1].split()[0])
    assert apart <= 1


def test_cupy_and_threads_find_the_same(tmp_path):
    pytest.importorskip("cupy")
    if ac.Device(0).is_emulated:
        pytest.skip("CuPy's own kernels run on a GPU alone")
    import cupy_threads

    sources = images.make(tmp_path / "images", 5, 40, 60)
    for source, target in zip(sources, cupy_threads.run(sources, tmp_path, 3), strict=True):
        np.testing.assert_allclose(np.load(target), np.floor(images.edges_of(images.decode(source))), atol=1)
