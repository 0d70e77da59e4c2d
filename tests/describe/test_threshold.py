"""The property of tokens that parts wrong ones from right ones is found, with a round number."""

import torch

from pytest_dsocr.describe.threshold import parted_by


def test_the_property_that_parts_wrong_tokens_from_right_ones_is_named() -> None:
    ratio = torch.tensor([0.02, 0.5, 0.09, 0.2, 0.097, 0.104, 0.01, 0.9, 0.06, 0.3])
    properties = {"a weight": torch.ones(10), "a ratio": ratio, "a position": torch.arange(10)}
    wrong = ratio < 0.1
    assert parted_by(properties, wrong, ~wrong) == "a ratio is below 0.1"
    later = torch.arange(10) >= 6
    assert parted_by(properties, later, ~later) == "a position is 6 or more"
    assert parted_by(properties, wrong ^ (ratio == 0.9), ~wrong) == "", "no property parts all of them"
    assert parted_by(properties, ratio < 0.05, ratio > 0.05) == "", "two tokens tell nothing"
