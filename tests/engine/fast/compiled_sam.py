"""Compile SAM's attention as it is launched at full size, for a GPU that need not be there; a process of its own.

Prints the kernel's name once for each size of view.
"""

from __future__ import annotations

import sys

import torch

from pytest_dsocr.engine.architecture import SamConfig
from pytest_dsocr.engine.fast import sam_fused
from pytest_dsocr.engine.fast.kernels import sam as kernels
from pytest_dsocr.engine.fast.sam import ALIGNED
from tests.engine.fast.compiled import Compiling


def main(capability: int) -> None:
    """Compile it for windows and for whole views of 512, 640, 1024 and 1280 pixels."""
    kernels.attend_kernel = Compiling(kernels.attend_kernel, "attend_kernel", capability)
    config = SamConfig()
    width, heads = config.width, config.heads
    for height, side in ((64, config.window_size), *((patches, patches) for patches in (32, 40, 64, 80))):
        length = 2 * (2 * side - 1)
        offsets = torch.zeros(length + -length % ALIGNED, width // heads, dtype=torch.bfloat16)
        qkv = torch.zeros(1, height, height, 3 * width, dtype=torch.bfloat16)
        sam_fused.attend(qkv, qkv[0, 0, 0], offsets, heads, side)


if __name__ == "__main__":
    main(int(sys.argv[1]))
