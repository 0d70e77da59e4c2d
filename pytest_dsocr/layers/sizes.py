"""Sizes of the shared blocks, from a checkpoint's ``config.json``; imports no torch.

The vendor's file leaves out what its code hard-codes, such as SAM's window, the neck's width and the epsilons. Those
values are the defaults here. A config may name them to build a model of other sizes.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from pytest_dsocr.base.reading import Count, Finite

Dimension = Annotated[int, Meta(ge=1, le=2**17)]
"""Number of channels, pixels or patches."""
LayerCount = Annotated[int, Meta(ge=1, le=128)]
Experts = Annotated[int, Meta(ge=1, le=512)]
VocabSize = Annotated[int, Meta(ge=1, le=2**22)]
Epsilon = Annotated[float, Meta(gt=0, le=1)]


class Patches:
    """Square image that is cut into patches."""

    image_size: int
    patch_size: int

    @property
    def grid(self) -> int:
        """Patches per side of the square image that the position tables are made for."""
        return self.image_size // self.patch_size


@dataclass(frozen=True)
class SamConfig(Patches):
    """SAM's image encoder, with the two strided convolutions after its neck."""

    width: Dimension = 768
    layers: LayerCount = 12
    heads: Dimension = 12
    global_attn_indexes: tuple[Count, ...] = (2, 5, 8, 11)
    downsample_channels: tuple[Dimension, Dimension] = (512, 1024)
    image_size: Dimension = 1024
    patch_size: Dimension = 16
    window_size: Dimension = 14
    neck_channels: Dimension = 256
    mlp_ratio: Dimension = 4
    layer_norm_eps: Epsilon = 1e-6

    @property
    def rules(self) -> dict[str, bool]:
        """Rules that the sizes must keep, each with whether it holds."""
        return {
            "SAM's heads divide its width": self.width % self.heads == 0,
            "SAM's layers include those with global attention": max(self.global_attn_indexes, default=0) < self.layers,
            "an image is no smaller than a patch of SAM": self.grid >= 1,
        }


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of the mixture-of-experts language model, under the names of the vendor's ``language_config``."""

    vocab_size: VocabSize = 129280
    hidden_size: Dimension = 1280
    intermediate_size: Dimension = 6848
    num_hidden_layers: LayerCount = 12
    num_attention_heads: Dimension = 10
    num_key_value_heads: Dimension = 10
    n_routed_experts: Experts = 64
    n_shared_experts: Experts = 2
    num_experts_per_tok: Experts = 6
    moe_intermediate_size: Dimension = 896
    first_k_dense_replace: Count = 1
    moe_layer_freq: Dimension = 1
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
        """Return whether layer ``layer`` (from 0) routes its tokens to experts."""
        return layer >= self.first_k_dense_replace and layer % self.moe_layer_freq == 0

    @property
    def rules(self) -> dict[str, bool]:
        """Rules that the sizes must keep, each with whether it holds."""
        return {
            "the decoder's heads divide its width": self.hidden_size % self.num_attention_heads == 0,
            "the decoder's heads are a multiple of its key-value heads": (
                self.num_attention_heads % self.num_key_value_heads == 0
            ),
            "the decoder's heads have an even width": self.head_dim % 2 == 0,
            "all layers together have at most 8192 experts": self.num_hidden_layers * self.n_routed_experts <= 8192,
            "a token has no more experts than there are": self.num_experts_per_tok <= self.n_routed_experts,
            "the vocabulary includes the ids that begin and end a text": (
                max(self.bos_token_id, self.eos_token_id) < self.vocab_size
            ),
        }
