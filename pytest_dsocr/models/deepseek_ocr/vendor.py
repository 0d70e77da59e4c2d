"""The vendor's own encoder: its stages on its model object, and how it is built in other sizes."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.layers.sizes import SamConfig
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.model import beside
from pytest_dsocr.models.deepseek_ocr.sizes import ClipConfig, sizes_of


class DeepseekVendorModel(VendorModel):
    """The vendor's ``DeepseekOCRForCausalLM``, or Unlimited-OCR's class."""

    def sam(self, pixels: Tensor) -> Tensor:
        """Run the vendor's SAM on views ``[N, 3, S, S]``."""
        return self.model.sam_model(pixels)

    def clip(self, sam: Tensor) -> Tensor:
        """Run the vendor's CLIP on SAM's features; it reads only the batch size from the pixel argument."""
        return self.model.vision_model(sam, sam)

    def projector(self, clip: Tensor, sam: Tensor) -> Tensor:
        """Run the vendor's projector on the joined features of CLIP and SAM."""
        return self.model.projector(beside(clip, sam))


def builders(modeling: Any, encoder: Any, arch: Architecture) -> dict[str, Callable[..., Any]]:
    """Return functions that replace those of the vendor's module ``modeling`` and build the encoder in other sizes.

    Args:
        modeling: the vendor's module with the whole model.
        encoder: the vendor's module with the encoder.
        arch: the sizes.
    """
    sizes = sizes_of(arch)
    return {
        "build_sam_vit_b": lambda: build_sam(encoder, sizes.sam),
        "build_clip_l": lambda: _build_clip(encoder, sizes.clip),
        "MlpProjector": sized_projector(modeling, arch),
    }


def sized_projector(modeling: Any, arch: Architecture) -> Callable[[Any], Any]:
    """Return a function that builds the vendor's projector in the sizes of ``arch``."""
    projector = modeling.MlpProjector

    def build(cfg: Any) -> Any:
        cfg.input_dim, cfg.n_embed = arch.encoder.projector_input, arch.decoder.hidden_size
        return projector(cfg)

    return build


def sam_arguments(sam: SamConfig) -> dict[str, Any]:
    """Return SAM's sizes without its neck, as arguments of the vendor's ``ImageEncoderViT``."""
    return {
        "depth": sam.layers,
        "embed_dim": sam.width,
        "img_size": sam.image_size,
        "mlp_ratio": sam.mlp_ratio,
        "num_heads": sam.heads,
        "patch_size": sam.patch_size,
        "use_rel_pos": True,
        "global_attn_indexes": sam.global_attn_indexes,
        "window_size": sam.window_size,
    }


def build_sam(encoder: Any, sam: SamConfig) -> nn.Module:
    """Build the vendor's SAM in other sizes."""

    def norm(width: int) -> nn.LayerNorm:
        return nn.LayerNorm(width, eps=sam.layer_norm_eps)

    model: nn.Module = encoder.ImageEncoderViT(**sam_arguments(sam), norm_layer=norm, out_chans=sam.neck_channels)
    middle, last = sam.downsample_channels
    model.net_2 = nn.Conv2d(sam.neck_channels, middle, kernel_size=3, stride=2, padding=1, bias=False)
    model.net_3 = nn.Conv2d(middle, last, kernel_size=3, stride=2, padding=1, bias=False)
    return model.eval()


def _build_clip(encoder: Any, clip: ClipConfig) -> nn.Module:
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
