"""A kernel of Triton's, which reads its source from a module."""

import triton
import triton.language as tl


@triton.jit
def increment_all(x_ptr, n, block: tl.constexpr):
    """Add one to each item."""
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)
