"""Every family of what-ifs, by the stage that it is about."""

from __future__ import annotations

from collections.abc import Mapping

import pytest_dsocr.explain.of_counts
import pytest_dsocr.explain.of_experts
import pytest_dsocr.explain.of_head
import pytest_dsocr.explain.of_rope
import pytest_dsocr.explain.of_sam_ends  # noqa: F401 - they add to PREFILL, to SAM and to PROMPT
from pytest_dsocr.explain.family import Family
from pytest_dsocr.explain.of_clip import CLIP
from pytest_dsocr.explain.of_decoder import PREFILL
from pytest_dsocr.explain.of_fusion import FUSION
from pytest_dsocr.explain.of_projector import PROJECTOR
from pytest_dsocr.explain.of_sam import SAM

VISION_AND_PREFILL: Mapping[str, Family] = {
    "sam": SAM,
    "clip": CLIP,
    "projector": PROJECTOR,
    "vision_fusion": FUSION,
    "prefill": PREFILL,
}
