"""Every dimension of the model, read from the vendor's ``config.json``.

The vendor's file leaves out what its code hard-codes (SAM's window, the neck's width, the epsilons). Those are
the defaults here, and a config may name them to build a model of other dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from pytest_dsocr.families import DEFAULT, family_of
from pytest_dsocr.families.family import Family
from pytest_dsocr.foundation.errors import DsocrError, MachineError
from pytest_dsocr.foundation.reading import Count, Finite, Format

SAM_KEY = "sam_vit_b"
CLIP_KEY = "clip-l-14-224"

Size = Annotated[int, Meta(ge=1, le=2**17)]
"""Channels, pixels or patches, of which a model of any use has fewer."""
Layers = Annotated[int, Meta(ge=1, le=128)]
Experts = Annotated[int, Meta(ge=1, le=512)]
Ids = Annotated[int, Meta(ge=1, le=2**22)]
Epsilon = Annotated[float, Meta(gt=0, le=1)]


class _OfPatches:
    image_size: int
    patch_size: int

    @property
    def grid(self) -> int:
        """Patches per side of the square image that the position tables are made for."""
        return self.image_size // self.patch_size


@dataclass(frozen=True)
class SamConfig(_OfPatches):
    """SAM's image encoder with the two strided convolutions behind its neck."""

    width: Size = 768
    layers: Layers = 12
    heads: Size = 12
    global_attn_indexes: tuple[Count, ...] = (2, 5, 8, 11)
    downsample_channels: tuple[Size, Size] = (512, 1024)
    image_size: Size = 1024
    patch_size: Size = 16
    window_size: Size = 14
    neck_channels: Size = 256
    mlp_ratio: Size = 4
    layer_norm_eps: Epsilon = 1e-6


@dataclass(frozen=True)
class ClipConfig(_OfPatches):
    """CLIP's transformer, whose patch embeddings are SAM's features."""

    width: Size = 1024
    layers: Layers = 24
    heads: Size = 16
    image_size: Size = 224
    patch_size: Size = 14
    mlp_ratio: Size = 4
    layer_norm_eps: Epsilon = 1e-5


@dataclass(frozen=True)
class DecoderConfig:
    """The mixture-of-experts language model, under the names of the vendor's ``language_config``."""

    vocab_size: Ids = 129280
    hidden_size: Size = 1280
    intermediate_size: Size = 6848
    num_hidden_layers: Layers = 12
    num_attention_heads: Size = 10
    num_key_value_heads: Size = 10
    n_routed_experts: Experts = 64
    n_shared_experts: Experts = 2
    num_experts_per_tok: Experts = 6
    moe_intermediate_size: Size = 896
    first_k_dense_replace: Count = 1
    moe_layer_freq: Size = 1
    routed_scaling_factor: Finite = 1.0
    norm_topk_prob: bool = False
    rope_theta: Annotated[float, Meta(gt=0, le=1e300)] = 10000.0
    rms_norm_eps: Epsilon = 1e-6
    max_position_embeddings: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    bos_token_id: Count = 0
    eos_token_id: Count = 1

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def is_moe(self, layer: int) -> bool:
        """Whether layer ``layer`` (from 0) routes its tokens to experts."""
        return layer >= self.first_k_dense_replace and layer % self.moe_layer_freq == 0


class _Towers(Struct, rename={"sam": SAM_KEY, "clip": CLIP_KEY}):
    sam: SamConfig
    clip: ClipConfig


class _Vision(Struct):
    width: _Towers


class _Projector(Struct, frozen=True):
    projector_type: Literal["linear"] = "linear"


class _Config(Struct):
    vision_config: _Vision
    language_config: DecoderConfig
    projector_config: _Projector = _Projector()
    sliding_window_size: Size | None = None
    sliding_window: Size | None = None
    architectures: tuple[str, ...] = ()


OBJECT = Format(dict[str, Any], "give a folder that holds a checkpoint's whole config.json", MachineError)
CONFIG = Format(_Config, "point at the folder that holds a DeepSeek-OCR checkpoint's own config.json", MachineError)


