"""Every family of what-ifs, by the stage that it is about."""

from __future__ import annotations

from collections.abc import Mapping

import pytest_dsocr.whatif.of_rope  # noqa: F401 - adds to PREFILL
from pytest_dsocr.whatif.family import Family
from pytest_dsocr.whatif.of_decoder import PREFILL
from pytest_dsocr.whatif.of_fusion import FUSION, PROJECTOR
from pytest_dsocr.whatif.of_sam import SAM
from pytest_dsocr.whatif.of_vision_ends import CLIP

VISION_AND_PREFILL: Mapping[str, Family] = {
    "sam": SAM,
    "clip": CLIP,
    "projector": PROJECTOR,
    "vision_fusion": FUSION,
    "prefill": PREFILL,
}
