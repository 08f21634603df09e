"""Structs: one by value for all threads, and an array of them, as NumPy's structured dtypes.

To run it: python examples/05_structs.py
"""

import asyncio

import numpy as np

import aiocuda as ac

# align=True lays the numbers out as a C++ compiler does.
World = np.dtype([("wind", np.float32, 3), ("seconds", np.float64), ("steps", np.int32)], align=True)
Ball = np.dtype([("position", np.float32, 3), ("mass", np.float32), ("moved", np.bool_)], align=True)

fly = ac.kernel(r"""
struct World { float3 wind; double seconds; int steps; };
struct Ball { float3 position; float mass; bool moved; };

extern "C" __global__ void fly(World world, Ball* balls, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Ball& ball = balls[i];
    float by = float(world.seconds * world.steps) / ball.mass;
    ball.position.x += by * world.wind.x;
    ball.position.y += by * world.wind.y;
    ball.position.z += by * world.wind.z;
    ball.moved = by > 1;
}""")


async def let_fly(world: np.ndarray, balls: np.ndarray) -> np.ndarray:
    """Move an array of `Ball` in a `World`, on the device, and return it."""
    n = len(balls)
    # The world's numbers must lie at the same bytes as those of the struct: aiocuda checks that. It does not check the
    # array behind a pointer to structs: any array may hold them, also one of bytes.
    return await ac.to_host(fly(world, ac.to_device(balls), n, threads=n))


async def main() -> None:
    world = np.array(((1, 0, -0.5), 0.25, 8), World)
    balls = np.array([((0, 0, 9), mass, False) for mass in (1, 2, 4)], Ball)
    print(fly)
    for ball in await let_fly(world, balls):
        print(f"mass {ball['mass']}: at {ball['position']}, {'moved' if ball['moved'] else 'hardly moved'}")


if __name__ == "__main__":
    asyncio.run(main())
