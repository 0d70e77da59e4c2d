"""Image tokens and vision features: two rules that must give one number."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from pytest_dsocr.contract.presets import Grid, Preset, feature_count, image_token_count, tokens_per_side
from pytest_dsocr.contract.prompt import prompt_ids
from pytest_dsocr.families import DEFAULT
from tests.contract.recorded_inputs import RecordedTokenizer

GRIDS = [(1, 1), *DEFAULT.tiling.grids]


@pytest.mark.parametrize(
    ("preset", "grid", "tokens"),
    [
        ("tiny", (1, 1), 73),
        ("small", (1, 1), 111),
        ("base", (1, 1), 273),
        ("large", (1, 1), 421),
        ("gundam", (1, 1), 273),
        ("gundam", (2, 2), 693),
        (
            "gundam",
            (2, 3),
            903,
        ),  # 857 without newlines, 902 without the separator, 933 with a newline for each crop's row
        ("gundam", (3, 2), 893),
        ("gundam", (4, 2), 1093),
        ("gundam", (3, 3), 1203),
    ],
)
def test_known_counts(preset: str, grid: Grid, tokens: int) -> None:
    assert image_token_count(DEFAULT.presets[preset], grid) == tokens


@pytest.mark.parametrize("preset", DEFAULT.presets.values(), ids=list(DEFAULT.presets))
def test_vision_gives_as_many_features(preset: Preset) -> None:
    for grid in GRIDS if preset.crop else [(1, 1)]:
        assert feature_count(preset.view_size, DEFAULT.tiling.crop_px, grid) == image_token_count(preset, grid)


def test_the_two_rules_agree_at_every_size() -> None:
    for size_px in range(16, 2100):
        preset = Preset("any", size_px, size_px, crop=False)
        assert feature_count(size_px, DEFAULT.tiling.crop_px, (1, 1)) == image_token_count(preset, (1, 1)), size_px


@pytest.mark.parametrize("size_px", [16, 100, 512, 640, 663, 1000, 1024, 1280])
def test_a_side_has_what_the_convolutions_leave(size_px: int) -> None:
    """SAM's strides on a real tensor: patches, then two convolutions of width 3."""
    one = torch.ones(1, 1, 1, 1)
    patches = F.conv2d(torch.zeros(1, 1, size_px, size_px), one.expand(1, 1, 16, 16), stride=16)
    for _ in range(2):
        patches = F.conv2d(patches, one.expand(1, 1, 3, 3), stride=2, padding=1)
    side = patches.shape[-1]
    assert tokens_per_side(size_px) == side
    assert feature_count(size_px, DEFAULT.tiling.crop_px, (1, 1)) == side * (side + 1) + 1


def test_crops_of_another_size_than_the_schedules_differ() -> None:
    """The vendor's crops are 640 px whatever ``image_size`` says, so its schedule is wrong for any other."""
    preset = Preset("mine", 1024, 768, crop=True)
    assert image_token_count(preset, (2, 3)) == 1173
    assert feature_count(1024, DEFAULT.tiling.crop_px, (2, 3)) == 903


def test_ids_and_mask_of_several_images() -> None:
    tokenizer = RecordedTokenizer({"a": [10], "": [], "b c": [11, 12]})
    image = tokenizer.special.image
    ids, mask = prompt_ids(["a", "", "b c"], [2, 3], tokenizer)
    assert ids == [0, 10, image, image, image, image, image, 11, 12]
    assert mask == [False, False, True, True, True, True, True, False, False]
