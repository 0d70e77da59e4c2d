"""Every mistake, in the order of the stages."""

from suites.meta.faults import of_inputs, of_sam, of_clip, of_fusion, of_decoder, of_cache, of_loop, of_output  # noqa: F401, I001
from suites.meta.faults.registry import FAULTS

__all__ = ["FAULTS"]
