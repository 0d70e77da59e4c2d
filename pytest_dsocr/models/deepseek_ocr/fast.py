"""DeepSeek-OCR with a fast encoder and a fast decoder."""

from collections.abc import Callable
from typing import Any, Self

from torch import Tensor

from pytest_dsocr.engine.fast.model import FastModel
from pytest_dsocr.layers.sam import Sam
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.fast_vision import FastVision
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR


class FastEncoder(FastModel):
    """Model whose SAM, and the tower of its next stage, bypass their modules.

    Hooks of SAM's blocks are called as those of layers are.
    """

    def __init__(self, arch: Architecture) -> None:
        super().__init__(arch)
        self.vision: FastVision | None = None

    def prepare_vision(self, pool: Any, *, exact: bool) -> None:
        """Prepare the encoder's fast form."""
        sam, tower, *_ = (self.get_submodule(stage.module) for stage in self.family.of_views)
        assert isinstance(sam, Sam)
        self.vision = FastVision(sam, tower, self.device, pool, exact=exact)

    def sam(self, pixels: Tensor) -> Tensor:
        """Encode views ``[N, 3, S, S]``: ``[N, c, S/64, S/64]``."""
        return self._run(0, FastVision.sam, pixels)

    def tower(self, sam: Tensor) -> Tensor:
        """Encode SAM's features ``[N, c, h, w]``."""
        return self._run(1, FastVision.tower, sam)

    def _run(self, number: int, fast: Callable[[FastVision, Tensor], Tensor], given: Tensor) -> Tensor:
        if self.vision is not None and not self.casts:
            return fast(self.vision, given)
        out: Tensor = self.get_submodule(self.family.of_views[number].module)(given)
        return out

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.vision = None
        return super()._apply(fn, recurse)


class FastDeepseekOCR(FastEncoder, DeepseekOCR):
    """The whole model."""

    def clip(self, sam: Tensor) -> Tensor:
        """Encode SAM's features ``[N, c, h, w]``: ``[N, 1 + h * w, c]``."""
        return self.tower(sam)
