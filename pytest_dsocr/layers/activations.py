"""The quick GELU."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor


def quick_gelu(x: Tensor) -> Tensor:
    """Scale by a sigmoid; on a GPU in float32 and rounded once, as the vendor's does there under autocast."""
    if x.is_cuda and not x.requires_grad:
        return _fused_quick_gelu()(x)
    return x * torch.sigmoid(1.702 * x)


@cache
def _fused_quick_gelu() -> Callable[[Tensor], Tensor]:
    """Compile quick GELU as one kernel: five kernels made CLIP slower than the vendor's. It has no gradient."""
    return torch.cuda.jiterator._create_jit_fn(
        """
        template <typename T> T quick_gelu(T x) {
            float wide = x;
            return T(wide * (1.0f / (1.0f + expf(-1.702f * wide))));
        }
        """
    )
