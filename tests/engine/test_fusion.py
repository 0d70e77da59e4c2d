"""Features that are not as many as the prompt has places for; recordings hold where each of them goes."""

from __future__ import annotations

import pytest
import torch

from pytest_dsocr.engine.fusion import scatter
from pytest_dsocr.foundation.errors import DsocrError


@pytest.mark.parametrize("features", [1, 3])
def test_scatter_refuses_too_few_and_too_many(features: int) -> None:
    mask = torch.tensor([[False, True, False, True]])
    with pytest.raises(DsocrError, match=rf"2 image tokens and vision gave {features} features"):
        scatter(torch.zeros(1, 4, 1), mask, torch.zeros(features, 1), expected=2)
