"""Files that say what they have: .npy as NumPy has it, safetensors as their own library has it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import aiocuda as ac

TENSORS = {
    "weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "bias": np.arange(5, dtype=np.float64),
    "half": np.arange(7, dtype=np.float16),
    "brain": np.arange(7).astype(ml_dtypes.bfloat16),
    "mask": np.array([True, False, True]),
    "bytes": np.arange(11, dtype=np.uint8),
    "none": np.zeros((0, 3), np.int64),
    "one": np.array(3, np.int32),
    "ümlaut": np.arange(3, dtype=np.uint16),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


def contents(x: Any) -> np.ndarray:
    return ac.to_host(x).sync(60)


def loaded(path: Path) -> Any:
    found = ac.load(path).sync(60)
    return {name: contents(each) for name, each in found.items()} if isinstance(found, dict) else contents(found)


@given(
    data=st_numpy.arrays(
        st.sampled_from([np.bool_, np.int8, np.uint32, np.float16, np.float64, np.complex64]),
        st_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7),
        elements=st.integers(0, 1),
    ),
    order=st.sampled_from("CF"),
)
def test_what_numpy_saves_is_loaded_and_what_is_saved_numpy_loads(tmp_path_factory, data, order):
    path = tmp_path_factory.getbasetemp() / "any.npy"
    np.save(path, np.asarray(data, order=order))
    found = loaded(path)
    assert (found.shape, found.dtype) == (data.shape, data.dtype)
    np.testing.assert_array_equal(found, data)
    assert ac.save(path, ac.to_device(data)).sync(60) == data.nbytes
    again = np.load(path)
    assert (again.shape, again.dtype) == (data.shape, data.dtype)
    np.testing.assert_array_equal(again, data)


def test_a_large_array_is_saved_as_numpy_saves_it(tmp_path):
    data = np.arange(3_000_000, dtype=np.int32).reshape(3, -1)
    ac.save(tmp_path / "ours.npy", ac.to_device(data).sync(60)[:, ::2]).sync(60)
    np.save(tmp_path / "theirs.npy", data[:, ::2])
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()


def test_structures_and_longer_heads(path):
    fields = np.dtype([(f"field of a long name {i}", np.float32) for i in range(200)])
    data = np.zeros(3, fields)
    data["field of a long name 7"] = [1, 2, 3]
    with path.open("wb") as file:
        np.save(file, data)
    assert loaded(path).tobytes() == data.tobytes()
    ac.save(path, ac.to_device(data)).sync(60)
    assert np.load(path).tobytes() == data.tobytes()


@pytest.mark.parametrize("name", ["да", "ümlaut", "quote' д", "both' \" д", "back\\д", "漢" * 9000, "😀"])
def test_fields_of_any_name(path, name):
    data = np.array([(1, 2.5), (3, 4.5)], [(name, np.int16), ("(д)", np.float64)])
    with path.open("wb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it says that older versions of NumPy cannot read it
        np.save(file, data)
    theirs = path.read_bytes()
    if len(name) < 1000:
        found = loaded(path)
        assert (found.dtype, found.tobytes()) == (data.dtype, data.tobytes())
    ac.save(path, ac.to_device(data)).sync(60)
    assert path.read_bytes()[:7] == theirs[:7] == b"\x93NUMPY\3"
    again = np.load(path, allow_pickle=False, max_header_size=100_000)
    assert (again.dtype, again.tobytes()) == (data.dtype, data.tobytes())
    assert path.read_bytes().endswith(data.tobytes())
    assert (len(path.read_bytes()) - data.nbytes) % 64 == 0


def test_a_name_of_a_tensor_that_is_no_text_is_refused(tmp_path):
    with pytest.raises(ac.ArgumentValueError, match="a safetensors file has no such name"):
        ac.save(tmp_path / "x", {"\ud800": ac.ones(3).sync(60)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (np.arange(3, dtype=">i4"), ac.ArgumentTypeError, "foreign byte order"),
        (np.array([None, "a"]), ac.ArgumentTypeError, "Python objects"),
    ],
)
def test_arrays_that_no_device_can_hold(path, data, error, message):
    with path.open("wb") as file:
        np.save(file, data)
    with pytest.raises(error, match=f"{path}: .*{message}"):
        ac.load(path).sync(60)


def npy(text: bytes, version: int = 1) -> bytes:
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "neither a .npy nor a safetensors file"),
        (b"PK\3\4 an archive, such as .npz", "neither a .npy nor a safetensors file.*read"),
        (b"\x93NUMPY\x09\x00", "version"),
        (b"\x93NUMPY\x01\x00\xff\x00{'descr': ", "NumPy cannot read the head"),
        (npy(b"{'descr': (\n"), "NumPy cannot read the head"),
        (npy(b"(" * 9000), "NumPy cannot read the head"),
        (npy(b"-" * 9000 + b"1"), "NumPy cannot read the head"),
        (npy(b"{[]: {}, 'descr': '<f4'}"), "NumPy cannot read the head"),
        (npy(b"{'descr': '(2,3', 'fortran_order': True, 'shape': ()}"), "NumPy cannot read the head"),
        (npy(b"{'descr': (), 'fortran_order': True, 'shape': ()}"), "NumPy cannot read the head"),
        (npy(b"{'descr': '<f4', 'fortran_order': True, 'shape': (-3,)}"), "-3"),
        (npy(b"{'descr': '<f4', 'fortran_order': True, 'shape': (%d,)}" % 2**70), str(2**70)),
        (npy(b"{'descr': '<f4' # \xff", 3), "NumPy cannot read the head: 'utf-8'"),
        (npy(b"{}" + b" " * 10_000, 3), "10002 characters, and 10000 are the most"),
        (npy(b"{}", 3)[:-1], "its text has 1 bytes, and 2 are wanted"),
        ((2).to_bytes(8, "little") + b"{x", "the head is no JSON"),
        ((12).to_bytes(8, "little") + b'{"a": [1,2]}', "tensor 'a' is not described"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "neither a .npy nor a safetensors file"),
    ],
)
def test_what_is_no_such_file(path, text, message):
    path.write_bytes(text)
    with pytest.raises(ac.ArgumentValueError, match=f"^{path}: .*{message}"):
        ac.load(path).sync(60)


def test_a_file_that_is_shorter_than_its_head_says(path):
    np.save(path.with_suffix(".npy"), np.zeros(1000))
    text = path.with_suffix(".npy").read_bytes()
    path.write_bytes(text[:-8])
    with pytest.raises(ac.FileError, match="has 7992 bytes from offset 128 on, and 8000 were asked for"):
        ac.load(path).sync(60)
    with pytest.raises(FileNotFoundError, match="could not be opened"):
        ac.load(path.with_name("other")).sync(60)


def test_tensors_of_the_library_are_loaded(path):
    safetensors.numpy.save_file(TENSORS, path, metadata={"made": "here"})
    found = loaded(path)
    assert sorted(found) == sorted(TENSORS)
    for name, expected in TENSORS.items():
        assert (found[name].shape, found[name].dtype) == (expected.shape, expected.dtype)
        assert found[name].tobytes() == expected.tobytes()


def test_tensors_that_are_saved_are_the_librarys(path):
    head = ac.save(path, {name: ac.to_device(each) for name, each in TENSORS.items()}).sync(60)
    assert head == sum(each.nbytes for each in TENSORS.values())
    found = safetensors.numpy.load_file(path)
    assert sorted(found) == sorted(TENSORS)
    for name, expected in TENSORS.items():
        assert (found[name].shape, found[name].dtype) == (expected.shape, expected.dtype)
        assert found[name].tobytes() == expected.tobytes()
    safetensors.numpy.save_file(TENSORS, path.with_suffix(".theirs"))
    assert path.stat().st_size == path.with_suffix(".theirs").stat().st_size


def test_no_tensors_at_all(path):
    path.write_bytes(b"before")
    assert ac.save(path, {}).sync(60) == 0
    assert safetensors.numpy.load_file(path) == {}
    assert loaded(path) == {}


def test_a_head_of_thousands_of_tensors(path):
    tensors = {f"layers.{i}.attention.weight": np.full((2, 3), i, np.float32) for i in range(400)}
    safetensors.numpy.save_file(tensors, path)
    assert int.from_bytes(path.read_bytes()[:8], "little") > 16 << 10
    found = loaded(path)
    assert all((found[name] == each).all() for name, each in tensors.items())
    assert len(found) == 400


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}, "tensor 'x' has the dtype 'F4'; known are BOOL"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 15]}, "has 15 bytes, and 16 are wanted"),
        ({"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}, "whole numbers"),
        ({"dtype": "F32", "shape": [4.0], "data_offsets": [0, 16]}, "whole numbers"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [0]}, "not described"),
        ({"shape": [4], "data_offsets": [0, 16]}, "not described"),
        ({"dtype": [], "shape": [4], "data_offsets": [0, 16]}, "has the dtype \\[\\]"),
        ({"dtype": "F32", "shape": {}, "data_offsets": [0, 4]}, "not described"),
    ],
)
@pytest.mark.parametrize("others", [0, 400], ids=["short", "long"])  # heads
def test_tensors_that_are_described_wrongly(path, about, message, others):
    none = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    text = json.dumps({"x": about, **dict.fromkeys(map(str, range(others)), none)}).encode()
    assert (len(text) > 16 << 10) == (others > 0)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    with pytest.raises(ac.ArgumentValueError, match=f"^{path}: .*{message}"):
        ac.load(path).sync(60)


def test_misuse_is_refused(tmp_path):
    for arrays, name, error, message in [
        ({"x": ac.ones(3)}, "x.npy", ac.ArgumentValueError, "an array is wanted"),
        (ac.ones(3), "x.safetensors", ac.ArgumentValueError, "a mapping of names to arrays is wanted"),
        (np.ones(3), "x", ac.ArgumentTypeError, "numpy.save"),
        ({"x": np.ones(3)}, "x", ac.ArgumentTypeError, "numpy.save"),
        ({3: ac.ones(3)}, "x", ac.ArgumentTypeError, "names of tensors are texts"),
        ({"__metadata__": ac.ones(3).sync(60)}, "x", ac.ArgumentValueError, "keeps the name"),
        (ac.ones(3, "bfloat16").sync(60), "x.npy", ac.ArgumentValueError, "no name for bfloat16"),
        ({"x": ac.ones(3, np.complex128).sync(60)}, "x", ac.ArgumentValueError, "no name for complex128"),
    ]:
        with pytest.raises(error, match=message):
            ac.save(tmp_path / name, arrays)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ac.ArgumentValueError, match="no name for bfloat16"):
        ac.save(tmp_path / "x.npy", ac.ones(3, "bfloat16")).sync(60)


@pytest.mark.needs_devices(2)
def test_all_is_loaded_to_the_device_that_is_named(path):
    ac.save(path, {"x": ac.ones(3), "y": ac.ones(4)}).sync(60)
    assert {each.device for each in ac.load(path, device=1).sync(60).values()} == {ac.Device(1)}


def test_a_load_is_awaited_and_composed(run, path):
    data = np.arange(100_000, dtype=np.float32)
    np.save(path.with_suffix(".npy"), data)

    async def main() -> None:
        doubled = ac.load(path.with_suffix(".npy")).then(lambda x: ac.algorithms.transform("2 * x", x=x))
        np.testing.assert_array_equal(await ac.to_host(doubled), 2 * data)
        assert await ac.save(path, {"x": doubled}) == data.nbytes
        np.testing.assert_array_equal(await ac.to_host((await ac.load(path))["x"]), 2 * data)

    run(main)


def test_graphs_refuse_both(path):
    for make in (lambda: ac.load(path), lambda: ac.save(path, ac.ones(3).sync(60))):
        with pytest.raises(ac.CaptureError, match="graph"):
            make().graph()
