"""Loops on the device: conjugate gradients, k-means, and a decoder's tokens, each in one launch.

To run it: python examples/17_device_loops.py

The device itself decides whether to go on, so the host waits once, at the end. On a GPU this needs a driver of CUDA
12.3 or newer.
"""

import asyncio
from typing import Any

import numpy as np

import aiocuda as ac

SOURCE = r"""
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// result = y + sign * a / b * x, with a and b on the device
extern "C" __global__ void add_scaled(double sign, const double* a, const double* b, const double* x, const double* y,
                                      double* result, unsigned n) {
    if (INDEX < n) result[INDEX] = y[INDEX] + sign * *a / *b * x[INDEX];
}

// The nearest centre of each point; notes in `changes` if a point has another one than before.
extern "C" __global__ void assign(const double* points, const double* centres, const int* before, int* labels,
                                  int* changes, unsigned n, unsigned k) {
    if (INDEX >= n) return;
    int nearest = 0;
    double least = 1e300;
    for (int c = 0; c < k; ++c) {
        const double dx = points[2 * INDEX] - centres[2 * c], dy = points[2 * INDEX + 1] - centres[2 * c + 1];
        const double distance = dx * dx + dy * dy;
        if (distance < least) least = distance, nearest = c;
    }
    labels[INDEX] = nearest;
    if (nearest != before[INDEX]) atomicExch(changes, 1);
}

// The mean of the points of each centre; a centre without points stays.
extern "C" __global__ void average(const double* points, const int* labels, const double* before, double* centres,
                                   unsigned n, unsigned k) {
    if (INDEX >= k) return;
    double x = 0, y = 0;
    unsigned count = 0;
    for (unsigned i = 0; i < n; ++i)
        if (labels[i] == INDEX) x += points[2 * i], y += points[2 * i + 1], ++count;
    centres[2 * INDEX] = count ? x / count : before[2 * INDEX];
    centres[2 * INDEX + 1] = count ? y / count : before[2 * INDEX + 1];
}

// The next hidden state, of the last token.
extern "C" __global__ void advance(const double* recurrent, const double* embedding, const int* tokens,
                                   const int* position, const double* hidden, double* result, unsigned width) {
    if (INDEX >= width) return;
    double sum = embedding[tokens[*position] * width + INDEX];
    for (unsigned j = 0; j < width; ++j) sum += recurrent[INDEX * width + j] * hidden[j];
    result[INDEX] = tanh(sum);
}

extern "C" __global__ void put(const long long* token, int* tokens, int* position) {
    tokens[++*position] = (int)*token;
}
"""
add_scaled = ac.kernel(SOURCE, "add_scaled")
assign = ac.kernel(SOURCE, "assign")
average = ac.kernel(SOURCE, "average")
advance = ac.kernel(SOURCE, "advance")
put = ac.kernel(SOURCE, "put")


def dot(x: Any, y: Any) -> ac.DeviceOp[ac.DeviceArray]:
    """Describe an inner product; its number stays on the device."""
    return ac.algorithms.reduce(ac.algorithms.transform("x * y", x=x, y=y))


async def solve(matrix: np.ndarray, b: np.ndarray, tolerance: float = 1e-10) -> tuple[np.ndarray, int, bool]:
    """Solve a system with a symmetric, positive definite matrix by conjugate gradients."""
    a, r = await ac.to_device(matrix), await ac.to_device(b)
    n = r.size

    def combined(sign: int, numerator: Any, denominator: Any, x: Any, y: Any) -> Any:
        return add_scaled(sign, numerator, denominator, x, y, ac.empty(n, np.float64), n, threads=n)

    def step(state: Any) -> Any:
        x, r, p, rr = state
        q = ac.linalg.matmul(a, p)  # a body may name arrays that are there already
        pq = dot(p, q)
        x, r = combined(1, rr, pq, p, x), combined(-1, rr, pq, q, r)
        rest = dot(r, r)
        return x, r, combined(1, rest, rr, p, r), rest

    def is_far(state: Any) -> Any:
        return ac.algorithms.transform(f"rr > {tolerance**2!r}", rr=state[3], dtype=np.bool_)

    start = (ac.zeros(n, np.float64), r, r, dot(r, r))
    done = await ac.while_(is_far, step, start, max_iterations=10 * n)
    x, iterations, is_finished = await ac.zip(*map(ac.to_host, (done.state[0], done.iterations, done.is_finished)))
    return x, int(iterations), bool(is_finished)


async def clusters(points: np.ndarray, centres: np.ndarray, most: int = 100) -> tuple[np.ndarray, np.ndarray, int]:
    """Move centres to the means of the points that are nearest to them, until no point changes its centre."""
    at = await ac.to_device(points)
    n, k = len(points), len(centres)

    def step(state: Any) -> Any:
        before, labels, _ = state
        labels, changes = assign(at, before, labels, ac.empty(n, np.int32), ac.zeros((), np.int32), n, k, threads=n)
        return average(at, labels, before, ac.empty((k, 2), np.float64), n, k, threads=k), labels, changes

    start = (ac.to_device(centres), ac.full(n, -1, np.int32), ac.ones((), np.int32))
    done = await ac.while_(lambda state: state[2], step, start, max_iterations=most)
    found, labels, iterations = await ac.zip(*map(ac.to_host, (*done.state[:2], done.iterations)))
    return found, labels, int(iterations)


async def decode(recurrent: np.ndarray, embedding: np.ndarray, head: np.ndarray, first: int, n: int) -> np.ndarray:
    """Decode tokens greedily: n of them in one launch, which asks the host for nothing."""
    w, e, out = await ac.zip(*map(ac.to_device, (recurrent, embedding, head)))
    width = len(recurrent)

    def step(state: Any) -> Any:
        hidden, tokens, position = state
        hidden = advance(w, e, tokens, position, hidden, ac.empty(width, np.float64), width, threads=width)
        token = ac.algorithms.argmax(ac.linalg.matmul(out, hidden))
        # The arrays of the state may be written: this puts a token in its place, and copies nothing.
        tokens, position = put(token, tokens, position, grid=1, block=1)
        return hidden, tokens, position

    tokens = ac.full(n + 1, first, np.int32)
    _, tokens, _ = await ac.repeat(n, step, (ac.zeros(width, np.float64), tokens, ac.zeros((), np.int32)))
    return await ac.to_host(tokens)


async def main() -> None:
    random = np.random.default_rng(1)
    half = random.standard_normal((32, 32))
    matrix, b = half @ half.T + 32 * np.eye(32), random.standard_normal(32)
    x, iterations, is_finished = await solve(matrix, b)
    print(f"solved: {is_finished}, in {iterations} iterations; largest rest {np.abs(matrix @ x - b).max():.0e}")
    points = np.concatenate([random.normal(at, 0.2, (50, 2)) for at in ((0, 0), (3, 0), (0, 3))])
    centres, _, iterations = await clusters(points, points[[0, 60, 110]])
    print(f"centres after {iterations} iterations: {np.round(centres, 1).tolist()}")
    recurrent, embedding, head = (random.standard_normal(shape) for shape in ((16, 16), (24, 16), (24, 16)))
    tokens = await decode(recurrent, embedding, head, 5, 12)
    print("tokens:", tokens.tolist())


if __name__ == "__main__":
    asyncio.run(main())
