"""Sizes of DeepSeek-OCR-2's encoder, SAM and the Qwen2 tower, as in its ``vision_config``; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct

from pytest_dsocr.layers.sizes import Dimension, LayerCount, SamConfig

if TYPE_CHECKING:
    from pytest_dsocr.models.architecture import Architecture

QUERIES = {144: "query_768", 256: "query_1024"}
"""Tables of learned queries by the number of a view's image tokens."""


@dataclass(frozen=True)
class TowerConfig:
    """The Qwen2 tower. The published config has ``dim`` alone; a small checkpoint states the others too."""

    dim: Dimension = 896
    layers: LayerCount = 24
    heads: Dimension = 14
    key_value_heads: Dimension = 2
    intermediate_size: Dimension = 4864
    rope_theta: ClassVar[float] = 1e6
    rms_norm_eps: ClassVar[float] = 1e-6

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.dim // self.heads


class Towers(Struct, frozen=True, rename={"sam": "sam_vit_b", "tower": "qwen2-0-5b"}):
    """Both towers, under the keys of the vendor's config."""

    sam: SamConfig
    tower: TowerConfig


class DeepEncoder2(Struct, frozen=True):
    """``vision_config``: an :class:`~pytest_dsocr.models.spec.EncoderSizes`."""

    width: Towers

    @classmethod
    def published(cls) -> DeepEncoder2:
        """Return the published sizes."""
        return cls.of(SamConfig(), TowerConfig())

    @classmethod
    def of(cls, sam: SamConfig, tower: TowerConfig) -> DeepEncoder2:
        """Put two towers together."""
        return cls(Towers(sam, tower))

    @property
    def sam(self) -> SamConfig:
        """SAM's sizes. Its last convolution is as wide as the tower, whatever the config has: the vendor's says 1024.

        The vendor's code builds 896, and reads neither.
        """
        own = self.width.sam
        return replace(own, downsample_channels=(own.downsample_channels[0], self.tower.dim))

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
        return self.tower.dim

    @property
    def rules(self) -> dict[str, bool]:
        """Rules that the sizes must keep, each with whether it holds."""
        tower = self.tower
        return {
            **self.sam.rules,
            "the tower's heads divide its width": tower.dim % tower.heads == 0,
            "the tower's heads are a multiple of its key-value heads": tower.heads % tower.key_value_heads == 0,
            "the tower's heads have an even width": tower.head_dim % 2 == 0,
        }

    def to_config(self) -> dict[str, Any]:
        """Return ``vision_config`` as the vendor's code reads it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def sizes_of(arch: Architecture) -> DeepEncoder2:
    """Return the encoder's sizes of an architecture of this model."""
    assert isinstance(arch.encoder, DeepEncoder2)
    return arch.encoder
