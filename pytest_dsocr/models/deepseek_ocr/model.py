"""DeepSeek-OCR in the engine: SAM, CLIP after it, and a projector of both side by side."""

import torch
from torch import Tensor, nn

from pytest_dsocr.engine.model import Core, EngineModel
from pytest_dsocr.layers.sam import Sam
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.clip import Clip
from pytest_dsocr.models.deepseek_ocr.sizes import sizes_of


class DeepseekCore(Core):
    """The decoder with the encoder's modules, under the vendor's names."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__(arch)
        sizes = sizes_of(arch)
        self.sam_model = Sam(sizes.sam)
        self.vision_model = Clip(sizes.clip)
        self.projector = Projector(sizes.projector_input, arch.decoder.hidden_size)


class Projector(nn.Module):
    """A linear layer from the vision towers' width to the decoder's."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Linear(inputs, outputs)

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features)


class DeepseekOCR(EngineModel):
    """The whole model."""

    model: DeepseekCore

    def core(self, arch: Architecture) -> Core:
        """Return everything but the head that computes logits."""
        return DeepseekCore(arch)

    def sam(self, pixels: Tensor) -> Tensor:
        """Encode views ``[N, 3, S, S]``: ``[N, c, S/64, S/64]``."""
        return self.model.sam_model(pixels)

    def clip(self, sam: Tensor) -> Tensor:
        """Encode SAM's features ``[N, c, h, w]``: ``[N, 1 + h * w, c]``."""
        return self.model.vision_model(sam)

    def projector(self, clip: Tensor, sam: Tensor) -> Tensor:
        """Project the joined features of CLIP and SAM: ``[N, h * w, C]``."""
        return self.project(beside(clip, sam))

    def project(self, features: Tensor) -> Tensor:
        """Project ``[N, h * w, 2c]`` to the decoder's width: ``[N, h * w, C]``."""
        return self.model.projector(features)


def beside(clip: Tensor, sam: Tensor) -> Tensor:
    """Join CLIP's features ``[N, 1 + h * w, c]``, without the class token, and SAM's ``[N, c, h, w]``."""
    return torch.cat([clip[:, 1:], sam.flatten(2).transpose(1, 2)], dim=-1)
