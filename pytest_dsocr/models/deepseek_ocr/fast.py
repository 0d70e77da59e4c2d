"""DeepSeek-OCR with a fast encoder and a fast decoder."""

from collections.abc import Callable
from typing import Any, Self

from torch import Tensor

from pytest_dsocr.engine.fast.model import FastModel
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.fast_vision import FastVision
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR


class FastDeepseekOCR(FastModel, DeepseekOCR):
    """Model whose stages bypass its modules; hooks of SAM's blocks are called as those of layers are."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__(arch)
        self.vision: FastVision | None = None

    def prepare_vision(self, pool: Any, *, exact: bool) -> None:
        """Prepare the encoder's fast form."""
        self.vision = FastVision(self.model, self.device, pool, exact=exact)

    def sam(self, pixels: Tensor) -> Tensor:
        """Encode views ``[N, 3, S, S]``: ``[N, c, S/64, S/64]``."""
        vision = self._fast_vision()
        return vision.sam(pixels) if vision else super().sam(pixels)

    def clip(self, sam: Tensor) -> Tensor:
        """Encode SAM's features ``[N, c, h, w]``: ``[N, 1 + h * w, c]``."""
        vision = self._fast_vision()
        return vision.clip(sam) if vision else super().clip(sam)

    def _fast_vision(self) -> FastVision | None:
        return None if self.casts else self.vision

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.vision = None
        return super()._apply(fn, recurse)
