"""Triton: a first call with a new constexpr. Needs a GPU and torch.

Not the same kernel: Triton compiles its own language, the cubin is smaller, and a call also
launches.
"""

import sys

import common

try:
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    common.skip(f"triton and torch do not import: {error}")
if not torch.cuda.is_available():
    common.skip("torch finds no GPU")


@triton.jit
def entry(x, OFFSET: tl.constexpr):
    tl.store(x, tl.load(x) + OFFSET)


if len(sys.argv) > 1:
    x = torch.zeros(1, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()

    def make(k):
        # 2 and up: Triton treats 1 apart.
        entry[(1,)](x, OFFSET=k + 2)

    common.child(make)
else:
    name = f"triton {triton.__version__}, its own small kernel and a launch"
    common.print_rows(common.measure(__file__, name, ", loaded", "TRITON_CACHE_DIR"))
