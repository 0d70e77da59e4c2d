"""The stand-in's encoders, built as the vendor's are: see ``modeling_deepseekocr.py``."""

from typing import Any

from torch import Tensor, nn

from pytest_dsocr.layers.sam import Sam
from pytest_dsocr.layers.sizes import SamConfig
from pytest_dsocr.models.deepseek_ocr.clip import Clip
from pytest_dsocr.models.deepseek_ocr.sizes import ClipConfig

vit_model_cfg: dict[str, Any] = {}


class ImageEncoderViT(Sam):
    """SAM, whose last two convolutions the builder adds."""

    def __init__(
        self, *, depth: int, embed_dim: int, num_heads: int, global_attn_indexes: Any, out_chans: int, **_: Any
    ) -> None:
        super().__init__(
            SamConfig(
                width=embed_dim,
                layers=depth,
                heads=num_heads,
                global_attn_indexes=global_attn_indexes,
                neck_channels=out_chans,
            )
        )


class VitModel(Clip):
    """CLIP, which is called with the pixels as well."""

    def __init__(self, cfg: dict[str, Any]) -> None:
        super().__init__(ClipConfig(width=cfg["hidden_size"], layers=cfg["num_layers"], heads=cfg["num_heads"]))

    def forward(self, pixels: Tensor, sam: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(sam)


class Projector(nn.Module):
    """Projector of a single linear layer."""

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.layers = nn.Linear(cfg.input_dim, cfg.n_embed)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.layers(features)
        return out


MlpProjector = Projector
