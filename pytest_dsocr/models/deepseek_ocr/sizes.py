"""Sizes of DeepSeek-OCR's encoder, SAM and CLIP, in the form of its ``vision_config``; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from pytest_dsocr.layers.sizes import Dimension, Epsilon, LayerCount, Patches, SamConfig

if TYPE_CHECKING:
    from pytest_dsocr.models.architecture import Architecture


@dataclass(frozen=True)
class ClipConfig(Patches):
    """CLIP's transformer, whose patch embeddings are SAM's features."""

    width: Dimension = 1024
    layers: LayerCount = 24
    heads: Dimension = 16
    image_size: Dimension = 224
    patch_size: Dimension = 14
    mlp_ratio: Dimension = 4
    layer_norm_eps: Epsilon = 1e-5


class Towers(Struct, frozen=True, rename={"sam": "sam_vit_b", "clip": "clip-l-14-224"}):
    """Both towers, under the keys of the vendor's config."""

    sam: SamConfig
    clip: ClipConfig


class DeepEncoder(Struct, frozen=True):
    """``vision_config``: an :class:`~pytest_dsocr.models.spec.EncoderSizes`."""

    width: Towers

    @classmethod
    def published(cls) -> DeepEncoder:
        """Return the published sizes."""
        return cls.of(SamConfig(), ClipConfig())

    @classmethod
    def of(cls, sam: SamConfig, clip: ClipConfig) -> DeepEncoder:
        """Put two towers together."""
        return cls(Towers(sam, clip))

    @property
    def sam(self) -> SamConfig:
        """SAM's sizes."""
        return self.width.sam

    @property
    def clip(self) -> ClipConfig:
        """CLIP's sizes."""
        return self.width.clip

    @property
    def patch_px(self) -> int:
        """Side of the square of pixels that becomes one patch."""
        return self.sam.patch_size

    @property
    def projector_input(self) -> int:
        """Channels of a vision token before the projector: CLIP's and SAM's side by side."""
        return self.clip.width + self.sam.downsample_channels[-1]

    @property
    def rules(self) -> dict[str, bool]:
        """Rules that the sizes must keep, each with whether it holds."""
        sam, clip = self.sam, self.clip
        return {
            "CLIP's width equals SAM's last downsample channel": clip.width == sam.downsample_channels[-1],
            **sam.rules,
            "CLIP's heads divide its width": clip.width % clip.heads == 0,
            "an image is no smaller than a patch of CLIP": clip.grid >= 1,
        }

    def to_config(self) -> dict[str, Any]:
        """Return ``vision_config`` as the vendor's code reads it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def sizes_of(arch: Architecture) -> DeepEncoder:
    """Return the encoder's sizes of an architecture of this model, or of one with the same encoder."""
    assert isinstance(arch.encoder, DeepEncoder)
    return arch.encoder
