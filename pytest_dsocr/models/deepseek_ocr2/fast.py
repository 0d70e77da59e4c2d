"""DeepSeek-OCR-2 with a fast encoder and a fast decoder."""

from torch import Tensor

from pytest_dsocr.models.deepseek_ocr.fast import FastEncoder
from pytest_dsocr.models.deepseek_ocr2.model import DeepseekOCR2


class FastDeepseekOCR2(FastEncoder, DeepseekOCR2):
    """The whole model."""

    def qwen2(self, sam: Tensor) -> Tensor:
        """Read SAM's features ``[N, c, h, w]`` with the learned queries: ``[N, h * w, c]``."""
        return self.tower(sam)
