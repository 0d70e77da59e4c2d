"""Presets of a user's own, with sizes that no preset of the model's card has."""

from __future__ import annotations

from pytest_dsocr.contract.presets import Preset

OWN_PRESETS = (
    Preset("own_crops", 768, 640, crop=True),
    Preset("own_odd", 800, 800, crop=False),
    Preset("own_small", 400, 400, crop=False),
)
"""Crops beside a smaller view of the page; sides whose patches do not divide by four, padded and squashed."""
OWN_PAGES = ("portrait", "landscape")
