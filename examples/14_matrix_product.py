"""A matrix product: cuBLAS on a GPU, as one operation among others.

To run it: python examples/14_matrix_product.py

On a GPU it needs pip install "aiocuda[nvmath]"; on the emulated driver a kernel multiplies.
"""

import asyncio

import numpy as np

import aiocuda as ac

relu = ac.kernel(r"""
extern "C" __global__ void relu(float* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] < 0) x[i] = 0;
}""")


async def layer(weights: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Compute a layer of a network, relu(inputs · weights)."""
    # Shapes and strides are NumPy's, leading axes are broadcast: a batch of inputs is multiplied at once.
    product = ac.linalg.matmul(ac.to_device(inputs), ac.to_device(weights))
    # `then` gets the array's handle as soon as it is submitted, and nobody waits for the product.
    return await ac.to_host(product.then(lambda x: relu(x, x.size, threads=x.size)))


async def main() -> None:
    random = np.random.default_rng(1)
    weights = random.standard_normal((64, 16), np.float32)
    inputs = random.standard_normal((5, 32, 64), np.float32)
    found = await layer(weights, inputs)
    print(f"{inputs.shape} times {weights.shape} is {found.shape}")
    print("largest difference from NumPy's:", np.abs(found - np.maximum(inputs @ weights, 0)).max())


if __name__ == "__main__":
    asyncio.run(main())
