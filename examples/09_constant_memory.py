"""Constant memory: a module's variables are arrays, copied to and from like any other.

To run it: python examples/09_constant_memory.py
"""

import asyncio

import numpy as np

import aiocuda as ac

module = ac.Module.from_source(r"""
__constant__ float coefficients[4];
__device__ unsigned evaluated;

extern "C" __global__ void polynomial(const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int power = 3; power >= 0; --power) sum = sum * x[i] + coefficients[power];
    y[i] = sum;
    atomicAdd(&evaluated, 1);
}""")
polynomial = module.kernel("polynomial")


async def evaluate(polynomials: list[list[float]], x: np.ndarray) -> tuple[list[np.ndarray], int]:
    """Evaluate polynomials of four coefficients at many places; say how many values were computed."""
    # Their dtypes and shapes are read from the source. Each device has variables of its own.
    coefficients, evaluated = module.constant("coefficients"), module.variable("evaluated")
    await ac.copy(evaluated, np.uint32(0))

    n, values = len(x), []
    for each in polynomials:
        # No launch names the variables, and yet it waits for this copy, and the next copy for the launch.
        ac.copy(coefficients, np.array(each, np.float32)).submit()
        values.append(ac.to_host(polynomial(ac.to_device(x), ac.empty(n), n, threads=n)).submit())
    return [await value for value in values], int(await ac.to_host(evaluated))


async def main() -> None:
    x = np.arange(6, dtype=np.float32)
    found, count = await evaluate([[1, 2, 3, 4], [0, 0, 0, 1]], x)
    print("1 + 2x + 3x² + 4x³:", found[0])
    print("x³:", found[1])
    print(count, "values in all")


if __name__ == "__main__":
    asyncio.run(main())
