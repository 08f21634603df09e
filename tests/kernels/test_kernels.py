"""Kernels: which one of a source, templates, outputs, compile errors, explicit signatures."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import aiocuda as ac

TEMPLATE = r"""
namespace math {
template <typename T, int factor>
__global__ void scale(const T* x, T* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * factor;
}
}
"""


@pytest.mark.parametrize(("c_type", "dtype"), [("float", np.float32), ("long long", np.int64)])
def test_a_template_is_instantiated_by_its_name_expression(c_type, dtype):
    kernel = ac.kernel(TEMPLATE, f"math::scale<{c_type}, 3>")
    x = np.arange(5).astype(dtype)
    op = kernel(ac.to_device(x), ac.empty(5, dtype), 5, threads=5)
    np.testing.assert_array_equal(ac.to_host(op).sync(), x * 3)


def test_template_arguments_decide_the_parameters_dtypes():
    kernel = ac.kernel(TEMPLATE, "math::scale<float, 3>")
    with pytest.raises(ac.ArgumentTypeError, match="float32 is expected"):
        kernel(ac.ones(5, np.float64), ac.empty(5), 5, threads=5)


def test_several_kernels_of_one_source_are_chosen_by_name(kernels):
    assert kernels.scale.name == "scale"
    assert kernels.add.name == "add"


def test_a_source_with_several_kernels_needs_a_name():
    source = "__global__ void a(int* x) {}\n__global__ void b(int* x) {}"
    with pytest.raises(ac.ArgumentValueError, match=r"(?s)2 kernels.*\ba\b.*\bb\b"):
        ac.kernel(source)


def test_a_name_that_is_not_there_is_an_error_that_says_what_is():
    with pytest.raises(ac.ArgumentValueError, match="only"):
        ac.kernel("__global__ void only(int* x) {}", "other")


def test_a_kernel_that_writes_one_array_yields_it(kernels):
    out = ac.empty(2).sync()
    assert kernels.scale(1.0, ac.ones(2), out, 2, threads=2).sync() is out


def test_a_kernel_that_writes_several_yields_a_tuple_in_order(kernels):
    x, q, r = (ac.zeros(2, np.int32).sync() for _ in range(3))
    found = kernels.divmod(x, 3, q, r, 2, threads=2).sync()
    assert type(found) is tuple
    assert found[0] is q
    assert found[1] is r


def test_a_kernel_that_writes_nothing_yields_none(kernels):
    assert kernels.look(ac.zeros(1, np.int32), threads=1).sync() is None


def test_a_kernel_without_parameters_runs():
    assert ac.kernel("__global__ void nothing() {}")(grid=1, block=1).sync() is None


def test_more_than_twelve_parameters():
    names = [f"x{i}" for i in range(40)]
    source = (
        f'extern "C" __global__ void total({", ".join(f"int {name}" for name in names)}, int* out)'
        f" {{ out[0] = {' + '.join(names)}; }}"
    )
    op = ac.kernel(source)(*range(40), ac.empty(1, np.int32), grid=1, block=1)
    assert ac.to_host(op).sync()[0] == sum(range(40))


def test_an_unnamed_extern_c_is_not_needed():
    kernel = ac.kernel("__global__ void set(int* x) { x[0] = 5; }")
    assert ac.to_host(kernel(ac.zeros(1, np.int32), grid=1, block=1)).sync()[0] == 5


def test_a_compile_error_carries_the_users_own_line():
    source = '\n\nextern "C" __global__ void broken(int* x) {\n    x[0] = undeclared_thing;\n}\n'
    op = ac.kernel(source)(ac.zeros(1, np.int32), grid=1, block=1)
    with pytest.raises(ac.CompilationError, match=r"broken\.cu") as caught:
        op.sync()
    lines = [line for line in caught.value.log.splitlines() if "undeclared_thing" in line]
    assert any("broken.cu" in line and "4" in line for line in lines), caught.value.log


def test_compile_says_at_once_what_is_wrong():
    kernel = ac.kernel('extern "C" __global__ void broken(int* x) { x[0] = missing; }')
    with pytest.raises(ac.CompilationError, match="missing"):
        kernel.compile()


def test_the_device_goes_on_after_a_compile_error(kernels):
    broken = ac.kernel('extern "C" __global__ void broken(int* x) { x[0] = missing; }')
    x = ac.zeros(2, np.int32)
    with pytest.raises(ac.CompilationError, match=r"does not compile:\n(.*\n)*.*missing"):
        broken(x, grid=1, block=1).sync()
    np.testing.assert_array_equal(ac.to_host(kernels.increment(x, 2, threads=2)).sync(), [1, 1])


def test_options_reach_the_compiler():
    source = '#ifndef N\n#define N 1\n#endif\nextern "C" __global__ void n(int* x) { x[0] = N; }'
    for options, expected in [((), 1), (("-DN=7",), 7), (("--define-macro=N=9",), 9)]:
        kernel = ac.kernel(source, options=options)
        assert ac.to_host(kernel(ac.zeros(1, np.int32), grid=1, block=1)).sync()[0] == expected


def test_options_as_one_string_are_an_error():
    with pytest.raises(ac.ArgumentTypeError, match="sequence"):
        ac.kernel("__global__ void k(int* x) {}", options="-DN=1")


def test_a_signature_says_what_the_source_cannot():
    source = (
        "#define POINTER float*\n"
        'extern "C" __global__ void twice(POINTER x, unsigned n)'
        " { unsigned i = threadIdx.x; if (i < n) x[i] *= 2; }"
    )
    kernel = ac.kernel(source, "twice", signature="float* x, unsigned n")
    np.testing.assert_array_equal(ac.to_host(kernel(ac.full(3, 21.0), 3, threads=3)).sync(), [42, 42, 42])


def test_a_source_that_is_no_text_is_an_error():
    with pytest.raises(ac.ArgumentTypeError, match="str of CUDA C"):
        ac.kernel(b"__global__ void k() {}")


def test_attributes_are_the_compilers():
    source = r"""
    extern "C" __global__ void __launch_bounds__(128) shared(int* x) {
        __shared__ int kept[256];
        kept[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = kept[threadIdx.x ^ 1];
    }"""
    attributes = ac.kernel(source).attributes()
    assert attributes.shared_bytes >= 1024
    assert attributes.max_threads_per_block == 128


def test_half_kernels_compute_in_half():
    kernel = ac.kernel(
        "#include <cuda_fp16.h>\n"
        'extern "C" __global__ void twice(const __half* x, __half* y)'
        " { y[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x]; }"
    )
    x = np.array([0.1, 1.0, 30000.0], np.float16)
    op = kernel(ac.to_device(x), ac.empty(3, np.float16), grid=1, block=3)
    np.testing.assert_array_equal(ac.to_host(op).sync(), x + x)


def test_a_pending_launch_keeps_its_kernel_alive():
    kernel = ac.kernel("__global__ void set(int* x) { x[0] = 8; }")
    seen = weakref.ref(kernel)
    op = ac.to_host(kernel(ac.zeros(1, np.int32), grid=1, block=1))
    del kernel
    gc.collect()
    assert seen() is not None
    assert op.sync()[0] == 8


def test_repr_is_the_signature(kernels):
    assert "scale" in repr(kernels.scale)
    assert "const" in repr(kernels.scale)


def test_a_kernel_has_no_other_attributes(kernels):
    with pytest.raises(AttributeError, match="no attribute 'no_such_attribute'"):
        kernels.scale.no_such_attribute  # noqa: B018
