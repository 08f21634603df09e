"""Parameters by name, mixed with positions as Python's functions take them; and results of several outputs unpacked."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac

SOURCE = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void clash(int* out, int block, int other) { out[0] = block; out[1] = other; }
extern "C" __global__ void unnamed(int* out, int) { out[0] = 1; }
"""
MANY = (
    'extern "C" __global__ void many(int* out, ' + ", ".join(f"int p{i}" for i in range(20)) + ") { out[0] = "
    + " + ".join(f"{3**i % 1000} * p{i}" for i in range(20)) + "; }"
)  # fmt: skip


@pytest.fixture(scope="module")
def module() -> ac.Module:
    return ac.Module.from_source(SOURCE)


@pytest.fixture(scope="module")
def saxpy(module):
    return module.kernel("saxpy")


def given(n: int = 5):
    return ac.arange(n, dtype=np.float32), ac.ones(n)


def test_names_stand_for_parameters_in_any_order_and_mixed_with_positions(saxpy, run):
    async def program():
        found = []
        for positions, names in [
            (0, ("n", "y", "x", "a")),
            (0, ("a", "x", "y", "n")),
            (1, ("y", "n", "x")),
            (3, ("n",)),
            (4, ()),
        ]:
            x, y = given()
            values = {"a": 2.0, "x": x, "y": y, "n": 5}
            by_position = list(values.values())[:positions]
            op = saxpy(*by_position, **{name: values[name] for name in names}, threads=5)
            found.append((await ac.to_host(op)).tolist())
        return found

    assert run(program) == [[1, 3, 5, 7, 9]] * 5


def test_more_than_twelve_names(module):
    many = ac.kernel(MANY)
    named = {f"p{i}": i for i in reversed(range(20))}
    op = many(**named, out=ac.empty(1, np.int32), grid=1, block=1)
    assert ac.to_host(op).sync()[0] == sum(3**i % 1000 * i for i in range(20))


def test_names_go_into_graphs_and_compiled_functions(saxpy):
    x, y = (array.sync() for array in given())
    graph = saxpy(n=5, x=x, y=y, a=ac.value(1.0), threads=5).graph(x=x)
    graph.launch(x=ac.full(5, 10.0).sync()).sync()
    assert ac.to_host(y).sync().tolist() == [11.0] * 5

    @ac.compile
    def step(a, x, y):
        return saxpy(y=y, x=x, n=x.size, a=a, threads=x.size)

    for a in (2.0, 3.0):
        step(a, x, y).sync()
    assert ac.to_host(y).sync().tolist() == [11.0 + 5 * i for i in range(5)]
    assert step.cache_info().misses == 1


@pytest.mark.parametrize(
    ("positions", "names", "message"),
    [
        (
            2,
            ("x", "y", "n"),
            r"the parameter 'x' was given by position, and by name as well; .*saxpy\(float32 a, const",
        ),
        (4, ("a",), r"the parameter 'a' was given by position, and by name as well"),
        (
            0,
            ("a", "y"),
            r"4 arguments .*no argument was given for x, n; the kernel is saxpy\(float32 a, const float32\* x",
        ),
        (3, (), r"4 arguments are expected, \(a, x, y, n\); 3 were given; the kernel is saxpy\("),
        (5, ("a",), r"given by position, and by name as well"),
        (5, (), r"4 arguments are expected, \(a, x, y, n\); 5 were given"),
        (3, ("m",), r"unexpected keyword 'm'; the kernel is saxpy\(.*launches take threads, grid, block"),
        (4, ("blocks",), r"unexpected keyword 'blocks'"),
        (4, ("\ud800",), r"unexpected keyword '\\ud800'"),
    ],
)
def test_names_that_do_not_fit_are_errors_that_show_the_signature(saxpy, positions, names, message):
    x, y = given()
    values = [2.0, x, y, 5, 6]
    with pytest.raises(ac.ArgumentTypeError, match=message):
        saxpy(*values[:positions], **dict.fromkeys(names, 1), threads=5)


def test_a_wrong_argument_by_name_is_told_like_one_by_position(saxpy):
    x, y = given()
    with pytest.raises(ac.ArgumentTypeError, match=r"argument 4 \(n\): a uint32 is expected, str was given"):
        saxpy(n="5", a=1.0, x=x, y=y, threads=5)


def test_keywords_of_launches_are_never_names_of_parameters(module):
    clash = module.kernel("clash")
    op = clash(ac.empty(2, np.int32), 7, other=8, grid=1, block=1)
    assert ac.to_host(op).sync().tolist() == [7, 8]
    with pytest.raises(
        ac.ArgumentTypeError, match="block is a keyword of launches: give the parameter of that name by position"
    ):
        clash(out=ac.empty(2, np.int32), other=8, grid=1, block=1)


def test_a_parameter_without_a_name_has_that_of_its_place(module):
    op = module.kernel("unnamed")(argument1=3, out=ac.empty(1, np.int32), grid=1, block=1)
    assert ac.to_host(op).sync()[0] == 1


# --- results of several outputs


def test_a_launch_of_several_outputs_is_unpacked(kernels, run):
    async def program():
        n = 7
        quotient, remainder = kernels.divmod(
            ac.arange(n, dtype=np.int32), 3, ac.empty(n, np.int32), ac.empty(n, np.int32), n, threads=n
        )
        first, *others = ac.zip(quotient, remainder, ac.value(5))
        return (await ac.to_host(first)).tolist(), (await ac.to_host(others[0])).tolist(), await others[1]

    assert run(program) == ([0, 0, 0, 1, 1, 1, 2], [0, 1, 2, 0, 1, 2, 0], 5)


def test_a_result_of_one_array_or_of_an_unknown_number_is_not_unpacked(kernels):
    with pytest.raises(
        ac.ArgumentTypeError,
        match="the launch of increment yields one array, and cannot be taken apart: `await` it for its items",
    ):
        _, _ = kernels.increment(ac.zeros(3, np.int32), 3, threads=3)
    late = ac.value(1).then(lambda _: (1, 2))
    with pytest.raises(ac.ArgumentTypeError, match=r"known only when it runs: take apart what \.unzip\(n\) returns"):
        _, _ = late
    a, b = late.unzip(2)
    assert (a.sync(), b.sync()) == (1, 2)
    with pytest.raises(ac.ArgumentTypeError, match=r"^a value yields one value, and cannot be taken apart"):
        list(ac.value(3))
    with pytest.raises(ValueError, match="too many values"):
        _, _ = ac.zip(1, 2, 3)
