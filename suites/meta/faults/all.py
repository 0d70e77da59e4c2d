"""Every mistake, in the order of the stages; at the end those that were listed before the checks were read."""

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
from suites.meta.faults.held_out import (  # noqa: F401
    of_pages,
    of_prompts,
    of_vision,
    of_fusion as of_held_out_fusion,
    of_decoder as of_held_out_decoder,
    of_cache as of_held_out_cache,
    of_reading,
)
from suites.meta.faults.registry import FAULTS

__all__ = ["FAULTS"]
