"""Random programs of loops and branches, which the device runs and NumPy runs: the same steps, over three arrays.

Always true: a step makes new arrays of what is there, but where a body begins: there it may write its arrays in place.
So the order of a program is that of its operations' needs, and each array has one name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import aiocuda as ac

REGISTERS = 3
N = 5
MOST = 6  # iterations of a `while_`

SOURCE = r"""
extern "C" __global__ void is_less(const int* x, int limit, bool* result) { *result = *x < limit; }
extern "C" __global__ void is_odd(const int* x, int* result) { *result = *x & 1; }
"""
is_less = ac.kernel(SOURCE, "is_less")
is_odd = ac.kernel(SOURCE, "is_odd")


@dataclass(frozen=True)
class Step:
    """One step; `inner` are the bodies of a loop or a branch, and `in_place` says what they write where it is."""

    kind: str
    i: int
    j: int
    number: int
    inner: tuple[tuple[Step, ...], ...] = field(default=())
    in_place: tuple[bool, ...] = ()


def _simple() -> st.SearchStrategy[Step]:
    register = st.integers(0, REGISTERS - 1)
    return st.builds(
        Step, st.sampled_from(["accumulate", "fill", "swap", "increment"]), register, register, st.integers(-4, 4)
    )


def _around(inner: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    register = st.integers(0, REGISTERS - 1)
    block = st.lists(inner, max_size=3).map(tuple)
    masks = st.tuples(*[st.booleans()] * REGISTERS)
    loops = st.builds(
        Step,
        st.sampled_from(["repeat", "while"]),
        register,
        register,
        st.integers(-1, 20),
        st.tuples(block),
        masks,
    )
    branches = st.builds(
        Step,
        st.just("if"),
        register,
        register,
        st.just(0),
        st.one_of(st.tuples(block), st.tuples(block, block)),
        masks,
    )
    return st.one_of(inner, loops, branches)


def programs() -> st.SearchStrategy[tuple[Step, ...]]:
    """Return programs in which loops and branches nest three deep."""
    step = _around(_around(_around(_simple())))
    return st.lists(step, min_size=1, max_size=4).map(tuple)


def on_host(program: tuple[Step, ...], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Run a program with NumPy."""
    state = [x.copy() for x in arrays]
    for step in program:
        i, j, number = step.i, step.j, step.number
        match step.kind:
            case "accumulate":
                state[j] = (3 * state[j] + number * state[i]).astype(np.int32)
            case "fill":
                state[i] = np.full(N, number, np.int32)
            case "swap":
                state[i], state[j] = state[j], state[i]
            case "increment":
                state[i] = state[i] + 1
            case "repeat":
                for _ in range(number % 4):
                    state = on_host(step.inner[0], _incremented(state, step))
            case "while":
                for _ in range(MOST):
                    if not state[i][0] < number:
                        break
                    state = on_host(step.inner[0], _incremented(state, step))
            case "if":
                if state[i][0] & 1:
                    state = on_host(step.inner[0], _incremented(state, step))
                elif len(step.inner) > 1:
                    state = on_host(step.inner[1], _incremented(state, step))
    return state


def _incremented(state: list[np.ndarray], step: Step) -> list[np.ndarray]:
    return [x + 1 if is_written else x for x, is_written in zip(state, step.in_place, strict=True)]


def on_device(kernels: Any, program: tuple[Step, ...], arrays: Any) -> list[Any]:
    """Build a program of operations."""
    state = list(arrays)

    def inside(step: Step, body: tuple[Step, ...]) -> Any:
        def run(given: Any) -> Any:
            begun = [
                kernels.increment(x, N, threads=N) if is_written else x
                for x, is_written in zip(given, step.in_place, strict=True)
            ]
            return tuple(on_device(kernels, body, begun))

        return run

    for step in program:
        i, j, number = step.i, step.j, step.number
        match step.kind:
            case "accumulate":
                state[j] = kernels.accumulate(number, state[i], ac.dup(state[j]), N, threads=N)
            case "fill":
                state[i] = ac.full(N, number, np.int32)
            case "swap":
                state[i], state[j] = state[j], state[i]
            case "increment":
                state[i] = kernels.increment(ac.dup(state[i]), N, threads=N)
            case "repeat":
                state = list(ac.repeat(number % 4, inside(step, step.inner[0]), tuple(state)).unzip(REGISTERS))
            case "while":
                done = ac.while_(
                    lambda given, i=i, number=number: less(given[i], number),
                    inside(step, step.inner[0]),
                    tuple(state),
                    max_iterations=MOST,
                )
                state = list(done.then(lambda result: result.state).unzip(REGISTERS))
            case "if":
                bodies = [inside(step, body) for body in step.inner]
                chosen = ac.cond(odd(state[i]), *bodies, state=tuple(state))
                state = list(chosen.unzip(REGISTERS))
    return state


def less(x: Any, limit: int) -> Any:
    return is_less(x, limit, ac.empty((), bool), grid=1, block=1)


def odd(x: Any) -> Any:
    return is_odd(x, ac.empty((), np.int32), grid=1, block=1)
