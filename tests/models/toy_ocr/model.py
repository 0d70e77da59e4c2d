"""The engine's model of the toy."""

from torch import Tensor, nn

from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR


class ToyOCR(DeepseekOCR):
    """One linear layer more."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__(arch)
        self.model.adapter = nn.Linear(arch.decoder.hidden_size, arch.decoder.hidden_size)

    def adapter(self, projected: Tensor) -> Tensor:
        """Take ``[N, h * w, C]`` to the same shape."""
        out: Tensor = self.get_submodule("model.adapter")(projected)
        return out
