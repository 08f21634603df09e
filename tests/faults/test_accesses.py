"""Accesses that a GPU refuses although memory is there: the emulated driver refuses them, too."""

from __future__ import annotations

import pytest

import aiocuda as ac
from aiocuda._driver.inventory import compiler_text

WRONG = {
    "unrequested": (
        """extern "C" __global__ void unrequested(float* x) {
            extern __shared__ float kept[];
            kept[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = kept[31 - threadIdx.x];
        }""",
        "CUDA_ERROR_ILLEGAL_ADDRESS 700",
    ),
    "misaligned": (
        """extern "C" __global__ void misaligned(float* x) {
            double* v = reinterpret_cast<double*>(x + threadIdx.x);
            v[0] = 1;
        }""",
        "CUDA_ERROR_MISALIGNED_ADDRESS 716",
    ),
    "misaligned_vector": (
        """extern "C" __global__ void misaligned_vector(float* x) {
            float4 v = *reinterpret_cast<float4*>(x + 1);
            x[0] = v.x + v.y + v.z + v.w; // all of it, or a compiler loads two floats
        }""",
        "CUDA_ERROR_MISALIGNED_ADDRESS 716",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_access_that_a_gpu_refuses_loses_the_device(broken, name):
    if name == "misaligned_vector" and ac.Device(0).is_emulated and "clang" in compiler_text():
        pytest.skip("clang does not look at copies of whole structures")
    source, error = WRONG[name]
    out = broken(
        f"""
        wrong = ac.kernel(r'''{source}''', "{name}")
        try:
            ac.to_host(wrong(ac.zeros(64, np.float32), grid=1, block=32)).sync()
        except ac.DeviceLostError as lost:
            print(lost.error.name, lost.error.code)
        """
    )
    assert out.splitlines()[0] == error


def test_dynamic_shared_memory_that_was_asked_for_is_there(broken):
    source = WRONG["unrequested"][0]
    out = broken(
        f"""
        right = ac.kernel(r'''{source}''', "unrequested")
        x = ac.to_device(np.arange(32, dtype=np.float32))
        print(ac.to_host(right(x, grid=1, block=32, shared_memory=128)).sync()[0])
        """
    )
    assert out.splitlines()[0] == "31.0"
