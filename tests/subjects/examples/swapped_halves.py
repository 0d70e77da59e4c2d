"""L2: the page's features stand before those of its crops, as the ids' schedule and the config's ``head`` suggest."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

import torch
from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from tests.subjects.examples.staged import Staged

VIEWS = ("sam.crops", "sam.page", "clip.crops", "clip.page", "projector.crops", "projector.page")


class SwappedHalves(Staged):
    """Shows every seam of its vision."""

    seams = VIEWS

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        [seen] = self.engine.pipeline.vision(Inputs(**inputs))
        side = isqrt(seen.page["projector"].shape[1])
        of_page = side * (side + 1)
        crops, page, separator = seen.vision_fusion.split([len(seen.vision_fusion) - of_page - 1, of_page, 1])
        return {**seen.seams, "vision_fusion": torch.cat([page, crops, separator])}
