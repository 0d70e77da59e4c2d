"""Mistakes of the projector and of its input, the tower's tokens."""

import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.fusion import square
from pytest_dsocr.explain.catalogue.blocks import NOT_FINITE, TensorChange
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable
from pytest_dsocr.models.deepseek_ocr.mistakes.projector import add_linear
from pytest_dsocr.models.deepseek_ocr2.model import DeepseekOCR2

GIVEN: MistakeTable = {
    "turned": ("the tower's tokens read column by column", lambda x: square(x).transpose(1, 2).flatten(1, 2)),
    "normed": ("a norm without weights in front of the projector", lambda x: F.layer_norm(x, x.shape[-1:])),
    "units": ("the tower's tokens made of length one", lambda x: F.normalize(x, dim=-1)),
    "shifted": ("the tower's tokens one place off", lambda x: x.roll(1, 1)),
    "backwards": ("the tower's tokens in the opposite order", lambda x: x.flip(1)),
}
"""Changes of the tower's tokens ``[B, n, C]``."""


def projector_mistakes() -> Group:
    """Return the mistakes of the projector and of its input."""
    group = Group("projector", NOT_FINITE)
    group.rows("", GIVEN, _gives)
    add_linear(group)
    return group


def _gives(on: Target, change: TensorChange) -> None:
    run = DeepseekOCR2.projector

    def projector(self: DeepseekOCR2, qwen2: Tensor) -> Tensor:
        return run(self, change(qwen2))

    on.changes.set(DeepseekOCR2, "projector", projector)
