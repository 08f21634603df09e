"""Operations that yield arrays have the arrays' methods, which take effect when they are executed."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac

DATA = np.arange(24, dtype=np.int32).reshape(4, 6)
NUMPYS = {
    "T": (lambda x: x.T, lambda x: x.T),
    "transpose": (lambda x: x.transpose(1, 0), lambda x: x.transpose(1, 0)),
    "reshape": (lambda x: x.reshape(3, -1), lambda x: x.reshape(3, -1)),
    "reshape of a tuple": (lambda x: x.reshape((24,)), lambda x: x.reshape((24,))),
    "view": (lambda x: x.view(np.int16), lambda x: x.view(np.int16)),
    "slice": (lambda x: x[1:, ::2], lambda x: x[1:, ::2]),
    "row": (lambda x: x[-1], lambda x: x[-1]),
    "ellipsis": (lambda x: x[..., 1], lambda x: x[..., 1]),
    "all of them": (lambda x: x.T[1:3].T.view(np.float32)[2], lambda x: x.T[1:3].T.view(np.float32)[2]),
}


def contents(op):
    return ac.to_host(op).sync()


@pytest.mark.parametrize("name", NUMPYS)
@pytest.mark.parametrize("unknown", [False, True])
def test_views_are_numpys(name, unknown):
    ours, numpys = NUMPYS[name]
    op = ac.to_device(DATA, 0)
    seen = ours(op.then(lambda x: x) if unknown else op)
    assert isinstance(seen, ac.DeviceOp)
    assert seen._state == "pending"
    np.testing.assert_array_equal(contents(seen), numpys(DATA))
    if not unknown:
        assert seen._spec[0] == "device_array"
        array = seen.sync()
        assert seen._spec[2] == array.device.ordinal


def test_the_dtype_of_a_view_is_known_when_it_is_built(kernels):
    floats = ac.ones(4, np.float32)
    assert contents(kernels.increment(floats.view(np.int32), 4, threads=4)).tolist() == [0x3F800001] * 4
    with pytest.raises(ac.ArgumentTypeError, match="int32"):
        kernels.increment(ac.ones(4, np.int32).view(np.float32), 4, threads=4)


def test_views_are_awaited(run):
    async def program():
        return await ac.to_host(ac.to_device(DATA).T[2:4])

    np.testing.assert_array_equal(run(program), DATA.T[2:4])


def test_a_view_is_written_in_place():
    whole = ac.zeros((4, 6), np.int32).sync()
    ac.fill(ac.value(whole)[1:3].T, 5).sync()
    expected = np.zeros((4, 6), np.int32)
    expected[1:3] = 5
    np.testing.assert_array_equal(contents(whole), expected)


def test_bad_views_are_the_operations_errors():
    op = ac.to_device(DATA)
    for bad, error, text in [
        (op.reshape(5, 5), ac.ArgumentValueError, r"\(4, 6\).*\(5, 5\)"),
        (op.transpose(0, 0), ac.ArgumentValueError, r"transpose of .*\(0, 0\)"),
        (op[9], IndexError, "9"),
        (op[:, ::-1], ac.ArgumentValueError, "step"),
        (ac.value(3).T, AttributeError, "'int' object has no attribute"),
    ]:
        with pytest.raises(error, match=text):
            bad.sync()
    with pytest.raises(ac.ArgumentTypeError, match="no dtype"):
        op.view("no dtype")


def test_sharing_and_taking_back():
    op = ac.zeros(4)
    shared = op.share()
    handle = shared.sync()
    with pytest.raises(ac.OwnershipError, match="shared"):
        ac.fill(op.sync(), 1)
    with pytest.raises(ac.OwnershipError, match="left"):
        op.unwrap().sync()
    handle.close()
    whole = ac.value(op.sync()).unwrap().sync()
    ac.fill(whole, 1).sync()


def test_partitions(kernels):
    add = ac.kernel(
        "#include <aiocuda/tile.cuh>\n"
        'extern "C" __global__ void add(int by, aiocuda::Partition<int, 1> x) {\n'
        "    auto tile = x.tile();\n"
        "    for (long long i = threadIdx.x; i < tile.extent(0); i += blockDim.x) tile(i) += by;\n"
        "}"
    )
    op = add(3, ac.zeros(10, np.int32).partition(4)).unpartition()
    assert isinstance(op, ac.DeviceOp)
    np.testing.assert_array_equal(contents(op), np.full(10, 3))


def test_a_tuples_items_are_picked_too():
    both = ac.zip(ac.ones(2), ac.zeros(3))
    assert both[1].sync().shape == (3,)
    assert both[-2].sync().shape == (2,)


def test_an_operation_is_not_iterated_over():
    with pytest.raises(ac.ArgumentTypeError, match="cannot be taken apart"):
        list(ac.ones(3))
    with pytest.raises(ac.ArgumentTypeError, match="unzip"):
        list(ac.ones(3).then(lambda x: x))
    with pytest.raises(TypeError, match="operations are not searched with 'in'"):
        1 in ac.ones(3)  # noqa: B015


def test_a_graph_and_a_compiled_function_see_views():
    double = ac.compile(lambda a: ac.convert(ac.asarray(a).T[1:], np.int64))
    for data in (DATA, DATA + 1):
        np.testing.assert_array_equal(contents(double(ac.to_device(data).sync())), data.T[1:])
