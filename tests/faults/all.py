"""Every mistake, in the order of the stages; at the end those that were listed before the checks were read."""

from tests.faults import (  # noqa: F401, I001
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
from tests.faults.held_out import (  # noqa: F401
    of_pages,
    of_prompts,
    of_vision,
    of_fusion as of_held_out_fusion,
    of_decoder as of_held_out_decoder,
    of_cache as of_held_out_cache,
    of_reading,
)
from tests.faults import open_half, sealed_half
from tests.faults.open_half import (  # noqa: F401
    of_inputs as of_open_inputs,
    of_vision as of_open_vision,
    of_decoder as of_open_decoder,
    of_reading as of_open_reading,
)
from tests.faults.sealed_half import (  # noqa: F401
    of_inputs as of_sealed_inputs,
    of_vision as of_sealed_vision,
    of_decoder as of_sealed_decoder,
    of_reading as of_sealed_reading,
)
from tests.faults.registry import FAULTS, Fault

HALVES: dict[str, dict[str, Fault]] = {"open_half": open_half.MISTAKES, "sealed_half": sealed_half.MISTAKES}
"""The held-out set's two halves, which are in no matrix."""
PLANTED = FAULTS | open_half.MISTAKES | sealed_half.MISTAKES

__all__ = ["FAULTS", "HALVES", "PLANTED"]
