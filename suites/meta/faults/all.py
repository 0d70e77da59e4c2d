"""Every mistake, in the order of the stages."""

from suites.meta.faults import (  # noqa: F401, I001
    of_prompt,
    of_pixels,
    of_sam,
    of_clip,
    of_fusion,
    of_decoder,
    of_experts,
    of_cache,
    of_loop,
    of_output,
    of_files,
)
from suites.meta.faults.registry import FAULTS

__all__ = ["FAULTS"]
