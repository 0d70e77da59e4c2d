"""Build the vendor's model, at dimensions of the caller's, and fill it with a checkpoint's weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import nn

from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.checkpoint import Checkpoint, device_named, dtype_named
from pytest_dsocr.engine.weights import OnBytes
from pytest_dsocr.reference.vendor_code.code import VendorCode


def load_vendor_model(
    code: VendorCode,
    checkpoint: Checkpoint,
    *,
    device: str,
    dtype: str,
    attention: str,
    on_progress: OnBytes | None = None,
) -> Any:
    """Build the vendor's model and load ``checkpoint`` into it.

    It is built in float32 and cast, as the model card's ``model.to(torch.bfloat16)`` does, so that the rotary
    frequencies are rounded with the rest.
    """
    place = device_named(device)
    with place:
        model = build_vendor_model(code, checkpoint.architecture, attention)
    model = model.to(dtype_named(dtype))
    checkpoint.load_into(model, on_progress=on_progress)
    return model


def build_vendor_model(code: VendorCode, arch: Architecture, attention: str = "eager") -> Any:
    """Build the vendor's model with ``arch``'s dimensions in place of those its builders hard-code."""
    modeling = code.modeling
    config = modeling.DeepseekOCRConfig(**arch.to_config(), attn_implementation=attention)
    if _is_the_vendors(arch):
        return modeling.DeepseekOCRForCausalLM(config).eval()
    with mock.patch.dict(vars(modeling), _builders(code, arch)):
        model = modeling.DeepseekOCRForCausalLM(config)
    for name in ("image_newline", "view_seperator"):
        setattr(model.model, name, nn.Parameter(torch.zeros(arch.decoder.hidden_size)))
    return model.eval()


def build_overrides(arch: Architecture) -> list[str]:
    """Say what :func:`build_vendor_model` puts in the place of the vendor's own for ``arch``."""
    if _is_the_vendors(arch):
        return []
    return ["builders of SAM, CLIP, projector, newline and separator: other dimensions"]


def _is_the_vendors(arch: Architecture) -> bool:
    hidden_size = Architecture().decoder.hidden_size
    return arch == replace(Architecture(), decoder=arch.decoder) and arch.decoder.hidden_size == hidden_size


def _builders(code: VendorCode, arch: Architecture) -> dict[str, Callable[..., Any]]:
    projector = code.modeling.MlpProjector

    def sized_projector(cfg: Any) -> Any:
        cfg.input_dim, cfg.n_embed = arch.projector_input, arch.decoder.hidden_size
        return projector(cfg)

    return {
        "build_sam_vit_b": lambda: _build_sam(code.encoder, arch),
        "build_clip_l": lambda: _build_clip(code.encoder, arch),
        "MlpProjector": sized_projector,
    }


def _build_sam(encoder: Any, arch: Architecture) -> nn.Module:
    sam = arch.sam

    def norm(width: int) -> nn.LayerNorm:
        return nn.LayerNorm(width, eps=sam.layer_norm_eps)

    model: nn.Module = encoder.ImageEncoderViT(
        depth=sam.layers,
        embed_dim=sam.width,
        img_size=sam.image_size,
        mlp_ratio=sam.mlp_ratio,
        norm_layer=norm,
        num_heads=sam.heads,
        patch_size=sam.patch_size,
        use_rel_pos=True,
        global_attn_indexes=sam.global_attn_indexes,
        window_size=sam.window_size,
        out_chans=sam.neck_channels,
    )
    middle, last = sam.downsample_channels
    model.net_2 = nn.Conv2d(sam.neck_channels, middle, kernel_size=3, stride=2, padding=1, bias=False)
    model.net_3 = nn.Conv2d(middle, last, kernel_size=3, stride=2, padding=1, bias=False)
    return model.eval()


def _build_clip(encoder: Any, arch: Architecture) -> nn.Module:
    clip = arch.clip
    config = type(encoder.vit_model_cfg)(encoder.vit_model_cfg)
    config.update(
        num_layers=clip.layers,
        hidden_size=clip.width,
        num_heads=clip.heads,
        num_attention_heads=clip.heads,
        ffn_hidden_size=clip.width * clip.mlp_ratio,
        layernorm_epsilon=clip.layer_norm_eps,
        pre_layernorm_epsilon=clip.layer_norm_eps,
        image_size=clip.image_size,
        patch_size=clip.patch_size,
    )
    model: nn.Module = encoder.VitModel(cfg=config)
    return model