@dataclass(frozen=True)
class Architecture:
    """The whole model's dimensions."""

    sam: SamConfig = field(default_factory=SamConfig)
    clip: ClipConfig = field(default_factory=ClipConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    family: Family = field(default=DEFAULT, repr=False)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def projector_input(self) -> int:
        """Channels of a vision token before the projector: CLIP's and SAM's side by side."""
        return self.clip.width + self.sam.downsample_channels[-1]

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], where: str = "config.json", family: Family | None = None
    ) -> Architecture:
        """Read a parsed ``config.json``, of the family that it names or of this one.

        Raises:
            DsocrError: where it describes another kind of model.
        """
        own = _without_nulls(config)
        if isinstance(language := own.get("language_config", {}), dict):
            own["language_config"] = {**own, **language}
        found = CONFIG.convert(own, where)
        _refuse_other_decoders(own["language_config"])
        towers = found.vision_config.width
        family = (family or family_of(found.architectures)).with_ring(found.sliding_window_size or found.sliding_window)
        return cls(towers.sam, towers.clip, found.language_config, family)

    @classmethod
    def from_folder(cls, folder: Path, family: Family | None = None) -> Architecture:
        """Read ``folder/config.json``."""
        path = folder / "config.json"
        return cls.from_config(OBJECT.read(path), str(path), family)

    def to_config(self) -> dict[str, Any]:
        """Return a ``config.json`` that :meth:`from_config`, the vendor's code and other projects' loaders read."""
        published, ring = self.family.vendor.published, self.family.cache.ring
        decoder = {f.name: getattr(self.decoder, f.name) for f in fields(DecoderConfig)}
        decoder |= {**published["decoder"], **({} if ring is None else {"sliding_window_size": ring})}
        if decoder["v_head_dim"]:  # 0 in a model whose loaders do not read it
            decoder["v_head_dim"] = self.decoder.head_dim
        towers = {SAM_KEY: _plain(self.sam), CLIP_KEY: _plain(self.clip)}
        projector = {"input_dim": self.projector_input, "n_embed": self.decoder.hidden_size}
        return {
            "architectures": [self.family.vendor.architecture],
            **published["whole"],
            "vision_config": {**published["vision"], "width": towers},
            "projector_config": {**published["projector"], **projector},
            "language_config": {**published["language"], **decoder},
            **decoder,
            **({} if ring is None else {"sliding_window": ring}),
        }


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop every null: it stands for what the vendor's code has where a config is silent."""
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }


def _plain(config: SamConfig | ClipConfig) -> dict[str, Any]:
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _refuse_other_decoders(language: dict[str, Any]) -> None:
    expected = {"use_mla": False, "topk_method": "greedy", "scoring_func": "softmax", "rope_scaling": None}
    where_absent = {**expected, "use_mla": True}
    for name, value in expected.items():
        found = language.get(name, where_absent[name])
        if found != value:
            raise DsocrError(
                f"config.json has {name}={found!r} where DeepSeek-OCR has {value!r}; this engine computes "
                "DeepSeek-OCR's decoder and no other"
            )


def _check(arch: Architecture) -> None:
    sam, clip, decoder = arch.sam, arch.clip, arch.decoder
    rules = {
        "CLIP's width equals SAM's last downsample channel": clip.width == sam.downsample_channels[-1],
        "SAM's heads divide its width": sam.width % sam.heads == 0,
        "CLIP's heads divide its width": clip.width % clip.heads == 0,
        "the decoder's heads divide its width": decoder.hidden_size % decoder.num_attention_heads == 0,
        "the decoder's heads are a multiple of its key-value heads": (
            decoder.num_attention_heads % decoder.num_key_value_heads == 0
        ),
        "the decoder's heads have an even width": decoder.head_dim % 2 == 0,
        "all layers together have at most 8192 experts": decoder.num_hidden_layers * decoder.n_routed_experts <= 8192,
        "a token has no more experts than there are": decoder.num_experts_per_tok <= decoder.n_routed_experts,
        "the vocabulary holds the ids that begin and end a text": (
            max(decoder.bos_token_id, decoder.eos_token_id) < decoder.vocab_size
        ),
        "SAM's layers hold those with global attention": max(sam.global_attn_indexes, default=0) < sam.layers,
        "an image is no smaller than a patch": min(sam.grid, clip.grid) >= 1,
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise DsocrError(f"config.json breaks this rule: {broken[0]}; correct its dimensions")
