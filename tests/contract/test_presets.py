"""The presets are the model card's, and others can be made."""

from __future__ import annotations

import pytest

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from suites.contract.asked import OWN_PRESETS
from tests.contract.recorded_inputs import RECORDED

MODEL_CARD = {
    "tiny": (512, 512, False),
    "small": (640, 640, False),
    "base": (1024, 1024, False),
    "large": (1280, 1280, False),
    "gundam": (1024, 640, True),
}


def test_presets_are_the_model_cards() -> None:
    mine = {name: (preset.base_size, preset.image_size, preset.crop) for name, preset in DEFAULT.presets.items()}
    assert mine == MODEL_CARD
    assert [preset.name for preset in DEFAULT.presets.values()] == list(MODEL_CARD)


def test_the_recording_was_made_with_these_presets() -> None:
    assert [preset.sizes for preset in (*DEFAULT.presets.values(), *OWN_PRESETS)] == RECORDED["provenance"]["presets"]


@pytest.mark.parametrize("name", ["gundam", "Gundam", "GUNDAM"])
def test_a_name_is_found_whatever_its_case(name: str) -> None:
    assert DEFAULT.preset(name) is DEFAULT.presets["gundam"]


def test_a_custom_preset_is_given_back() -> None:
    preset = Preset("mine", 768, 768, crop=False)
    assert DEFAULT.preset(preset) is preset


@pytest.mark.parametrize(
    ("preset", "view_px"), [(Preset("a", 1024, 640, crop=True), 1024), (Preset("b", 1024, 640, crop=False), 640)]
)
def test_the_page_is_seen_at_the_size_that_the_mode_names(preset: Preset, view_px: int) -> None:
    assert preset.view_size == view_px


def test_an_unknown_name_is_answered_with_the_valid_ones() -> None:
    with pytest.raises(DsocrError, match=r"'huge'.*tiny, small, base, large, gundam"):
        DEFAULT.preset("huge")


@pytest.mark.parametrize(
    ("base_size", "image_size", "blamed"),
    [(0, 640, "base_size=0"), (1024, -640, "image_size=-640"), (15, 640, "base_size=15"), (1024, 15, "image_size=15")],
)
def test_a_size_that_holds_no_token_is_refused(base_size: int, image_size: int, blamed: str) -> None:
    with pytest.raises(DsocrError, match=blamed):
        Preset("mine", base_size, image_size, crop=True)


def test_one_patch_is_enough() -> None:
    assert Preset("least", 16, 16, crop=True).view_size == 16
