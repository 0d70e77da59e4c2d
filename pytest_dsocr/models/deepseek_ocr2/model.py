"""DeepSeek-OCR-2 in the engine: SAM, a Qwen2 tower that reads its features with learned queries, and a projector."""

from typing import Any

from torch import Tensor

from pytest_dsocr.engine.model import Core, EngineModel
from pytest_dsocr.layers.sam import Sam
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.model import Projector
from pytest_dsocr.models.deepseek_ocr2.qwen2 import Tower
from pytest_dsocr.models.deepseek_ocr2.sizes import sizes_of


class Deepseek2Core(Core):
    """The decoder with the encoder's modules, under the vendor's names."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__(arch)
        sizes = sizes_of(arch)
        self.sam_model = Sam(sizes.sam)
        self.qwen2_model = Tower(sizes.tower)
        self.projector = Projector(sizes.projector_input, arch.decoder.hidden_size)


class DeepseekOCR2(EngineModel):
    """The whole model."""

    model: Deepseek2Core

    def core(self, arch: Architecture) -> Core:
        """Return everything but the head that computes logits."""
        return Deepseek2Core(arch)

    def sam(self, pixels: Tensor) -> Tensor:
        """Encode views ``[N, 3, S, S]``: ``[N, c, S/64, S/64]``."""
        return self.model.sam_model(pixels)

    def qwen2(self, sam: Tensor) -> Tensor:
        """Read SAM's features ``[N, c, h, w]`` with the learned queries: ``[N, h * w, c]``."""
        return self.model.qwen2_model(sam)

    def block_arguments(self, stage: str, x_BTC: Tensor) -> tuple[Any, ...]:
        """Return what the blocks of a stage take besides ``x_BTC``: in the tower, rotary positions and its mask."""
        if stage != "qwen2":
            return super().block_arguments(stage, x_BTC)
        return self.model.qwen2_model.model.model.block_arguments(x_BTC)

    def projector(self, qwen2: Tensor) -> Tensor:
        """Project ``[N, h * w, c]`` to the decoder's width: ``[N, h * w, C]``."""
        return self.model.projector(qwen2)
