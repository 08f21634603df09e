"""Libraries with handles: cuRAND and cuSPARSE as operations, with a handle for each stream.

To run it: python examples/15_library_handles.py

It needs an NVIDIA GPU, and pip install "aiocuda[nvmath]" "cuda-toolkit[curand,cusparse]==13.*".
"""

import asyncio
from collections.abc import Callable

import numpy as np

import aiocuda as ac


class Handles:
    """A library's handles, one for each stream.

    The calls of a handle go to its stream. Operations may run on several streams at once, so each stream has its own. A
    handle is made at the first use of its stream, and lives as long as the process.
    """

    def __init__(self, create: Callable[[], int], set_stream: Callable[[int, int], None]) -> None:
        self._create, self._set_stream = create, set_stream
        self._by_stream: dict[int, int] = {}

    def of(self, stream: ac.Stream) -> int:
        """Return the handle of a stream; the stream's device has the current context, as in functions of `ac.call`."""
        if stream.handle not in self._by_stream:
            handle = self._create()
            self._set_stream(handle, stream.handle)
            self._by_stream[stream.handle] = handle
        return self._by_stream[stream.handle]


class Random:
    """Random numbers by cuRAND."""

    def __init__(self, seed: int) -> None:
        from nvmath.bindings import curand

        def create() -> int:
            generator = int(curand.create_generator(curand.RngType.PSEUDO_PHILOX4_32_10))
            curand.set_pseudo_random_generator_seed(generator, seed)
            return generator

        self._curand = curand
        self._generators = Handles(create, curand.set_stream)

    def normal(self, n: int) -> ac.DeviceOp[ac.DeviceArray]:
        """Make an even number of normally distributed numbers."""

        def draw(stream: ac.Stream, out: ac.DeviceArray) -> None:
            self._curand.generate_normal(self._generators.of(stream), out.address, out.size, 0.0, 1.0)

        out = ac.empty(n, np.float32)
        return ac.call(draw, out, writes=[out])


class Sparse:
    """A sparse matrix in rows (CSR), multiplied by cuSPARSE."""

    SPACE_BYTES = 1 << 20  # what a product may use meanwhile

    def __init__(self, shape: tuple[int, int], begins: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
        from nvmath.bindings import cusparse

        self._cusparse = cusparse
        self._handles = Handles(cusparse.create, cusparse.set_stream)
        self.shape, self.count = shape, len(values)
        self.begins, self.columns = ac.to_device(begins.astype(np.int32)), ac.to_device(columns.astype(np.int32))
        self.values = ac.to_device(values.astype(np.float32))

    def times(self, x: ac.DeviceArray | ac.DeviceOp[ac.DeviceArray]) -> ac.DeviceOp[ac.DeviceArray]:
        """Multiply by a vector."""
        out, space = ac.empty(self.shape[0], np.float32), ac.empty(self.SPACE_BYTES, np.uint8)
        arrays = [self.begins, self.columns, self.values, x]
        return ac.call(self._multiply, *arrays, out, space, reads=arrays, writes=[out, space]).first()

    def _multiply(
        self,
        stream: ac.Stream,
        begins: ac.DeviceArray,
        columns: ac.DeviceArray,
        values: ac.DeviceArray,
        x: ac.DeviceArray,
        out: ac.DeviceArray,
        space: ac.DeviceArray,
    ) -> None:
        from nvmath import CudaDataType

        sparse, single = self._cusparse, CudaDataType.CUDA_R_32F
        index, alpha, beta = sparse.IndexType.INDEX_32I, np.ones(1, np.float32), np.zeros(1, np.float32)
        addresses = begins.address, columns.address, values.address
        matrix = sparse.create_csr(*self.shape, self.count, *addresses, index, index, sparse.IndexBase.ZERO, single)
        left = sparse.create_dn_vec(out.size, out.address, single)
        right = sparse.create_dn_vec(x.size, x.address, single)
        handle, plain, algorithm = self._handles.of(stream), sparse.Operation.NON_TRANSPOSE, sparse.SpMVAlg.DEFAULT
        factors = alpha.ctypes.data, matrix, right, beta.ctypes.data, left
        product = handle, plain, *factors, single, algorithm
        needed = sparse.sp_mv_buffer_size(*product)
        if needed > space.nbytes:
            raise MemoryError(f"the product needs {needed} bytes; there are {space.nbytes}")
        sparse.sp_mv(*product, space.address)
        # The work on the stream has addresses and no descriptors.
        sparse.destroy_sp_mat(matrix)
        for vector in (left, right):
            sparse.destroy_dn_vec(vector)


async def main() -> None:
    """Smooth some noise: each item becomes the mean of itself and of the next one."""
    n = 1000
    random = Random(seed=7)
    begins, rows = np.arange(n + 1) * 2, np.arange(n)
    columns = np.stack([rows, (rows + 1) % n], axis=1).ravel()
    mean = Sparse((n, n), begins, columns, np.full(2 * n, 0.5))
    noise = await random.normal(n)
    smooth = await ac.to_host(mean.times(noise))
    x = await ac.to_host(noise)
    print(f"mean {x.mean():.1f}, deviation {x.std():.0f}")
    print("largest difference from NumPy's:", np.abs(smooth - (x + np.roll(x, -1)) / 2).max())


if __name__ == "__main__":
    if ac.Device(0).is_emulated:
        raise SystemExit("cuRAND and cuSPARSE need an NVIDIA GPU")
    asyncio.run(main())
