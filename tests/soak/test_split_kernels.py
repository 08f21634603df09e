"""Random kernels with barriers: split into loops over threads, they must do what they do as fibers. `make soak`."""

from __future__ import annotations

import os
import random
import time

import numpy as np
import pytest

import aiocuda as ac

pytestmark = pytest.mark.soak

SECONDS = float(os.environ.get("AIOCUDA_SOAK_S", "60"))
BLOCKS = ((16, 4), (32, 2), (24, 3), (7, 5))
ARGUMENTS = ((5, 7), (40_000, 3), (-3, 2**31 + 5), (32_767, 32_767))


class Source:
    """One random kernel. All that may overflow is unsigned, so nothing in it is undefined."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = ["unsigned(n)", "u", "SIZE"]
        self.pointers: list[str] = []
        self.declared: list[set[str]] = [set()]
        self.count = 0
        self.lines = [
            "__shared__ unsigned s[1024], t[SIZE];",
            "unsigned me = threadIdx.y * blockDim.x + threadIdx.x, all = blockDim.x * blockDim.y; unsigned sum = 0;",
        ]
        for _ in range(self.rng.randrange(1, 4)):
            self.declare()
            self.use()
            if self.rng.random() < 0.4:
                self.hide()
            if self.rng.random() < 0.5:
                self.loop()
        self.lines += [
            "if (me < 16) t[me] = sum;",
            "__syncthreads();",
            "out[(blockIdx.y * gridDim.x + blockIdx.x) * all + me] = sum + t[me % 16];",
        ]

    def text(self, name: str, *, as_fibers: bool) -> str:
        # A return that no thread takes keeps a kernel from being split.
        head = f'extern "C" __global__ void {name}(unsigned* out, const unsigned* in, int n, unsigned u) {{'
        return "\n".join([head, *["if (threadIdx.x > 5000) return;"] * as_fibers, *self.lines, "}\n"])

    def value(self, depth: int = 0) -> str:
        rng = self.rng
        kind = rng.randrange(9)
        if depth > 2 or kind < 3:
            places = ["threadIdx.x", "threadIdx.y", "blockIdx.x", "blockIdx.y", "blockDim.x"]
            return rng.choice([*self.names, *places, str(rng.randrange(1, 40))])
        a, b = self.value(depth + 1), self.value(depth + 1)
        by = rng.randrange(1, 9)
        forms = [f"({a} / {by})", f"({a} % {by})", f"({a} < {b} ? {a} : {b})", f"(({a} & 15) << {by % 4})"]
        return forms[kind - 3] if kind < 7 else f"({a} {rng.choice('+-*')} {b})"

    def declare(self) -> None:
        rng = self.rng
        for _ in range(rng.randrange(1, 4)):
            self.count += 1
            again = self.count > 1 and rng.random() < 0.2
            name = f"v{rng.randrange(1, self.count)}" if again else f"v{self.count}"
            if name in self.declared[-1]:
                continue
            kind = rng.choice(["unsigned", "const unsigned", "unsigned int", "unsigned short", "bool"])
            if name in self.names:
                self.names.remove(name)  # not in its own initial value
            self.lines.append(f"{kind} {name} = {self.value()};")
            self.declared[-1].add(name)
            self.names.append(name)
            if kind.startswith("unsigned") and rng.random() < 0.25:
                self.lines.append(f"{name} {rng.choice(['+=', '*=', '^='])} {self.value()};")
        if rng.random() < 0.3:
            self.count += 1
            self.pointers.append(f"p{self.count}")
            self.lines.append(f"const unsigned* p{self.count} = in + ({self.value()}) % 64; sum += *p{self.count};")

    def use(self) -> None:
        if self.pointers:
            self.lines.append(f"sum += {self.rng.choice(self.pointers)}[1];")
        self.lines += [
            f"s[me] = sum + {self.value()};",
            "__syncthreads();",
            f"sum = sum * 31 + s[(me + {self.rng.randrange(1, 9)}) % all] + {self.value()};",
            "__syncthreads();",
        ]

    def hide(self) -> None:
        name = self.rng.choice([*self.names[3:], "q"])
        self.lines.append(f"{{ unsigned {name}; {name} = sum; sum += {name} * 3; }}")
        self.lines.append(f"for (unsigned i = 0; i < 3; ++i) {{ unsigned {name} = i + 2; sum += {name}; }}")

    def loop(self) -> None:
        self.count += 1
        k = f"k{self.count}"
        names, pointers = list(self.names), list(self.pointers)
        self.declared.append(set())
        self.lines.append(f"for (unsigned {k} = 0; {k} < {self.rng.choice(['SIZE / 8', '3', 'u % 4 + 1'])}; ++{k}) {{")
        self.names.append(k)
        self.declare()
        self.use()
        self.lines.append("}")
        self.names, self.pointers = names, pointers
        self.declared.pop()
        self.use()


def test_split_kernels_do_what_fibers_do():
    end, seed = time.monotonic() + SECONDS, 0
    values = ac.to_device(np.random.default_rng(1).integers(0, 2**32, 256, dtype=np.uint32)).sync()
    while time.monotonic() < end:
        made = Source(seed)
        source = "constexpr unsigned SIZE = 16;\n" + made.text("loops", as_fibers=False)
        source += made.text("fibers", as_fibers=True)
        for block in BLOCKS:
            for n, u in ARGUMENTS:
                results = []
                for name in ("loops", "fibers"):
                    out = ac.zeros(6 * block[0] * block[1], np.uint32).sync()
                    ac.kernel(source, name)(out, values, n, u, grid=(3, 2), block=block).sync()
                    results.append(ac.to_host(out).sync())
                np.testing.assert_array_equal(*results, err_msg=f"block {block}, n {n}, u {u}\n{source}")
        seed += 1
    assert seed > 0
