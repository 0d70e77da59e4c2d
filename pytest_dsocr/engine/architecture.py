"""Every dimension of the model, read from the vendor's ``config.json``.

The vendor's file leaves out what its code hard-codes (SAM's window, the neck's width, the epsilons). Those are
the defaults here, and a config may name them to build a model of other dimensions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from pytest_dsocr.foundation.errors import DsocrError, MachineError

SAM_KEY = "sam_vit_b"
CLIP_KEY = "clip-l-14-224"

OF_DECODERS = {
    "use_mla": False,
    "topk_method": "greedy",
    "scoring_func": "softmax",
    "q_lora_rank": None,
    "kv_lora_rank": None,
    "qk_nope_head_dim": 0,
    "qk_rope_head_dim": 0,
    "v_head_dim": 0,
    "n_group": 1,
    "topk_group": 1,
    "lm_head": True,
    "rm_head": False,
}
"""What is the same in every DeepSeek-OCR's decoder, and named in its config as loaders of other projects read it."""
OF_VISION = {"model_type": "vision", "model_name": "deeplip_b_l", "image_size": 1024, "mlp_ratio": 3.7362}
OF_ALL = {"tile_tag": "2D", "global_view_pos": "head", "candidate_resolutions": [[1024, 1024]]}


@dataclass(frozen=True)
class SamConfig:
    """SAM's image encoder with the two strided convolutions behind its neck."""

    width: int = 768
    layers: int = 12
    heads: int = 12
    global_attn_indexes: tuple[int, ...] = (2, 5, 8, 11)
    downsample_channels: tuple[int, int] = (512, 1024)
    image_size: int = 1024
    patch_size: int = 16
    window_size: int = 14
    neck_channels: int = 256
    mlp_ratio: int = 4
    layer_norm_eps: float = 1e-6

    @property
    def grid(self) -> int:
        """Patches per side of the square image that the position tables are made for."""
        return self.image_size // self.patch_size


@dataclass(frozen=True)
class ClipConfig:
    """CLIP's transformer, whose patch embeddings are SAM's features."""

    width: int = 1024
    layers: int = 24
    heads: int = 16
    image_size: int = 224
    patch_size: int = 14
    mlp_ratio: int = 4
    layer_norm_eps: float = 1e-5

    @property
    def grid(self) -> int:
        """Patches per side of the square image that the position table is made for."""
        return self.image_size // self.patch_size


@dataclass(frozen=True)
class DecoderConfig:
    """The mixture-of-experts language model, under the names of the vendor's ``language_config``."""

    vocab_size: int = 129280
    hidden_size: int = 1280
    intermediate_size: int = 6848
    num_hidden_layers: int = 12
    num_attention_heads: int = 10
    num_key_value_heads: int = 10
    n_routed_experts: int = 64
    n_shared_experts: int = 2
    num_experts_per_tok: int = 6
    moe_intermediate_size: int = 896
    first_k_dense_replace: int = 1
    moe_layer_freq: int = 1
    routed_scaling_factor: float = 1.0
    norm_topk_prob: bool = False
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int | None = None
    bos_token_id: int = 0
    eos_token_id: int = 1

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def is_moe(self, layer: int) -> bool:
        """Whether layer ``layer`` (from 0) routes its tokens to experts."""
        return layer >= self.first_k_dense_replace and layer % self.moe_layer_freq == 0


@dataclass(frozen=True)
class Architecture:
    """The whole model's dimensions."""

    sam: SamConfig = field(default_factory=SamConfig)
    clip: ClipConfig = field(default_factory=ClipConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def projector_input(self) -> int:
        """Channels of a vision token before the projector: CLIP's and SAM's side by side."""
        return self.clip.width + self.sam.downsample_channels[-1]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Architecture:
        """Read a parsed ``config.json``; raise ``DsocrError`` where it describes another kind of model."""
        try:
            towers = config["vision_config"]["width"]
            sam, clip = towers[SAM_KEY], towers[CLIP_KEY]
        except (KeyError, TypeError):
            raise DsocrError(
                f"config.json has no vision_config.width with {SAM_KEY!r} and {CLIP_KEY!r}, so it is not a "
                "DeepSeek-OCR checkpoint's; point at the folder that holds the model's own config.json"
            ) from None
        language = {**config, **(config.get("language_config") or {})}
        _refuse_other_decoders(language)
        try:
            return cls(_read(SamConfig, sam), _read(ClipConfig, clip), _read(DecoderConfig, language))
        except (TypeError, AttributeError, ZeroDivisionError) as error:
            raise DsocrError(
                f"config.json has a dimension that is no number above zero ({error}); fetch it again"
            ) from error

    @classmethod
    def from_folder(cls, folder: Path) -> Architecture:
        """Read ``folder/config.json``."""
        path = folder / "config.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise MachineError(f"{folder} has no config.json; give a folder that holds a checkpoint") from None
        except (OSError, ValueError) as error:
            raise MachineError(f"{path} cannot be read ({error}); fetch the checkpoint again") from error
        return cls.from_config(config)

    def to_config(self) -> dict[str, Any]:
        """Give a ``config.json`` that :meth:`from_config`, the vendor's code and other projects' loaders read."""
        decoder = {f.name: getattr(self.decoder, f.name) for f in fields(DecoderConfig)} | OF_DECODERS
        towers = {SAM_KEY: _plain(self.sam), CLIP_KEY: _plain(self.clip)}
        projector = {"input_dim": self.projector_input, "n_embed": self.decoder.hidden_size}
        return {
            "architectures": ["DeepseekOCRForCausalLM"],
            "model_type": "deepseek_vl_v2",
            **OF_ALL,
            "vision_config": {**OF_VISION, "width": towers},
            "projector_config": {"model_type": "mlp_projector", "projector_type": "linear", **projector},
            "language_config": {"architectures": ["DeepseekV2ForCausalLM"], **decoder},
            **decoder,
        }


_Config = TypeVar("_Config", SamConfig, ClipConfig, DecoderConfig)


def _read(kind: type[_Config], values: dict[str, Any]) -> _Config:
    found = {f.name: values[f.name] for f in fields(kind) if values.get(f.name) is not None}
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return kind(**known)


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
        "a token has no more experts than there are": decoder.num_experts_per_tok <= decoder.n_routed_experts,
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise DsocrError(f"config.json breaks this rule: {broken[0]}; correct its dimensions")
