"""The vendor's own encoder: its stages on its model object, and how it is built in other sizes."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.vendor import build_sam, sized_projector
from pytest_dsocr.models.deepseek_ocr2.sizes import sizes_of


class Deepseek2VendorModel(VendorModel):
    """The vendor's ``DeepseekOCR2ForCausalLM``."""

    def sam(self, pixels: Tensor) -> Tensor:
        """Run the vendor's SAM on views ``[N, 3, S, S]``."""
        return self.model.sam_model(pixels)

    def qwen2(self, sam: Tensor) -> Tensor:
        """Run the vendor's tower on SAM's features."""
        return self.model.qwen2_model(sam)

    def projector(self, qwen2: Tensor) -> Tensor:
        """Run the vendor's projector on the queries' outputs."""
        return self.model.projector(qwen2)


def builders(modeling: Any, encoder: Any, arch: Architecture) -> dict[str, Callable[..., Any]]:
    """Return functions that replace the vendor's, as :func:`pytest_dsocr.models.deepseek_ocr.vendor.builders` does."""
    sizes, build_tower = sizes_of(arch), modeling.build_qwen2_decoder_as_encoder
    tower = {
        "decoder_layer": sizes.tower.layers,
        "hidden_dimension": sizes.tower.dim,
        "num_attention_heads": sizes.tower.heads,
        "num_key_value_heads": sizes.tower.key_value_heads,
        "intermediate_size": sizes.tower.intermediate_size,
    }
    return {
        "build_sam_vit_b": lambda: build_sam(encoder, sizes.sam),
        "build_qwen2_decoder_as_encoder": lambda: build_tower(**tower),
        "MlpProjector": sized_projector(modeling, arch),
    }
