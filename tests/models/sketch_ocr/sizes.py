"""Sizes of the sketch's encoder."""

from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec
from msgspec import Struct

from pytest_dsocr.layers.sizes import SamConfig
from pytest_dsocr.models.deepseek_ocr.synthetic import SIZES as LIKE_SIZES


@dataclass(frozen=True)
class TowerConfig:
    """A transformer that reads SAM's features with as many learned queries."""

    width: int
    layers: int
    heads: int


class Towers(Struct, frozen=True, rename={"sam": "sam_vit_b", "tower": "qwen2-0-5b"}):
    """Both towers, under the keys of the vendor's config."""

    sam: SamConfig
    tower: TowerConfig


class QueryEncoder(Struct, frozen=True):
    """``vision_config``."""

    width: Towers

    @classmethod
    def published(cls) -> Self:
        """Return the published sizes."""
        return cls(Towers(SamConfig(downsample_channels=(512, 896)), TowerConfig(896, 24, 14)))

    @property
    def sam(self) -> SamConfig:
        """SAM's sizes."""
        return self.width.sam

    @property
    def tower(self) -> TowerConfig:
        """The tower's sizes."""
        return self.width.tower

    @property
    def patch_px(self) -> int:
        """Side of the square of pixels that becomes one patch."""
        return self.sam.patch_size

    @property
    def projector_input(self) -> int:
        """Channels of a vision token before the projector."""
        return self.tower.width

    @property
    def rules(self) -> dict[str, bool]:
        """Rules that the sizes must keep."""
        return {
            **self.sam.rules,
            "the tower is as wide as SAM's output": self.tower.width == self.sam.downsample_channels[-1],
        }

    def to_config(self) -> dict[str, Any]:
        """Return ``vision_config``."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


_SAM = SamConfig(width=32, layers=2, heads=2, global_attn_indexes=(1,), neck_channels=16, downsample_channels=(24, 48))
_, _OF_TINY = LIKE_SIZES["tiny"]
_DECODER = replace(_OF_TINY, num_hidden_layers=2)
SIZES = {"sketch": (QueryEncoder(Towers(_SAM, TowerConfig(48, 2, 3))), _DECODER)}
