"""A kernel has a class that one can see: methods, a signature and documentation; and a call runs no Python."""

from __future__ import annotations

import gc
import inspect
import pydoc
import sys
import weakref

import numpy as np
import pytest

import aiocuda as ac

SAXPY = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
AWKWARD = r"""
extern "C" __global__ void awkward(const int* in, int threads, int* out, int) { out[0] = in[0] + threads; }
"""
OPEN = r"""
#define NUMBER int
extern "C" __global__ void set(NUMBER* x, NUMBER value) { x[0] = value; }
"""
HAVE_VECTORCALL = 1 << 11


@pytest.fixture(scope="module")
def saxpy() -> ac.Kernel:
    return ac.kernel(SAXPY)


def test_it_is_of_a_public_class(saxpy):
    assert type(saxpy) is ac.Kernel
    assert (ac.Kernel.__module__, ac.Kernel.__qualname__) == ("aiocuda", "Kernel")
    methods = {"compile", "compile_async", "attributes", "set_attributes", "occupancy"}
    properties = {"name", "module", "source", "options", "signature"}
    assert {name for name in dir(saxpy) if not name.startswith("_")} == methods | properties
    assert all(inspect.isfunction(getattr(ac.Kernel, name)) for name in methods)
    assert all(isinstance(vars(ac.Kernel)[name], property) for name in properties)


def test_its_class_is_not_called():
    with pytest.raises(ac.ArgumentTypeError, match=r"aiocuda\.kernel\(source\)"):
        ac.Kernel()
    assert "aiocuda.kernel" in (inspect.getdoc(ac.Kernel) or "")
    assert list(inspect.signature(ac.Kernel).parameters) == ["_", "__"]


def test_its_signature_is_that_of_cuda(saxpy):
    signature = inspect.signature(saxpy)
    own = [each for each in signature.parameters.values() if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert [(each.name, each.annotation) for each in own] == [
        ("a", "float32"), ("x", "const float32*"), ("y", "float32*"), ("n", "uint32")
    ]  # fmt: skip
    keywords = [name for name, each in signature.parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    assert keywords == ["threads", "grid", "block", "shared_memory", "cluster", "cooperative"]
    bound = signature.bind(2.0, x=1, y=2, n=3, threads=3)
    assert bound.arguments["y"] == 2
    with pytest.raises(TypeError, match="missing a required argument: 'n'"):
        signature.bind(2.0, x=1, y=2, threads=3)


def test_parameters_whose_names_mean_something_else_are_given_by_position():
    kernel = ac.kernel(AWKWARD)
    signature = inspect.signature(kernel)
    positional = [name for name, each in signature.parameters.items() if each.kind is each.POSITIONAL_ONLY]
    assert positional == ["in", "threads_"]
    assert list(signature.parameters)[2:4] == ["out", "argument3"]
    x = ac.to_device(np.array([3], np.int32)).sync()
    out = ac.zeros(1, np.int32).sync()
    bound = signature.bind(x, 4, out=out, argument3=0, threads=1)
    assert ac.to_host(kernel(*bound.args, **bound.kwargs)).sync()[0] == 7


def test_it_documents_itself(saxpy):
    shown = pydoc.plain(pydoc.render_doc(saxpy))
    for each in ("saxpy(float32 a, const float32* x, float32* y, uint32 n)", "n : uint32", "threads", "It yields y."):
        assert each in shown
    assert "CUDA" in (ac.Kernel.__doc__ or "")
    assert saxpy.__doc__ != ac.Kernel.__doc__


def test_where_the_compiler_is_to_be_asked_nothing_asks_it():
    kernel = ac.kernel(OPEN)
    parameters = inspect.signature(kernel).parameters
    assert parameters["arguments"].kind is inspect.Parameter.VAR_POSITIONAL
    assert parameters["named"].kind is inspect.Parameter.VAR_KEYWORD
    assert "asks the compiler" in (kernel.__doc__ or "")
    assert str(kernel.signature) == "set(int32* x, int32 value)"
    assert list(inspect.signature(kernel).parameters)[:2] == ["x", "value"]


def test_a_launch_is_built_and_submitted_without_a_python_frame(saxpy):
    assert ac.Kernel.__flags__ & HAVE_VECTORCALL
    saxpy.compile()
    x, y = ac.ones(4).sync(), ac.zeros(4).sync()
    frames: list[str] = []

    def profile(frame, event, _):
        if event == "call":
            frames.append(frame.f_code.co_name)

    saxpy(2.0, x, y, 4, threads=4).sync()
    sys.setprofile(profile)
    try:
        op = saxpy(2.0, x=x, y=y, n=4, threads=4)
    finally:
        sys.setprofile(None)
    assert frames == []
    np.testing.assert_array_equal(ac.to_host(op).sync(), [4, 4, 4, 4])


def test_it_ends_when_nobody_holds_it():
    kernel = ac.kernel(SAXPY.replace("saxpy", "dropped"))
    there = weakref.ref(kernel)
    op = kernel(2.0, ac.ones(4), ac.zeros(4), 4, threads=4)
    del kernel
    assert there() is not None  # the launch holds it
    del op
    gc.collect()
    assert there() is None


@pytest.mark.parametrize("name", ["name", "module", "source", "options", "signature"])
def test_what_it_knows_is_not_set(saxpy, name):
    with pytest.raises(AttributeError, match="no setter"):
        setattr(saxpy, name, None)


def test_it_takes_no_other_attributes(saxpy):
    with pytest.raises(AttributeError, match="no attribute 'note'"):
        saxpy.note = 1
