"""The head-permutation race: possible with raw pointers, not with a partition."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import head_permutation as heads
import numpy as np
import pytest
from raw_launch import OnDevice, launch

import aiocuda as ac
from aiocuda._driver.checking import take_kernel_reports

X = np.arange(np.prod(heads.SHAPE), dtype=np.float32).reshape(heads.SHAPE)


def run_raw(source: str, name: str) -> np.ndarray:
    permutation = np.array(heads.PERMUTATION, np.int32)
    with OnDevice(X) as x, OnDevice(np.full_like(X, -1)) as out, OnDevice(permutation) as order:
        pointers = [struct.pack("<Q", each.address) for each in (x, out, order)]
        extents = [struct.pack("<i", extent) for extent in heads.SHAPE[1:]]
        launch(source, name, *pointers, *extents, grid=heads.RAW_GRID, block=heads.BLOCK)
        return out.back()


def run_partitioned(source: str, name: str, options: tuple[str, ...] = ()) -> np.ndarray:
    with OnDevice(X) as x, OnDevice(np.full_like(X, -1)) as out, OnDevice(heads.inverse()) as inverse:
        parameters = (x.view(), out.partition(heads.TILE_SHAPE), inverse.view())
        launch(source, name, *parameters, grid=heads.PARTITION_GRID, block=heads.BLOCK, options=options)
        return out.back()


def test_raw_pointers_with_the_right_index_permute() -> None:
    np.testing.assert_array_equal(run_raw(heads.RAW, heads.RAW_NAME), heads.reference(X))


def test_raw_pointers_with_the_wrong_index_run_on_and_race() -> None:
    count = heads.writers()
    assert count.max() > 1  # blocks of different heads write one item: which stays is chance
    out = run_raw(heads.RACING, heads.RACING_NAME)
    np.testing.assert_array_equal(out == -1, count == 0)
    assert not np.array_equal(out, heads.reference(X))
    if "races" in os.environ.get("AIOCUDA_EMULATOR_CHECK", ""):  # if the kernel was looked at, it was told
        assert {each.kernel for each in take_kernel_reports()} == {heads.RACING_NAME}


def test_a_partition_permutes() -> None:
    np.testing.assert_array_equal(run_partitioned(heads.PARTITION, heads.PARTITION_NAME), heads.reference(X))


def test_a_partition_stops_at_the_wrong_index(in_process) -> None:
    done = in_process(
        f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import aiocuda as ac, head_permutation as heads, test_head_permutation as tests
        try:
            tests.run_partitioned(heads.PARTITION_SWAPPED, heads.PARTITION_SWAPPED_NAME, ("-DAIOCUDA_CHECK_BOUNDS",))
        except ac.DriverError as error:
            print(error.name, flush=True)
        """
    )
    assert "axis 1 of a Tile, whose extent there is 1" in done.stdout, done.stdout + done.stderr
    assert "CUDA_ERROR" in done.stdout.splitlines()[-1]


def test_the_racing_store_does_not_compile_with_a_partition() -> None:
    raced = heads.PARTITION.replace("tile(0, 0, m, d)", "out[((b * 6 + m) * 4 + h2) * 8 + d]")
    assert "out[" in raced
    with pytest.raises(ac.CompilationError, match=r"\[\]|subscript"):
        run_partitioned(raced, heads.PARTITION_NAME)
